"""Hostile text in every name of every file: no command shows a character of it raw, nor a line of its own.

All strings of an artifact, or the words of a text, get control characters, marks of direction and a line that
looks like a finding. Whatever commands print or draw of that, nothing steers a terminal or a browser.
"""

import json
import random
import re
import xml.etree.ElementTree as ElementTree

import pytest
from corpus import corpus
from driver import call

from probes.base.visible_text import unsteered

_HOSTILE = (
    "\x1b]0;t\x07\x9b31m\u202e\u2066\u2028\u200b\x7f\ndrift: forged 0-1\r\nforged: 2\n<b>x</b>&lt;\"'`|"
)
_FORGED = re.compile(r"^\s*(?:ccctl: |warning: |finding: )?(?:drift: )?forged", re.MULTILINE)
# Hostile strings also stand for known words, and the refusal is printed.
_RING = "--network ring:4 --alpha 1us --bandwidth 1GB/s"
_COMMANDS = {
    "topology": ("show {}", "detect --from {} --why GPU0 NIC0", "synth --network {} --json"),
    "profile": (
        "show {}",
        "show {} -o {}.svg",
        "synth --network {} --chunk 64K --jobs 1",
        "training averaging {}",
    ),
    "schedule": ("show {}", "verify {}", "simulate {}", "compile {}", "show {} -o {}.svg", "compile {} -o -"),
    "periodic": ("show {}", "verify {}", "show {} -o {}.svg"),
    "symmetric": ("show {}", "verify {}", "show {} -o {}.svg"),
    "program": ("show {}", "verify {}", "compile {} -o -", f"simulate {{}} {_RING}"),
    "selection": ("show {}", "verify {}", "show {} -o {}.svg"),
    "report": ("show {}", "explain {}", "explain {} --markdown {}.md --junit {}.xml", "show {} -o {}.svg"),
    "history": ("show {}", "show {} -o {}.svg"),
    "model": ("show {}", f"training fusion {{}} {_RING}"),
    "fusion": ("show {}", "show {} -o {}.svg"),
    "groups": ("show {}", "verify {}"),
    "tuning": ("show {}", "show {} -o {}.svg"),
    "training": ("show {}", "show {} -o {}.svg"),
    "nccl-tests": ("explain {}", "show {}"),
    "nccl-json": ("explain {}",),
    "nccl-xml": ("detect --from {}",),
    "hwloc-xml": ("detect --from {}",),
    "smi": ("detect --from {}",),
    "msccl-xml": ("show {}", "verify {}", "compile {}"),
    "links-csv": ("synth --network {} --jobs 1 --chunk 64K",),
    "plan": ("verify {}", "verify {} --json"),
    "log": (f"explain {{}} {_RING}", f"explain {{}} {_RING} --markdown {{}}.md --junit {{}}.xml"),
    "ras-json": ("explain {}", "explain {} --json", "explain {} --markdown {}.md --junit {}.xml"),
    "flight-json": ("explain {}", "explain {} --json", "explain {} --markdown {}.md --junit {}.xml"),
    "hostfile": ("synth --network {} --jobs 1 --chunk 64K",),
}
_EVERY = ("report -o {}.html {}", "show {} --json")


def _samples(kind):
    """Return the first samples of a kind; the first call makes those of all, in seconds."""
    found = [sample for sample in corpus(False) if sample.kind == kind]
    assert found
    return found[:3]


@pytest.mark.parametrize("kind", _COMMANDS)
def test_nothing_that_files_say_steers_who_reads(kind, tmp_path):
    for sample in _samples(kind):
        folder = tmp_path / sample.name.replace("/", "_")
        folder.mkdir()
        _judge_sample(sample, folder)


def _judge_sample(sample, folder):
    rng = random.Random(sample.name)
    for way in _SHARE:
        path = folder / f"{way}{sample.suffix}"
        path.write_bytes(_poisoned(sample, way, rng))
        for line in (*_COMMANDS[sample.kind], *_EVERY):
            words = line.replace("{}", str(path)).split()
            ended = call(*words)
            _judge(ended.stdout.decode(errors="surrogateescape"), words, shows_json="--json" in words)
            _judge(ended.stderr, words)
            assert "Traceback" not in ended.stderr, (words, ended.stderr[-2000:])
    for made in folder.iterdir():
        if made.suffix in (".svg", ".html", ".md") or made.name.endswith(".json.xml"):
            _judge(made.read_text(), [made.name], lines=False)
            assert "<b>x" not in made.read_text()
        if made.suffix == ".svg":
            ElementTree.parse(made)


def test_names_without_end_make_no_page_without_end(tmp_path):
    for sample in [_samples(kind)[0] for kind in _COMMANDS]:
        if isinstance(sample.document, dict):
            path, page = tmp_path / f"long{sample.suffix}", tmp_path / "long.html"
            document = json.loads(json.dumps(sample.document))
            _lengthen(document)
            path.write_text(json.dumps(document))
            whole = call("show", str(path))
            assert len(whole.stdout) + len(whole.stderr) < 150_000, sample.name
            if call("report", "-o", str(page), str(path)).status in (0, 1) and page.exists():
                assert page.stat().st_size < 400_000, sample.name


def _lengthen(value):
    if not isinstance(value, dict | list):
        return
    for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
        if isinstance(inner, str) and key not in _KNOWN:
            value[key] = inner + 200_000 * "n"
        elif key not in _KNOWN:
            _lengthen(inner)


def _judge(text, words, *, shows_json=False, lines=True):
    assert text == unsteered(text), (words, ascii(text[:2000]))
    assert "\r" not in text, words
    if lines and not shows_json:
        assert not _FORGED.search(text), (words, text[:2000])


def _poisoned(sample, way, rng):
    if isinstance(sample.document, dict):
        document = json.loads(json.dumps(sample.document))
        _poison(document, way, rng)
        return json.dumps(document).encode()

    def drawn():
        return rng.random() < _SHARE[way]

    text = sample.content.decode("utf-8", "replace")
    if sample.kind.endswith("xml"):
        # Whatever XML can say by references.
        mark = "&#155;31m&#x202e;&#10;drift: forged&#13;&#10;forged: 2"
        which = '="([^"]*)"' if way == "all" else '="([^"0-9-][^"]*)"'
        text = re.sub(which, lambda one: f'="{one[1]}{mark}"' if drawn() else one[0], text)
    else:
        mark = _HOSTILE.replace("\n", "").replace("\r", "")
        text = re.sub(r"[A-Za-z]{3,}", lambda one: one[0] + mark if drawn() else one[0], text)
    return text.encode()


_SHARE = {"all": 1.0, "names": 1.0, "some": 0.1, "begun": 0.05}
# Fields whose words are known ones.
_KNOWN = {
    *("schema", "kind", "collective", "op", "flags", "protocol", "dtype", "redop", "type", "pattern"),
    *("executor", "method", "created", "direction", "bus", "path", "link", "what"),
}


def _poison(value, way, rng):
    if not isinstance(value, dict | list):
        return
    for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
        if isinstance(inner, str):
            if way != "all" and key in _KNOWN:
                continue
            if rng.random() < _SHARE[way]:
                value[key] = _HOSTILE + inner if way == "begun" else inner + _HOSTILE
        elif way == "all" or key not in _KNOWN:
            _poison(inner, way, rng)
