"""One mutant: how it is made, which commands it is given to, and what of their ends is a finding."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import traceback
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import mutate_bytes
import mutate_json
import mutate_sends
import mutate_steps
import mutate_text
import numerics
import words
from corpus import ROOT, Sample, corpus
from driver import Ended, call, call_library
from oracles.program import judge as judge_program
from oracles.schedule import judge as judge_schedule

from ccctl.artifacts import codec
from ccctl.errors import CcctlError
from probes.base.visible_text import unsteered

__all__ = ["Finding", "Mutant", "made", "tried"]

DOCUMENTED = (0, 1, 2, 65, 66, 69, 70, 73, 75, 78, 124, 130, 143)
_WEIGHT = {
    "schedule": 24, "program": 24, "selection": 7, "profile": 8, "topology": 8, "report": 6, "msccl-xml": 8,
    "nccl-xml": 3, "hwloc-xml": 3, "smi": 3, "links-csv": 3, "lab-toml": 2, "hostfile": 2, "nccl-tests": 2,
    "nccl-json": 2, "collectives-toml": 1, "collectives-json": 2, "npy": 2, "pairs": 1, "nvml": 1, "sysfs": 1,
    "words": 7, "history": 2, "model": 3, "fusion": 3, "tuning": 2, "groups": 3, "training": 2,
    "periodic": 6, "symmetric": 6, "plan": 8, "log": 5, "ras-json": 3, "flight-json": 3, "flight-pickle": 4,
}  # fmt: skip
_JSON = (
    "schedule",
    "program",
    "selection",
    "profile",
    "topology",
    "report",
    "history",
    "groups",
    "model",
    "fusion",
    "tuning",
    "training",
    "nccl-json",
    "collectives-json",
    "nvml",
    "periodic",
    "symmetric",
    "plan",
    "ras-json",
    "flight-json",
)
_XML = ("msccl-xml", "nccl-xml", "hwloc-xml")
_COMMENT = {"links-csv": "#", "lab-toml": "#", "hostfile": "#", "collectives-toml": "#", "pairs": "#"}
_LINK = ("--alpha", "1us", "--bandwidth", "1GB/s")
_STEPS = ("--size", "64K", "--threadblock", "1GB/s", "--step", "0us", "--fifo", "1")
# Commands that a finding may name and that start nothing.
_WHOLE = ("show", "verify", "simulate", "compile", "synth", "detect", "profile")
# Options that start processes, ask other hosts, end this one, or write beside the files of the mutant.
_UNFIT = ("--timeout", "--jobs", "--hosts", "--hostfile", "--live", "--active", "--record")
# A judge of ours that takes longer than the commands may is no help.
_MOST_SENDS, _MOST_STEPS, _MOST_SCRATCH = 200, 250, 10_000


@dataclass(frozen=True)
class Mutant:
    """A file and how it came to be; ``right`` if it says the same as a right file, and so must be taken."""

    kind: str
    suffix: str
    content: bytes
    how: str
    right: bool = False
    beside: bytes = b""
    of: Sample | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Finding:
    """A fault, the place that identifies its kind, the command, and all that it printed."""

    what: str
    where: str
    command: tuple[str, ...]
    printed: str


@cache
def _by_kind(whole: bool) -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = {}
    for sample in corpus(whole):
        found.setdefault(sample.kind, []).append(sample)
    return found


def made(rng: random.Random, *, whole: bool = True) -> Mutant:
    """A mutant of a sample that is drawn by its kind."""
    samples = _by_kind(whole)
    kind = rng.choices([*_WEIGHT], [*_WEIGHT.values()])[0]
    if kind == "words":
        return Mutant("words", ".json", json.dumps(_line(rng)).encode(), "line")
    sample = rng.choice(samples[kind])
    donor = rng.choice(samples[rng.choice(list(samples)) if rng.random() < 0.3 else kind])
    pick = rng.random()
    if pick < 0.12:
        return _equal(rng, sample)
    if pick < 0.27:
        return _mutant(sample, mutate_bytes.damaged(rng, sample.content), "bytes")
    if kind in ("schedule", "program", "selection") and pick < 0.65:
        content = json.dumps(_said(rng, sample, donor)).encode()
        return _mutant(sample, content, "meaning")
    return _mutant(sample, _structure(rng, sample, donor), "structure")


def _line(rng: random.Random) -> list[str]:
    """A command line of nasty words that neither starts ranks nor looks at machines."""
    for line in words.command_lines(rng):
        unfit = any(word.startswith(_UNFIT) for word in line) or line[0] in ("run", "bench", "lab", "doctor")
        live = line[0] in ("detect", "profile") and line[1:2] != ["--from"]
        ranks = line[0] in ("detect", "profile") and any(word.startswith(("-n", "--ranks")) for word in line)
        if not (unfit or live or ranks):
            return line
    raise AssertionError("command lines are without end")


def _mutant(sample: Sample, content: bytes, how: str, *, right: bool = False) -> Mutant:
    beside = sample.document[1] if sample.kind in ("nvml", "sysfs") else b""
    return Mutant(sample.kind, sample.suffix, content, how, right, beside, sample)


def _said(rng: random.Random, sample: Sample, donor: Sample) -> Any:
    other = donor.document if donor.kind == "schedule" else None
    if sample.kind == "schedule":
        return mutate_sends.changed_schedule(rng, sample.document, other)
    if sample.kind == "selection":
        return mutate_sends.changed_selection(rng, sample.document, other)
    return mutate_steps.changed_program(rng, sample.document)


def _structure(rng: random.Random, sample: Sample, donor: Sample) -> bytes:
    if sample.kind in _JSON:
        document = sample.document[0] if sample.kind == "nvml" else sample.document
        return mutate_json.mutated(rng, document, donor.document if donor.kind in _JSON[:6] else None)
    if sample.kind in ("npy", "flight-pickle"):
        return mutate_bytes.damaged(rng, sample.content)
    text = sample.content.decode("utf-8", "replace")
    change = mutate_text.xml_mutated if sample.kind in _XML else mutate_text.lines_mutated
    return change(rng, text).encode("utf-8", "surrogatepass")


def _equal(rng: random.Random, sample: Sample) -> Mutant:
    """A file that says the same as the sample."""
    content = sample.content
    if sample.kind in _JSON:
        document = sample.document[0] if sample.kind == "nvml" else sample.document
        if sample.kind == "schedule" and rng.random() < 0.7:
            document = mutate_sends.equal_schedule(rng, document)
        if sample.kind == "program" and rng.random() < 0.7:
            document = mutate_steps.equal_program(rng, document)
        content = mutate_json.respelled(rng, document)
    elif sample.kind in _XML:
        content = mutate_text.xml_respelled(rng, content.decode()).encode()
    elif sample.kind in _COMMENT:
        content = mutate_text.lines_respelled(rng, content.decode(), _COMMENT[sample.kind]).encode()
    if sample.kind in (*_JSON[:6], "msccl-xml") and rng.random() < 0.15:
        content = mutate_bytes.respelled(rng, content)
    return _mutant(sample, content, "equal", right=sample.right)


def tried(mutant: Mutant, rng: random.Random, folder: Path, command: Sequence[str] = ()) -> list[Finding]:
    """Give a mutant to the commands that read its kind; everything is written in ``folder``.

    ``command``, whose words {file} and {folder} stand for theirs, comes before them.
    """
    path = folder / f"mutant{mutant.suffix}"
    if mutant.kind in ("nvml", "sysfs"):
        path = folder / "recording"
        path.mkdir()
        (path / mutant.suffix).write_bytes(mutant.content)
        (path / ("sysfs.txt" if mutant.kind == "nvml" else "nvml.json")).write_bytes(mutant.beside)
    else:
        path.write_bytes(mutant.content)
    found: list[Finding] = []
    try:
        if command and command[0] in _WHOLE:
            base = folder / "base.json"
            base.write_bytes(_by_kind(False).get(mutant.kind, _by_kind(False)["topology"])[0].content)
            words = [word.replace("{file}", str(path)).replace("{folder}", str(folder)) for word in command]
            # A file that a finding says was written lies in the output folder.
            words = [
                str(folder / word) if before == "-o" else word for before, word in pairwise(["", *words])
            ]
            found += run(mutant, path, *words)[1] + _svg(folder / "out.svg", tuple(command))
        return found + _COMMANDS.get(mutant.kind, _plain)(mutant, rng, path)
    finally:
        for entry in folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def run(mutant: Mutant, path: Path, *arguments: str) -> tuple[Ended, list[Finding]]:
    """One command and what is wrong with its end, whatever it said of the file."""
    given = mutant.content if "-" in arguments else b""
    ended = call(*arguments, stdin=given)
    named = tuple(_named(argument, path) for argument in arguments)
    # A line of words may ask for help beside.
    return ended, ends(ended, named, json_out="--json" in arguments and mutant.kind != "words")


def _named(argument: str, path: Path) -> str:
    return argument.replace(str(path), "{file}").replace(str(path.parent), "{folder}")


def ends(ended: Ended, command: tuple[str, ...], *, json_out: bool = False) -> list[Finding]:
    """Findings that need no judge: tracebacks, statuses, silence, output that is not what it says it is."""
    said = ended.stderr + ended.stdout.decode(errors="replace")
    found: list[Finding] = []

    def finding(what: str, where: str) -> None:
        found.append(Finding(what, where, command, said[-4000:]))

    if "Traceback (most recent call last)" in said or ended.status == 70:
        finding("traceback", innermost(said))
    elif ended.status not in DOCUMENTED:
        finding("status", str(ended.status))
    elif ended.status and not said.strip():
        finding("silence", f"{command[0]} {ended.status}")
    elif "there is not enough memory on this machine for that" in said:
        finding("memory", " ".join(command[:2]))
    if ended.stderr != unsteered(ended.stderr) or _steers(ended.stdout):
        finding("steering", " ".join(command[:1]))
    if "Warning: " in said:
        told = next(line for line in said.splitlines() if "Warning: " in line)[-300:]
        warning = re.search(r"([^\s/]+\.py):(\d+): (\w*Warning): (.*)", told)
        if warning:
            finding("warning", f"{warning[1]}:{warning[2]} {warning[3]} {warning[4][:60]}")
    if json_out and ended.status in (0, 1) and ended.stdout:
        try:
            json.loads(ended.stdout, parse_constant=_refused)
        except ValueError as error:
            finding("json", f"{command[0]}: {error}"[:80])
    return found


def _steers(printed: bytes) -> bool:
    """Whether text on stdout holds a character that a terminal or a reader of code may be steered by."""
    try:
        text = printed.decode()
    except UnicodeDecodeError:
        return False  # an array or a picture
    return text != unsteered(text)


def _refused(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def innermost(text: str) -> str:
    """The last line of the project in a traceback and what was raised: what makes two of them the same."""
    places = re.findall(r'File "[^"]*?((?:ccctl|exec|synth|probes)/[^"]+)", line (\d+), in (\w+)', text)
    place = f"{places[-1][0]}:{places[-1][2]}" if places else "?"
    raised = re.findall(r"^([A-Za-z_][\w.]*(?:Error|Exception|Warning|Overflow|Exit)\w*)", text, re.MULTILINE)
    return f"{place} {raised[-1] if raised else ''}"


def _svg(path: Path, command: tuple[str, ...]) -> list[Finding]:
    if not path.exists():
        return []
    text = path.read_text("utf-8", "replace")
    try:
        ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        return [Finding("picture", f"not XML: {error}"[:40], command, text[:2000])]
    if bad := re.search(r"""=['"][^'"<>]*\b(?:nan|inf)\b""", text):
        return [Finding("picture", "nan or inf in an attribute", command, bad[0])]
    return []


