"""`ccctl doctor`: it looks at everything, one broken thing hides no other, the status tells."""

import json

import pytest

from ccctl import doctor_checks
from ccctl.commands.doctor import doctor
from ccctl.errors import UnavailableError, exit_status
from exec.launcher.starters import mpirun


@pytest.mark.mpi
def test_the_machine_of_the_tests_is_well(run_ccctl):
    done = run_ccctl("doctor", "--json")
    found = json.loads(done.stdout)
    states = {check["name"]: check["state"] for check in found["checks"]}
    assert (done.returncode, found["works"]) == (0, True), done.stderr
    assert states["Python"] == states["MPI launcher"] == states["2 ranks over MPI"] == states["numpy"] == "ok"
    assert set(states.values()) <= {"ok", "note"}


def test_what_is_essential_and_missing_is_status_69(monkeypatch, capsys):
    def lacking():
        raise UnavailableError("no mpirun", hint="install one")

    monkeypatch.setattr(mpirun, "find", lacking)
    monkeypatch.setattr(doctor_checks, "CHECKS", (doctor_checks._python, doctor_checks._launcher))
    with pytest.raises(UnavailableError) as raised:
        doctor(json=False)
    assert exit_status(raised.value) == 69
    assert raised.value.message == "missing for the pipeline on CPUs: MPI launcher"
    assert "no mpirun" in capsys.readouterr().out


def test_a_check_that_breaks_hides_no_other(monkeypatch):
    def broken_thing():
        raise OSError("rusty")
        yield

    def fine():
        yield doctor_checks.Check("fine", "ok", "yes")

    monkeypatch.setattr(doctor_checks, "CHECKS", (broken_thing, fine))
    first, second = doctor_checks.examine()
    assert (first.name, first.state, first.found) == ("broken thing", "missing", "OSError: rusty")
    assert second.name == "fine"


def test_every_shortfall_has_a_hint():
    quick = [look for look in doctor_checks.CHECKS if look is not doctor_checks._hello]
    for look in quick:
        for check in look():
            assert check.found
            assert check.state == "ok" or check.hint


def test_an_active_device_that_ucx_does_not_use_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr("exec.sockets.ucx._DEVICES", tmp_path)
    monkeypatch.setenv("CCCTL_WIRES", "tcp")
    (no_device,) = doctor_checks._rdma()
    (tmp_path / "mlx5_0" / "ports" / "1").mkdir(parents=True)
    (tmp_path / "mlx5_0" / "ports" / "1" / "state").write_text("4: ACTIVE\n")
    (unused,) = doctor_checks._rdma()
    assert (no_device.found, no_device.state, unused.state) == (
        "no device with an active port",
        "note",
        "note",
    )
    assert unused.found.startswith("mlx5_0")


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(
        doctor_checks.metadata, "requires", lambda _: ["typer>=1", "no-such-thing>=2", "x; extra == 'y'"]
    )
    states = {check.name: check.state for check in doctor_checks._packages()}
    assert states == {"typer": "ok", "no-such-thing": "missing"}
