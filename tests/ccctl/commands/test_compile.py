import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from drawn_examples import chessboard

from ccctl.artifacts import codec
from ccctl.commands.simulate import SimulateOptions, simulate
from ccctl.errors import FoundProblem, UsageError
from probes.base import format_size
from probes.base.columns import ints
from synth.check.program import judge
from synth.mscclpp import examine_plan


@pytest.fixture
def schedule_file(schedule, tmp_path):
    """The sample schedule, in the folder where ccctl runs."""
    codec.write(str(tmp_path / "schedule.json"), "schedule", schedule)
    return tmp_path / "schedule.json"


def test_a_schedule_becomes_a_proven_program(run_ccctl, schedule_file, tmp_path):
    done = run_ccctl("compile", "schedule.json", "-o", "program.json", "--name", "mine")
    assert done.returncode == 0, done.stderr
    found = codec.read(str(tmp_path / "program.json"), "program")
    assert found.body.name == "mine"
    assert judge(found.body) == []
    document = json.loads((tmp_path / "program.json").read_bytes())
    assert document["inputs"] == {"schedule": codec.read(str(schedule_file)).sha256}


def test_the_summary_has_the_keys_of_the_design(run_ccctl, schedule_file, tmp_path):
    done = run_ccctl("compile", "schedule.json", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary.keys() >= {"ranks", "instructions", "threadblocks_max", "channels", "compile_s"}
    # Four ranks send their chunk, pass on two, receive a last one and copy their own.
    assert (summary["ranks"], summary["instructions"], summary["channels"]) == (4, 20, 1)
    assert list(tmp_path.iterdir()) == [schedule_file]


def test_it_pipes(run_ccctl, schedule_file):
    compiled = run_ccctl("compile", "-", "-o", "-", stdin=schedule_file.read_text())
    assert compiled.returncode == 0, compiled.stderr
    assert codec.decode(compiled.stdout.encode(), "stdout", "program").kind == "program"


def test_a_schedule_that_is_not_proven_is_refused(run_ccctl, schedule, tmp_path):
    wrong = replace(schedule, chunk=ints(schedule.chunk[::-1]))
    codec.write(str(tmp_path / "wrong.json"), "schedule", wrong)
    done = run_ccctl("compile", "wrong.json", "-o", "program.json")
    assert done.returncode == 1
    assert "ccctl: wrong.json: send " in done.stderr
    assert not (tmp_path / "program.json").exists()


def test_what_is_no_schedule_is_refused(run_ccctl, samples, tmp_path):
    codec.write(str(tmp_path / "profile.json"), "profile", samples["profile"])
    assert run_ccctl("compile", "profile.json").returncode == 65
    assert run_ccctl("compile", "nothing.json").returncode == 66


RING = """from synth.lang import chunk, program


@program("all_reduce", lambda ranks: ranks, chunks=lambda ranks: ranks, in_place=True)
def ring(ranks=4, wrong=False, fails=False):
    if fails:
        nothing = 1 // 0
    for c in range(ranks):
        passed = chunk("input", c, c)
        for step in range(1, ranks):
            passed = chunk("input", (c + step) % ranks, c).reduce(passed)
        for step in range(ranks, 2 * ranks - 1 - wrong):
            passed = passed.assign("input", (c + step) % ranks, c)
"""


@pytest.fixture
def ring_file(tmp_path):
    (tmp_path / "ring.py").write_text(RING)
    return tmp_path / "ring.py"


def test_the_chunk_language_becomes_xml_and_back(run_ccctl, ring_file, tmp_path):
    done = run_ccctl(
        "compile", "ring.py", "-p", "ranks=6", "--instances", 2, "--target", "msccl", "-o", "p.xml"
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "p.xml").read_text().startswith('<algo name="ring" ')
    read = codec.read(str(tmp_path / "p.xml")).body
    assert (read.ranks, read.channels, judge(read)) == (6, 2, [])
    assert run_ccctl("verify", "p.xml").returncode == 0
    back = run_ccctl("compile", "p.xml", "-o", "p.json")
    assert back.returncode == 0, back.stderr
    again = run_ccctl("compile", "p.json", "-o", "q.xml")
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "q.xml").read_bytes() == (tmp_path / "p.xml").read_bytes()
    assert "lanes" in run_ccctl("show", "p.xml").stdout


