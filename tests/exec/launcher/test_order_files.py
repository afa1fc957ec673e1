"""Orders as launchers read them."""

import pytest

from exec.launcher import nodeset
from exec.launcher.starters.order_files import FORMATS, PlacedHost, keeps_slots, order_file

HOSTS = (PlacedHost("gpu3", (1, 0), 2), PlacedHost("gpu1", (0, 1), 0), PlacedHost("gpu2", (0, 1), 1))
TEXTS = {
    "hostfile": "gpu3 slots=2\ngpu1 slots=2\ngpu2 slots=2\n",
    "machinefile": "gpu3:2\ngpu1:2\ngpu2:2\n",
    "rankfile": "rank 0=gpu3 slot=1\nrank 1=gpu3 slot=0\nrank 2=gpu1 slot=0\nrank 3=gpu1 slot=1\n"
    "rank 4=gpu2 slot=0\nrank 5=gpu2 slot=1\n",
    "slurm": "gpu3\ngpu3\ngpu1\ngpu1\ngpu2\ngpu2\n",
    "torchrun": "gpu3 --nnodes=3 --node-rank=0 --nproc-per-node=2 --master-addr=gpu3\n"
    "gpu1 --nnodes=3 --node-rank=1 --nproc-per-node=2 --master-addr=gpu3\n"
    "gpu2 --nnodes=3 --node-rank=2 --nproc-per-node=2 --master-addr=gpu3\n",
    "kubernetes": "1,2,0\n",
}


@pytest.mark.parametrize("form", FORMATS)
def test_each_format(form):
    assert order_file(HOSTS, form) == TEXTS[form]


def test_only_a_rankfile_says_which_slot_a_rank_takes():
    assert [form for form in FORMATS if keeps_slots(form)] == ["rankfile"]


@pytest.mark.parametrize("form", ["hostfile", "machinefile"])
def test_what_is_written_is_read_back(form, tmp_path):
    path = tmp_path / "hosts"
    path.write_text(order_file(HOSTS, form))
    found = [(one.host, one.slots) for one in nodeset.read_hostfile(str(path))]
    assert found == [("gpu3", 2), ("gpu1", 2), ("gpu2", 2)]
