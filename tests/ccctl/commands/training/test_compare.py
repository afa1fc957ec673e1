"""Inputs that `ccctl training compare` takes, refuses and keeps; the tests of training are elsewhere."""

import importlib.util
import json
import re
from dataclasses import replace

import pytest

from ccctl.artifacts import codec
from ccctl.commands.training.compare import CompareOptions, compare, parse_modes
from ccctl.errors import UsageError
from ccctl.render.svg.drawing import document
from ccctl.render.svg.training import training as pictures
from ccctl.render.text.training import summary
from ccctl.runs.rows_so_far import TrainingRows
from exec.training.workloads.request import MODES, Mode
from probes.base.columns import floats

WITH_TORCH = importlib.util.find_spec("torch") is not None


def test_modes_come_in_their_order_with_their_buckets():
    assert parse_modes("ddp:4M, gossip,ddp") == (Mode("ddp", 4 << 20), Mode("gossip"), Mode("ddp"))
    assert parse_modes(",".join(MODES)) == tuple(map(Mode, MODES))


@pytest.mark.parametrize("text", ["", "sgd", "ddp,,asp", "gossip:4M", "ddp:", "ddp:x"])
def test_what_is_no_mode_is_refused(text):
    with pytest.raises(UsageError, match="--mode"):
        parse_modes(text)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ranks": 1}, "at least 2 ranks"),
        ({"model": "vgg"}, "--model: expected one of mlp"),
        ({"backend": "mpi"}, "--backend: expected one of gloo"),
        ({"steps": 5, "warmup": 5}, "--warmup 5"),
        ({"width": 30}, "multiple of 4"),
        ({"racks": "0-1/2"}, "--racks"),
        ({"network": "ring:4"}, "needs the bandwidth"),
        ({"compute": "soon"}, "--compute"),
        ({"output": "-", "svg": "-"}, "one of them to stdout"),
    ],
)
def test_wrong_options_end_before_anything_starts(options, said):
    with pytest.raises(UsageError, match=said):
        compare(CompareOptions(**{"ranks": 2, **options}))


@pytest.mark.parametrize(
    ("options", "said"),
    [({"model": "cnn"}, "--data: for --model mlp or moe, found cnn"), ({"batch": 4}, "at least 8 examples")],
)
def test_data_that_a_model_or_a_batch_cannot_take_is_refused(tmp_path, options, said):
    path = tmp_path / "examples.csv"
    path.write_text(("0," * 64 + "1\n") * 8)
    with pytest.raises(UsageError, match=said):
        compare(CompareOptions(**{"ranks": 2, "data": str(path), **options}))


@pytest.mark.skipif(WITH_TORCH, reason="torch is installed")
def test_without_torch_it_says_how_to_install_it(run_ccctl):
    done = run_ccctl("training", "compare", "-n", "2")
    assert done.returncode == 69
    assert "torch is not installed" in done.stderr
    assert "pip install 'torch" in done.stderr


@pytest.fixture
def pieces(samples):
    whole = samples["training"]
    second = replace(whole.rows[0], mode="gossip", bucket_bytes=0, ddp_difference=0.25)
    return [replace(whole, rows=()), whole, replace(whole, rows=(second,))]


def test_rows_are_printed_and_written_as_they_come(pieces, tmp_path, capsys):
    path = tmp_path / "training.json"
    rows = TrainingRows(parse_modes("ddp:4M,gossip"), str(path), {}, json=False, to_stdout=False)
    rows.keep(pieces[0])
    assert not path.exists()
    rows.keep(pieces[1])
    first = capsys.readouterr().out
    assert "ddp:4M" in first
    early = codec.load(path)
    assert [row.mode for row in early.rows] == ["ddp"]
    assert "1 of 2 modes not trained" in early.interrupted
    rows.keep(pieces[2])
    rows.end()
    second = capsys.readouterr().out
    assert "gossip" in second
    assert "ddp:4M  " not in second
    last = codec.load(path)
    assert [row.label for row in last.rows] == ["ddp:4M", "gossip"]
    assert not last.interrupted