Commands = Callable[[Mutant, random.Random, Path], list[Finding]]


def _body(mutant: Mutant, *kinds: str) -> Any:
    """Return what the codec reads from a mutant; None if it refuses or fails (the commands show that)."""
    try:
        return codec.decode(mutant.content, "mutant", *kinds).body
    except (CcctlError, Exception):
        return None


def _disagreement(
    mutant: Mutant, verdict: Any, status: dict[str, Ended], path: Path, finding: str = ""
) -> list[Finding]:
    """Return where commands and oracle disagree; ``verdict`` None: the oracle was not asked."""
    found: list[Finding] = []
    for name, ended in status.items():
        command = (*name.split(), "{file}")
        said = (ended.stderr + ended.stdout.decode(errors="replace"))[-2000:]
        if mutant.right and ended.status != 0 and not _too_much(said):
            found.append(Finding("wrong refuse", f"{name} {mutant.kind} equal: {_gist(said)}", command, said))
        if verdict is None:
            continue
        if ended.status == 0 and not verdict.accepted:
            found.append(
                Finding(
                    "wrong accept", f"{name} {mutant.kind}: {_gist(verdict.reason)}", command, verdict.reason
                )
            )
        if name == "verify" and ended.status == 1 and verdict.accepted:
            found.append(Finding("wrong refuse", f"verify {mutant.kind}: {_gist(said)}", command, said))
    if status["verify"].status == 0:
        for name, ended in status.items():
            if ended.status not in (0, 69, 2):
                said = (ended.stderr + ended.stdout.decode(errors="replace"))[-2000:]
                found.append(
                    Finding(
                        "disagreement", f"verify 0, {name}: {_gist(said)}", (*name.split(), "{file}"), said
                    )
                )
    return found


