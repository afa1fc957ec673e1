"""The sample of the pipeline in README.md, made anew from a real run on this machine.

The commands of the sample are run one after another in an empty folder, and what they print takes the
place of what stood below them. ``tests/test_readme.py`` holds that the sample still looks like the output.

    python -P .ci/readme_sample.py          write README.md anew
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"
_SAMPLE = re.compile(r"(?<=```\n)\$ ccctl detect .*?(?=```\n)", re.DOTALL)


def sample(text: str) -> list[tuple[str, list[str]]]:
    """Return each command of the sample in README's ``text``, with the lines that stand below it."""
    found = _SAMPLE.search(text)
    if found is None:
        raise ValueError("README.md has no sample that begins with `$ ccctl detect`")
    parts: list[tuple[str, list[str]]] = []
    for line in found[0].splitlines():
        if line.startswith("$ "):
            parts.append((line.removeprefix("$ "), []))
        elif line:
            parts[-1][1].append(line)
    return parts


def printed(commands: list[str]) -> list[tuple[str, list[str]]]:
    """Run ``commands`` in an empty folder; return each with the lines that a terminal would show."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "out").mkdir()
        return [(command, _lines(command, folder)) for command in commands]


def _lines(command: str, folder: str) -> list[str]:
    words = [sys.executable, "-P", "-m", *command.split()]
    done = subprocess.run(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{command} ended with {done.returncode}:\n{done.stdout}")
    return [line.rstrip() for line in done.stdout.splitlines() if line.strip()]


def main() -> None:
    """Write README.md with what the commands of its sample print now."""
    text = README.read_text()
    parts = printed([command for command, _ in sample(text)])
    block = "\n\n".join("\n".join([f"$ {command}", *lines]) for command, lines in parts)
    README.write_text(_SAMPLE.sub(lambda _: block + "\n", text, count=1))


if __name__ == "__main__":
    main()
