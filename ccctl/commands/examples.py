"""`ccctl examples`: the examples that come with ccctl, listed and copied."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from ccctl import console
from ccctl.errors import CannotWriteError, UsageError
from ccctl.shipped import with_own_command
from probes.base import meant

__all__ = ["EXAMPLES", "examples"]

EXAMPLES = (
    ("ccctl examples", "list them"),
    ("ccctl examples hierarchical_allreduce.py", "copy one into this folder"),
    ("ccctl examples systemd -o units", "copy the files of a folder of examples into another folder"),
    ("ccctl examples ring_allreduce.py -o -", "print one"),
)


def _names(incomplete: str) -> list[str]:
    return [name for name in _files() if name.startswith(incomplete)]


def examples(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", autocompletion=_names, help="Example or folder of examples to copy."),
    ] = None,
    output: Annotated[
        str,
        typer.Option("-o", "--output", metavar="DIR", help="Folder to copy to; - prints to stdout."),
    ] = ".",
) -> None:
    """List the examples, or copy one.

    They are algorithms in Python, a lab, and units, jobs and scripts for operators. A copy never
    replaces a file. If a unit, crontab or script runs ccctl watch, the copy has the full path of this ccctl.
    So it works even if ccctl is installed in a virtual environment.
    """
    found = _files()
    if name is None:
        console.table(("example", "what it is"), [(key, _claim(path)) for key, path in found.items()])
        console.next_step(f"ccctl examples {next(iter(found))}")
        return
    chosen = _chosen(name, found)
    if output == "-":
        for path in chosen.values():
            console.document(with_own_command(path.read_text(encoding="utf-8")).rstrip("\n"))
        return
    for key, path in chosen.items():
        console.note(str(_copied(path, Path(output) / Path(key).name)))


def _files() -> dict[str, Path]:
    """Return the examples by their names: paths below their folder."""
    from ccctl.shipped import examples_folder

    folder = examples_folder()
    every = sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix(): path for path in every}


def _chosen(name: str, found: dict[str, Path]) -> dict[str, Path]:
    """Return the example of this name, with or without its suffix, or all of a folder; raises UsageError."""
    plain = name.rstrip("/")
    chosen = {
        key: path
        for key, path in found.items()
        if plain in (key, key.rpartition(".")[0], Path(key).parent.as_posix())
    }
    if not chosen or plain == ".":
        close = [repr(key) for key in found if plain in key] if plain.strip(".") else []
        folders = sorted({Path(key).parent.as_posix() for key in found} - {"."})
        raise UsageError(
            f"NAME: there is no example {name[:60]!r}",
            hint=f"did you mean {' or '.join(close)}?"
            if close
            else meant(name, (*found, *folders)) or f"examples: {', '.join(found)}",
        )
    return chosen


def _claim(path: Path) -> str:
    """Return the first sentence of an example's docstring, comments or dashboard description."""
    if path.suffix == ".json":
        return str(json.loads(path.read_text(encoding="utf-8"))["description"]).partition(". ")[0].rstrip(".")
    sentence: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        words = line.strip("\"'# \t")
        if line.startswith("#!") or (not words and not sentence):
            continue
        directive = line.startswith("#") and line[1:2].isalpha()
        if not words or (sentence and (directive or (line[:1].isalpha() and "=" in line))):
            break
        sentence.append(words)
    return re.split(r"\.(?:\s+(?=[A-Z])|$)", " ".join(sentence))[0]


def _copied(source: Path, target: Path) -> Path:
    """Copy a file with its execute bits, and fill in this ccctl's path; raises CannotWriteError."""
    try:
        target.parent.mkdir(exist_ok=True)
        content = with_own_command(source.read_text(encoding="utf-8"))
        with target.open("x", encoding="utf-8") as copy:
            copy.write(content)
        target.chmod(target.stat().st_mode | (source.stat().st_mode & 0o111))
    except FileExistsError as error:
        raise CannotWriteError(
            f"{error.filename}: it is there already", hint="Choose another folder with -o."
        ) from error
    except OSError as error:
        raise CannotWriteError(f"{target}: {error.strerror}") from error
    return target