def _too_much(said: str) -> bool:
    return "has no network of its own" in said


def _gist(text: str) -> str:
    """The kind of a message: its first line without numbers and names."""
    lines = text.strip().splitlines()
    return re.sub(r"[\d.]+|/\S+|'[^']*'", "#", lines[0] if lines else "")[:90]


def _synth(network: Path | str, options: str) -> tuple[str, ...]:
    return "synth", "--network", str(network), *options.split()


def _schedule(mutant: Mutant, rng: random.Random, path: Path) -> list[Finding]:
    status: dict[str, Ended] = {}
    found: list[Finding] = []
    for name in ("verify", "simulate", "compile"):
        more = ("--json",) if name == "simulate" else ()
        status[name], problems = run(mutant, path, name, str(path), *more)
        found += problems
    body = _body(mutant, "schedule")
    verdict = judge_schedule(body) if _judged(body) else None
    found += _disagreement(mutant, verdict, status, path)
    if mutant.right and mutant.of and status["simulate"].status == 0:
        found += _same_time(mutant, status["simulate"], path)
    svg = path.parent / "out.svg"
    program = path.parent / "program.json"
    extra = rng.choice(
        (
            ("show", str(path)),
            ("show", "--json", str(path)),
            ("show", str(path), "-o", str(svg)),
            ("simulate", str(path)),
            ("simulate", str(path), "--trace", str(path.parent / "trace.json")),
            ("simulate", str(path), "--network", "ring:4", *_LINK, "--json"),
            ("simulate", str(path), "--size", rng.choice(("1", "3", "1M", "64G")), "--json"),
            ("simulate", str(path), "--without", "link:0-1", "--json"),
            ("compile", str(path), "--instances", "2", "--no-fuse", "--json"),
            ("compile", str(path), "-o", str(path.parent / "out.xml")),
            ("compile", str(path), "-o", "-"),
            ("compile", str(path), "-o", str(program)),
            ("verify", "-", "--json"),
            _synth(path, f"--method {rng.choice(('ring', 'greedy', 'tree'))} --jobs 1 --json"),
        )
    )
    found += run(mutant, path, *extra)[1] + _svg(svg, extra)
    if program.exists() and status["verify"].status == 0:
        found += _runs_right(program.read_bytes(), path)
    return found