def test_a_wrong_algorithm_is_refused_by_compile_and_found_by_verify(run_ccctl, ring_file, tmp_path):
    compiled = run_ccctl("compile", "ring.py", "-p", "wrong=true", "-o", "p.xml")
    assert compiled.returncode == 1
    assert "must end with chunk" in compiled.stderr
    assert not (tmp_path / "p.xml").exists()
    found = run_ccctl("verify", "ring.py", "-p", "wrong=true", "--json")
    assert found.returncode == 1
    findings = json.loads(found.stdout)["findings"]
    assert findings
    assert all("must end with chunk" in finding for finding in findings)


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["ring.py", "-p", "fails=true"], 65, "ring.py:7: ZeroDivisionError"),
        (["ring.py", "-p", "ranks"], 2, "expected NAME=VALUE"),
        (["ring.py", "-p", "nodes=2"], 2, "no parameter nodes"),
        (["ring.py:other"], 2, "has no program other"),
        (["ring.py:ring"], 0, "proven"),
        (["ring.py", "-p", "ranks=90", "--target", "rccl"], 1, "rccl: rank 0 threadblock 0 has 179 steps"),
        (["ring.py", "--target", "vulkan"], 2, "--target: expected msccl or rccl"),
        (["nothing.py"], 66, "nothing.py"),
        (["bad.py"], 65, "bad.py:1: "),
        (["empty.py"], 65, "no function in it is decorated"),
        (["stale.py"], 65, "stale.py:8: input[0] of rank 1 was overwritten by line 7"),
        (["schedule.json", "-p", "a=1"], 2, "has no parameters"),
    ],
)
def test_mistakes_in_algorithms_are_told(
    run_ccctl, ring_file, schedule_file, tmp_path, arguments, status, says
):
    (tmp_path / "bad.py").write_text("def (:\n")
    (tmp_path / "empty.py").write_text("print\n")
    (tmp_path / "stale.py").write_text(
        "from synth.lang import chunk, program\n\n\n"
        '@program("all_reduce", 2, in_place=True)\ndef stale():\n'
        '    old = chunk("input", 1, 0)\n    chunk("input", 1, 0).reduce(chunk("input", 0, 0))\n'
        '    old.assign("input", 0, 0)\n'
    )
    done = run_ccctl("compile", *arguments)
    assert done.returncode == status, done.stderr
    assert says in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def test_verify_says_what_is_known_of_xml(run_ccctl, ring_file, tmp_path):
    assert run_ccctl("compile", "ring.py", "-o", "p.xml").returncode == 0
    found = json.loads(run_ccctl("verify", "p.xml", "--json").stdout)
    assert (found["ok"], found["findings"], found["cautions"], found["fifo_depth"]) == (True, [], [], 2)
    shallow = run_ccctl("verify", "p.xml", "--fifo", 1)
    assert shallow.returncode == 1
    assert "waits for rank 1 to receive on channel 0" in shallow.stdout
    (tmp_path / "p.xml").write_text((tmp_path / "p.xml").read_text()[:500])
    broken = run_ccctl("verify", "p.xml")
    assert (broken.returncode, "expected XML" in broken.stderr) == (65, True)


