"""Command lines of words that nobody should type: every option of every command with every nasty value.

They name the files of ``FILES``, which the caller puts into the folder where they are run, anew before each:
a command line may write to them. Commands that change the machine (``lab``) are left out.
"""

from __future__ import annotations

import random as _random
from collections.abc import Iterator
from functools import cache

from ccctl.main import command_line

__all__ = ["FILES", "NASTY", "command_lines"]

FILES = ("schedule.json", "program.json", "profile.json", "topology.json", "report.json", "ring.py")

NASTY = (
    *(
        "",
        " ",
        "-",
        "--",
        "-1",
        "0",
        "1",
        "-0",
        "+1",
        "1.5",
        "nan",
        "inf",
        "-inf",
        "1e308",
        "1e-320",
        "1e999",
    ),
    *(
        "9" * 20,
        "9" * 400,
        "9" * 5000,
        "²",
        "٣",
        "1_0",
        "0x10",
        "1e30",
        "💥",
        "é" * 300,
        "x" * 100_000,
        "\udcff",
    ),
    *("../..", "/", ".", "/dev/null", "/dev/zero", "/dev/stdin", "/proc/self/mem", "nothing.json", "a/b/c"),
    *(
        ",",
        ",,",
        "1,",
        ",1",
        "1,1",
        "0-",
        "-0-1",
        "3-1",
        "0-99999999999",
        "a:",
        ":a",
        ":",
        "a:b:c",
        "=",
        "a=",
        "=a",
    ),
    *(
        "1K",
        "1K:",
        ":1K",
        "1K:1",
        "1:1e30",
        "1T:9T",
        "9e30",
        "1e-320GB/s",
        "1e400GB/s",
        "1GB/s,",
        "1e308s",
        "0.5us",
    ),
    *(
        "%s",
        "%n",
        "{}",
        "{rank}",
        "$(x)",
        "`x`",
        "'",
        '"',
        "\\",
        "\n",
        "\t",
        "\x1b[2J",
        "\ufeff",
        "a\nb",
        "*",
        "?",
    ),
    *(
        "ring:4",
        "ring:1",
        "ring:0",
        "ring:",
        "ring:4x4",
        "ring:99999999999",
        "mesh:100000x100000",
        "mesh:0x4",
    ),
    *(
        "mesh:" + "x".join(["1"] * 400),
        "mesh:" + "x".join(["2"] * 400),
        "hypercube:3",
        "fat_tree:4/0",
        "fat_tree:3",
    ),
    *("dragonfly:0x0", "dgx-a100:0", "dgx-a100:²", "dgx-a100:" + "9" * 5000, "switch:2", "rfs:1x1x1"),
    *(
        "rank:0",
        "rank:0-3",
        "rank:9",
        "rank:0,rank:2",
        "link:0-1",
        "link:0-1,link:2-3",
        "link:0>0",
        "host:n0",
    ),
    *(
        "broadcast@9",
        "broadcast@3:0-1",
        "all_reduce:0",
        "all_reduce:0-1,all_reduce:2-3",
        "all_reduce:",
        "custom",
    ),
    *(
        "several",
        "auto",
        "cpu",
        "cuda",
        "all",
        "float",
        "sum",
        "both",
        "mpi",
        "nccl",
        "True",
        "None",
        "ranks=True",
    ),
    *("ranks=" + "9" * 5000, "ranks=999999999", "ranks=-1", "ranks=²", "ranks=nan", "ranks=", "ranks=(1,2)"),
    *FILES,
)

_SYNTH = ["synth", "--network", "ring:4", "--bandwidth", "1GB/s", "--chunk", "1K", "--method", "ring"]
_BASES = (
    _SYNTH,
    ["synth", "--network", "mesh:2x2", "--bandwidth", "1GB/s", "--size", "1K", "--method", "greedy"],
    ["synth", "--network", "profile.json", "--chunk", "1K", "--method", "ring"],
    ["compile", "schedule.json"],
    ["compile", "ring.py", "-p", "ranks=4"],
    ["verify", "schedule.json"],
    ["verify", "program.json"],
    ["verify", "ring.py", "-p", "ranks=4"],
    ["simulate", "schedule.json"],
    ["simulate", "program.json", "--network", "ring:4", "--bandwidth", "1GB/s", "--size", "1K"],
    ["show", "schedule.json"],
    ["show", "profile.json"],
    ["show", "report.json"],
    ["show", "topology.json"],
    ["detect", "--from", "topology.json"],
    ["profile", "--from", "profile.json"],
    ["schema"],
    ["run", "nothing.json"],
    ["bench", "nothing.json"],
)


def command_lines(random: _random.Random) -> Iterator[list[str]]:
    """Command lines without end, in which up to three options or words of a command are nasty values."""
    options = _options()
    while True:
        words = list(random.choice(_BASES))
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            value = random.choice(NASTY)
            how = random.random()
            if how < 0.6 and options[words[0]]:
                name, takes = random.choice(options[words[0]])
                words += [f"{name}={value}" if random.random() < 0.5 else name, value][: 1 + takes]
            elif how < 0.9 and len(words) > 1:
                words[random.randrange(1, len(words))] = value
            else:
                words.insert(random.randrange(1, len(words) + 1), value)
        yield words


@cache
def _options() -> dict[str, list[tuple[str, bool]]]:
    """For each command its options, and whether each takes a value."""
    found: dict[str, list[tuple[str, bool]]] = {}
    for name, command in command_line().commands.items():
        listed = [parameter for parameter in command.params if parameter.opts[0].startswith("-")]
        found[name] = [
            (opt, not (getattr(parameter, "is_flag", False) or getattr(parameter, "count", False)))
            for parameter in listed
            for opt in (*parameter.opts, *parameter.secondary_opts)
        ]
    return found
