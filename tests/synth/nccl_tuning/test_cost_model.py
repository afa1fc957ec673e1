"""Times of NCCL's model against those that NCCL 2.30.7's own code gave for the same communicators."""

import pytest

from synth.nccl_tuning.cost_model import BusRates, NcclWorld, times_us

# (ranks, hosts, architecture, NVLink), then by setting the microseconds that ncclTopoGetAlgoTime of commit
# 5067397c gave for all_reduce of 1 KiB and of 64 MiB: 16 channels, 8.5 GB/s each in rings, 6.5 in trees.
GIVEN = {
    (8, 1, "hopper", True): {
        "tree:simple": (64.423782, 1817.871582),
        "ring:ll": (15.026353, 1742.066284),
        "ring:simple": (56.013176, 919.533142),
    },
    (32, 4, "ampere", True): {
        "tree:simple": (120.423782, 1873.871582),
        "ring:ll": (78.897247, 6452.497070),
        "ring:simple": (282.814606, 1351.974731),
    },
    (16, 2, "volta", False): {
        "tree:simple": (92.423782, 1845.871582),
        "ring:ll": (40.049232, 3266.387451),
        "ring:simple": (196.014099, 1297.614014),
    },
    (64, 8, "blackwell", True): {
        "tree:simple": (148.423782, 1901.871582),
        "ring:ll": (156.498825, 6632.898438),
        "ring:simple": (585.214905, 1790.754883),
    },
}


@pytest.mark.parametrize("world", GIVEN, ids=str)
def test_the_times_are_those_of_nccl(world):
    ranks, hosts, architecture, nvlink = world
    made = NcclWorld(ranks, hosts, architecture, nvlink=nvlink, channels=16)
    for at, size in enumerate((1 << 10, 1 << 26)):
        found = times_us("all_reduce", made, BusRates(16 * 8.5, 16 * 6.5), size)
        for setting, given in GIVEN[world].items():
            assert found[setting] == pytest.approx(given[at], rel=1e-6)


def test_protocols_that_nccl_does_not_trust_are_left_out():
    world = NcclWorld(16, 2, "volta", nvlink=False, ll128=False)
    found = times_us("all_gather", world, BusRates(100.0, 100.0), 1024)
    assert set(found) == {"ring:ll", "ring:simple"}