def test_programs_are_simulated(run_ccctl, ring_file):
    where = ["--network", "ring:4", "--bandwidth", "10GB/s", "--size", "1M"]
    done = run_ccctl("simulate", "ring.py", *where, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["time_s"] >= found["bound_s"] > 0
    assert found["limited_by"].startswith("transfers")
    assert run_ccctl("simulate", "ring.py").returncode == 2


def test_other_bits_are_a_caution_unless_they_must_be_the_same(run_ccctl, tmp_path):
    """Rank 0 adds its own to what came first, rank 2 begins with what rank 1 has."""
    (tmp_path / "bits.py").write_text(
        "from synth.lang import chunk, program\n\n\n"
        '@program("all_reduce", 3)\ndef bits():\n'
        "    for rank in range(3):\n"
        '        total = chunk("input", rank, 0).assign("output", rank, 0)\n'
        "        for step in (1, 2):\n"
        '            total = total.reduce(chunk("input", (rank + step) % 3, 0))\n'
    )
    allowed = run_ccctl("verify", "bits.py", "--json")
    found = json.loads(allowed.stdout)
    assert (allowed.returncode, found["ok"], found["findings"]) == (0, True, [])
    assert "different orders" in found["cautions"][0]
    refused = run_ccctl("verify", "bits.py", "--json", "--same-bits")
    assert refused.returncode == 1
    assert json.loads(refused.stdout)["findings"] == found["cautions"]
    assert json.loads(refused.stdout)["cautions"] == []


def test_nothing_is_told_of_what_is_not_proven(run_ccctl, ring_file, schedule, samples, tmp_path):
    wrong = replace(schedule, chunk=ints(schedule.chunk[::-1]))
    codec.write(str(tmp_path / "wrong.json"), "schedule", wrong)
    chosen = replace(samples["selection"].algorithms[0], chunk=wrong.chunk)
    several = replace(samples["selection"], algorithms=(chosen,))
    codec.write(str(tmp_path / "several.json"), "selection", several)
    stray = replace(samples["program"], dst_slot=samples["program"].dst_slot + 7)
    codec.write(str(tmp_path / "program.json"), "program", stray)
    where = ("--network", "ring:4", "--bandwidth", "10GB/s", "--size", "1M")
    for command, says in (
        (("simulate", "wrong.json"), "send "),
        (("simulate", "wrong.json", "--size", "1G", "--json"), "send "),
        (("simulate", "several.json"), "ranges[0], 1 bytes a chunk: send "),
        (("simulate", "several.json", "--size", "1M", "--trace", "-"), "send "),
        (("simulate", "program.json", *where), "writes o[7:8]"),
        (("simulate", "ring.py", "-p", "wrong=true", *where), "must end with chunk"),
        (("show", "wrong.json", "-o", "busy.svg"), "send "),
        (("compile", "wrong.json"), "send "),
    ):
        done = run_ccctl(*command)
        assert (done.returncode, done.stdout) == (1, ""), command
        assert says in done.stderr
    assert not (tmp_path / "busy.svg").exists()


def test_show_draws_what_is_not_proven_without_times(run_ccctl, schedule, samples, tmp_path):
    wrong = replace(schedule, chunk=ints(schedule.chunk[::-1]))
    chosen = replace(samples["selection"].algorithms[0], chunk=wrong.chunk)
    several = replace(samples["selection"], algorithms=(chosen,))
    for kind, value, claims in (("schedule", wrong, "outcome"), ("selection", several, "points")):
        codec.write(str(tmp_path / "wrong.json"), kind, value)
        drawn = run_ccctl("show", "wrong.json")
        assert drawn.returncode == 0, drawn.stderr
        assert "wrong.json: not proven, so no times are shown: " in drawn.stderr
        assert "all_gather on " in drawn.stdout
        assert "optimal" not in drawn.stdout
        assert "time " not in drawn.stdout
        told = json.loads(run_ccctl("show", "--json", "wrong.json").stdout)
        assert told["proven"] is False
        assert claims not in told


EXAMPLES = Path(__file__).parents[3] / "examples"
DATA = Path(__file__).parents[4] / "shared" / "data" / "programs"
# Three names keep the table of cases from being empty where the folder does not exist.
NAMES = sorted(path.stem for path in DATA.glob("*.xml")) or ["one", "two", "three"]
NETWORKS = ("fully_connected:8", "fully_connected:16", "switch:16", "dgx-a100:2", "ring:16", "mesh:2x2")


@pytest.mark.skipif(not DATA.exists(), reason=f"{DATA} does not exist")
@pytest.mark.parametrize(("name", "spec"), chessboard(NAMES, NETWORKS, one_in=3))
def test_a_program_on_another_network_is_timed_or_refused_clearly(name, spec, capsys):
    """In this process: starting one for each of so many would take longer than what is tested."""
    costs = {} if spec.startswith("dgx") else {"bandwidth": "50GB/s"}
    try:
        simulate(SimulateOptions(str(DATA / f"{name}.xml"), network=spec, size="1M", json=True, **costs))
    except UsageError as error:
        assert re.search(r"has \d+ ranks|has no such link", error.message)
    except FoundProblem as error:
        assert "rank" in error.message
    else:
        told = json.loads(capsys.readouterr().out)
        assert 0 <= told["bound_s"] <= told["time_s"] * (1 + 1e-9)
        # A collective that no file names has no postcondition, and so no bound.
        assert told["time_s"] > 0


def test_a_schedule_becomes_a_plan_of_mscclpp(run_ccctl, schedule_file, tmp_path):
    how = ("--to", "mscclpp", "--ranks-per-host", "2", "-o", "plan.json")
    done = run_ccctl("compile", "schedule.json", *how)
    assert done.returncode == 0, done.stderr
    assert "memory channels" in done.stdout
    plan = codec.read(str(tmp_path / "plan.json"), "plan").body
    assert f"for multiples of {format_size(plan.granule_bytes)}; " in done.stdout
    assert examine_plan(plan).findings == ()
    assert any(gpu.memory for gpu in plan.gpus)
    assert any(gpu.port for gpu in plan.gpus)


def test_a_plan_of_a_program_needs_to_know_the_hosts(run_ccctl, schedule_file):
    assert run_ccctl("compile", "schedule.json", "-o", "program.json").returncode == 0
    done = run_ccctl("compile", "program.json", "--to", "mscclpp")
    assert done.returncode == 2
    assert "--ranks-per-host N" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--ranks-per-host", "2"),
        ("--placement", "in"),
        ("--to", "nothing"),
        ("--to", "mscclpp", "--placement", "up"),
    ],
)
def test_options_of_plans_are_refused_where_they_say_nothing(arguments, run_ccctl, schedule_file):
    assert run_ccctl("compile", "schedule.json", *arguments).returncode == 2


