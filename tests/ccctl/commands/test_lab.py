"""`ccctl lab` as a user types it."""

import json
import os
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest
from lab_traffic import sample_lab
from limits import HANG_S

from ccctl.artifacts import codec
from ccctl.lab import state
from ccctl.main import main
from exec.lab.iproute import namespaces
from probes.base.errors import DataError, UnavailableError

NUMBERS = count()
needs_lab = pytest.mark.netns


@pytest.fixture(scope="module")
def described(tmp_path_factory):
    """(name, path) of a description of three hosts."""
    name = f"c{os.getpid()}-{next(NUMBERS)}"
    path = tmp_path_factory.mktemp("lab") / "lab.toml"
    path.write_text(f'name = "{name}"\nhosts = "gpu[1-3]"\nrate = "100Mbit/s"\n')
    return name, path


@pytest.fixture(scope="module")
def lab_command(_warm_commands, described):
    """A function that runs ``ccctl lab WORDS`` where the environment names a lab."""

    def run(name, *words):
        variables = {**os.environ, "CCCTL_LAB": name}
        line = ["lab", *map(str, words)]
        return _warm_commands.run(line, "", described[1].parent, HANG_S, variables=variables)

    yield run
    if os.geteuid() == 0:
        run(described[0], "down")


@pytest.fixture
def lab(lab_command, described):
    """The name of a lab that is up; tests leave it as they found it."""
    name, path = described
    if not traces(name):
        made = lab_command(name, "up", path)
        assert (made.returncode, made.stdout) == (0, ""), made.stderr
    return name


@pytest.fixture
def invoke(monkeypatch, capsys):
    """A function that runs ``ccctl lab WORDS`` in this process: (status, stdout, stderr)."""

    def run(*words, **environment):
        monkeypatch.setattr(sys, "argv", ["ccctl", "lab", *map(str, words)])
        with monkeypatch.context() as inside:
            inside.delenv("CCCTL_LAB", raising=False)
            for name, value in environment.items():
                inside.setenv(name, value)
            with pytest.raises(SystemExit) as left:
                main()
        told = capsys.readouterr()
        return left.value.code, told.out, told.err

    return run


def line(*words):
    return [sys.executable, "-P", "-m", "ccctl", "lab", *map(str, words)]


def traces(name):
    folders = [Path("/etc/netns"), Path("/run/ccctl/labs")]
    return [path for folder in folders for path in folder.glob(f"*{name}*")] + [
        space for space in namespaces() if name in space
    ]


@needs_lab
def test_from_up_to_down(lab_command, described):
    name, path = described
    lab_command(name, "down")
    made = lab_command(name, "up", path)
    assert made.returncode == 0, made.stderr
    assert "gpu1:1,gpu2:1,gpu3:1" in made.stderr
    ran = lab_command(name, "run", "uname", "-n")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "gpu1\n", "")
    # A name that is typed goes before that of the environment.
    gone = lab_command("another", "down", name)
    assert gone.returncode == 0
    assert traces(name) == []
    assert lab_command(name, "down").returncode == 0
    assert lab_command(name, "run", "true").returncode == 2


@needs_lab
def test_status_and_output_of_the_command_pass_through(lab_command, lab):
    ran = lab_command(lab, "run", "--on", "gpu2", "--", "sh", "-c", "uname -n; echo oops >&2; exit 7")
    assert (ran.returncode, ran.stdout, ran.stderr) == (7, "gpu2\n", "oops\n")


@needs_lab
def test_what_crossed_is_told(lab_command, lab, tmp_path):
    send = "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(bytes(1000), ('gpu2', 9))"
    ran = lab_command(lab, "run", "-v", "--traffic", tmp_path / "t.json", sys.executable, "-c", send)
    assert ran.returncode == 0, ran.stderr
    told = json.loads((tmp_path / "t.json").read_text())
    assert (told["lab"], list(told["hosts"])) == (lab, ["gpu1", "gpu2", "gpu3"])
    assert told["hosts"]["gpu1"]["sent_bytes"] >= 1000
    assert told["hosts"]["gpu2"]["received_bytes"] >= 1000
    assert f"gpu1: sent {told['hosts']['gpu1']['sent_bytes']} bytes" in ran.stderr


