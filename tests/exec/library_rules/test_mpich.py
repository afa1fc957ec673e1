"""MPICH's selection table: rules put in, every call still finds a leaf, and merging keeps what was there.

``chosen`` replicates ``prune_tree`` and ``MPIR_Csel_search`` of MPICH 5.0 (``src/mpi/coll/src/csel.c``),
condition by condition, for what the tables here ask.
"""

import json
from dataclasses import dataclass

import pytest

from exec.library_rules.choice import Rule
from exec.library_rules.mpich import (
    MeasuredRules,
    environment,
    library_table,
    parameters_of,
    read_table,
    with_rules,
    write_table,
)
from probes.base.errors import DataError

ALLTOALL = {
    "is_sendbuf_inplace=yes": {"algorithm=MPIR_Alltoall_intra_pairwise_sendrecv_replace": {}},
    "is_sendbuf_inplace=no": {
        "comm_size<8": {"algorithm=MPIR_Alltoall_intra_scattered": {}},
        "comm_size=any": {"algorithm=MPIR_Alltoall_intra_brucks": {}},
    },
}
ALLREDUCE = {
    "avg_msg_size<=8": {"algorithm=MPIR_Allreduce_intra_recursive_doubling": {}},
    "avg_msg_size=any": {
        "is_op_built_in=no": {"algorithm=MPIR_Allreduce_intra_recursive_doubling": {}},
        "is_op_built_in=yes": {"algorithm=MPIR_Allreduce_intra_reduce_scatter_allgather": {}},
    },
}
INTER = {"algorithm=MPIR_Allreduce_inter_reduce_exchange_bcast": {}}
OWN = {
    "collective=allreduce": {"comm_type=intra": ALLREDUCE, "comm_type=inter": INTER},
    "collective=alltoall": {"comm_type=intra": ALLTOALL},
    "collective=barrier": {"comm_type=intra": {"algorithm=MPIR_Barrier_intra_smp": {}}},
}
RING = (Rule(0, ""), Rule(4096, "ring"), Rule(65536, "recexch"))
RECEXCH = {"recexch": {"k": 2, "single_phase_recv": 0}}


@dataclass(frozen=True)
class Call:
    collective: str
    ranks: int
    size: int
    commutative: bool = True
    built_in: bool = True
    in_place: bool = False
    elements: int = 1 << 20


def chosen(table, call):
    """The algorithm that a call takes and its parameters; fails as MPICH does where there is none."""
    node = _pruned(table[f"collective={call.collective}"]["comm_type=intra"], call)
    while not any(key.startswith("algorithm=") for key in node):
        node = next(below for key, below in node.items() if _searched(key, call))
    # ``MPII_Create_container`` ends the program for any other key beside the algorithm.
    ((leaf, parameters),) = node.items()
    return [leaf, *parameters]


def _pruned(node, call):
    """Conditions on the communicator, as far as they come first."""
    while True:
        key = next(iter(node))
        if not key.startswith("comm_size"):
            return node
        node = next(
            below
            for key, below in node.items()
            if _compared(key, "comm_size", call.ranks, strict=True, power=call.ranks)
        )


def _searched(key, call):
    if key.startswith("comm_size"):
        # The search takes "<" for "<=".
        return _compared(key, "comm_size", call.ranks, strict=False, power=call.ranks)
    if key.startswith(("avg_msg_size", "total_msg_size")):
        return _compared(key, key.partition("<")[0].partition("=")[0], call.size, strict=True)
    if key.startswith("count"):
        return key == "count=any" or call.elements < 1 << (call.ranks.bit_length() - 1)
    word, _, value = key.partition("=")
    held = {
        "is_commutative": call.commutative,
        "is_op_built_in": call.built_in,
        "is_sendbuf_inplace": call.in_place,
    }
    return held[word] == (value == "yes")


def _compared(key, word, value, *, strict, power=0):
    if key == f"{word}=any":
        return True
    if key == f"{word}=pow2":
        return power & (power - 1) == 0
    if key.startswith(f"{word}<="):
        return value <= int(key.removeprefix(f"{word}<="))
    bound = int(key.removeprefix(f"{word}<"))
    return value < bound if strict else value <= bound


def allreduce(table, ranks, size, **more):
    return chosen(table, Call("allreduce", ranks, size, **more))


def test_rules_hold_for_their_ranks_only():
    table = with_rules(OWN, MeasuredRules("all_reduce", 4, RING, RECEXCH))
    assert allreduce(table, 4, 4095) == ["algorithm=MPIR_Allreduce_intra_reduce_scatter_allgather"]
    assert allreduce(table, 4, 4096) == ["algorithm=MPIR_Allreduce_intra_ring"]
    assert allreduce(table, 4, 1 << 30) == [
        "algorithm=MPIR_Allreduce_intra_recexch",
        "k=2",
        "single_phase_recv=0",
    ]
    for ranks in (2, 3, 5, 64):
        for size in (0, 8, 4096, 1 << 30):
            assert allreduce(table, ranks, size) == allreduce(OWN, ranks, size)
    assert {key: tree for key, tree in table.items() if key != "collective=allreduce"} == {
        key: tree for key, tree in OWN.items() if key != "collective=allreduce"
    }
    assert table["collective=allreduce"]["comm_type=inter"] == INTER