def test_a_schedule_becomes_traces_and_text_for_other_simulators(run_ccctl, schedule_file, tmp_path):
    pytest.importorskip("google.protobuf")
    for _ in range(2):
        done = run_ccctl("compile", "schedule.json", "--to", "chakra", "-o", "traces")
        assert done.returncode == 0, done.stderr
    ranks = codec.read(str(tmp_path / "schedule.json"), "schedule").body.network.ranks
    assert len(list((tmp_path / "traces").glob("collective.*.et"))) == ranks
    refused = run_ccctl("compile", "schedule.json", "--to", "goal", "-o", "traces")
    assert refused.returncode == 73 and "is a folder" in refused.stderr
    told = json.loads(run_ccctl("compile", "schedule.json", "--to", "goal", "-o", "s.goal", "--json").stdout)
    written = (tmp_path / "s.goal").read_text()
    assert written.startswith(f"num_ranks {ranks}\n")
    assert written.count(": send ") == written.count(": recv ") == told["messages"]
    assert run_ccctl("compile", "schedule.json", "--to", "goal", "-o", "-").stdout == written


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (
            ("schedule.json", "--to", "goal", "--instances", "2"),
            "--instances: a schedule goes to goal as it is",
        ),
        (("schedule.json", "--to", "goal", "--no-fuse"), "--no-fuse"),
        (("schedule.json", "--to", "chakra", "--placement", "in"), "--placement"),
        (("schedule.json", "--to", "chakra", "-o", "-"), "a trace is a file for each rank"),
    ],
)
def test_traces_refuse_what_would_say_nothing(arguments, why, run_ccctl, schedule_file):
    done = run_ccctl("compile", *arguments)
    assert done.returncode == 2
    assert why in done.stderr


def test_a_folder_of_traces_that_cannot_be_made(run_ccctl, schedule_file, tmp_path):
    pytest.importorskip("google.protobuf")
    done = run_ccctl("compile", "schedule.json", "--to", "chakra", "-o", "schedule.json/traces")
    assert done.returncode == 73, done.stderr