@needs_lab
def test_the_list_names_what_is_up(lab_command, lab):
    listed = json.loads(lab_command(lab, "list", "--json").stdout)["labs"]
    assert {"name": lab, "hosts": "gpu1:1,gpu2:1,gpu3:1"} in listed
    assert lab in lab_command(lab, "list").stdout


@needs_lab
def test_shape_changes_what_status_tells(lab_command, lab, described):
    assert lab_command(lab, "shape", "gpu1 -> gpu2 = 5Mbit/s", "--down-host", "gpu3").returncode == 0
    told = json.loads(lab_command(lab, "status", "--json").stdout)
    paths = {(path["src"], path["dst"]): path["bytes_per_s"] for path in told["paths"]}
    assert paths["gpu1", "gpu2"] == 625_000
    assert paths["gpu2", "gpu1"] == 12_500_000
    assert [host["cable"] for host in told["hosts"]] == [True, True, False]
    drawn = lab_command(lab, "status").stdout
    assert "5Mbit/s" in drawn and "pulled" in drawn
    # The description knows nothing of the change, so taking the rates from it undoes it.
    assert lab_command(lab, "shape", "--from", described[1], "--up-host", "gpu3").returncode == 0
    told = json.loads(lab_command(lab, "status", "--json").stdout)
    assert {path["bytes_per_s"] for path in told["paths"]} == {12_500_000}
    assert all(host["cable"] for host in told["hosts"])


@needs_lab
def test_shape_loses_packets_and_shortens_them(lab_command, lab, described):
    assert "loss out" not in lab_command(lab, "status").stdout
    changed = lab_command(lab, "shape", "gpu1.egress = 2.5%", "gpu2.mtu = 576")
    assert changed.returncode == 0, changed.stderr
    first, second, _ = json.loads(lab_command(lab, "status", "--json").stdout)["hosts"]
    assert (first["egress_loss"], first["ingress_loss"], first["mtu_bytes"]) == (0.025, 0, 1500)
    assert (second["egress_loss"], second["egress_delay_s"], second["mtu_bytes"]) == (0, 0, 576)
    drawn = lab_command(lab, "status").stdout
    assert "loss out" in drawn and "2.5%" in drawn and "MTU" in drawn and "delay" not in drawn
    assert lab_command(lab, "shape", "--from", described[1]).returncode == 0
    assert "loss out" not in lab_command(lab, "status").stdout


@needs_lab
def test_a_name_that_is_taken_is_refused_until_it_is_free(lab_command, lab, described):
    again = lab_command(lab, "up", described[1])
    assert again.returncode == 75
    assert f"ccctl lab down --lab {lab}" in again.stderr
    assert lab_command(lab, "run", "true").returncode == 0


@needs_lab
@pytest.mark.parametrize(
    "words",
    [
        ["run", "--on", "gpu9", "true"],
        ["run"],
        ["shape", "gpu9=1Mbit/s"],
        ["shape", "gpu1"],
        ["shape", "--down-host", "gpu9"],
    ],
)
def test_what_contradicts_the_lab_is_a_usage_error(lab_command, lab, words):
    done = lab_command(lab, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("ccctl: ")


@needs_lab
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)]
)
def test_a_run_that_is_stopped_takes_all_that_it_started_along(lab, number, status):
    environment = {**os.environ, "CCCTL_LAB": lab}
    script = "sleep 1000 & echo on; sleep 1000"
    with subprocess.Popen(
        line("run", "--", "sh", "-c", script), stdout=subprocess.PIPE, text=True, env=environment
    ) as running:
        assert running.stdout.readline() == "on\n"
        running.send_signal(number)
        assert running.wait(100) == status
    deadline_s = time.monotonic() + 60
    while (left := inside(lab)) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert left == []


