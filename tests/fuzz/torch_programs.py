"""Random legal programs of torch.distributed on the backend ccctl, with gloo as oracle.

``python -P tests/fuzz/torch_programs.py --programs 10000 --seed 7`` starts ranks that run programs one after
the other: several groups, threads that are the first to use theirs, asynchronous collectives that each rank
waits for at another point, messages, objects, groups that are made and destroyed while all that is under way.
Program i of a seed is the same on every machine. A program hangs when no rank gets on for ``--deadline``
seconds; then the stacks of all ranks are printed. Every result is compared with what gloo gives, bit by bit.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT)]

__all__ = ["Campaign", "campaign", "program_of"]

KINDS = (
    "all_reduce",
    "all_reduce",
    "all_reduce",
    "reduce",
    "broadcast",
    "all_gather",
    "all_gather_into_tensor",
    "reduce_scatter_tensor",
    "reduce_scatter",
    "all_to_all_single",
    "all_to_all",
    "gather",
    "scatter",
    "coalesced",
    "barrier",
    "objects",
    "object",
    "messages",
)
# They have no work to wait for.
BLOCKING = ("objects", "object", "messages")
DTYPES = ("float32", "float32", "float64", "int32", "int64", "bfloat16", "uint8")
OPERATORS = ("SUM", "SUM", "MAX", "MIN")
# Elements: from what gloo carries out at once to what plans do.
COUNTS = (1, 7, 300, 5_000, 20_000, 20_000, 40_013)
# So often a process starts anew, and so many programs have plans from the first call on.
PROGRAMS_A_START = 100
READY = "ready"


@dataclass(frozen=True)
class Op:
    """Collective ``number`` of a program, on group ``group``; ``split`` are the ranks that give splits."""

    number: int
    group: int
    kind: str
    count: int
    dtype: str
    operator: str
    root: int
    later: bool
    split: tuple[bool, ...]


@dataclass(frozen=True)
class Step:
    """The next action of every rank: one of make, call, shuffle, threads, join, destroy."""

    do: str
    ops: tuple[Op, ...] = ()
    group: int = 0
    members: tuple[int, ...] = ()


@dataclass
class _Maker:
    """Draws a program; ``free`` are the groups that no thread uses."""

    dice: random.Random
    ranks: int
    members: list[tuple[int, ...]] = field(default_factory=list)
    free: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    ops: int = 0

    def make(self) -> None:
        everyone = tuple(range(self.ranks))
        size = self.dice.randint(2, self.ranks)
        members = everyone if self.dice.random() < 0.5 else tuple(sorted(self.dice.sample(everyone, size)))
        self.free.append(len(self.members))
        self.steps.append(Step("make", group=len(self.members), members=members))
        self.members.append(members)

    def op(self, group: int, *, later: bool) -> Op:
        dice, members = self.dice, self.members[group]
        kind = dice.choice([kind for kind in KINDS if not (later and kind in BLOCKING)])
        self.ops += 1
        return Op(
            self.ops,
            group,
            kind,
            dice.choice(COUNTS),
            dice.choice(DTYPES),
            dice.choice(OPERATORS),
            dice.choice(members),
            later,
            tuple(dice.random() < 0.5 for _ in members),
        )

    def several(self, group: int, most: int, *, later: bool) -> list[Op]:
        """Some calls on a group; sometimes the same call again and again, as in training."""
        first = self.op(group, later=later)
        if self.dice.random() < 0.5:
            return [first, *(self.op(group, later=later) for _ in range(self.dice.randrange(most)))]
        again = [first]
        for _ in range(self.dice.randrange(most)):
            self.ops += 1
            again.append(Op(self.ops, *(getattr(first, name) for name in list(Op.__annotations__)[1:])))
        return again

    def threads(self) -> list[int]:
        used = self.dice.sample(self.free, self.dice.randint(1, len(self.free)))
        ops = [op for group in used for op in self.several(group, 4, later=False)]
        self.free = [group for group in self.free if group not in used]
        self.steps.append(Step("threads", tuple(ops)))
        return used

    def program(self) -> list[Step]:
        for _ in range(self.dice.randint(1, 3)):
            self.make()
        busy: list[int] = []
        for _ in range(self.dice.randint(3, 8)):
            choice = self.dice.random()
            if choice < 0.15 and len(self.members) < 6:
                self.make()
            elif choice < 0.3 and self.free and not busy:
                busy = self.threads()
            elif choice < 0.4 and busy:
                self.steps.append(Step("join"))
                self.free, busy = self.free + busy, []
            elif choice < 0.5 and len(self.free) > 1:
                used = self.dice.sample(self.free, self.dice.randint(2, len(self.free)))
                self.steps.append(Step("shuffle", tuple(self.op(group, later=True) for group in used)))
            elif choice < 0.55 and len(self.free) > 1:
                self.steps.append(Step("destroy", group=self.free.pop(self.dice.randrange(len(self.free)))))
            elif self.free:
                group, later = self.dice.choice(self.free), self.dice.random() < 0.5
                self.steps.append(Step("call", tuple(self.several(group, 5, later=later))))
        return self.steps


def program_of(seed: int, number: int, ranks: int) -> list[Step]:
    """Program ``number`` of a seed, alike on all ranks."""
    return _Maker(random.Random(f"{seed}/{number}/{ranks}"), ranks).program()


class Runner:
    """Runs programs on one rank of a world whose default group is gloo's."""

    def __init__(self, seed: int, ranks: int, rank: int) -> None:
        self.seed, self.ranks, self.rank = seed, ranks, rank
        self.oracles: dict[tuple[int, ...], Any] = {}

    def run(self, number: int) -> None:
        """Run one program on both backends; raises AssertionError where they differ."""
        import torch.distributed as dist

        steps = program_of(self.seed, number, self.ranks)
        own = random.Random(f"{self.seed}/{number}/{self.rank}")
        groups: dict[int, Any] = {}
        members: dict[int, tuple[int, ...]] = {}
        results: dict[int, Any] = {}
        waiting: list[Any] = []
        threads: list[threading.Thread] = []
        errors: list[BaseException] = []

        def call(op: Op) -> None:
            if self.rank in members[op.group]:
                works, results[op.number] = carried_out(op, groups[op.group], members[op.group], self.rank)
                waiting.extend(works)

        def of_thread(ops: list[Op]) -> None:
            try:
                for op in ops:
                    call(op)
            except BaseException as error:
                errors.append(error)

        def join() -> None:
            while threads:
                threads.pop().join()
            if errors:
                raise errors[0]

        for step in steps:
            # Each rank waits for what it likes, when it likes.
            own.shuffle(waiting)
            for _ in range(own.choice((0, 0, len(waiting) // 2, len(waiting)))):
                waiting.pop().wait()
            if step.do == "make":
                members[step.group] = step.members
                groups[step.group] = dist.new_group(list(step.members), backend="ccctl")
            elif step.do == "destroy":
                for work in waiting:
                    work.wait()
                waiting.clear()
                if self.rank in members[step.group]:
                    dist.destroy_process_group(groups[step.group])
                groups[step.group] = None
            elif step.do == "join":
                join()
            elif step.do == "threads":
                for group in {op.group for op in step.ops}:
                    ops = [op for op in step.ops if op.group == group]
                    threads.append(threading.Thread(target=of_thread, args=(ops,), daemon=True))
                    threads[-1].start()
            else:
                ops = list(step.ops)
                if step.do == "shuffle":
                    own.shuffle(ops)
                for op in ops:
                    call(op)
        join()
        for work in waiting:
            work.wait()
        self.compare(number, [op for step in steps for op in step.ops], members, results)
        for at, group in groups.items():
            if group is not None and self.rank in members[at]:
                dist.destroy_process_group(group)

    def compare(
        self, number: int, ops: list[Op], members: dict[int, tuple[int, ...]], results: dict[int, Any]
    ) -> None:
        import torch
        import torch.distributed as dist

        for of in members.values():
            if of not in self.oracles:
                self.oracles[of] = dist.new_group(list(of), backend="gloo")
        for op in ops:
            of = members[op.group]
            if self.rank not in of:
                continue
            works, expected = carried_out(op, self.oracles[of], of, self.rank)
            for work in works:
                work.wait()
            found = results[op.number]
            alike = len(found) == len(expected) and all(
                torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
                for one, other in zip(found, expected, strict=True)
            )
            assert alike, f"program {number}: {op} gives {found}, gloo gives {expected}"


def carried_out(op: Op, group: Any, members: tuple[int, ...], rank: int) -> tuple[list[Any], list[Any]]:
    """The works of a call to wait for, and where its results are."""
    import torch
    import torch.distributed as dist

    size, at = len(members), members.index(rank)
    dtype, reduction = getattr(torch, op.dtype), getattr(dist.ReduceOp, op.operator)

    def of(count: int, who: int = rank) -> Any:
        """Small whole numbers, whose sums are exact in every type."""
        return ((torch.arange(count) * (who + 3) + op.number + who) % 5).to(dtype)

    def empty(count: int) -> Any:
        return torch.zeros(count, dtype=dtype)

    def rows() -> list[Any]:
        return [empty(op.count) for _ in members]

    given: dict[str, Any] = {"group": group, "async_op": op.later}
    works: list[Any] = []
    match op.kind:
        case "all_reduce":
            out = [of(op.count)]
            works = [dist.all_reduce(out[0], reduction, **given)]
        case "reduce":
            data = of(op.count)
            works = [dist.reduce(data, op.root, reduction, **given)]
            out = [data] if rank == op.root else []
        case "broadcast":
            out = [of(op.count)]
            works = [dist.broadcast(out[0], op.root, **given)]
        case "all_gather":
            works = [dist.all_gather(out := rows(), of(op.count), **given)]
        case "all_gather_into_tensor":
            out = [empty(op.count * size)]
            works = [dist.all_gather_into_tensor(out[0], of(op.count), **given)]
        case "reduce_scatter_tensor":
            out = [empty(op.count)]
            works = [dist.reduce_scatter_tensor(out[0], of(op.count * size), reduction, **given)]
        case "reduce_scatter":
            parts = list(of(op.count * size).chunk(size))
            works = [dist.reduce_scatter((out := [empty(op.count)])[0], parts, reduction, **given)]
        case "all_to_all_single":
            even = [op.count] * size if op.split[at] else None
            out = [empty(op.count * size)]
            works = [dist.all_to_all_single(out[0], of(op.count * size), even, even, **given)]
        case "all_to_all":
            works = [dist.all_to_all(out := rows(), list(of(op.count * size).chunk(size)), **given)]
        case "gather":
            out = rows() if rank == op.root else []
            works = [dist.gather(of(op.count), out or None, op.root, **given)]
        case "scatter":
            out = [empty(op.count)]
            parts = [of(op.count, who) for who in members] if rank == op.root else None
            works = [dist.scatter(out[0], parts, op.root, **given)]
        case "coalesced":
            out = [of(op.count), of(3), of(op.count // 2 + 1)]
            works = [dist.all_reduce_coalesced(out, reduction, **given)]
        case "barrier":
            out, works = [], [dist.barrier(**given)]
        case "objects":
            dist.all_gather_object(out := [None] * size, {"rank": rank, "op": op.number}, group=group)
        case "object":
            out = [("of", op.root, op.number) if rank == op.root else None]
            dist.broadcast_object_list(out, op.root, group=group)
        case "messages":
            out = [empty(op.count)]
            to, source = members[(at + 1) % size], members[at - 1]
            sent = dist.isend(of(op.count), to, group=group, tag=op.number)
            dist.recv(out[0], source, group=group, tag=op.number)
            sent.wait()
    return [work for work in works if work is not None], out


def rank_main(seed: int, first: int, count: int) -> None:
    """Run some programs, and say on stdout which one is begun."""
    import torch
    import torch.distributed as dist

    import ccctl.torch  # noqa: F401 - where the entry points are not those of this tree

    faulthandler.register(signal.SIGUSR1, all_threads=True)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    runner = Runner(seed, dist.get_world_size(), dist.get_rank())
    for number in range(first, first + count):
        print(number, flush=True)
        runner.run(number)
    # Rank 0 holds the store.
    dist.barrier()
    print("done", flush=True)
    # Work in the background must not delay the next start.
    os._exit(0)


@dataclass
class Campaign:
    """The result of programs: how many ran, failures and hangs by number, and the way preferred."""

    programs: int = 0
    failed: dict[int, str] = field(default_factory=dict)
    hung: dict[int, str] = field(default_factory=dict)
    preferred: Counter[str] = field(default_factory=Counter)


def campaign(seed: int, first: int, count: int, ranks: int, deadline_s: float) -> Campaign:
    """Run programs ``first`` to ``first + count - 1``, some of them in each process."""
    found, number = Campaign(), first
    while number < first + count:
        some = min(PROGRAMS_A_START, first + count - number)
        prefer = ("measured", "ccctl")[number // PROGRAMS_A_START % 2]
        reached, said, hung = _start(seed, number, some, ranks, deadline_s, prefer)
        done = some if reached is None else reached - number
        found.programs += done
        found.preferred[prefer] += done
        if reached is not None:
            (found.hung if hung else found.failed)[reached] = said
            found.programs += 1
            done += 1
        number += done
    return found


def _start(
    seed: int, first: int, count: int, ranks: int, deadline_s: float, prefer: str
) -> tuple[int | None, str, bool]:
    """Run some programs in new processes: the one that did not end, if any, what was said, and if it hung."""
    with socket.socket() as probe, tempfile.TemporaryDirectory() as folder:
        probe.bind(("127.0.0.1", 0))
        links = Path(folder, "links.csv")
        pairs = [(src, dst) for src in range(ranks) for dst in range(ranks) if src != dst]
        links.write_text("".join(f"{src},{dst},10us,5GB/s\n" for src, dst in pairs))
        common = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(probe.getsockname()[1]),
            "WORLD_SIZE": str(ranks),
            "OMP_NUM_THREADS": "1",
            "CCCTL_PREFER": prefer,
            # No two measurements are alike on a busy machine: all would search anew.
            "CCCTL_PROFILE": str(links),
        }
        command = [sys.executable, "-P", __file__, "--rank-main", str(seed), str(first), str(count)]
        probe.close()
        errors = [Path(folder, f"stderr.{rank}") for rank in range(ranks)]
        processes = []
        for rank in range(ranks):
            with errors[rank].open("w") as stderr:
                processes.append(
                    subprocess.Popen(
                        command,
                        env={**os.environ, **common, "RANK": str(rank)},
                        stdout=subprocess.PIPE,
                        stderr=stderr,
                        text=True,
                        bufsize=1,
                    )
                )
        try:
            reached, hung = _watched(processes, first, deadline_s)
            if reached is not None:
                for process in processes:
                    with contextlib.suppress(ProcessLookupError):
                        process.send_signal(signal.SIGUSR1)
                time.sleep(2.0)
            said = "\n".join(f"== rank {rank}\n{one.read_text()[-6000:]}" for rank, one in enumerate(errors))
            return reached, said, hung
        finally:
            for process in processes:
                process.kill()
                process.wait()


def _watched(processes: list[Any], first: int, deadline_s: float) -> tuple[int | None, bool]:
    """The program at which the ranks stopped, None where they came to the end, and whether they hung."""
    at, open_ends, moved_s = [first] * len(processes), list(range(len(processes))), time.monotonic()
    ended = 0
    while open_ends:
        streams = {processes[rank].stdout: rank for rank in open_ends}
        ready, _, _ = select.select(list(streams), [], [], 1.0)
        for stream in ready:
            rank, line = streams[stream], stream.readline()
            moved_s = time.monotonic()
            if line.strip() == "done":
                ended += 1
            elif line.strip().isdigit():
                at[rank] = int(line)
            elif not line:
                open_ends.remove(rank)
                if processes[rank].wait() != 0:
                    return min(at), False
        if time.monotonic() - moved_s > deadline_s:
            return min(at), True
    return (None, False) if ended == len(processes) else (min(at), False)


def main() -> None:
    """Run a campaign, or the programs of one rank."""
    if sys.argv[1:2] == ["--rank-main"]:
        rank_main(*map(int, sys.argv[2:5]))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first program")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--deadline", type=float, default=90.0, help="seconds in which some rank must get on")
    asked = parser.parse_args()
    begun_s = time.monotonic()
    totals, first, last = Campaign(), asked.first, asked.first + asked.programs
    while first < last:
        some = min(PROGRAMS_A_START, last - first)
        found = campaign(asked.seed, first, some, asked.ranks, asked.deadline)
        for name in ("failed", "hung"):
            for number, said in getattr(found, name).items():
                print(f"program {number} {name}:\n{said}", flush=True)
                getattr(totals, name)[number] = said
        totals.programs += found.programs
        totals.preferred += found.preferred
        first += some
        print(
            f"{totals.programs} programs, {len(totals.hung)} hung, {len(totals.failed)} failed, "
            f"{dict(totals.preferred)}, {time.monotonic() - begun_s:.0f} s",
            flush=True,
        )
    sys.exit(bool(totals.hung or totals.failed))


if __name__ == "__main__":
    main()