def test_programs_are_simulated_by_protocol(run_ccctl, ring_file):
    where = ("-p", "ranks=8", "--network", "dgx-a100", "--size")
    times = {
        (protocol, size): json.loads(
            run_ccctl("simulate", ring_file, *where, size, "--protocol", protocol, "--json").stdout
        )["time_s"]
        for protocol in ("Simple", "LL128", "LL")
        for size in ("4K", "256M")
    }
    assert times["LL", "4K"] < times["LL128", "4K"] < times["Simple", "4K"]
    assert times["Simple", "256M"] < times["LL128", "256M"] < times["LL", "256M"]
    unknown = run_ccctl("simulate", ring_file, *where, "4K", "--protocol", "LL64")
    assert (unknown.returncode, "expected one of Simple, LL128, LL" in unknown.stderr) == (2, True)
    both = run_ccctl("simulate", ring_file, *where, "4K", "--protocol", "LL", "--threadblock", "1GB/s")
    assert both.returncode == 2


def test_a_selection_becomes_a_folder_of_xml(run_ccctl, tmp_path):
    table, folder = tmp_path / "table.json", tmp_path / "xmls"
    made = ("--network", "dgx-a100", "--method", "ring", "--sizes", "1K:64M", "-f", "64")
    assert run_ccctl("synth", *made, "-o", str(table)).returncode == 0
    done = run_ccctl("compile", str(table), "--to", "msccl", "-o", str(folder), "--json")
    assert done.returncode == 0, done.stderr
    ranges = json.loads(done.stdout)["ranges"]
    assert [one["protocol"] for one in ranges] == sorted({one["protocol"] for one in ranges})
    files = sorted(folder.iterdir())
    assert len(files) == len(ranges) > 1
    for file, one in zip(files, ranges, strict=True):
        text = file.read_text()
        assert f'proto="{one["protocol"]}"' in text
        assert f'minBytes="{one["from_bytes"]}" maxBytes="{one["to_bytes"]}"' in text
        assert run_ccctl("verify", str(file)).returncode == 0
    assert run_ccctl("compile", str(table), "--to", "msccl", "-o", "-").returncode == 2
    one = run_ccctl("compile", str(tmp_path / "ring.py"), "--to", "msccl")
    assert (one.returncode, "one program, not a selection" in one.stderr) == (2, True)
    one = run_ccctl("compile", str(files[0]), "--to", "msccl")
    assert (one.returncode, "one program, not a selection" in one.stderr) == (2, True)
    refused = run_ccctl("compile", str(table), "--to", "msccl", "--size", "1M")
    assert (refused.returncode, "a selection has its own" in refused.stderr) == (2, True)


def test_a_table_of_sends_that_no_runtime_holds_is_refused_before_it_is_compiled(run_ccctl, tmp_path):
    asked = ("--network", "switch:70", "--bandwidth", "1GB/s", "--alpha", "1us", "--collective", "scatter")
    run_ccctl("synth", *asked, "--chunk", "1", "--chunks", "70", "--method", "direct", "-o", "wide.json")
    done = run_ccctl("compile", "wide.json", "--target", "rccl", "-o", "wide.xml")
    assert done.returncode == 1
    assert "rccl cannot load it: rank 0 sends messages with 69 peers, at most 64 threadblocks" in done.stderr
    assert not (tmp_path / "wide.xml").exists()


@pytest.mark.parametrize(("network", "warned"), [("dgx-a100:1", True), ("ring:4", False)])
def test_a_program_that_is_slower_than_its_schedule_is_told(run_ccctl, network, warned):
    costs = () if warned else ("--bandwidth", "50GB/s")
    made = run_ccctl(
        "synth", "--network", network, *costs, "--size", "16M", "--method", "ring", "-o", "s.json"
    )
    assert made.returncode == 0, made.stderr
    done = run_ccctl("compile", "s.json", "-o", "program.json")
    assert done.returncode == 0, done.stderr
    assert ("as a program this takes " in done.stderr) is warned
    if warned:
        timed = run_ccctl("simulate", "program.json", "--network", network, "--size", "16M")
        time = re.search(r"ranks in (.+)", timed.stdout)[1]
        assert f"as a program this takes {time} (" in done.stderr
        assert "limited by the rate of one threadblock" in done.stderr