def test_an_interrupted_run_keeps_the_modes_that_ended(pieces, tmp_path, capsys):
    path = tmp_path / "training.json"
    rows = TrainingRows(parse_modes("ddp:4M,gossip"), str(path), {}, json=True, to_stdout=False)
    assert rows.rescue("Ctrl-C") == ""
    rows.keep(pieces[0])
    rows.keep(pieces[1])
    assert rows.rescue("Ctrl-C") == f"1 of 2 modes were trained until then, and are in {path}."
    told = json.loads(capsys.readouterr().out)
    assert [row["mode"] for row in told["rows"]] == ["ddp"]
    assert codec.load(path).interrupted == "Ctrl-C; 1 of 2 modes not trained"


def test_summary_and_picture_have_every_mode(pieces):
    report = replace(pieces[-1], rows=tuple(row for piece in pieces for row in piece.rows))
    told = summary(report)
    assert [(row["mode"], row["ddp_difference"]) for row in told["rows"]] == [("ddp", None), ("gossip", 0.25)]
    drawn = document([*pictures(report, 960)])
    assert "ddp:4M" in drawn
    assert "gossip" in drawn


def drawn_losses(report):
    """(the ticks of the losses' axis, the paths of the lines, the whole picture) of a report."""
    (picture,) = pictures(report, 960)
    panel = "".join(picture.parts).partition("</g>")[0]
    ticks = [float(one) for one in re.findall(r"text-anchor='end'[^>]*>([\d.e-]+)<", panel)]
    lines = re.findall(r"<path d='[^']*' fill='none' stroke='[^>]*>", panel)
    return ticks, lines, document([picture])


def with_losses(report, **losses):
    """The report with a row for each series, named as a mode."""
    row = report.rows[0]
    rows = [replace(row, mode=mode, bucket_bytes=0, losses=floats(one)) for mode, one in losses.items()]
    return replace(report, rows=tuple(rows))


def test_the_axis_of_losses_fits_them(samples):
    near = [2.25 + 0.01 * (at % 3) for at in range(60)]
    ticks, _, _ = drawn_losses(with_losses(samples["training"], ddp=near))
    assert 2.2 <= min(ticks) <= 2.25 and 2.27 <= max(ticks) <= 2.3
    ticks, _, _ = drawn_losses(with_losses(samples["training"], ddp=[2.0**-at for at in range(40)]))
    assert max(ticks) >= 1 and min(ticks) <= 2.0**-39


def test_a_few_large_losses_at_first_are_told_and_flatten_no_others(samples):
    near = [97.0, 41.0, *(2.25 + 0.01 * (at % 3) for at in range(38))]
    ticks, _, page = drawn_losses(with_losses(samples["training"], ddp=near))
    assert max(ticks) <= 2.3
    assert "loss before iteration 3, up to 97: not shown" in page


def test_equal_curves_are_told_and_seen_in_turns(samples):
    falling = [2.0 - at / 50 for at in range(50)]
    rows = {"ddp": falling, "dear": falling, "horovod": falling, "gossip": [1.5] * 50}
    _, lines, page = drawn_losses(with_losses(samples["training"], **rows))
    assert "loss of ddp, dear, horovod: equal" in page
    dashes = [re.findall(r"stroke-dash\w+='([^']*)'", line) for line in lines]
    assert dashes == [[], ["8 16", "-8"], ["8 16", "-16"], []]


def test_the_start_is_told_and_no_part_of_the_times(samples):
    row = replace(samples["training"].rows[0], start_s=4.6)
    _, _, page = drawn_losses(replace(samples["training"], rows=(row,)))
    assert "start-up, by which the first iteration is longer than others, left out: ddp:4M 4.6 s" in page
    assert summary(replace(samples["training"], rows=(row,)))["rows"][0]["start_s"] == 4.6


def test_a_report_that_cannot_be_is_refused(samples, tmp_path, run_ccctl):
    whole = samples["training"]
    wrong = replace(whole.rows[0], accuracies=floats([0.5]), accuracy=2.0)
    assert replace(whole, rows=(wrong,)).problems() == [
        "rows[0].accuracies: expected 2 values, as many as evaluated, found 1",
        "rows[0].accuracy: expected a share from 0 to 1, found 2.0",
    ]
    codec.write(str(tmp_path / "a.json"), "training", replace(whole, parameter_bytes=0))
    done = run_ccctl("show", tmp_path / "a.json")
    assert done.returncode == 65
    assert "parameter_bytes" in done.stderr