def _judged(body: Any) -> bool:
    """Whether the oracle has its say: not of many sends, nor of those that carry a part of what is held."""
    return body is not None and len(body.chunk) <= _MOST_SENDS and not len(body.addend)


def _same_time(mutant: Mutant, ended: Ended, path: Path) -> list[Finding]:
    """The same schedule in another form must take as long, and be as far from the bound."""
    assert mutant.of is not None, "only of a mutant whose sample is known"
    before, now = _simulated(mutant.of), json.loads(ended.stdout)
    for name in ("time_s", "bound_s"):
        if abs(now[name] - before[name]) > 1e-9 * abs(before[name]):
            what = f"{name} {before[name]} → {now[name]}"
            return [Finding("order", f"simulate {name}", ("simulate", "{file}", "--json"), what)]
    return []


@cache
def _simulated(sample: Sample) -> dict[str, Any]:
    ended = call("simulate", "-", "--json", stdin=sample.content)
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def _program(mutant: Mutant, rng: random.Random, path: Path) -> list[Finding]:
    status: dict[str, Ended] = {}
    found: list[Finding] = []
    for name in ("verify", "compile"):
        status[name], problems = run(mutant, path, name, str(path))
        found += problems
    body = _body(mutant, "program")
    if body is not None and body.input_chunks:
        # Its file says custom: compile refuses what nothing says the results of.
        del status["compile"]
    small = body is not None and body.steps <= _MOST_STEPS and body.collective.chunks <= 256
    small = small and sum(body.scratch_chunks) <= _MOST_SCRATCH
    if small and status["verify"].status in (0, 1):
        found += _disagreement(mutant, judge_program(body), status, path)
    elif mutant.right:
        found += _disagreement(mutant, None, status, path)
    if status["verify"].status == 0 and small and not body.input_chunks:
        found += _runs_right(mutant.content, path)
    ranks = max(2, min(16, body.ranks)) if body is not None else 4
    network = ("--network", f"fully_connected:{ranks}", *_LINK)
    extra = rng.choice(
        (
            ("show", str(path)),
            ("show", "--json", str(path)),
            ("simulate", str(path), *network, "--size", rng.choice(("1", "4K", "1M", "1G")), "--json"),
            ("simulate", str(path), *network, *_STEPS),
            ("simulate", str(path), *network, "--size", "64K", "--trace", str(path.parent / "trace.json")),
            ("verify", str(path), "--same-bits", "--json"),
            ("verify", str(path), "--fifo", "1", "--json"),
            ("verify", str(path), "--target", rng.choice(("msccl", "rccl"))),
            ("verify", "-", "--json"),
            ("verify", str(path), "--collective", rng.choice(("all_reduce", "all_to_all", "reduce", "x"))),
            ("compile", str(path), "-o", str(path.parent / "out.xml")),
            ("compile", str(path), "-o", str(path.parent / "out.json"), "--name", "é"),
        )
    )
    found += run(mutant, path, *extra)[1]
    again = path.parent / "out.xml"
    if again.exists():
        back, problems = run(mutant, again, "verify", str(again))
        found += problems
        if back.status != 0:
            said = back.stderr + back.stdout.decode(errors="replace")
            found.append(Finding("round trip", _gist(said), ("compile", "{file}", "-o", "out.xml"), said))
    return found


