"""The judge of plans: it accepts what is right, and names what is wrong by the executor's rules."""

import pytest
from sample_plans import FILES, needs_files, pair_plan, read_file

from synth.mscclpp import examine_plan, read_plan
from synth.mscclpp.judge import gpus_holding

# Plans of the library's language that send from input or output over ports.
FROM_USERS = ("allgather_2x2_port", "reducescatter_2x2_port", "ring_allreduce_4_port", "sendrecv_2x2")
# Block 0 reads what block 1 of the other rank copies, and waits for its own counterpart only.
RACES = ("reduce_tbg",)


def operations(document, rank=0):
    return document["gpus"][rank]["threadblocks"][0]["ops"]


def findings(document):
    return list(examine_plan(read_plan(document, "plan.json")).findings)


@needs_files
@pytest.mark.parametrize(
    "path",
    [path for path in FILES if path.stem not in (*RACES, *FROM_USERS)],
    ids=lambda path: path.stem,
)
def test_plans_of_others_are_right(path):
    assert examine_plan(read_file(path)).findings == ()


@needs_files
def test_a_race_in_a_plan_of_others_is_found():
    path = next(path for path in FILES if path.stem in RACES)
    found = list(examine_plan(read_file(path)).findings)
    assert "gpus[1].threadblocks[1].ops[0] (copy) writes rank 1 s[1]" in found[0]
    assert all("nothing orders the two" in finding for finding in found)


@needs_files
@pytest.mark.parametrize(
    "path", [path for path in FILES if path.stem in FROM_USERS], ids=lambda path: path.stem
)
def test_a_port_that_sends_from_input_or_output_is_wrong_in_most_allocations(path):
    (found,) = examine_plan(read_file(path)).findings
    assert "the executor takes input and output at the start of their allocation" in found


def test_a_get_from_an_input_or_output_is_wrong_in_most_allocations():
    document = pair_plan()
    for rank in range(2):
        ops = operations(document, rank)
        own = {"index": 1 - rank, "size": 1}
        ops[3] = {"name": "get", "src_buff": [{"buffer_id": 0, **own}], "dst_buff": [{"type": "o", **own}]}
        ops[3]["channel_type"] = "memory"
    (found,) = findings(document)
    assert found.startswith("gpus[0].threadblocks[0].ops[3] (get), one of 2 operations alike: ")


def test_in_place_a_port_reads_the_first_part():
    document = pair_plan("port")
    for rank in range(2):
        operations(document, rank)[5]["src_buff"] = [{"type": "i", "index": 0, "size": 1}]
    assert findings(document) == [
        "gpus[1].threadblocks[0].ops[5] (pws): in place, a port reads i at the start of the whole buffer"
    ]


def test_in_place_the_part_of_a_peer_is_not_found():
    document = pair_plan() | {"collective": "reducescatter"}
    for gpu in document["gpus"]:
        gpu |= {"input_chunks": 2, "output_chunks": 1}
        (put,) = (one for one in gpu["threadblocks"][0]["ops"] if one["name"] == "put")
        put |= {
            "src_buff": [{"type": "i", "index": 0, "size": 1}],
            "dst_buff": [{"buffer_id": 0, "index": 0, "size": 1}],
        }
    found = findings(document)
    assert "in place, the executor looks for o of a peer at this rank's own part" in found[0]
    assert not any("in place" in one for one in findings(document | {"inplace": False}))


def test_a_least_size_of_more_than_31_bits_is_named():
    document = pair_plan() | {"min_message_size": (1 << 31) - 1}
    assert findings(document) == []
    document["min_message_size"] += 1
    assert "min_message_size: the executor reads 32 bits with a sign" in findings(document)[0]


def test_the_ids_of_ports_have_few_bits():
    document = pair_plan("port")
    gpu = document["gpus"][0]
    gpu["remote_buffers"] *= 509
    assert findings(document) == []
    gpu["remote_buffers"] += gpu["remote_buffers"][:1]
    assert findings(document) == ["gpus[0]: 513 memories for ports, the executor takes 512"]
    del gpu["remote_buffers"][1:]
    for rank in range(2):
        document["gpus"][rank]["channels"][0]["connected_to"] *= 1025
    assert findings(document)[0] == "gpus[0]: 1025 port channels, the executor takes 1024"


def test_a_put_with_a_flush_is_a_caution_for_earlier_versions():
    document = pair_plan("port")
    for rank in range(2):
        operations(document, rank)[5]["name"] = "pwsf"
    assert "pwsf: before v0.10.0 " in examine_plan(read_plan(document, "p")).cautions[0]


