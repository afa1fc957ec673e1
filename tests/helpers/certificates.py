"""Certificates as an acceptance of twelve hosts could give them, with figures written by hand."""

from hypothesis import strategies as st

from exec.acceptance import Certificate, Culprit, FaultCost, Spares, Stage, WholeRow

HOSTS = tuple(f"gpu{number:03}" for number in range(1, 13))
GIB = 1 << 30
CABLE = Culprit(
    "egress",
    "gpu007 mlx5_2",
    ("gpu007",),
    "fault",
    "gpu007 mlx5_2 sends at 52 % of the rate of the other NICs: 24.1 GB/s, normal is 46.3 GB/s.",
    (
        "88 of 88 links from gpu007 through mlx5_2 carry 23.8 to 24.4 GB/s; others carry 45.9 to 46.8 GB/s",
        "links to gpu007 through mlx5_2 carry 46.2 GB/s: it receives as it should",
        "symbol errors of mlx5_2 rose by 1,204 in 61 s, those of the other NICs by 0",
    ),
    "certain",
    "Replace the cable of gpu007 mlx5_2, or clean both ends; then run ccctl accept again.",
    FaultCost("all_reduce", GIB, 34e-3, 21e-3),
)
SLOT = Culprit(
    "pcie_width",
    "gpu011 GPU 0000:3b:00.0",
    ("gpu011",),
    "fault",
    "GPU 0000:3b:00.0 has 8 PCIe lanes under load, normal is 16.",
    ("read while 2.1 GB/s moved: 32 GT/s x8", "the 95 other GPUs: 32 GT/s x16"),
    "likely",
    "Seat the GPU's riser anew; if it stays at x8, replace the riser.",
    FaultCost("all_reduce", GIB, 34e-3, 31e-3),
)
TRUNK = Culprit(
    "trunk",
    "rack B to rack C",
    HOSTS[4:],
    "fault",
    "Links from rack B to rack C carry 71 % of the rate of the other racks: 33 GB/s, normal is 46.3 GB/s.",
    ("16 of 16 pairs of hosts between these racks are slow, none within them",),
    "possible",
    "Compare the uplinks of both leaf switches; one of four may be down.",
)
GOVERNOR = Culprit(
    "differs",
    "governor",
    ("gpu003", "gpu004"),
    "remark",
    "gpu003 and gpu004 have the CPU governor powersave, the 10 other hosts have performance.",
    (),
    "certain",
    "cpupower frequency-set -g performance",
    FaultCost("all_reduce", 8192, 31e-6, 29e-6),
)
STAGES = (
    Stage("hosts", 41.2, True),
    Stage("links", 312.0, True, ("latency of 40 of 132 pairs: the budget of 15 min was used up",)),
    Stage("whole", 188.5, True),
)
WHOLE = (
    WholeRow("all_reduce", GIB, "ccctl", 34e-3, 31e-3, 19e-3, 0, 31.6, 62.2),
    WholeRow("all_reduce", GIB, "nccl", 36.2e-3, 31e-3, 19e-3, None),
    WholeRow("all_reduce", 8192, "ccctl", 31e-6, 24e-6, 22e-6, 0),
    WholeRow("all_gather", 256 << 20, "ccctl", 9.8e-3, 9.1e-3, 5.2e-3, 0),
)
DIGESTS = {name: f"{number:x}" * 64 for number, name in enumerate(("health.json", "profile.json"), 10)}


def refused():
    """Three faults, one of them between hosts, and a remark."""
    return Certificate(
        "refused",
        "3 faults on 10 of 12 hosts",
        96,
        HOSTS,
        {"gpu013": "no answer to ssh within 10 s", "gpu014": "no answer to ssh within 10 s"},
        "dgx-h100/8x400",
        "plan.toml",
        culprits=(CABLE, SLOT, TRUNK, GOVERNOR),
        whole=WHOLE,
        spares=(Spares(10, ("gpu007", "gpu011"), "all_reduce", GIB, 19.4e-3, 19e-3),),
        stages=STAGES,
        unread={"NVLink error counters": "needs root, or nvidia-smi with administrator rights"},
        files=DIGESTS,
        versions={"ccctl": "0.9.0", "nccl": "2.27.3", "driver": "570.124.06"},
        started="2026-11-26T06:00:00+00:00",
        seal="5" * 64,
    )