def _runs_right(content: bytes, path: Path) -> list[Finding]:
    """Run an accepted program on numbers: the elements of several sizes must be those that NumPy gives."""
    try:
        program = codec.decode(content, "mutant", "program").body
        wrong = numerics.wrong_elements(program)
    except (CcctlError, Exception):
        trace = traceback.format_exc()
        return [Finding("traceback", "interpreter: " + innermost(trace), ("(interpreter)", "{file}"), trace)]
    if wrong:
        return [Finding("wrong accept", f"elements: {_gist(wrong)}", ("(interpreter)", "{file}"), wrong)]
    return []


def _used(selection: Any, ended: Any) -> Iterator[Any]:
    """The schedules that a selection uses, at the ends of their ranges and at the size that was refused."""
    named = re.search(r"ranges\[(\d+)\], (\d+) bytes a chunk", ended.stdout.decode(errors="replace"))
    for number, one in enumerate(selection.ranges):
        algorithm = selection.algorithms[one.algorithm]
        for size in {one.from_bytes, one.to_bytes}:
            yield algorithm.scheduled(selection.network, size)
        if named and int(named[1]) == number:
            yield replace(algorithm.scheduled(selection.network, 1), chunk_bytes=int(named[2]))


def _selection(mutant: Mutant, rng: random.Random, path: Path) -> list[Finding]:
    ended, found = run(mutant, path, "verify", str(path))
    status = {"verify": ended}
    body = _body(mutant, "selection")
    if body is not None and sum(len(one.chunk) for one in body.algorithms) <= 4 * _MOST_SENDS:
        verdicts = [judge_schedule(one) for one in _used(body, ended)]
        kinds = {
            (one.collective.kind, one.collective.root, one.collective.members) for one in body.algorithms
        }
        wrong = next((one for one in verdicts if not one.accepted), None)
        if ended.status == 0 and (wrong or len(kinds) > 1):
            reason = wrong.reason if wrong else "algorithms of several collectives"
            found.append(
                Finding("wrong accept", f"verify selection: {_gist(reason)}", ("verify", "{file}"), reason)
            )
        if ended.status == 1 and not wrong and len(kinds) == 1:
            found.append(Finding("wrong refuse", "verify selection", ("verify", "{file}"), ended.stderr))
    found += _disagreement(mutant, None, status, path)
    svg = path.parent / "out.svg"
    size = rng.choice(("1", "1K", "1M", "1T"))
    commands = [
        ("show", str(path)),
        ("show", "--json", str(path)),
        ("show", str(path), "-o", str(svg)),
        ("simulate", str(path)),
        ("simulate", str(path), "--json"),
        ("simulate", str(path), "--size", size, "--json"),
    ]
    for extra in rng.sample(commands, 2):
        found += run(mutant, path, *extra)[1] + _svg(svg, extra)
    return found


