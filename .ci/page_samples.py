"""Runs the commands that README.md and docs/ show, for `tests/test_pages.py`, or to update what they print.

A block fenced as `console` holds commands, each after `$ ` (`> ` continues one), and what they printed. The
commands of a page run in order in one empty folder, with an empty home. A block with `title="NAME"` is a
file, which is written there. `<!-- needs: WORDS -->` before a block names what not every machine has, and
`<!-- varies -->` says that what it prints differs between runs in more than its figures: it is not compared.

    python -P .ci/page_samples.py [PAGE…]    write what the commands print now below them
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CCCTL = f'#!/bin/sh\nexec "{sys.executable}" -P -m ccctl "$@"\n'
_BLOCK = re.compile(
    r"^(?:<!-- needs: (?P<needs>[\w ]+) -->\n+)?(?P<varies><!-- varies -->\n+)?"
    r"```(?P<kind>\w+)(?: title=\"(?P<file>[^\"]+)\")?\n(?P<body>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
# What stands for lines that are left out.
LEFT_OUT = "…"


@dataclass(frozen=True)
class Command:
    """A command line, the lines shown below it, what it needs, and whether its lines may be others."""

    text: str
    shown: tuple[str, ...]
    needs: tuple[str, ...] = ()
    varies: bool = False


@dataclass(frozen=True)
class File:
    """A file that a page shows whole."""

    name: str
    content: str


def pages() -> list[Path]:
    """Return every page that shows commands."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path for path in found if "```console\n" in path.read_text()]


def steps(text: str) -> list[Command | File]:
    """Return the commands and files of a page, in their order."""
    found: list[Command | File] = []
    for block in _BLOCK.finditer(text):
        if block["file"]:
            found.append(File(block["file"], block["body"]))
        elif block["kind"] == "console":
            needs = tuple((block["needs"] or "").split())
            varies = block["varies"] is not None
            found += [Command(typed, shown, needs, varies) for typed, shown in _typed(block["body"])]
    return found


def lacking(needs: tuple[str, ...]) -> str:
    """Return which of the things that a block needs this machine has not; "" where it has all."""
    there = {
        "root": lambda: os.getuid() == 0 and shutil.which("ip") and Path("/proc/self/ns/net").exists(),
        "gpu": lambda: Path("/dev/nvidia0").exists(),
        "slurm": lambda: "SLURM_JOB_ID" in os.environ,
        "torch": lambda: importlib.util.find_spec("torch"),
        # Several hosts, or something to install: never where pages are tried.
        "cluster": lambda: False,
        "installing": lambda: False,
    }
    return ", ".join(word for word in needs if not there[word]())


@contextmanager
def shell(ccctl: str = CCCTL) -> Iterator[Shell]:
    """Yield an empty folder to run commands in, removed afterwards; ``ccctl`` is the script of that name."""
    with tempfile.TemporaryDirectory(prefix="ccctl-page-") as folder:
        opened = Shell(Path(folder), ccctl)
        try:
            yield opened
        finally:
            opened.close()


class Shell:
    """Runs commands in one folder, as somebody who has just installed ccctl; compiled loops are there."""

    def __init__(self, folder: Path, script: str) -> None:
        from synth.kernels.stored_loops import cache_folder

        self.work = folder / "work"
        for path in (self.work, folder / "bin", folder / "home/.cache/ccctl"):
            path.mkdir(parents=True)
        if (loops := cache_folder()) is not None:
            loops.mkdir(parents=True, exist_ok=True)
            (folder / "home/.cache/ccctl/numba").symlink_to(loops)
        ccctl = folder / "bin" / "ccctl"
        ccctl.write_text(script)
        ccctl.chmod(0o755)
        python = folder / "bin" / "python"
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        python.chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "CCCTL_"))}
        self._env = kept | {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": str(folder / "home"),
            "TERM": "dumb",
        }

    def take(self, file: File) -> None:
        """Write a file of the page."""
        path = self.work / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.content)
        # Its lab is meant, whichever others are up here, and none is left when the page ends early.
        if path.suffix == ".toml" and (lab := re.search(r'^name = "(.+)"', file.content, re.MULTILINE)):
            self._env["CCCTL_LAB"] = lab[1]

    def close(self) -> None:
        """Remove the lab of the page, where one was described and may still be up."""
        if "CCCTL_LAB" in self._env and os.getuid() == 0:
            subprocess.run(["ccctl", "lab", "down"], env=self._env, capture_output=True, check=False)

    def run(self, command: str) -> list[str]:
        """Return the lines that a terminal would show; raises RuntimeError where the command fails."""
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=self.work,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{command} ended with {done.returncode}:\n{done.stdout}")
        return [line.rstrip() for line in done.stdout.rstrip().splitlines()]


def _typed(body: str) -> list[tuple[str, tuple[str, ...]]]:
    found: list[tuple[list[str], list[str]]] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            found.append(([line[2:]], []))
        elif line.startswith("> ") and not found[-1][1]:
            found[-1][0].append(line[2:])
        else:
            found[-1][1].append(line)
    return [("\n".join(typed), tuple("\n".join(shown).strip("\n").splitlines())) for typed, shown in found]


def _anew(text: str, now: dict[str, list[list[str]]]) -> str:
    """Return the page with the lines that each command, by its text and in its order, printed now."""

    def block(match: re.Match[str]) -> str:
        if match["kind"] != "console" or match["file"]:
            return match[0]
        parts = []
        for typed, shown in _typed(match["body"]):
            lines = _cut(now[typed].pop(0), shown) if now.get(typed) else shown
            parts.append("\n".join(["$ " + typed.replace("\n", "\n> "), *lines]))
        between = "\n\n" if any("\n" in part for part in parts) else "\n"
        return match[0].replace(match["body"], between.join(parts) + "\n")

    return _BLOCK.sub(block, text)


def _cut(lines: list[str], shown: tuple[str, ...]) -> list[str]:
    """As many lines before and after what is left out as the page shows."""
    if LEFT_OUT not in shown:
        return lines
    before = shown.index(LEFT_OUT)
    after = len(shown) - before - 1
    return [*lines[:before], LEFT_OUT, *(lines[-after:] if after else [])]


def main() -> None:
    """Write the pages named on the command line, or all of them, with what their commands print now."""
    for page in [Path(name).resolve() for name in sys.argv[1:]] or pages():
        now: dict[str, list[list[str]]] = {}
        with shell() as terminal:
            for step in steps(page.read_text()):
                if isinstance(step, File):
                    terminal.take(step)
                elif not lacking(step.needs):
                    now.setdefault(step.text, []).append(terminal.run(step.text))
        page.write_text(_anew(page.read_text(), now))


if __name__ == "__main__":
    main()
