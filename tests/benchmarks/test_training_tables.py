"""The tables of DeAR: what is inferred gives the paper's S_max, and a search ends."""

import pytest
import training_tables as tables


@pytest.mark.parametrize("network", tables.NETWORKS)
def test_the_inferred_inputs_give_the_largest_speed_ups_of_table_2(network):
    beta_s = tables.NETWORKS[network].beta_s_per_byte
    for name, (most, real) in zip(tables.MODELS, tables.TABLE_II[network], strict=True):
        model = tables.shape(name)
        half_s = model.total_bytes * beta_s
        ours = tables.speedup_max(64, model.forward_total_s, model.backward_total_s, half_s, half_s)
        assert ours == pytest.approx(most, abs=0.06)
        assert real <= most


def test_an_all_reduce_without_one_half_takes_the_other():
    whole = tables.ETHERNET
    halves = [tables.OneHalf(64, whole.alpha_s, whole.beta_s_per_byte, half) for half in (True, False)]
    assert sum(half.all_reduce_s(1e6) for half in halves) == pytest.approx(whole.all_reduce_s(1e6))
    assert halves[0].all_gather_s(1e6) == halves[1].reduce_scatter_s(1e6) == 0


def test_the_inputs_that_are_inferred_are_printed_with_the_tables_of_each_paper(monkeypatch, capsys):
    for name in tables.TABLES:
        monkeypatch.setitem(tables.TABLES, name, lambda: None)
    tables.main(["fig14"])
    printed = capsys.readouterr().out
    assert "a connection carries 20 Gb/s" in printed and "at 1.25 GB/s" not in printed
    tables.main(["fig14", "table2"])
    printed = capsys.readouterr().out
    assert "a connection carries 20 Gb/s" in printed and "at 1.25 GB/s" in printed


def test_every_table_is_printed_and_trials_are_counted(capsys):
    tables.main(["fig5", "fig8"])
    printed = capsys.readouterr().out
    assert "Fig. 5" in printed and all(name in printed for name in tables.MODELS)
    assert "at 1.25 GB/s" in printed and "TCP" not in printed
    assert (
        tables.trials_needed(tables.Case("bert-base", tables.ETHERNET), "shuffled", 1, 25 << 20)
        <= tables.MOST_TRIALS
    )
