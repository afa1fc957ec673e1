"""Plans read and written: nothing is lost, and what is wrong is named with its place."""

import json

import pytest
from sample_plans import FILES, needs_files, pair_plan, read_file

from probes.base.errors import DataError
from synth.mscclpp import is_plan, read_plan, write_plan


def problems(document):
    with pytest.raises(DataError) as error:
        read_plan(document, "plan.json")
    return error.value.problems


@needs_files
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_plan_of_others_is_written_as_it_was_read(path):
    plan = read_file(path)
    assert read_plan(json.loads(write_plan(plan)), "again") == plan


def test_what_the_parser_defaults_is_defaulted():
    plan = read_plan(pair_plan(), "plan.json")
    assert (plan.threads, plan.alignment, plan.min_bytes, plan.max_bytes) == (1024, 16, 0, (1 << 64) - 1)
    assert not plan.double_scratch
    assert plan.gpus[1].memory == (0,)
    assert plan.gpus[1].threadblocks[0].stored == 7


@pytest.mark.parametrize("name", ["name", "collective", "protocol", "inplace", "gpus"])
def test_what_the_parser_requires_is_required(name):
    document = pair_plan()
    del document[name]
    assert f"{name}: missing" in problems(document)


def test_every_problem_is_named_with_its_place():
    document = pair_plan()
    gpu = document["gpus"][1]
    gpu["id"] = 3
    gpu["threadblocks"][0]["ops"][3]["name"] = "pull"
    gpu["threadblocks"][0]["ops"][3]["src_buff"][0]["type"] = "x"
    gpu["threadblocks"][0]["ops"][0]["channel_ids"] = [-1]
    gpu["input_chunks"] = True
    found = "\n".join(problems(document))
    assert "gpus[1].id: expected 1, its place in the list, found 3" in found
    assert "gpus[1].threadblocks[0].ops[3].name: expected nop, " in found
    assert "gpus[1].threadblocks[0].ops[3].src_buff[0].type: expected i, o or s, found 'x'" in found
    assert "gpus[1].threadblocks[0].ops[0].channel_ids[0]: expected a whole number from 0, found -1" in found
    assert "gpus[1].input_chunks: expected a whole number from 0 to 1048576, found True" in found


def test_an_operand_is_of_one_kind():
    document = pair_plan()
    document["gpus"][0]["threadblocks"][0]["ops"][3]["src_buff"][0]["buffer_id"] = 0
    assert problems(document) == (
        "gpus[0].threadblocks[0].ops[3].src_buff[0]: expected one of type, buffer_id and switch_channel_id, "
        "found 2 of them",
    )


def test_the_format_before_is_named():
    document = {**pair_plan(), "gpus": [{"id": 0, "inputChunks": 1}]}
    assert is_plan(document)
    assert "0.7 and before" in problems(document)[0]


@pytest.mark.parametrize(
    "document", [None, [], "x", {"gpus": 3}, {"gpus": [4]}, {"gpus": [{"channels": {}}]}]
)
def test_what_is_no_plan_is_refused(document):
    assert problems(document)