def test_what_an_algorithm_cannot_do_goes_to_the_library_s_choice():
    measured = MeasuredRules("all_reduce", 4, (Rule(0, "reduce_scatter_allgather"),), {})
    table = with_rules(OWN, measured)
    assert allreduce(table, 4, 8, elements=3) == ["algorithm=MPIR_Allreduce_intra_recursive_doubling"]
    assert allreduce(table, 4, 8, elements=4) == ["algorithm=MPIR_Allreduce_intra_reduce_scatter_allgather"]
    for more in ({"commutative": False, "built_in": False}, {"built_in": False}):
        assert allreduce(table, 4, 4096, **more) == ["algorithm=MPIR_Allreduce_intra_recursive_doubling"]


def test_in_place_exchanges_keep_their_algorithm():
    table = with_rules(OWN, MeasuredRules("all_to_all", 4, (Rule(0, "brucks"),), {}))
    assert chosen(table, Call("alltoall", 4, 64)) == ["algorithm=MPIR_Alltoall_intra_brucks"]
    assert chosen(table, Call("alltoall", 4, 64, in_place=True)) == [
        "algorithm=MPIR_Alltoall_intra_pairwise_sendrecv_replace"
    ]


def test_a_size_that_a_condition_excludes_stays_excluded_below_other_conditions():
    table = with_rules(OWN, MeasuredRules("all_to_all", 8, (Rule(0, ""),), {}))
    found = chosen(table, Call("alltoall", 8, 64))
    assert found == ["algorithm=MPIR_Alltoall_intra_brucks"]


def test_merging_keeps_rules_of_other_ranks_and_replaces_its_own():
    table = with_rules(OWN, MeasuredRules("all_reduce", 8, RING, RECEXCH))
    for ranks in (4, 9, 2, 8, 8):
        table = with_rules(table, MeasuredRules("all_reduce", ranks, (Rule(0, "ring"),), {}))
    intra = table["collective=allreduce"]["comm_type=intra"]
    assert [key for key in intra] == [
        *(f"comm_size<={ranks}" for ranks in (1, 2, 3, 4, 7, 8, 9)),
        "comm_size=any",
    ]
    for ranks in range(1, 12):
        expected = "ring" if ranks in (2, 4, 8, 9) else "reduce_scatter_allgather"
        assert allreduce(table, ranks, 4096) == [f"algorithm=MPIR_Allreduce_intra_{expected}"]


def test_sizes_that_atoi_cannot_read_are_not_written():
    rules = (Rule(0, "ring"), Rule(1 << 31, "recexch"))
    text = write_table(with_rules(OWN, MeasuredRules("all_reduce", 4, rules, RECEXCH)))
    assert str(1 << 31) not in text
    assert "recexch" not in text


def test_what_is_written_is_read_back():
    table = with_rules(OWN, MeasuredRules("all_reduce", 4, RING, RECEXCH))
    assert read_table(write_table(table), "table.json") == table


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{", "expected JSON"),
        ("[]", "expected a table"),
        ('{"collective=bcast":' * 20_000, "nested too deep"),
        ('{"collective=bcast":' + 500 * '{"a": ' + '{"algorithm=a": {}}' + 501 * "}", "at most 64 levels"),
        ("{}", "expected an object"),
        ('{"collective=bcast": {"comm_type=intra": {}}}', "collective=bcast / comm_type=intra"),
        ('{"comm_type=intra": {"algorithm=MPIR_Bcast_intra_smp": {}}}', "must be collectives"),
    ],
)
def test_what_is_no_table_is_refused(text, found):
    with pytest.raises(DataError, match=found):
        read_table(text, "table.json")


def test_a_collective_that_the_table_lacks_is_refused():
    with pytest.raises(DataError, match="collective=allgather"):
        with_rules(OWN, MeasuredRules("all_gather", 4, (Rule(0, "ring"),), {}))


def test_the_table_of_mpir_is_found_among_those_of_a_library():
    devices = json.dumps({"collective=bcast": {"comm_type=intra": {"composition=MPIDI_Bcast_alpha": {}}}})
    data = b"\x7fELF\0" + devices.replace(" ", "").encode() + b"\0rest\0" + json.dumps(OWN).encode() + b"\0"
    assert library_table(data.replace(b'{"collective=b', b'{"collective=b'), "libmpi.so") == OWN
    with pytest.raises(DataError, match="no selection table"):
        library_table(b"\x7fELF\0", "libmpi.so")


def test_parameters_name_their_control_variables():
    assert parameters_of("all_reduce", "recexch") == {
        "k": "MPIR_CVAR_ALLREDUCE_RECEXCH_KVAL",
        "single_phase_recv": "MPIR_CVAR_ALLREDUCE_RECEXCH_SINGLE_PHASE_RECV",
    }
    assert parameters_of("all_reduce", "ring") == {}


def test_the_environment_turns_off_the_device_s_collective():
    assert environment(["reduce_scatter"], "/table.json") == {
        "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE": "/table.json",
        "MPIR_CVAR_DEVICE_COLLECTIVES": "percoll",
        "MPIR_CVAR_REDUCE_SCATTER_BLOCK_DEVICE_COLLECTIVE": "0",
    }