def inside(name):
    spaces = [space for space in namespaces() if space.startswith(f"ccctl.{name}.")]
    found = [
        subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True) for space in spaces
    ]
    return [pid for one in found for pid in one.stdout.split()]


@needs_lab
@pytest.mark.mpi
def test_ccctl_inside_finds_the_hosts_by_itself(lab_command, lab, tmp_path):
    path = tmp_path / "profile.json"
    command = [sys.executable, "-P", "-m", "ccctl", "profile", "--quick", "-o", path]
    done = lab_command(lab, "run", "--traffic", tmp_path / "t.json", "--", *command)
    assert done.returncode == 0, done.stderr
    body = codec.read(str(path), "profile").body
    assert [rank.host for rank in body.ranks] == ["gpu1", "gpu2", "gpu3"]
    crossed = json.loads((tmp_path / "t.json").read_text())["hosts"]
    assert all(host["sent_bytes"] > 1_000_000 for host in crossed.values())


def test_a_wrong_description_is_refused_with_every_problem(run_ccctl, tmp_path):
    (tmp_path / "lab.toml").write_text('hosts = 0\nrate = 7\nspeed = "1Mbit/s"\n')
    done = run_ccctl("lab", "up", "lab.toml")
    assert (done.returncode, done.stdout) == (65, "")
    assert [f"lab.toml: {key}: " in done.stderr for key in ("hosts", "rate", "speed")] == [True] * 3


def test_a_description_that_is_not_there_is_66(run_ccctl):
    assert run_ccctl("lab", "up", "lab.toml").returncode == 66


@pytest.mark.parametrize("verb", ["run true", "status", "shape gpu1=1Mbit/s"])
def test_a_lab_that_is_not_up_is_a_usage_error(run_ccctl, verb):
    done = run_ccctl("lab", *verb.split(), CCCTL_LAB="nobodys-lab")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no lab nobodys-lab" in done.stderr


NO_NAMES = ["", ".", "..", "../../etc", "/tmp", "a/b", "a.b", "*", "lab4\n", "-x", "ü", "a" * 33, "a\x1b[2J"]


@pytest.mark.parametrize("name", NO_NAMES)
@pytest.mark.parametrize("verb", ["down", "status", "run true", "shape gpu1=1Mbit/s"])
def test_what_is_no_name_is_refused_by_every_verb(invoke, verb, name):
    word, *rest = verb.split()
    found = [invoke(word, "--lab", name, *rest)]
    if name:
        found.append(invoke(word, *rest, CCCTL_LAB=name))
    for status, out, err in found:
        assert (status, out) == (2, "")
        assert "a lab's name: expected" in err
        assert "\x1b" not in err


@pytest.mark.parametrize("name", [name for name in NO_NAMES if "\x1b" not in name])
def test_a_description_has_a_plain_name(invoke, tmp_path, name):
    (tmp_path / "lab.toml").write_text(f"name = {json.dumps(name)}\nhosts = 2\n")
    status, _, err = invoke("up", tmp_path / "lab.toml")
    assert status == 65
    assert "name: expected" in err


def test_a_folder_given_as_a_lab_stays(invoke, tmp_path):
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "file").write_text("kept")
    way = os.path.relpath(tmp_path / "victim", "/run/ccctl/labs")
    for name in (str(tmp_path / "victim"), way):
        assert invoke("down", "--lab", name)[0] == 2
        assert invoke("down", name)[0] == 2
        assert invoke("down", CCCTL_LAB=name)[0] == 2
    assert (tmp_path / "victim" / "file").read_text() == "kept"


@pytest.fixture
def states(tmp_path, monkeypatch):
    """The folder in which what is known of labs is kept, apart from that of the machine."""
    monkeypatch.setattr(state, "_FOLDER", tmp_path / "labs")
    return tmp_path / "labs"


