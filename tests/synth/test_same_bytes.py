"""Python's door gives what the command gives, byte by byte, for requests of all kinds."""

import json

import pytest
from planning_requests import REQUESTS, write_files

from ccctl.artifacts import codec
from ccctl.commands.synth import SynthOptions, synth
from synth import synthesize


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("requests")
    write_files(found)
    return found


# One of each kind of request: plain, a list of links, several collectives, some ranks, chunks by hand,
# failures, periodic, symmetric, measured and a sweep.
_ONE_OF_EACH = (0, 16, 18, 20, 22, 24, 29, 34, 37, 39)
OF_ALL = [
    pytest.param(one, marks=[] if at in _ONE_OF_EACH else pytest.mark.long, id=one.name)
    for at, one in enumerate(REQUESTS)
]


@pytest.mark.parametrize("request_", OF_ALL)
def test_python_gives_the_bytes_of_the_command(request_, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    written = tmp_path / "of_the_command.json"
    synth(SynthOptions(**request_.on_command_line(folder), output=str(written)))
    made = synthesize(**request_.in_python()).schedule
    read = codec.decode(written.read_bytes(), "file")
    assert read.kind == codec.kind_of(made)
    inputs = json.loads(written.read_text())["inputs"]
    assert codec.encode(read.kind, made, inputs) == written.read_bytes()