def _accepted(mutant: Mutant, commands: Sequence[tuple[str, ...]], path: Path, must: int) -> list[Finding]:
    """Run commands of which the first ``must`` take every right file."""
    found: list[Finding] = []
    for at, command in enumerate(commands):
        ended, problems = run(mutant, path, *command)
        found += problems
        if mutant.right and at < must and ended.status != 0:
            said = ended.stderr + ended.stdout.decode(errors="replace")
            named = tuple(_named(argument, path) for argument in command)
            found.append(
                Finding("wrong refuse", f"{command[0]} {mutant.kind} equal: {_gist(said)}", named, said)
            )
    return found


def _profile(mutant: Mutant, rng: random.Random, path: Path) -> list[Finding]:
    method = rng.choice(("ring", "greedy", "tree", "direct"))
    kind = rng.choice(("all_reduce", "all_gather", "all_to_all", "broadcast"))
    base = path.parent / "base.json"
    base.write_bytes(_by_kind(False)["profile"][2].content)
    commands = [
        ("show", "--json", str(path)),
        ("profile", "--from", str(path), "--baseline", str(base), "--json"),
        ("profile", "--from", str(base), "--baseline", str(path)),
        ("profile", "--from", str(path), "--prometheus", str(path.parent / "x.prom")),
        _synth(path, f"--method {method} --collective {kind} --size 64K --jobs 1 --json"),
        ("show", "-"),
    ]
    return _accepted(mutant, [("show", str(path)), *rng.sample(commands, 2)], path, 1)


def _topology(mutant: Mutant, rng: random.Random, path: Path) -> list[Finding]:
    base = path.parent / "base.json"
    base.write_bytes(rng.choice(_by_kind(False)["topology"]).content)
    show = [("show", str(path))] if mutant.kind == "topology" else []
    commands = [
        ("detect", "--from", str(path), "--json"),
        ("detect", "--from", str(path), "--why", "GPU0", rng.choice(("GPU1", "NIC0", "mlx5_0", "GPU0"))),
        ("detect", "--from", str(path), "--export", "nccl-xml", str(path.parent / "out.xml")),
        ("detect", "--from", str(path), "--diff", str(base)),
        ("detect", "--from", str(base), "--diff", str(path)),
        ("detect", "--from", str(path), "--from", str(base), "--json"),
        ("detect", "--from", str(path), "-o", str(path.parent / "out.json")),
        *([("synth", "--network", str(path), "--method", "ring", "--size", "64K", "--jobs", "1", "--json"),
           ("show", "--json", str(path))] if show else []),
    ]  # fmt: skip
    first = show or [("detect", "--from", str(path))]
    extra = rng.sample(commands, 2)
    if mutant.kind in ("nvml", "sysfs"):
        # Each command makes a tree of files from a recording: one is enough.
        first, extra = (first, []) if mutant.right else ([], extra[:1])
    return _accepted(mutant, [*first, *extra], path, 1)


def _report(mutant: Mutant, rng: random.Random, path: Path) -> list[Finding]:
    svg = path.parent / "out.svg"
    base = path.parent / "base.json"
    base.write_bytes(_by_kind(False)["report"][0].content)
    commands = [
        ("show", str(path), "-o", str(svg)),
        ("show", "--json", str(path)),
        ("show", str(path), str(base)),
        ("show", str(base), str(path)),
        ("show", "-"),
    ]
    chosen = [("show", str(path)), *rng.sample(commands, 2)]
    return (
        _accepted(mutant, chosen, path, 1)
        + _svg(svg, ("show", "{file}", "-o", "out.svg"))
        + _baseline(mutant, path)
    )


def _baseline(mutant: Mutant, path: Path) -> list[Finding]:
    """Return what ``bench --baseline`` does with it before and after ranks run."""
    from ccctl.artifacts.foreign import read_any
    from exec.benchmark.regression import compare

    measured = codec.decode(_by_kind(False)["report"][0].content, "measured").body
    ended = call_library(lambda: compare(measured, read_any(str(path), "report").body, 10.0))
    return ends(ended, ("bench", "--baseline", "{file}"))


