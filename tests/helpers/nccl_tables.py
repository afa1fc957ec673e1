"""Tables of nccl-tests under a setting each, for tests of tuner files."""

from exec.benchmark.report import Measurement, Report, Row
from exec.library_rules.choice import MeasuredSetting
from exec.library_rules.nccl import Setting


def tried(setting, times, ranks=16, nodes=2, kind="all_reduce"):
    rows = tuple(
        Row(
            kind,
            size,
            size // 4,
            "float32",
            "sum",
            -1,
            "nccl",
            None,
            Measurement(t, t, t, -1, 0, 0, 0),
            None,
            {},
        )
        for size, t in times.items()
    )
    hosts = tuple(f"h{node}" for node in range(nodes))
    return MeasuredSetting(
        str(Setting.of(setting)), Report(ranks, hosts, "nccl-tests", "NCCL", 5, 20, rows), f"{setting}.log"
    )


SMALL = tried("tree:ll:4", {1 << 10: 1.0, 1 << 20: 9.0, 1 << 30: 90.0})
LARGE = tried("ring:simple:16", {1 << 10: 2.0, 1 << 20: 5.0, 1 << 30: 20.0})
