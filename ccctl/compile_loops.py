"""The compiler of the package's loops: ``python -m ccctl.compile_loops`` fills synth/kernels/loops.

The build of a wheel runs it. Run it in a shared installation after a change of Python or numba. Users' first
commands then compile nothing, even where they may not write to the installation.

A loop is compiled for the types of its arguments. So this module runs commands that call all loops with all
types that users need, which also tests each loop. The commands run in parallel and share a cache.
"""

from __future__ import annotations

import ast
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

__all__ = ["CASES", "compile_into", "uncompiled"]

_ROOT = str(Path(__file__).resolve().parents[1])
# Links as in a profile: each link has ports that other links share.
_LINKS = "src,dst,alpha,bandwidth,port\n" + "".join(
    f"{src},{dst},{1 + (src ^ dst)}us,{10 + src}GB/s,out{src // 2}\n"
    for src in range(4)
    for dst in range(4)
    if src != dst
)
_COST = "--alpha 0.5us --bandwidth 50GB/s"
_GROUPS = """
[[group]]
kind = "all_reduce"
size = "1M"
ranks = "0-1"
[[group]]
kind = "all_gather"
size = "64K"
ranks = "2-3"
"""
# Each case is a chain of commands that use each other's files; the longest come first. ``exec`` compiles, for
# each element type, the loop that runs programs on ranks; the other words of ``_PYTHON`` call what no quick
# command calls.
CASES: tuple[tuple[str, ...], ...] = (
    (
        f"synth --network mesh:4x4 {_COST} --size 64K -o mesh.json",
        "verify mesh.json",
        "simulate mesh.json --trace mesh.trace.json",
        "compile mesh.json -o mesh-program.json",
        "verify mesh-program.json",
        "predict mesh.json mesh-program.json",
        "show mesh.json",
    ),
    (
        "synth --network links.csv -o links.json",
        "compile links.json -o links-program.json",
        "simulate links-program.json --network links.csv --size 1M",
        "verify links-program.json --same-bits",
        "merge links.json",
    ),
    ("exec float32 float16 bfloat16 float64 int32 int64 int16 int8 uint8",),
    (f"synth --network mesh:2x2 {_COST} --collective groups.toml",),
    (f"synth --network ring:4 {_COST} --size 64K --reproducible --method aligned",),
    ("synth --network dgx-a100:2 --sizes 1K:4K -f 4 --method greedy -o dgx.json", "verify dgx.json"),
    (
        "synth --network dgx-h100+nvls:1 --size 64K --method nvls -o nvls.json",
        "compile nvls.json -o nvls-program.json",
        "verify nvls-program.json",
    ),
    (f"synth --network mesh:2x2 {_COST} --size 4M --for mscclpp --method ring -o plan.json",),
    (f"synth --network mesh:4x4 {_COST} --collective broadcast --chunk 1M --method greedy",),
    ("demand",),
    ("star",),
    *(
        (f"order switch:12 {_COST} --for {library}",)
        for library in ("mpich:rabenseifner", "openmpi:ring", "nccl:tree")
    ),
    # Some methods are asked for by name, since the default choice on these networks does not try them.
    (f"synth --network mesh:3x3 {_COST} --collective all_gather --size 1M --method forest",),
    (f"synth --network mesh:3x3 {_COST} --collective all_gather --size 1M --method tacos_published",),
    (f"synth --network torus:4x4 {_COST} --method symmetric -o symmetric.json", "verify symmetric.json"),
    (f"synth --network torus:4x4 {_COST} --method symmetric --collective all_to_all",),
    *(
        (f"synth --network {name} {_COST} --method periodic -o {file}", f"simulate {file}")
        for name, file in (
            ("mesh:4x4", "periodic.json"),
            ("dragonfly:5x4", "periodic-rates.json"),
            ("switch:16", "periodic-ports.json"),
        )
    ),
)
_DECORATORS = frozenset(("compiled", "compiled_always"))
_PYTHON = {
    "exec": "import sys; from exec.mpi.interpreter import compile_for; compile_for(sys.argv[1:])",
    "predict": """
import sys
from ccctl.artifacts import codec
from synth.prediction.run_time import predicted_s
from synth.prediction.one_host import host_timing
from probes.link_costs import HostMemory
schedule, program = (codec.load(path) for path in sys.argv[1:])
predicted_s(program, schedule.network, 1024)
host_timing(program, schedule.network, 1024, HostMemory("", (1,), (1e-9,), (1e-9,)))
""",
    "merge": """
import sys
from ccctl.artifacts import codec
from synth.compiler import lower
lower(codec.load(sys.argv[1]), most_chunks=2)
""",
    # Trees on a clique are stars only where other trees would take long.
    "star": """
from synth.collective import collective
from synth.methods import paths
from synth.networks import family
paths._MOST_WORK_ON_TREES = 100
paths.synthesize(family("fc:4", [1e-6], [1e9]), collective("all_gather", 4), 1)
""",
    "demand": """
import numpy as np
from ccctl.arguments import load_network
from synth.demands import DemandPlanner
network, _ = load_network("dgx-h100:2", None, None)
DemandPlanner(network).plan(np.random.default_rng(1).pareto(1.0, (network.ranks, network.ranks)) * 1e6)
""",
}
# These run only for programs with a data race, and no case has a data race.
_OF_WRONG_PROGRAMS = frozenset(("synth.check.races._unordered",))


