"""Digests of all results of planning: does a change of the code change any result?

For every sample network, collective and method: the schedule, its times, its bounds, the checker's findings
about it and about damaged copies, the compiled program with its verdict, times and MSCCL XML. For every XML
file of a folder: the program, its verdict and its times. The output has one line a case. With ``--compare``
it has only the differences from an earlier output, and the exit status is 1 if there are any.

    python -P benchmarks/result_digests.py >before.txt
    python -P benchmarks/result_digests.py --compare before.txt
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from probes.base.errors import CcctlError
from synth.bounds.lower_bounds import bounds
from synth.check.program import judge
from synth.check.schedule import check
from synth.collective import KINDS, collective
from synth.compiler.lowering import lower
from synth.errors import NotApplicableError
from synth.methods import greedy, paths
from synth.msccl.read import read_xml
from synth.msccl.write import write_xml
from synth.network import Network
from synth.networks.families import family
from synth.portfolio.attempts import METHODS
from synth.portfolio.rank_subsets import serve
from synth.program import Program
from synth.schedules import Schedule
from synth.simulation.program import simulate_program
from synth.simulation.schedule import replay

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests" / "helpers"))
from sample_networks import NAMED, named  # noqa: E402 - the tests' own matrix


def digest(*parts: object) -> str:
    """Return sixteen hexadecimal digits of SHA-256 over arrays, bytes and texts."""
    sha = hashlib.sha256()
    for part in parts:
        sha.update(
            part.tobytes()
            if isinstance(part, np.ndarray)
            else part
            if isinstance(part, bytes)
            else repr(part).encode()
        )
        sha.update(b"\0")
    return sha.hexdigest()[:16]


def schedules(name: str) -> Iterator[tuple[str, Schedule]]:
    """Yield every schedule of a sample network that does not depend on the speed of this machine."""
    network = named(name)
    for kind in KINDS:
        shape = collective(kind, network.ranks, 3, root=1)
        for method, entry in METHODS.items():
            if entry.solves:
                continue
            others = (greedy.synthesize, paths.synthesize)
            try:
                made = serve(
                    entry.synthesize, network, shape, 1 << 20, relays=entry.relays, others=others, seed=7
                )
            except NotApplicableError:
                continue
            yield f"{name}|{kind}|{method}", made


def damaged(schedule: Schedule) -> Iterator[tuple[str, Schedule]]:
    """Yield copies of a schedule that may be wrong: a send dropped, doubled, moved, or of another chunk."""
    rows = np.arange(schedule.sends)
    for seed in range(3):
        dice = np.random.default_rng(seed)
        one, other = dice.integers(0, schedule.sends, 2)
        swapped = rows.copy()
        swapped[[one, other]] = swapped[[other, one]]
        for how, kept in (
            ("dropped", np.delete(rows, one)),
            ("doubled", np.insert(rows, other, one)),
            ("swapped", swapped),
        ):
            yield (
                f"{how} {seed}",
                replace(
                    schedule,
                    chunk=schedule.chunk[kept],
                    link=schedule.link[kept],
                    op=schedule.op[kept],
                    outcome=None,
                ),
            )


def of_schedule(schedule: Schedule) -> Iterator[tuple[str, str]]:
    """Yield (name, digest) of a schedule, of its bounds and findings, and of its program."""
    timing = replay(schedule)
    yield "schedule", digest(schedule.chunk, schedule.link, schedule.op, timing.start_s, timing.arrival_s)
    found = bounds(schedule.network, schedule.collective, schedule.chunk_bytes, fluid=False)
    yield "bounds", digest([(bound.name, bound.time_s, bound.detail) for bound in found])
    yield "findings", digest(check(schedule), [(how, check(copy)) for how, copy in damaged(schedule)])
    yield from of_program(lower(schedule), schedule.network, schedule.chunk_bytes)


def of_program(program: Program, network: Network, chunk_bytes: float) -> Iterator[tuple[str, str]]:
    """Yield (name, digest) of a program, its verdict, its simulated times and its XML."""
    columns = [getattr(program, name) for name in Program.__dataclass_fields__]
    yield "program", digest(*columns)
    findings = judge(program)
    yield "verdict", digest(findings)
    try:
        yield "times", digest(simulate_program(program, network, chunk_bytes).time_s) if not findings else "-"
    except CcctlError as error:
        yield "times", digest(str(error))
    try:
        yield "xml", digest(write_xml(program))
    except CcctlError as error:
        yield "xml", digest(str(error))


def cases(programs: Path) -> Iterator[tuple[str, str]]:
    """Yield every case with its digest."""
    for name in NAMED:
        for label, schedule in schedules(name):
            yield from ((f"{label}|{what}", made) for what, made in of_schedule(schedule))
    for path in sorted(programs.glob("*.xml")):
        try:
            program = read_xml(path.read_bytes(), path.name)
        except CcctlError as error:
            yield f"{path.name}|refused", digest(str(error))
            continue
        network = family(f"fully_connected:{program.ranks}", [5e-7], [50e9])
        yield from ((f"{path.name}|{what}", made) for what, made in of_program(program, network, 1 << 20))


def main() -> int:
    """Print the digests, or how they differ from earlier ones."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--compare", type=Path, metavar="FILE", help="an earlier output")
    parser.add_argument(
        "--programs", type=Path, default=ROOT.parent / "shared" / "data" / "programs", metavar="FOLDER"
    )
    chosen = parser.parse_args()
    now = dict(cases(chosen.programs))
    if chosen.compare is None:
        print("\n".join(f"{case}\t{made}" for case, made in now.items()))
        return 0
    before = dict(line.split("\t") for line in chosen.compare.read_text().splitlines())
    changed = [case for case in {**before, **now} if before.get(case) != now.get(case)]
    print("\n".join([*changed, f"{len(now)} cases, {len(changed)} differ"]))
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
