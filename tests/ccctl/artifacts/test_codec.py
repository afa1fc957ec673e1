"""The codec: what is written is read back, and what is wrong is refused with every reason."""

import dataclasses
import gzip
import json
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st

from ccctl.artifacts import codec, json_schema
from ccctl.artifacts.arrays import to_plain
from ccctl.artifacts.validation import ENOUGH, mismatches
from ccctl.errors import CannotWriteError, DataError, MissingInputError

KINDS = tuple(codec.KINDS)


def plain(value):
    return msgspec.to_builtins(value, enc_hook=to_plain)


def document(kind, body):
    return json.loads(codec.encode(kind, body))


def problems(content, *kinds):
    with pytest.raises(DataError) as caught:
        codec.decode(content if isinstance(content, bytes) else json.dumps(content).encode(), "f", *kinds)
    return caught.value.problems


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_read_back(kind, samples, tmp_path):
    for name in ("a.json", "a.json.gz"):
        path = str(tmp_path / name)
        codec.write(path, kind, samples[kind], {"profile": "0" * 64})
        found = codec.read(path, kind)
        assert found.kind == kind
        assert plain(found.body) == plain(samples[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_text_is_sorted_and_ends_with_a_newline(kind, samples):
    content = codec.encode(kind, samples[kind])
    parsed = json.loads(content, object_pairs_hook=list)
    assert content.endswith(b"}\n")

    def is_sorted(value):
        if isinstance(value, list) and value and isinstance(value[0], tuple):
            return [k for k, _ in value] == sorted(k for k, _ in value) and all(
                is_sorted(v) for _, v in value
            )
        return all(map(is_sorted, value)) if isinstance(value, list) else True

    assert is_sorted(parsed)


def test_envelope_names_kind_tool_and_inputs(samples, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    found = json.loads(codec.encode("profile", samples["profile"], {"topology": "ab"}))
    assert found["schema"] == "ccctl/profile/1"
    assert found["created"] == "1970-01-01T00:00:00+00:00"
    assert found["inputs"] == {"topology": "ab"}
    assert set(found) == {"schema", "created", "tool", "host", "inputs", "body"}


def test_unknown_fields_are_ignored(samples):
    found = document("profile", samples["profile"])
    found["later"] = found["body"]["later"] = found["body"]["links"]["later"] = [1]
    assert codec.decode(json.dumps(found).encode(), "f").kind == "profile"


def test_compressed_bytes_do_not_depend_on_the_moment(samples, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    for name in ("a.json.gz", "b.json.gz"):
        codec.write(str(tmp_path / name), "schedule", samples["schedule"])
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


WRONG_WHOLE = {
    "empty": (b"", "empty, expected an artifact"),
    "blank": (b" \n", "empty, expected an artifact"),
    "cut off": (b'{"schema": "ccctl/pro', "truncated"),
    "not JSON": (b"size time\n8 1.0\n", "expected JSON"),
    "not UTF-8": (b'{"schema": "\xff\xfe"}', "expected JSON"),
    "NaN": (b'{"schema": NaN}', "expected JSON"),
    "infinite": (b'{"schema": 1e999}', "expected JSON"),
    "list": (b"[1]", "not a ccctl artifact"),
    "text": (b'"ccctl/profile/1"', "not a ccctl artifact"),
    "a plan": (
        b'{"name": "x", "collective": "allreduce", "protocol": "LL", "gpus": []}',
        "a plan of MSCCL++",
    ),
    "other tool": (b'{"schema": "x/profile/1", "body": {}}', "not a ccctl artifact"),
    "unknown kind": (b'{"schema": "ccctl/cake/1", "body": {}}', "unknown kind 'cake'"),
    "newer": (b'{"schema": "ccctl/profile/2", "body": {}}', "reads profile version 1, the file is version 2"),
    "no body": (b'{"schema": "ccctl/profile/1"}', "body: missing"),
    "body of another type": (b'{"schema": "ccctl/profile/1", "body": 7}', "body: expected an object"),
    "deep lists": (b"[" * 200_000, "nested too deep"),
    "deep objects": (b'{"a":' * 200_000, "nested too deep"),
    "cut off gzip": (gzip.compress(b'{"schema": 1}' * 99)[:-9], "not a whole gzip file"),
    "garbled gzip": (b"\x1f\x8b\x08\x00" + b"\x00" * 6 + b"\xff" * 40, "not a whole gzip file"),
}


@pytest.mark.parametrize("name", WRONG_WHOLE)
def test_a_file_that_is_no_artifact_is_refused_in_one_line(name):
    content, expected = WRONG_WHOLE[name]
    (problem,) = problems(content)
    assert expected in problem


def test_another_kind_than_asked_for_is_refused(samples):
    (problem,) = problems(codec.encode("profile", samples["profile"]), "schedule", "program")
    assert problem == "schema: expected a schedule or program, found a profile"


def wrong(path, value):
    """A change to a profile at ``path``; value None deletes."""

    def change(body):
        *parents, last = path
        for key in parents:
            body = body[key]
        if value is None:
            del body[last]
        else:
            body[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (wrong(["library"], None), "body.library: missing"),
        (wrong(["library"], 7), "body.library: expected a text, found an integer"),
        (wrong(["seconds"], "long"), "body.seconds: expected a number, found a text"),
        (wrong(["transport"], "pigeon"), "body.transport: expected one of mpi, cuda, found 'pigeon'"),
        (wrong(["ranks", 1, "host"], None), "body.ranks[1].host: missing"),
        (wrong(["ranks", 1], []), "body.ranks[1]: expected an object, found a list"),
        (wrong(["ports", 0, "links", 1], "x"), "body.ports[0].links[1]: expected an integer, found a text"),
        (wrong(["links", "src"], {}), "body.links.src: expected a list, found an object"),
        (wrong(["links", "src", 1], 2**40), "body.links.src[1]: expected an integer from -2147483648 to"),
        (wrong(["links", "src", 1], 2**99), "body.links.src[1]: expected an integer from"),
        (wrong(["links", "src", 1], 0.5), "body.links.src[1]: expected an integer from"),
        (wrong(["links", "alpha_s", 0], "1"), "body.links.alpha_s[0]: expected a number, found '1'"),
        (wrong(["links", "alpha_s", 0], [1]), "body.links.alpha_s[0]: expected a number, found a list"),
        (
            wrong(["links", "alpha_s"], [1.0]),
            "body.links.alpha_s: expected 2 values, as many as links.src, found 1",
        ),
        (
            wrong(["links", "src", 1], True),
            "body.links.src[1]: expected an integer from -2147483648 to 2147483647, found true",
        ),
        (
            wrong(["links", "beta_s_per_byte", 1], -1.0),
            "body.links.beta_s_per_byte[1]: expected a number > 0",
        ),
    ],
)
def test_a_wrong_field_is_named_with_its_path(change, expected, samples):
    found = document("profile", samples["profile"])
    change(found["body"])
    reported = problems(found)
    assert any(problem.startswith(expected) for problem in reported), reported


@pytest.mark.parametrize(
    ("value", "expected"),
    [(["x"] * 100, list[int]), ({str(n): "x" for n in range(100)}, dict[str, int])],
)
def test_a_hundred_wrong_entries_are_not_all_reported(value, expected):
    assert len(mismatches(value, expected, "body")) == ENOUGH + 1


def test_every_problem_is_reported_at_once(samples):
    found = document("profile", samples["profile"])
    del found["body"]["library"]
    found["body"]["seconds"] = "long"
    found["body"]["links"]["dst"] = [2**40, "one"]
    paths = [problem.split(":")[0] for problem in problems(found)]
    expected = ["body.library", "body.links.dst[0]", "body.links.dst[1]", "body.seconds"]
    assert sorted(paths) == expected


def test_a_thousand_problems_are_cut_short(samples):
    found = document("profile", samples["profile"])
    found["body"]["links"]["src"] = ["x"] * 1000
    reported = problems(found)
    assert len(reported) < 30
    assert reported[-1] == "… and more problems"


def test_nested_options_and_maps_are_walked(samples):
    found = document("report", samples["report"])
    found["body"]["rows"][0]["peers"]["mpi"]["time_s"] = "fast"
    found["body"]["rows"][0]["out_of_place"]["wrong"] = "none"
    assert [problem.split(": ")[0] for problem in problems(found)] == [
        "body.rows[0].out_of_place.wrong",
        "body.rows[0].peers.mpi.time_s",
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(body=JSON, kind=st.sampled_from(KINDS))
def test_no_body_breaks_the_reader(body, kind):
    content = json.dumps({"schema": f"ccctl/{kind}/1", "body": body}).encode()
    try:
        codec.decode(content, "f")
    except DataError as error:
        assert error.problems


@given(st.data())
def test_no_change_of_one_field_breaks_the_reader(samples, data):
    kind = data.draw(st.sampled_from(KINDS))
    found = document(kind, samples[kind])
    place = found["body"]
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(JSON)
    try:
        codec.decode(json.dumps(found).encode(), "f")
    except DataError as error:
        assert all(problem.startswith("body") or problem.startswith("…") for problem in error.problems)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_json_has_no_word_for_is_not_written(value, samples, tmp_path):
    broken = dataclasses.replace(samples["profile"], seconds=value)
    links = dataclasses.replace(samples["profile"].links, alpha_s=np.array([value, 1.0]))
    for body in (broken, dataclasses.replace(samples["profile"], links=links)):
        with pytest.raises(ValueError, match=r"\$\.body\S*: NaN"):
            codec.write(str(tmp_path / "a.json"), "profile", body)
    assert list(tmp_path.iterdir()) == []


def test_a_long_column_is_one_line(schedule):
    lines = codec.encode("schedule", schedule).decode().splitlines()
    assert sum('"chunk":' in line and line.rstrip(",").endswith("]") for line in lines) == 1
    assert max(len(re.findall(r"[\d.]+", line)) for line in lines) >= schedule.sends


def test_a_missing_input_is_named(tmp_path):
    for path in (tmp_path / "none.json", tmp_path, "nul\0byte"):
        with pytest.raises(MissingInputError) as caught:
            codec.read(str(path))
        assert str(path).split("\0")[0] in caught.value.message


def test_a_place_that_cannot_be_written_is_named_and_left_alone(samples, tmp_path):
    for path in (tmp_path / "none" / "a.json", tmp_path, "/proc/none.json"):
        with pytest.raises(CannotWriteError) as caught:
            codec.write(str(path), "profile", samples["profile"])
        assert str(path) in caught.value.message
    assert list(tmp_path.iterdir()) == []


def test_a_device_is_written_to_and_not_replaced(samples):
    codec.write("/dev/null", "profile", samples["profile"])
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("kind", KINDS)
def test_schema_describes_what_is_written(kind, samples):
    found = json_schema.schema(kind)
    written = document(kind, samples[kind])
    assert found["properties"]["schema"]["const"] == written["schema"]
    assert set(written) == set(found["properties"])
    name = found["properties"]["body"]["$ref"].rpartition("/")[2]
    assert set(written["body"]) == set(found["$defs"][name]["properties"])


@pytest.mark.parametrize("unit", ["[],", "{},", "0,", '{"a":0},'])
def test_values_that_would_not_fit_into_memory_are_refused_before_they_are_made(unit, monkeypatch):
    monkeypatch.setattr(codec, "_MOST_OBJECT_BYTES", 1 << 20)
    content = b"[" + (unit * 30_000).encode()
    with pytest.raises(DataError, match="more values than fit into"):
        codec.decode(content, "x.json")


def test_whole_numbers_beyond_63_bits_are_refused_with_their_paths(samples):
    changed = document("schedule", samples["schedule"])
    changed["body"]["seed"] = 10**30
    assert problems(changed) == ("body.seed: expected a number of at most 63 bits",)


def test_a_log_is_not_an_artifact_and_the_command_that_reads_it_is_named():
    with pytest.raises(DataError) as raised:
        codec.decode(b"# nThread 1 nGpus 1\n", "nccl.log")
    assert "ccctl explain reads logs" in raised.value.hint


def test_utf_16_is_named_and_xml_in_it_is_read_as_xml():
    with pytest.raises(DataError, match="expected JSON in UTF-8, found UTF-16"):
        codec.decode('{"schema": 1}'.encode("utf-16"), "x")
    with pytest.raises(DataError, match="<algo>"):
        codec.decode("<other/>".encode("utf-16"), "x")