@pytest.mark.parametrize("kind", ["memory", "port"])
def test_a_small_plan_is_right(kind):
    assert findings(pair_plan(kind)) == []


def test_a_put_that_the_proxy_may_do_later_is_a_caution():
    assert (
        "may be incomplete when the kernel ends"
        in examine_plan(read_plan(pair_plan("port"), "p")).cautions[0]
    )


def test_without_the_handshake_a_put_meets_the_caller():
    document = pair_plan()
    for rank in range(2):
        del operations(document, rank)[:3]
    assert "the caller of rank" in findings(document)[0]


def test_without_a_nop_the_signal_tells_too_early():
    document = pair_plan()
    del operations(document)[4]
    assert "(put) writes rank 1 o[0] in a race with the caller of rank 1" in (findings(document)[0])


def test_a_wait_without_a_signal_waits_for_ever():
    document = pair_plan()
    del operations(document)[5]
    assert "gpus[1].threadblocks[0].ops[1] (wait) waits for ever" in findings(document)


def test_a_signal_that_nobody_waits_for_is_left_to_the_next_launch():
    document = pair_plan()
    del operations(document, 1)[6]
    assert findings(document) == [
        "memory channel 0 from rank 0 to rank 1: 2 signals and 1 waits a launch: "
        "the next launch begins with the rest"
    ]


def test_a_relaxed_signal_brings_no_data():
    document = pair_plan()
    document["gpus"][1]["scratch_chunks"] = 1
    operations(document)[5]["name"] = "rlxsignal"
    operations(document, 1)[6:] = [
        {"name": "rlxwait", "channel_ids": [0], "channel_type": "memory"},
        {"name": "nop"},
        {
            "name": "copy",
            "src_buff": [{"type": "o", "index": 0, "size": 1}],
            "dst_buff": [{"type": "s", "index": 0, "size": 1}],
        },
    ]
    assert "by relaxed signals or packets of other data only" in findings(document)[0]


def test_a_wrong_chunk_is_told():
    document = pair_plan()
    operations(document)[3]["dst_buff"][0]["index"] = 1
    assert any("rank 1 must end with o[0] of allgather" in finding for finding in findings(document))


def test_what_nothing_has_written_is_no_result():
    document = pair_plan()
    document["gpus"][0]["scratch_chunks"] = 1
    source, target = {"type": "s", "index": 0, "size": 1}, {"type": "o", "index": 0, "size": 1}
    operations(document).insert(3, {"name": "copy", "src_buff": [source], "dst_buff": [target]})
    found = findings(document)
    assert "gpus[0].threadblocks[0].ops[3] (copy) reads rank 0 s[0], which nothing has written" in found
    assert "rank 0 must end with o[0] of allgather: nothing of this launch is written there" in found


def test_a_contribution_that_is_doubled_often_is_told():
    """Its multiples are counted, not listed: there would be 2 to the 50th."""
    document = pair_plan()
    chunk = {"type": "o", "index": 0, "size": 1}
    doubled = {"name": "re", "src_buff": [chunk, chunk], "dst_buff": [chunk], "reduce_op": "sum"}
    operations(document)[3:3] = [doubled] * 50 + [{"name": "nop"}]
    assert any("i[0] of rank 0 is in it more than once" in finding for finding in findings(document))


def test_the_executors_limits_hold():
    document = pair_plan()
    operations(document)[0:0] = [{"name": "nop"}] * 58
    assert findings(document) == ["gpus[0].threadblocks[0]: 65 operations, the executor takes 64"]


def test_chunks_have_one_size():
    document = pair_plan()
    document["gpus"][0]["output_chunks"] = 3
    assert "gpus[0]: chunks of input and output must have one size" in findings(document)[0]
    document["gpus"][0]["input_chunks"] = 0
    assert findings(document) == ["gpus[0].input_chunks: expected at least 1, the executor divides by it"]


@pytest.mark.parametrize(
    ("at", "field", "value", "reason"),
    [
        (0, "channel_ids", [1], "memory channel 1, the threadblock has 1"),
        (3, "channel_type", "switch", "it runs over memory or port channels, found switch"),
        (3, "dst_buff", [{"buffer_id": 1, "index": 0, "size": 1}], "remote buffer 1, the threadblock has 1"),
        (3, "src_buff", [{"type": "o", "index": 1, "size": 2}], "o[1:3], the buffer has 2 chunks"),
        (3, "src_buff", [], "expected 1 or more, found 0"),
    ],
)
def test_what_is_not_there_is_named(at, field, value, reason):
    document = pair_plan()
    operations(document)[at][field] = value
    found = findings(document)
    assert reason in found[0]
    assert found[0].startswith(f"gpus[0].threadblocks[0].ops[{at}]")