def test_threadblocks_that_do_not_run_at_once_are_told(run_ccctl, tmp_path):
    made = run_ccctl("synth", "--network", "dgx-a100:1", "--size", "16M", "--method", "ring", "-o", "s.json")
    assert made.returncode == 0, made.stderr
    document = json.loads((tmp_path / "s.json").read_text())
    assert "at once" not in run_ccctl("compile", "s.json").stderr
    document["body"]["network"]["multiprocessors"] = 1
    (tmp_path / "s.json").write_text(json.dumps(document))
    done = run_ccctl("compile", "s.json")
    assert "a rank has 2 threadblocks, of which its GPU runs 1 at once" in done.stderr


def test_what_was_not_compiled_has_no_time_of_compilation(run_ccctl, schedule_file):
    assert "compiled in " in run_ccctl("compile", "schedule.json", "-o", "ring.xml").stdout
    done = run_ccctl("compile", "ring.xml", "--target", "msccl")
    assert done.returncode == 0, done.stderr
    assert "compiled in" not in done.stdout
    assert done.stdout.splitlines()[0].endswith("proven")


def test_xml_that_msccl_does_not_load_is_written_with_a_warning(run_ccctl, tmp_path):
    (tmp_path / "many.py").write_text(
        "from synth.lang import chunk, program\n\n"
        "@program('all_gather', 2, chunks=65)\n"
        "def many():\n"
        "    for at in range(65):\n"
        "        for rank in range(2):\n"
        "            for to in range(2):\n"
        "                chunk('output', to, 65 * rank + at).assign(chunk('input', rank, at))\n"
    )
    done = run_ccctl("compile", "many.py", "-o", "many.xml")
    assert done.returncode == 0, done.stderr
    assert " steps, at most 64 are allowed; with --target msccl or rccl such a program" in done.stderr
    refused = run_ccctl("compile", "many.py", "--target", "msccl", "-o", "no.xml")
    assert refused.returncode == 1
    assert not (tmp_path / "no.xml").exists()
    assert "at most 64" not in run_ccctl("compile", "many.py", "-o", "many.json").stderr


def test_an_xml_says_which_sizes_its_runtime_leaves_to_its_own_algorithms(run_ccctl):
    ring = ("compile", str(EXAMPLES / "ring_allreduce.py"), "-p", "ranks=3")
    said = "it runs buffers of any multiple of 12 in float32; others are left to an algorithm of {}"
    assert said.format("NCCL") in run_ccctl(*ring, "-o", "ring.xml").stdout
    assert said.format("RCCL") in run_ccctl(*ring, "--target", "rccl", "-o", "ring.json").stdout
    assert "left to" not in run_ccctl(*ring, "-o", "ring.json").stdout


def test_what_msccl_makes_of_a_right_file_is_a_warning_and_with_its_target_wrong(run_ccctl, tmp_path):
    step = (
        '<step s="{}" type="{}" srcbuf="i" srcoff="{}" dstbuf="{}" dstoff="0" cnt="1" depid="{}" deps="{}" '
        'hasdep="{}"/>'
    )
    (tmp_path / "lost.xml").write_text(
        '<algo name="lost" proto="Simple" nchannels="1" nchunksperloop="1" ngpus="1" coll="allreduce" '
        'inplace="0" outofplace="1" minBytes="0" maxBytes="0">'
        '<gpu id="0" i_chunks="1" o_chunks="1" s_chunks="1">'
        f'<tb id="0" send="-1" recv="-1" chan="0">{step.format(0, "cpy", 0, "o", -1, -1, 1)}</tb>'
        f'<tb id="1" send="-1" recv="-1" chan="0">{step.format(0, "nop", -1, "o", 0, 0, 0)}'
        f"{step.format(1, 'cpy', 0, 's', -1, -1, 0)}</tb></gpu></algo>"
    )
    said = "rank 0 threadblock 1 step 1 (cpy) follows a nop that waits, and must itself wait for a step"
    plain = run_ccctl("verify", "lost.xml")
    assert plain.returncode == 0, plain.stderr
    assert f"in MSCCL's runtimes, {said}" in plain.stderr
    for target in ("msccl", "rccl"):
        refused = run_ccctl("verify", "lost.xml", "--target", target)
        assert refused.returncode == 1
        assert f"{target}: {said}" in refused.stdout