def forged(place, name, **fields):
    place.mkdir(parents=True)
    (place / "lab.json").write_text(json.dumps({"name": name, "hosts": [{"name": "a"}], **fields}))


def test_what_is_known_of_a_lab_is_kept_and_forgotten(states):
    lab = sample_lab(2, pairs=[("a", "b", 10)])
    before = os.umask(0)
    try:
        state.remember(lab)
    finally:
        os.umask(before)
    place = states / lab.name
    assert [path.stat().st_mode & 0o022 for path in (states, place, *place.iterdir())] == [0] * 6
    (place / "run-0123456789abcdef").mkdir()
    state.forget(lab.name)
    assert list(states.iterdir()) == []
    state.forget(lab.name)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "expected the state of lab"),
        ("[" * 5000, "expected the state of lab"),
        ("{}", "missing required field"),
        (json.dumps({"name": "other", "hosts": []}), "found that of 'other'"),
        (json.dumps({"name": "../x", "hosts": []}), "a lab's name: expected"),
        (json.dumps({"name": "mine", "hosts": [{"name": "../../x"}]}), "expected a host name"),
    ],
)
def test_a_folder_whose_state_is_not_ours_is_not_forgotten(states, content, said):
    (states / "mine").mkdir(parents=True)
    (states / "mine" / "lab.json").write_text(content)
    with pytest.raises(DataError, match=said):
        state.forget("mine")
    assert (states / "mine" / "lab.json").exists()


def test_a_folder_with_files_of_others_is_not_forgotten(states):
    forged(states / "mine", "mine")
    (states / "mine" / "notes.txt").write_text("kept")
    with pytest.raises(UnavailableError, match=r"notes\.txt"):
        state.forget("mine")
    assert (states / "mine" / "lab.json").exists()


def test_what_a_killed_up_left_is_forgotten(states):
    state.remember(sample_lab(1, name="mine"))
    (states / "mine" / "lab.json").rename(states / "mine" / ".ccctl-0123456789abcdef.part")
    state.forget("mine")
    assert not (states / "mine").exists()


def test_a_link_in_place_of_a_lab_is_neither_read_nor_forgotten(states, tmp_path):
    forged(tmp_path / "victim", "mine")
    states.mkdir()
    (states / "mine").symlink_to(tmp_path / "victim")
    with pytest.raises(UnavailableError, match="symbolic link"):
        state.forget("mine")
    with pytest.raises(UnavailableError, match="symbolic link"):
        state.remember(sample_lab(1, name="mine"))
    assert (tmp_path / "victim" / "lab.json").exists()


def test_a_lab_is_not_forgotten_while_it_is_up(states, monkeypatch):
    lab = sample_lab(1)
    state.remember(lab)
    monkeypatch.setattr(state, "standing", lambda name: [lab.switch])
    with pytest.raises(UnavailableError, match="is up"):
        state.forget(lab.name)
    assert (states / lab.name / "lab.json").exists()


@needs_lab
def test_a_lab_whose_state_was_replaced_stays_up(lab_command, lab):
    place = Path("/run/ccctl/labs") / lab
    whole = (place / "lab.json").read_bytes()
    try:
        (place / "lab.json").write_text("{}")
        for verb in ("down", "status"):
            done = lab_command(lab, verb)
            assert done.returncode == 65, done.stderr
        assert len(traces(lab)) == 8
    finally:
        (place / "lab.json").write_bytes(whole)


@needs_lab
def test_a_folder_of_a_host_that_holds_more_than_ours_is_left(lab_command, described):
    name, path = described
    lab_command(name, "down")
    place = Path("/etc/netns") / f"ccctl.{name}.gpu2"
    place.mkdir(parents=True)
    (place / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    try:
        assert lab_command(name, "up", path).returncode == 75
        assert lab_command(name, "down").returncode == 69
        assert (place / "resolv.conf").exists()
    finally:
        (place / "resolv.conf").unlink()
    assert lab_command(name, "down").returncode == 0
    assert traces(name) == []
