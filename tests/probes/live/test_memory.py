"""Room in memory: limits of cgroups as the kernel writes them, and what all ranks of a host need together."""

import pytest

from probes.base.errors import UnavailableError
from probes.live import memory
from probes.live.memory import Need, Room, refuse_crowding, rooms

GIB = 1 << 30
MACHINE = Room(("m",), "memory", 20 * GIB)
SHARED = Room(("m", "shm"), "/dev/shm", GIB, shared=True)


def test_what_fits_passes_and_what_does_not_is_named_with_both_numbers():
    refuse_crowding([("a", (MACHINE, SHARED), Need(10 * GIB))] * 2, "work")
    with pytest.raises(UnavailableError) as caught:
        refuse_crowding([("a", (MACHINE, SHARED), Need(11 * GIB))] * 2, "work")
    assert caught.value.message == "a: work takes 22 GiB of memory for 2 ranks, 20 GiB are free"
    with pytest.raises(UnavailableError, match=r"a: work takes 40 GiB of memory for 4 ranks, 20 GiB"):
        refuse_crowding([("a", (MACHINE,), Need(10 * GIB, ranks=4))], "work")


def test_hosts_that_are_one_machine_are_added_up_and_others_are_not():
    other = Room(("n",), "memory", 20 * GIB)
    asked = [("lab1", (MACHINE,), Need(11 * GIB)), ("lab2", (MACHINE,), Need(11 * GIB))]
    with pytest.raises(UnavailableError, match="lab1, lab2: work takes 22 GiB"):
        refuse_crowding(asked, "work")
    refuse_crowding([asked[0], ("b", (other,), Need(11 * GIB))], "work")
    with pytest.raises(UnavailableError, match=r"^b: ") as caught:
        refuse_crowding([asked[0], ("b", (other,), Need(21 * GIB))], "work")
    assert "\n" not in caught.value.message


def test_shared_memory_is_asked_of_its_own_room():
    with pytest.raises(UnavailableError, match=r"2 GiB of /dev/shm for 2 ranks, 1 GiB are free"):
        refuse_crowding([("a", (MACHINE, SHARED), Need(GIB, GIB))] * 2, "work")


CGROUPS = {
    "version 2, the parent's limit": (
        "0::/jobs/one\n",
        {
            "jobs/memory.max": "1000",
            "jobs/memory.current": "700",
            "jobs/memory.stat": "anon 500\ninactive_file 100\nactive_file 50\n",
            "jobs/one/memory.max": "max",
            "jobs/one/memory.current": "10",
        },
        [450],
    ),
    "version 1": (
        "4:memory:/jobs\n3:cpuset:/\n0::/\n",
        {
            "memory/jobs/memory.limit_in_bytes": "1000",
            "memory/jobs/memory.usage_in_bytes": "900",
            "memory/jobs/memory.stat": "inactive_file 7\ntotal_inactive_file 100\n",
        },
        [200],
    ),
    "a group outside the namespace": ("0::/../..\n", {"memory.max": "9", "memory.current": "4"}, [5]),
    "its root": ("0::/\n", {"memory.max": "1000", "memory.current": "1200"}, [0]),
    "none": ("", {}, []),
}


@pytest.mark.parametrize("name", CGROUPS)
def test_limits_are_read_from_every_group_up_to_the_root(name, tmp_path, monkeypatch):
    membership, files, free = CGROUPS[name]
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(membership)
    (proc / "meminfo").write_text("MemTotal: 99 kB\nMemAvailable: 9 kB\n")
    for path, content in files.items():
        (cgroups / path).parent.mkdir(parents=True, exist_ok=True)
        (cgroups / path).write_text(content)
    monkeypatch.setattr(memory, "_PROC", proc)
    monkeypatch.setattr(memory, "_CGROUPS", cgroups)
    monkeypatch.setattr(memory, "_SHARED", tmp_path / "none")
    assert [room.free_bytes for room in rooms()] == [9 << 10, *free]


def test_this_machine_has_room():
    assert any(room.name == "memory" and room.free_bytes > 0 for room in rooms())