def _xml_program(mutant: Mutant, rng: random.Random, path: Path) -> list[Finding]:
    return _program(mutant, rng, path)


def _links(mutant: Mutant, rng: random.Random, path: Path) -> list[Finding]:
    kind = rng.choice(("all_reduce", "all_gather", "broadcast"))
    more = rng.choice(((), ("--hold-alpha",), ("--without", "link:0>1")))
    how = ("--method", rng.choice(("greedy", "ring", "tree")), "--size", "64K", "--jobs", "1")
    plain = _synth(path, f"--method greedy --collective {kind} --size 64K --jobs 1 --json")
    second = [("synth", "--network", str(path), *how, *more)] if rng.random() < 0.3 else []
    return _accepted(mutant, [plain, *second], path, 1)


def _collectives(mutant: Mutant, rng: random.Random, path: Path) -> list[Finding]:
    command = (*_synth("fully_connected:4", "--size 4K --jobs 1"), *_LINK, "--collective", str(path))
    # Limits of JSON's nesting differ, and a file that its name does not identify is read as JSON.
    return _accepted(mutant, [(*command, "--method", "auto")], path, 1)


def _lab(mutant: Mutant, rng: random.Random, path: Path) -> list[Finding]:
    from ccctl.lab.toml import read_lab

    return _library(mutant, lambda: read_lab(str(path)), "lab up")


def _hostfile(mutant: Mutant, rng: random.Random, path: Path) -> list[Finding]:
    from exec.launcher.nodeset import fold, read_hostfile

    return _library(
        mutant, lambda: fold(entry.host for entry in read_hostfile(str(path))), "bench --hostfile"
    )


def _pairs(mutant: Mutant, rng: random.Random, path: Path) -> list[Finding]:
    from ccctl.commands import profile as command

    reader = getattr(command, "_pairs", None)
    if reader is None:
        from probes.sampling.pairs_file import parse_pairs

        return _library(
            mutant, lambda: parse_pairs(mutant.content.decode("utf-8", "replace"), "pairs"), "profile --pairs"
        )
    return _library(mutant, lambda: reader(str(path)), "profile --pairs")


def _array(mutant: Mutant, rng: random.Random, path: Path) -> list[Finding]:
    from exec.program.npy import read_ranks
    from synth.collective import collective

    return _library(mutant, lambda: read_ranks(str(path), collective("all_reduce", 4, 3)), "run --input")


def _library(mutant: Mutant, function: Callable[[], object], name: str) -> list[Finding]:
    ended = call_library(function)
    command = (*name.split(), "{file}")
    found = ends(ended, command)
    if mutant.right and ended.status != 0:
        found.append(Finding("wrong refuse", f"{name} equal: {_gist(ended.stderr)}", command, ended.stderr))
    return found


def _words(mutant: Mutant, rng: random.Random, path: Path) -> list[Finding]:
    """A command line, in a folder with the files that it names."""
    inner = path.parent / "a" / "b"
    inner.mkdir(parents=True)
    for name, content in _named_files().items():
        (inner / name).write_bytes(content)
    before = Path.cwd()
    os.chdir(inner)
    try:
        line = json.loads(mutant.content)
        return [] if any("\0" in word for word in line) else run(mutant, path, *line)[1]
    finally:
        os.chdir(before)


@cache
def _named_files() -> dict[str, bytes]:
    samples = _by_kind(False)
    found = {
        f"{kind}.json": samples[kind][0].content
        for kind in ("schedule", "program", "profile", "topology", "report")
    }
    return found | {"ring.py": (ROOT / "examples/ring_allreduce.py").read_bytes()}


def _history(mutant: Mutant, rng: random.Random, path: Path) -> list[Finding]:
    commands = [("show", str(path)), ("show", "--json", str(path)), ("show", "-")]
    return _accepted(mutant, rng.sample(commands, 2), path, 0)


def _groups(mutant: Mutant, rng: random.Random, path: Path) -> list[Finding]:
    commands = [("show", str(path)), ("show", "--json", str(path)), ("verify", str(path))]
    previous = ("training", "averaging", "fully_connected:4", "--bandwidth", "1GB/s", "--previous", str(path))
    return [found for words in rng.sample([*commands, previous], 2) for found in run(mutant, path, *words)[1]]