def remarks():
    """A remark and no fault."""
    whole = tuple(
        WholeRow(row.collective, row.size_bytes, row.library, 1.1 * row.bought_bound_s, row.bought_bound_s)
        for row in WHOLE
    )
    return Certificate(
        "accepted with remarks",
        "1 remark on 2 of 12 hosts",
        96,
        HOSTS,
        culprits=(GOVERNOR,),
        whole=whole,
        stages=STAGES,
        files=DIGESTS,
        versions={"ccctl": "0.9.0"},
        started="2026-11-19T06:00:00+00:00",
        seal="6" * 64,
    )


def accepted():
    """Nothing found, and nothing but the hosts is known."""
    return Certificate("accepted", "", 96, HOSTS, started="2026-11-12T06:00:00+00:00")


CERTIFICATES = {"refused": refused(), "remarks": remarks(), "accepted": accepted()}
TEXTS = st.text(
    st.characters(exclude_categories=()) | st.sampled_from("\x00\x1b\n\r\t'\"`$\\<>&;|%{}\u202e\ud800"),
    max_size=40,
)
_NUMBERS = st.floats(0.0, 1e6)
_NAMES = st.lists(TEXTS, max_size=3).map(tuple)
_WORDS = st.dictionaries(TEXTS, TEXTS, max_size=3)
_KINDS = st.sampled_from(("all_reduce", "broadcast"))
_SIZES = st.integers(0, 1 << 50)
_COSTS = st.builds(FaultCost, _KINDS, _SIZES, _NUMBERS, _NUMBERS)
_CULPRITS = st.builds(
    Culprit,
    st.sampled_from(("pair", "trunk", "ecc", "pcie_width")) | TEXTS,
    TEXTS,
    _NAMES,
    st.sampled_from(("fault", "remark")),
    TEXTS,
    _NAMES,
    st.sampled_from(("certain", "likely", "possible")),
    TEXTS,
    st.none() | _COSTS,
)
_ROWS = st.builds(
    WholeRow,
    _KINDS,
    _SIZES,
    TEXTS,
    _NUMBERS,
    st.none() | _NUMBERS,
    st.none() | _NUMBERS,
    st.none() | st.integers(0, 9),
)


@st.composite
def certificates(draw):
    """Any certificate, with any characters in its texts; its culprits are often in its hosts."""
    hosts = draw(st.lists(TEXTS, unique=True, max_size=3).map(tuple))
    culprits = draw(st.lists(_CULPRITS, max_size=3).map(tuple))
    named = tuple(dict.fromkeys((*hosts, *(host for one in culprits for host in one.hosts))))
    return Certificate(
        draw(st.sampled_from(("accepted", "accepted with remarks", "refused", "undecided"))),
        draw(TEXTS),
        draw(st.integers(0, 1 << 20)),
        draw(st.sampled_from((hosts, named))),
        draw(_WORDS),
        draw(TEXTS),
        draw(TEXTS),
        draw(_KINDS),
        draw(_SIZES),
        draw(st.integers(0, 9)),
        culprits,
        draw(st.lists(_ROWS, max_size=3).map(tuple)),
        draw(st.lists(st.builds(Spares, _SIZES, _NAMES, _KINDS, _SIZES, _NUMBERS, _NUMBERS), max_size=2)),
        draw(st.lists(st.builds(Stage, st.just("links"), _NUMBERS, st.booleans(), _NAMES), max_size=2)),
        draw(_WORDS),
        draw(_WORDS),
        draw(_WORDS),
        draw(st.sampled_from(("", "2026-11-26T06:00:00+00:00", "0001-01-01T00:00:00+23:59")) | TEXTS),
        draw(TEXTS),
    )
