"""CPU quotas and sets of a host's ranks, in both versions of cgroups, as the kernel writes them."""

from dataclasses import replace

import pytest

from probes.health import CpuLimit, HostHealth, host_problems, read_host
from probes.sysfs import packed, unpack

# A pod limited to half a core, in a cgroup of version 2, with work in 120 periods and held back in 100.
POD = {
    "proc/self/cgroup": "0::/kubepods/pod1\n",
    "sys/fs/cgroup/kubepods/pod1/cpu.max": "50000 100000\n",
    "sys/fs/cgroup/kubepods/pod1/cpu.stat": "usage_usec 9\nnr_periods 120\nnr_throttled 100\n",
    "sys/fs/cgroup/kubepods/cpu.max": "max 100000\n",
    "sys/fs/cgroup/kubepods/pod1/cpuset.cpus.effective": "0-7\n",
    "sys/devices/system/cpu/online": "0-7\n",
}
# A job in version 1: the group above its own has the quota, 2 cores; its own cpuset has three of eight CPUs.
JOB = {
    "proc/self/cgroup": "4:cpuset:/slurm/job\n1:cpu,cpuacct:/slurm/job\n",
    "sys/fs/cgroup/cpu/slurm/job/cpu.cfs_quota_us": "-1\n",
    "sys/fs/cgroup/cpu/slurm/job/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/cpu/slurm/cpu.cfs_quota_us": "200000\n",
    "sys/fs/cgroup/cpu/slurm/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/cpu/slurm/cpu.stat": "nr_periods 7\nnr_throttled 1\nthrottled_time 4\n",
    "sys/fs/cgroup/cpuset/slurm/job/cpuset.effective_cpus": "0-1,5\n",
    "sys/devices/system/cpu/online": "0-7\n",
}
FREE = {
    "proc/self/cgroup": "2:cpuset:/\n1:cpu:/\n",
    "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
    "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/cpuset/cpuset.effective_cpus": "0-7\n",
    "sys/devices/system/cpu/online": "0-7\n",
}
GARBAGE = {
    "proc/self/cgroup": "0::/x\n::\n1\n",
    "sys/fs/cgroup/x/cpu.max": "ten of\n",
    "sys/fs/cgroup/x/cpuset.cpus.effective": "0-\n",
}
MACHINES = {
    "version 2": (POD, CpuLimit(0.5, None, None, 8, 120, 100)),
    "version 1": (JOB, CpuLimit(2.0, 3, None, 8, 7, 1)),
    "no limit": (FREE, None),
    "garbage": (GARBAGE, None),
    "no cgroups": ({}, None),
}


def machine_of(files, root):
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    return root


@pytest.mark.parametrize("name", MACHINES)
def test_the_least_limit_of_all_groups_above_is_read(name, tmp_path):
    files, limit = MACHINES[name]
    assert read_host("gpu1", machine_of(files, tmp_path)).cpu_limit == limit


@pytest.mark.parametrize("name", MACHINES)
def test_a_recorded_machine_has_the_same_limit_and_no_names_of_groups(name, tmp_path):
    files, limit = MACHINES[name]
    text = packed(machine_of(files, tmp_path / "live"))
    assert not any(word in text for word in ("kubepods", "pod1", "slurm", "job"))
    unpack(text, tmp_path / "recorded", "a recording")
    assert read_host("gpu1", tmp_path / "recorded").cpu_limit == limit


def problems(limit):
    return [one for one in host_problems(HostHealth("gpu1", cpu_limit=limit)) if one.kind == "quota"]


HALF = CpuLimit(0.5, None, 1, 8, 120, 100)


def test_less_than_a_core_for_each_rank_is_a_fault_with_its_numbers():
    [found] = problems(HALF)
    assert (found.host, found.severity) == ("gpu1", "fault")
    assert found.text == (
        "1 rank may use 0.5 cores (CPU quota); a core for each rank is normal; its processes were held "
        "back in about 80 % of the time"
    )
    assert "cpu.max" in found.remedy
    [sets] = problems(CpuLimit(None, 3, 4, 8))
    assert "4 ranks may use 3 of 8 CPUs (cpuset)" in sets.text


def test_a_quota_that_suffices_but_holds_the_ranks_back_is_a_remark():
    [found] = problems(replace(HALF, cores=2.0))
    assert found.severity == "remark"


def test_a_quota_that_suffices_is_no_finding():
    assert not problems(replace(HALF, cores=1.0, throttled=3))
    assert not problems(replace(HALF, cores=1.0, periods=20, throttled=20))
    # More ranks than the machine has cores are no fault of a limit.
    assert not problems(CpuLimit(None, None, 16, 8))
    assert not problems(CpuLimit(8.0, None, 16, 8))
    assert not problems(None)