def compile_into(folder: Path, cases: Sequence[tuple[str, ...]] = CASES) -> int:
    """Replace a folder's content by all loops for the baseline processor; return their number.

    Raises RuntimeError with the output of a command that fails, and leaves the folder unchanged then.
    """
    from synth.kernels import BASELINES, COMPILE_ALL, HIDE_SHIPPED

    if platform.machine() not in BASELINES:
        raise RuntimeError(f"no baseline is known for a processor of the kind {platform.machine()}")
    processor, _ = BASELINES[platform.machine()]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".loops-") as name:
        place = Path(name)
        (place / "links.csv").write_text(_LINKS, encoding="utf-8")
        (place / "groups.toml").write_text(_GROUPS, encoding="utf-8")
        environment = os.environ | {
            "NUMBA_CACHE_DIR": name,
            "NUMBA_CPU_NAME": processor,
            "NUMBA_CPU_FEATURES": "",
            "PYTHONPATH": os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH", "")])),
            HIDE_SHIPPED: "1",
            COMPILE_ALL: "1",
        }
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for done, chain in enumerate(pool.map(partial(_carry_out, place, environment), cases), 1):
                print(f"{done} of {len(cases)}: {chain}", file=sys.stderr, flush=True)
        made = sorted((place / "ccctl").glob("*.loop"))
        new = place / "new"
        new.mkdir(mode=0o755)
        for path in made:
            path.rename(new / path.name)
        shutil.rmtree(folder, ignore_errors=True)
        new.rename(folder)
    return len(made)


def uncompiled(folder: Path) -> list[str]:
    """Return the loops without machine code in a folder, because no case called them."""
    made = {path.name.rpartition("-")[0] for path in folder.glob("*.loop")}
    return sorted(set(_loops()) - made - _OF_WRONG_PROGRAMS)


def _loops() -> Iterator[str]:
    """Yield the qualified name of each compiled loop."""
    for package in ("probes", "synth", "exec", "ccctl"):
        for path in Path(_ROOT, package).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            # Most modules have no loop, and parsing them all takes seconds.
            if "@compiled" not in text:
                continue
            module = ".".join(path.relative_to(_ROOT).with_suffix("").parts)
            for node in ast.parse(text).body:
                if isinstance(node, ast.FunctionDef) and not _DECORATORS.isdisjoint(
                    map(ast.unparse, node.decorator_list)
                ):
                    yield f"{module}.{node.name}"


def _carry_out(place: Path, environment: dict[str, str], chain: tuple[str, ...]) -> str:
    for command in chain:
        words = command.split()
        what = ["-c", _PYTHON[words[0]], *words[1:]] if words[0] in _PYTHON else ["-m", "ccctl", *words]
        done = subprocess.run(
            [sys.executable, "-P", *what], cwd=place, env=environment, capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"{command}: status {done.returncode}: {done.stderr}")
    return chain[0]


def main() -> None:
    """Fill the folder named on the command line, by default the package's."""
    from synth.kernels import SHIPPED_LOOPS

    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else SHIPPED_LOOPS
    started_s = time.monotonic()
    print(f"compiling into {folder}, a minute or two", file=sys.stderr, flush=True)
    try:
        count = compile_into(folder.absolute())
    except (RuntimeError, OSError) as error:
        sys.exit(f"compile_loops: {error}")
    if left := uncompiled(folder):
        sys.exit(f"compile_loops: a case is missing that calls {', '.join(left)}")
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{folder}: {count} loops, {size / 1e6:.1f} MB, in {time.monotonic() - started_s:.0f} s")


if __name__ == "__main__":
    main()
