"""The door of the backend: known to torch where that is installed, quiet where it is not."""

import subprocess
import sys
from importlib.metadata import entry_points

import pytest
from limits import HANG_S

from ccctl.errors import UsageError
from ccctl.torch import _artifacts, _KeptSchedules, _network, register


def run(script):
    return subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, timeout=HANG_S, check=True
    ).stdout.strip()


def test_the_entry_point_is_the_function_that_registers():
    (door,) = entry_points(group="torch.backends", name="ccctl")
    assert door.load() is register


def test_without_torch_nothing_is_raised_and_nothing_else_imports_it():
    said = run(
        "import sys; sys.modules['torch'] = None; import ccctl.torch, exec.training; ccctl.torch.register();"
        "print(sys.modules['torch'])"
    )
    assert said == "None"


def test_the_packages_do_not_import_torch():
    loaded = "exec.training.backend.planned_collectives"
    said = run(f"import sys, ccctl, ccctl.main, exec, {loaded}; print('torch' in sys.modules)")
    assert said == "False"


def test_torch_knows_the_backend():
    pytest.importorskip("torch")
    said = run(
        "import torch.distributed as dist, ccctl.torch;"
        "print(dist.Backend('ccctl'), 'ccctl' in dist.Backend.backend_list)"
    )
    assert said == "ccctl True"


def test_the_network_is_that_of_the_ranks_in_a_profile(tmp_path):
    path = tmp_path / "links.csv"
    pairs = [(src, dst) for src in range(3) for dst in range(3) if src != dst]
    path.write_text("".join(f"{src},{dst},{1 + src + dst}us,1GB/s\n" for src, dst in pairs))
    assert _network("", [0, 1], 2) is None
    network = _network(str(path), [0, 2], 3)
    assert network.ranks == 2
    assert network.alpha_s.tolist() == [3e-6, 3e-6]
    with pytest.raises(UsageError, match=r"CCCTL_PROFILE=.*links.csv: it is of 3 ranks, the job has 4"):
        _network(str(path), [0, 2], 4)


MODEL = """{"schema": "ccctl/model/1", "body": {}}"""


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "there is no such file"),
        ("{}", "schema: not a ccctl artifact"),
        (MODEL, "schema: expected a profile or topology or .*, found a model"),
    ],
)
def test_what_is_wrong_with_the_profile_is_told_with_the_variable_that_names_it(tmp_path, content, why):
    path = tmp_path / "profile.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=f"CCCTL_PROFILE={path}: {why}"):
        _network(str(path), [0, 1], 2)


def test_schedules_outlive_the_job_where_the_cache_can_be_written(tmp_path, monkeypatch, samples):
    schedule = samples["schedule"]
    for place, kept in ((str(tmp_path), True), ("/dev/null", False)):
        monkeypatch.setenv("XDG_CACHE_HOME", place)
        _artifacts.cache_clear()
        _KeptSchedules().keep({"kind": "all_reduce"}, schedule)
        _artifacts.cache_clear()
        found = _KeptSchedules().read({"kind": "all_reduce"})
        assert (found is not None) == kept
        assert not kept or found.sends == schedule.sends
    _artifacts.cache_clear()
