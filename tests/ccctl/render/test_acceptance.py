"""The words of an acceptance: verdict, cost, culprits, spares and changes in sentences."""

from dataclasses import replace

import pytest
from certificates import (
    CABLE,
    GIB,
    GOVERNOR,
    HOSTS,
    SLOT,
    TRUNK,
    WHOLE,
    accepted,
    certificates,
    refused,
    remarks,
)
from hypothesis import given

from ccctl.render import acceptance
from exec.acceptance import Culprit, FaultCost, Spares, changes
from exec.benchmark import Integrity
from exec.program import Corruption


def test_the_verdict_is_one_line():
    assert acceptance.headline(refused()) == "refused: 3 faults on 10 of 12 hosts"
    assert acceptance.headline(replace(refused(), reason="")) == "refused: 3 faults on 8 of 12 hosts"
    assert acceptance.headline(replace(remarks(), reason="")) == (
        "accepted with remarks: 1 remark on 2 of 12 hosts"
    )
    assert acceptance.headline(accepted()) == "accepted: nothing found on 12 hosts"
    assert acceptance.headline(replace(accepted(), reason="accepted, as before")) == "accepted, as before"


def table(*rows):
    return replace(accepted(), whole=rows)


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        (
            FaultCost("all_reduce", GIB, 34e-3, 21e-3),
            "an all_reduce of 1 GiB takes 34 ms now, and 21 ms once it is repaired, by the model",
        ),
        (
            FaultCost("broadcast", 512, 3e-6, 2e-6),
            "a broadcast of 512 bytes takes 3 us now, and 2 us once it is repaired, by the model",
        ),
        (
            FaultCost("all_reduce", GIB, 34e-3, 21e-3, "forest"),
            "an all_reduce of 1 GiB takes 34 ms now, and 21 ms once it is repaired, by the model of ccctl's "
            "schedule (forest)",
        ),
        (
            FaultCost("all_reduce", GIB, 34e-3, 21e-3, "rabenseifner", "Open MPI v5.0.11", measured=True),
            "an all_reduce of 1 GiB by Open MPI v5.0.11 (rabenseifner) takes 34 ms now (measured), and 21 ms "
            "once it is repaired, by the model",
        ),
        (
            FaultCost("all_reduce", GIB, 34e-3, 21e-3, "forest", measured=True),
            "an all_reduce of 1 GiB by ccctl (forest) takes 34 ms now (measured), and 21 ms once it is "
            "repaired, by the model",
        ),
        (
            FaultCost("broadcast", 2048, 3e-6, 3e-6),
            "a broadcast of 2 KiB takes 3 us now, and no less once it is repaired, by the model",
        ),
    ],
)
def test_a_cost_is_a_sentence(cost, words):
    assert acceptance.cost_text(cost) == words


def test_a_sentence_names_the_part_once():
    assert acceptance.sentence(CABLE) == CABLE.text
    assert acceptance.sentence(SLOT) == f"gpu011: {SLOT.text}"
    assert acceptance.sentence(GOVERNOR) == GOVERNOR.text
    assert acceptance.sentence(replace(TRUNK, text="slow")) == "rack B to rack C: slow"


def test_parts_between_hosts_belong_to_no_host():
    assert acceptance.of_host(refused(), "gpu007") == [CABLE]
    assert acceptance.of_host(refused(), "gpu004") == [GOVERNOR]
    assert acceptance.of_host(refused(), "gpu009") == []


def test_spares_say_which_hosts_to_leave_out():
    told = acceptance.spares_text(Spares(62, ("gpu017", "gpu040"), "all_reduce", GIB, 1.0, 0.98))
    assert told.startswith("leave out gpu017 and gpu040: the other 62 of 64 hosts reach 98 % of 62 sound")
    told = acceptance.spares_text(Spares(64, (), "all_reduce", GIB, 1.0, 1.0))
    assert told.startswith("no host needs to be left out: all 64 hosts reach 100 %")


def test_columns_that_nobody_fills_are_left_out():
    heads = [one.head for one in acceptance.whole_columns(table(*WHOLE))]
    assert heads == ["collective", "size", "library", "time", "algbw", "busbw", "of bound", "of bought"]
    bare = replace(WHOLE[0], bound_s=None, bought_bound_s=None, wrong=None, algbw_gbs=0.0, busbw_gbs=0.0)
    assert [one.head for one in acceptance.whole_columns(table(bare))] == heads[:4]
    wrong = replace(WHOLE[0], wrong=7)
    cells = {one.head: one.cell(wrong) for one in acceptance.whole_columns(table(wrong, WHOLE[1]), wide=True)}
    assert (cells["bound"], cells["of bound"], cells["busbw"]) == ("31 ms", "91.2 %", "62.2")
    assert (cells["bought"], cells["of bought"], cells["wrong"]) == ("19 ms", "55.9 %", "7")


