"""Run every test and benchmark that needs a GPU, within minutes, and write one report.

`make gpu` installs its dependencies and starts it. Each part has a limit of its own and goes on after
failures. results.md has a table of the parts, the table of docs/explanation/gpus.md and the output of each
part. machine/ is a recording of the machine for tests/machines.

    python -P benchmarks/gpu_report.py [--minutes 8] [-o out/gpu]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ccctl.errors import CcctlError
from probes.live import gpu_count

ROOT = Path(__file__).resolve().parents[1]
RING = str(ROOT / "examples" / "ring_allreduce.py")
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")


@dataclass(frozen=True)
class Part:
    """A command, and the seconds after which it is ended."""

    name: str
    command: tuple[str, ...]
    limit_s: float


@dataclass(frozen=True)
class Result:
    """The outcome of a part. ``status`` is None if the part was ended, or had no time to begin."""

    part: Part
    status: int | None
    seconds: float
    output: str

    @property
    def outcome(self) -> str:
        """Return a word or two for the table."""
        if self.status is None:
            return "out of time"
        return "passed" if self.status == 0 else f"failed, exit {self.status}"


def parts(gpus: int, folder: Path) -> Iterator[Part]:
    """Yield the parts for a machine with ``gpus`` GPUs."""
    python, ccctl = (sys.executable, "-P"), (sys.executable, "-P", "-m", "ccctl")
    tests = (*python, "-m", "pytest", "-q", "-n", str(min(6, os.cpu_count() or 1)), "--durations=5")
    ranks = str(max(2, gpus))
    yield Part("doctor", (*ccctl, "doctor"), 30)
    for name, command in (
        ("nvidia-smi", ("nvidia-smi",)),
        ("smi.xml", ("nvidia-smi", "-q", "-x", "-f", str(folder / "smi.xml"))),
        ("topo", ("nvidia-smi", "topo", "-m")),
    ):
        if shutil.which("nvidia-smi"):
            yield Part(name, command, 20)
    yield Part("detect", (*ccctl, "detect", "--record", str(folder / "machine")), 30)
    yield Part("tests", (*tests, "-m", "gpu and not alone", "tests/exec/cuda", "tests/probes/sampling"), 120)
    yield Part("tests of several ranks", (*tests, "-m", "gpu and alone", "tests/exec/cuda"), 120)
    kernel = (*python, "benchmarks/one_gpu.py", "--json", str(folder / "one_gpu.json"))
    yield Part("one kernel", kernel, 90)
    yield Part("profile", (*ccctl, "profile", "--device", "cuda", "-n", ranks), 60)
    bench = (*ccctl, "bench", "--device", "cuda", "-n", ranks)
    peers = (
        ("--vs", "nccl", "--sizes", "1K:256M", "-f", "4") if gpus > 1 else ("--sizes", "1K:64M", "-f", "16")
    )
    yield Part("ring between processes", (*bench, RING, "-p", f"ranks={ranks}", *peers), 60)
    if gpus > 1:
        for kind in KINDS:
            yield Part(f"{kind} beside NCCL", (*bench, "--collective", kind, *peers), 90)


def carried_out(part: Part, left_s: float) -> Result:
    """Run a part, for no longer than ``left_s``."""
    if left_s < 5:
        return Result(part, None, 0.0, "")
    begun = time.monotonic()
    status: int | None = None
    process = subprocess.Popen(
        part.command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=min(part.limit_s, left_s))
        status = process.returncode
    except subprocess.TimeoutExpired:
        # ccctl ends its ranks when it is told to end.
        process.terminate()
        try:
            output, _ = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            output, _ = process.communicate()
    return Result(part, status, time.monotonic() - begun, output)


def report(results: list[Result], folder: Path) -> str:
    """Return the whole report as Markdown."""
    lines = ["# ccctl on this GPU", "", "| part | outcome | seconds |", "|---|---|---|"]
    lines += [f"| {each.part.name} | {each.outcome} | {each.seconds:.0f} |" for each in results]
    timings = folder / "one_gpu.json"
    if timings.exists():
        lines += ["", *table(json.loads(timings.read_text()))]
    for each in results:
        lines += ["", f"## {each.part.name}", "", "```", f"$ {' '.join(each.part.command)}"]
        lines += [each.output.rstrip(), "```"]
    return "\n".join(lines) + "\n"


def table(rows: list[dict[str, float | str]]) -> list[str]:
    """Return the table of one kernel: the fastest number of instances for each size and protocol."""
    best: dict[tuple[float, str], dict[str, float | str]] = {}
    for row in rows:
        key = float(row["size_bytes"]), str(row["protocol"])
        if key not in best or float(row["seconds"]) < float(best[key]["seconds"]):
            best[key] = row
    lines = [
        "| bytes | protocol | instances | us | copies of the same bytes, us | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for (size, protocol), row in best.items():
        own_us, copies_us = float(row["seconds"]) * 1e6, float(row["copies_s"]) * 1e6
        lines.append(
            f"| {size:.0f} | {protocol} | {row['instances']} | {own_us:.1f} | {copies_us:.1f} | "
            f"{copies_us / own_us:.2f} |"
        )
    return lines


def main() -> int:
    """Run every part; return 1 if one of them failed, 69 if there is no GPU."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--minutes", type=float, default=8.0)
    options.add_argument("-o", "--output", type=Path, default=ROOT / "out" / "gpu")
    asked = options.parse_args()
    try:
        gpus = gpu_count()
    except CcctlError as error:
        print(f"gpu_report: {error.message}\n{error.hint}", file=sys.stderr)
        return 69
    folder: Path = asked.output.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    results: list[Result] = []
    until = time.monotonic() + asked.minutes * 60
    for part in parts(gpus, folder):
        print(f"{part.name} … ", end="", flush=True)
        results.append(carried_out(part, until - time.monotonic()))
        print(f"{results[-1].outcome}, {results[-1].seconds:.0f} s", flush=True)
        (folder / "results.md").write_text(report(results, folder))
    print(folder / "results.md")
    return int(any(each.status != 0 for each in results))


if __name__ == "__main__":
    sys.exit(main())
