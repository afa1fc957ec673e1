"""`ccctl training fusion` as a user runs it."""

import json
import re
import sys
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import pytest

from ccctl.artifacts import codec
from synth.fusion.methods import METHODS
from synth.networks.families import family

RING = ["--ranks", 64, "--alpha", "26us", "--bandwidth", "10Gbit/s"]


@pytest.fixture
def folder(samples, tmp_path):
    """The folder in which ccctl runs, with a model of three tensors: a known one takes far longer to plan."""
    codec.write(str(tmp_path / "model.json"), "model", samples["model"])
    return tmp_path


def summary(run_ccctl, *arguments):
    done = run_ccctl("training", "fusion", *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_all_methods_are_compared_and_one_is_summed_up(run_ccctl, folder):
    told = summary(run_ccctl, "resnet-50", *RING, "--buffer", "8M")
    assert (told["model"], told["ranks"], told["method"], told["buffer_bytes"]) == (
        "resnet-50",
        64,
        "dear",
        8 << 20,
    )
    assert told["methods"].keys() == {*METHODS, "dear-tuned", "horovod-tuned"}
    assert told["methods"]["dear"].items() <= told.items()
    assert told["methods"]["ddp"]["buffer_bytes"] == 8 << 20
    assert told["methods"]["bytescheduler"]["buffer_bytes"] == 4 << 20
    assert told["speedup"] <= told["speedup_max"] <= 64
    assert told["iteration_s"] == pytest.approx(0.22 + told["exposed_s"], rel=1e-4)
    text = run_ccctl("training", "fusion", "model.json", *RING, "--buffer", "8M").stdout
    for words in (
        "3 tensors of 2 layers",
        "64 ranks, a ring: alpha 26 us",
        "mg-wfbp",
        "S_max",
        "fastest",
    ):
        assert words in text


def test_the_plan_of_a_method_is_written_and_shown(run_ccctl, folder):
    asked = ("training", "fusion", "model.json", *RING, "--method", "ddp")
    done = run_ccctl(*asked, "-o", "plan.json")
    assert (done.returncode, done.stderr) == (0, "")
    plan = codec.read(str(folder / "plan.json"), "fusion").body
    assert (plan.method, plan.buffer_bytes, plan.buckets) == ("ddp", 25 << 20, 2)
    assert "two layers by ddp, buffer 25M: 2 buckets" in run_ccctl("show", "plan.json").stdout
    piped = run_ccctl(*asked, "-o", "-")
    assert json.loads(piped.stdout)["body"] == json.loads((folder / "plan.json").read_text())["body"]


def test_a_model_from_a_file_on_a_network(run_ccctl, folder, samples):
    on_ring = summary(
        run_ccctl, "model.json", "--network", "ring:4", "--alpha", "10us", "--bandwidth", "1GB/s"
    )
    given = summary(run_ccctl, "model.json", "--ranks", 4, "--alpha", "10us", "--bandwidth", "1GB/s")
    assert on_ring["iteration_s"] == pytest.approx(given["iteration_s"], rel=1e-6)
    network = family("ring:4", [1e-5], [1e9])
    assert on_ring["alpha_s"] == pytest.approx(float(network.alpha_s[0]))
    codec.write(str(folder / "profile.json"), "profile", samples["profile"])
    run_ccctl("training", "fusion", "model.json", "--network", "profile.json", "-o", "plan.json")
    assert json.loads((folder / "plan.json").read_text())["inputs"].keys() == {"model", "profile"}


def test_the_model_in_the_documentation_is_one(run_ccctl, tmp_path):
    page = (Path(__file__).parents[4] / "docs" / "explanation" / "training" / "fusion.md").read_text()
    [text] = re.findall(r"```json\n(.*?)```", page, flags=re.DOTALL)
    (tmp_path / "model.json").write_text(text)
    assert summary(run_ccctl, "model.json", *RING)["model"] == "two layers"


def test_another_compute_time_leaves_communication_as_it_is(run_ccctl, folder):
    slow, fast = (summary(run_ccctl, "model.json", *RING, "--compute", time) for time in ("100s", "1us"))
    assert slow["iteration_s"] == pytest.approx(100, rel=1e-2)
    assert fast["exposed_s"] == pytest.approx(fast["iteration_s"], rel=1e-3)
    assert slow["speedup_max"] == pytest.approx(64)


def test_picture_and_trace_show_every_method(run_ccctl, folder):
    done = run_ccctl("training", "fusion", "model.json", *RING, "--svg", "a.svg", "--trace", "a.json")
    assert done.returncode == 0, done.stderr
    text = "".join(ET.fromstring((folder / "a.svg").read_text()).itertext())
    events = json.loads((folder / "a.json").read_text())["traceEvents"]
    groups = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert groups == {*METHODS, "dear-tuned", "horovod-tuned"}
    assert all(name in text for name in groups)
    slices = [event for event in events if event["ph"] == "X"]
    for track in {event["tid"] for event in slices}:
        mine = sorted((event["ts"], event["ts"] + event["dur"]) for event in slices if event["tid"] == track)
        assert all(end <= start + 1e-5 for (_, end), (start, _) in pairwise(mine))
    names = {event["name"] for event in slices}
    assert {"backward last", "forward first", "reduce_scatter bucket 0", "all_gather bucket 0"} <= names


def test_a_search_is_kept_and_goes_on(run_ccctl, folder):
    asked = ["model.json", *RING, "--tune", "bo"]
    whole = summary(run_ccctl, *asked, "--trials", 4, "--state", "whole.json")
    assert whole["tuning"]["trials"] == 4
    assert whole["iteration_s"] == whole["tuning"]["best_s"] == whole["methods"]["dear"]["iteration_s"]
    for trials in (2, 4):
        summary(run_ccctl, *asked, "--trials", trials, "--state", "parts.json")
    kept = [codec.read(str(folder / name), "tuning").body for name in ("whole.json", "parts.json")]
    assert kept[0].buffer_bytes.tolist() == kept[1].buffer_bytes.tolist()
    other = run_ccctl("training", "fusion", *asked, "--seed", 5, "--state", "whole.json")
    assert (other.returncode, "it is a search with seed 0, but 5 was requested" in other.stderr) == (2, True)
    assert "best" in run_ccctl("show", "parts.json").stdout


def test_a_search_on_real_runs_believes_what_they_print(run_ccctl, folder):
    (folder / "train.py").write_text(
        "import sys; print('warm-up'); print(abs(int(sys.argv[1]) - 2**20) / 1e9 + 1)"
    )
    asked = ["model.json", *RING, "--tune", "grid", "--trials", 3, "--buffers", "1M:40M"]
    done = run_ccctl("training", "fusion", *asked, "--measure", f"{sys.executable} train.py {{bytes}}")
    assert (done.returncode, done.stderr) == (0, "")
    assert "predicted" in done.stdout
    told = summary(run_ccctl, *asked, "--measure", f"{sys.executable} train.py {{bytes}}")
    assert (told["buffer_bytes"], told["tuning"]["best_s"]) == (1 << 20, 1.0)
    wrong = run_ccctl(
        "training", "fusion", *asked, "--measure", f"{sys.executable} -c 'print(\"fast\")' {{bytes}}"
    )
    assert (wrong.returncode, "found 'fast'" in wrong.stderr) == (65, True)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["resnet-50"], 2, "expected one of --network and --ranks"),
        (["resnet-50", *RING, "--network", "ring:4"], 2, "expected one of --network and --ranks"),
        (["resnet-50", "--ranks", 4], 2, "--ranks: expected the --bandwidth"),
        (["vgg", *RING], 2, "MODEL 'vgg': neither a file nor a model that has a name"),
        (["missing.json", *RING], 66, "missing.json"),
        (["model.json", *RING, "--method", "ring"], 2, "--method: expected one of wfbp, ddp"),
        (["resnet-50", *RING, "--cycle", "0"], 2, "--cycle: expected a time > 0"),
        (["resnet-50", *RING, "--compute", "0"], 2, "--compute: expected a time > 0"),
        (["resnet-50", *RING, "--buffer", "0"], 2, "--buffer: expected a size"),
        (["resnet-50", *RING, "--tune", "best"], 2, "--tune: expected one of bo, paper, grid, random"),
        (["resnet-50", *RING, "--tune", "bo", "--method", "wfbp"], 2, "wfbp has no buffer"),
        (["resnet-50", *RING, "--state", "a.json"], 2, "--state is for --tune"),
        (["resnet-50", *RING, "--tune", "bo", "--buffers", "8M:1M"], 2, "--buffers: expected a range"),
        (["model.json", *RING, "--tune", "bo", "--measure", "train"], 2, "--measure: expected {bytes} in it"),
        (["resnet-50", *RING, "--svg", "nowhere/a.svg"], 73, "nowhere"),
        (["wrong.json", *RING], 65, "wrong.json: body.tensor_bytes[0]: expected 1 to"),
    ],
)
def test_what_is_refused(run_ccctl, folder, arguments, status, message):
    document = json.loads((folder / "model.json").read_text())
    document["body"]["tensor_bytes"][0] = 0
    (folder / "wrong.json").write_text(json.dumps(document))
    done = run_ccctl("training", "fusion", *arguments)
    assert done.returncode == status
    assert message in done.stderr
    assert "Traceback" not in done.stderr