def test_rows_of_a_run_whose_ranks_waited_for_cores_are_marked():
    crowded = Culprit("crowded", "collectives", (), "remark", "times of collectives are not reliable: 4 on 2")
    certificate = replace(table(*WHOLE), culprits=(crowded,))
    columns = acceptance.whole_columns(certificate)
    assert {columns[-1].cell(row) for row in WHOLE if row.bound_s is None} <= {"no: cores"}
    assert columns[-1].cell(replace(WHOLE[0], bound_s=None)) == "no: cores"
    assert columns[-1].cell(replace(WHOLE[0], bound_s=1e-3)) == "yes"
    assert any(words.startswith("`no: cores`: ") for words in acceptance.whole_notes(WHOLE, columns))
    assert not any(words.startswith("no: ") for words in acceptance.whole_notes(WHOLE, columns[:-1]))


def test_notes_say_what_the_table_does_not_show():
    def notes(*rows):
        return list(acceptance.whole_notes(rows, acceptance.whole_columns(table(*rows))))

    checked = replace(WHOLE[0], wrong=0)
    assert notes(checked)[-1] == "results: every element is right"
    assert notes(checked, replace(checked, wrong=None))[-1] == "results: some were not checked"
    assert not any("results" in words for words in notes(checked, replace(checked, wrong=1)))


def test_what_was_compared_is_told():
    integrity = Integrity("all_reduce", 1 << 20, 0, ("ccctl", "mpi"), {}, 41908)
    assert list(acceptance.integrity_notes(integrity)) == [
        "run twice, with the same bits both times (all_reduce of 1 MiB on random numbers): ccctl, mpi",
        "checksums: in both runs, each of the 41,908 steps of ccctl's program had the right data",
    ]
    unlike = replace(integrity, unlike={"mpi": (1,)}, steps=0, why_not="more than 256 ranks")
    assert [words.partition(" (")[0] for words in acceptance.integrity_notes(unlike)] == [
        "run twice, with the same bits both times",
        "run twice, with other bits the second time",
        "checksums: not compared: more than 256 ranks",
    ]
    corrupt = replace(integrity, corruptions=(Corruption("rank", 1, -1, 5, "rrc", 3),))
    assert "3 of the 41,908 steps" in list(acceptance.integrity_notes(corrupt))[-1]
    assert list(acceptance.integrity_notes(None)) == []


def test_changes_are_told_by_word():
    before = replace(
        remarks(), culprits=(GOVERNOR, replace(CABLE, kind="ingress")), tested=(*HOSTS, "gpu099")
    )
    told = list(acceptance.change_lines(changes(before, refused())))
    assert told[0] == (
        "verdict",
        "refused; it was accepted with remarks in the acceptance of 2026-11-19 06:00 UTC",
    )
    assert ("new", "gpu007 mlx5_2 (fault)") in told
    assert ("still there", "governor (remark)") in told
    assert ("gone", f"fault: {CABLE.text}") in told
    assert ("hosts gone", "gpu099") in told
    assert ("slower", "all_reduce of 1 GiB by ccctl: 34 ms, was 20.9 ms") in told
    same = list(acceptance.change_lines(changes(accepted(), accepted())))
    assert [word for word, _ in same] == ["verdict", "same"]


@pytest.mark.parametrize("started", ["", "yesterday", "0001-01-01T00:00:00+23:59"])
def test_a_certificate_without_a_time_has_no_moments(started):
    assert acceptance.moments(replace(refused(), started=started)) is None


def test_an_acceptance_ends_when_its_stages_are_over():
    started, ended = acceptance.moments(replace(refused(), started="2026-11-26T07:00:00+01:00"))
    assert f"{started:%H:%M %Z}" == "06:00 UTC"
    assert (ended - started).total_seconds() == pytest.approx(541.7)


@given(certificates(), certificates())
def test_any_text_has_words(before, now):
    assert acceptance.headline(now).startswith(now.verdict)
    assert list(acceptance.change_lines(changes(before, now)))


def test_a_row_above_the_bound_is_flagged():
    row = replace(WHOLE[0], time_s=1e-3, bound_s=20e-3, bought_bound_s=2e-3)
    first, second = list(acceptance.whole_notes([row], []))[:2]
    assert first.endswith(
        "is above 100 % of the bound of the network as measured: links were faster than they were measured, "
        "so the bound is void"
    )
    assert "as bought: this is another network than what was bought" in second
    sound = replace(row, time_s=30e-3)
    assert not any("above 100 %" in words for words in acceptance.whole_notes([sound], []))


def test_times_that_are_not_compared_are_named():
    crowded = replace(GOVERNOR, kind="crowded", text="4 ranks share 2 cores")
    before = replace(table(replace(WHOLE[0], size_bytes=1 << 16)), culprits=(crowded,))
    now = table(replace(WHOLE[0], size_bytes=1 << 16), replace(WHOLE[0], size_bytes=1 << 24))
    said = dict(acceptance.change_lines(changes(before, now)))
    assert said["not compared"] == "16 MiB: not measured before"
    words = [text for word, text in acceptance.change_lines(changes(before, now)) if word == "not compared"]
    assert words[0].endswith("ranks waited for cores")