def _model(mutant: Mutant, rng: random.Random, path: Path) -> list[Finding]:
    costs = ("--ranks", "4", "--alpha", "1us", "--bandwidth", "1GB/s")
    fusion = ("training", "fusion", str(path), *costs)
    plan = (*fusion, "-o", str(path.parent / "plan.json"))
    svg = (*fusion, "--json", "--svg", str(path.parent / "out.svg"))
    trace = (*fusion, "--compute", "1ms", "--trace", str(path.parent / "trace.json"))
    return _accepted(mutant, [rng.choice((plan, svg, trace)), ("show", str(path))], path, 2)


def _fusion(mutant: Mutant, rng: random.Random, path: Path) -> list[Finding]:
    return _accepted(mutant, [("show", str(path)), ("show", "--json", str(path))], path, 2)


def _training(mutant: Mutant, rng: random.Random, path: Path) -> list[Finding]:
    others = [("show", str(path), "-o", str(path.parent / "out.svg")), ("show", "--json", str(path))]
    return _accepted(mutant, [("show", str(path)), rng.choice(others)], path, 2)


def _compact(mutant: Mutant, rng: random.Random, path: Path) -> list[Finding]:
    """Periodic and symmetric schedules: what verify proves, the other commands take."""
    svg = path.parent / "out.svg"
    judged, found = run(mutant, path, "verify", str(path))
    if mutant.right and judged.status != 0:
        found.append(Finding("wrong refuse", f"verify {mutant.kind}", ("verify", "{file}"), judged.stderr))
    extra = rng.choice(
        (
            ("show", str(path)),
            ("show", "--json", str(path)),
            ("show", str(path), "-o", str(svg)),
            ("simulate", str(path), "--json"),
            ("simulate", str(path), "--size", rng.choice(("1", "3", "1M", "64G")), "--json"),
            ("compile", str(path), "-o", str(path.parent / "program.json")),
            ("report", str(path), "-o", str(path.parent / "report.html")),
        )
    )
    return found + run(mutant, path, *extra)[1] + _svg(svg, extra)


def _plan(mutant: Mutant, rng: random.Random, path: Path) -> list[Finding]:
    judged, found = run(mutant, path, "verify", str(path))
    if mutant.right and judged.status != 0:
        found.append(Finding("wrong refuse", "verify plan", ("verify", "{file}"), judged.stderr))
    return found + run(mutant, path, "verify", "--json", str(path))[1]


def _log(mutant: Mutant, rng: random.Random, path: Path) -> list[Finding]:
    """Logs and dumps of others, of which the network is given or not."""
    network = rng.choice(((), ("--network", "switch:2", *_LINK), ("--network", "ring:8", *_LINK)))
    out = path.parent
    more = rng.choice(
        ((), ("--json",), ("--markdown", str(out / "told.md")), ("--junit", str(out / "told.xml")))
    )
    found = run(mutant, path, "explain", str(path), *network, *more)[1]
    return found + run(mutant, path, "report", str(path), "-o", str(out / "report.html"))[1]


def _plain(mutant: Mutant, rng: random.Random, path: Path) -> list[Finding]:
    return run(mutant, path, "show", str(path))[1]


_COMMANDS: dict[str, Commands] = {
    "schedule": _schedule,
    "program": _program,
    "msccl-xml": _xml_program,
    "selection": _selection,
    "profile": _profile,
    "topology": _topology,
    "nccl-xml": _topology,
    "hwloc-xml": _topology,
    "smi": _topology,
    "nvml": _topology,
    "sysfs": _topology,
    "report": _report,
    "history": _history,
    "groups": _groups,
    "model": _model,
    "fusion": _fusion,
    "tuning": _fusion,
    "training": _training,
    "nccl-tests": _report,
    "nccl-json": _report,
    "links-csv": _links,
    "lab-toml": _lab,
    "hostfile": _hostfile,
    "collectives-toml": _collectives,
    "collectives-json": _collectives,
    "pairs": _pairs,
    "npy": _array,
    "words": _words,
    "periodic": _compact,
    "symmetric": _compact,
    "plan": _plan,
    "log": _log,
    "ras-json": _log,
    "flight-json": _log,
    "flight-pickle": _log,
}