def two_blocks(document, first, second, semaphores=1):
    """Rank 0 with a second threadblock, which holds the last operations of the first."""
    gpu = document["gpus"][0]
    gpu["semaphores"] = [{"init_value": 0}] * semaphores
    (block,) = gpu["threadblocks"]
    ops = block["ops"]
    gpu["threadblocks"] = [
        {**block, "ops": [*ops[:3], *first]},
        {**block, "id": 1, "ops": [*second, *ops[3:]]},
    ]
    return document


def test_blocks_are_ordered_by_semaphores_only():
    release = [{"name": "sem_release", "semaphore_ids": [0]}]
    acquire = [{"name": "sem_acquire", "semaphore_ids": [0]}, {"name": "nop"}]
    assert findings(two_blocks(pair_plan(), release, acquire)) == []
    assert findings(two_blocks(pair_plan(), [], []))
    assert "waits for ever" in findings(two_blocks(pair_plan(), [], acquire))[0]
    assert findings(two_blocks(pair_plan(), release, []))


def test_blocks_are_ordered_by_barriers():
    barrier = [{"name": "barrier", "barrier_id": 0, "num_threadblocks": 2}]
    assert findings(two_blocks(pair_plan(), barrier, barrier)) == []
    assert (
        "barrier 0 is for 2 threadblocks, and 1 come to it"
        in findings(two_blocks(pair_plan(), barrier, []))[0]
    )


def test_the_pitfall_of_get_is_named():
    document = pair_plan()
    operations(document)[3] = {
        "name": "get",
        "src_buff": [{"buffer_id": 0, "index": 1, "size": 1}],
        "dst_buff": [{"type": "o", "index": 0, "size": 1}],
        "channel_type": "memory",
    }
    assert "exchanges the offsets" in findings(document)[0]


def test_an_unknown_collective_is_a_caution():
    document = {**pair_plan(), "collective": "sendrecv", "inplace": False}
    verdict, told = examine_plan(read_plan(document, "p")), "it is not known what 'sendrecv' must give"
    assert f"the results are not checked: {told}" in verdict.cautions + verdict.findings


def test_a_pipeline_repeats_its_operations():
    document = pair_plan()
    for rank in range(2):
        ops = operations(document, rank)
        inner = [*ops[3:6], {"name": "nop"}, ops[6], {"name": "nop"}]
        ops[3:] = [{"name": "pipeline", "iter_context": {"unit_size": 1024, "num_chunks": 1}, "ops": inner}]
    assert findings(document) == []
    operations(document)[3]["iter_context"]["num_chunks"] = 2
    assert "its operands have 1 chunks, the pipeline runs over 2" in findings(document)[0]


@pytest.mark.parametrize("rank", [2, 128])
def test_a_remote_buffer_of_a_rank_that_is_not_there_is_named(rank):
    document = pair_plan()
    document["gpus"][0]["remote_buffers"][0]["rank"] = rank
    found = list(examine_plan(read_plan(document, "plan.json")).findings)
    assert any(f"is of rank {rank}, the plan has 2 ranks" in finding for finding in found)


@pytest.mark.parametrize("kind", ["memory", "port"])
def test_a_local_copy_may_name_a_type_of_channel(kind):
    document = pair_plan()
    document["gpus"][0]["scratch_chunks"] = 1
    source, target = {"type": "o", "index": 0, "size": 1}, {"type": "s", "index": 0, "size": 1}
    copy = {"name": "copy", "src_buff": [source], "dst_buff": [target], "channel_type": kind}
    operations(document).insert(0, copy)
    assert findings(document) == []


@pytest.mark.parametrize(
    ("threadblocks", "words"),
    [
        (108, "fits A100 (108), H100 (132), B200 (148)"),
        (112, "fits H100 (132), B200 (148), not A100 (108)"),
        (200, "too many for A100 (108), H100 (132), B200 (148)"),
    ],
)
def test_the_gpus_that_hold_all_threadblocks_are_named(threadblocks, words):
    assert gpus_holding(threadblocks) == words
