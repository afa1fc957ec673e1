"""Dumps as PyTorch's FlightRecorder writes them: version 2.3 and later."""

import json
import os
import pickle

import pytest

from exec.benchmark.foreign.flight_recorder import (
    as_timed_calls,
    flight_calls,
    flight_recorded,
    is_flight_pickle,
    is_flight_text,
)
from exec.benchmark.foreign.timed_calls import of_calls
from probes.base.errors import DataError

STATE = {"completed": (1, 2), "started": (1, None), "scheduled": (None, None)}


def entry(
    number, state="completed", *, name="nccl:all_reduce", shape=(1024, 256), ms=None, group="0", p2p=False
):
    started, ended = STATE[state]
    found = {
        "frames": [{"name": "forward", "filename": "m.py", "line": 1}],
        "record_id": number,
        "pg_id": 0,
        "process_group": [group, "default_pg"],
        "collective_seq_id": 0 if p2p else number,
        "p2p_seq_id": number if p2p else 0,
        "op_id": number,
        "profiling_name": name,
        "time_created_ns": 1,
        "input_sizes": [list(shape)],
        "input_dtypes": ["Float"],
        "output_sizes": [list(shape)],
        "output_dtypes": ["Float"],
        "state": state,
        "time_discovered_started_ns": started,
        "time_discovered_completed_ns": ended,
        "retired": state == "completed",
        "timeout_ms": 600000,
        "is_p2p": p2p,
    }
    return found if ms is None else {**found, "duration_ms": ms}


def dumped(entries, ranks=4):
    return {
        "version": "2.5",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}},
        "pg_status": {"0": {"last_enqueued_collective": len(entries)}},
        "entries": entries,
    }


def files(*by_rank, form=pickle.dumps):
    return {
        f"nccl_trace_rank_{rank}": form(dumped(entries, len(by_rank))) for rank, entries in enumerate(by_rank)
    }


def as_json(document):
    return json.dumps(document).encode()


def old_pickle(document):
    return pickle.dumps(document, protocol=2)


@pytest.mark.parametrize("form", [old_pickle, pickle.dumps, as_json])
def test_a_rank_that_has_not_come_is_late(form):
    waits = [entry(1), entry(2, "started")]
    content = files(waits, waits, [entry(1)], waits, form=form)
    first = next(iter(content.values()))
    assert is_flight_text(first) if form is as_json else is_flight_pickle(first)
    (lag,) = flight_recorded(content).lags
    assert (lag.what, lag.rank) == ("late", 2)
    assert lag.text == "has not begun nccl:all_reduce 2, in which 3 ranks wait; its last call is 1"


def test_a_job_that_goes_on_has_nobody_late():
    done = [entry(1), entry(2)]
    assert flight_recorded(files(done, done, done, done)).lags == ()


def test_a_rank_without_a_dump_is_missing():
    content = files(*[[entry(1, "scheduled")]] * 4)
    del content["nccl_trace_rank_3"]
    (lag,) = flight_recorded(content).lags
    assert (lag.what, lag.rank) == ("missing", 3) and "wrote no dump; 3 ranks wait" in lag.text


def test_a_rank_whose_call_has_another_size_or_name_is_a_mismatch():
    usual = [entry(1), entry(2, "started")]
    other = [entry(1), entry(2, "started", shape=(8,))]
    found = flight_recorded(files(usual, other, usual, usual)).lags
    assert [(lag.what, lag.rank) for lag in found] == [("mismatch", 1)]
    assert "is nccl:all_reduce of 32 bytes, of others nccl:all_reduce of 1048576" in found[0].text
    other = [entry(1), entry(2, "started", name="nccl:_all_gather_base")]
    found = flight_recorded(files(usual, usual, other, usual)).lags
    assert [(lag.what, lag.rank) for lag in found] == [("mismatch", 2)]


@pytest.mark.parametrize("name", ["nccl:all_to_all", "nccl:scatter", "nccl:_reduce_scatter_base"])
def test_inputs_that_may_be_uneven_are_no_mismatch(name):
    by_rank = [[entry(1, "started", name=name, shape=(8 * rank,))] for rank in range(1, 4)]
    assert flight_recorded(files(*by_rank)).lags == ()


def test_a_rank_that_others_have_left_behind_is_stuck():
    found = flight_recorded(files([entry(1)], [entry(1, "started")], [entry(1)])).lags
    assert [(lag.what, lag.rank) for lag in found] == [("stuck", 1)]


def test_timed_calls_say_for_whom_the_others_waited():
    by_rank = [[entry(number, ms=2.0 if rank == 3 else 10.0) for number in range(1, 6)] for rank in range(4)]
    (waiting,) = of_calls(as_timed_calls(flight_calls(files(*by_rank))), "flight-recorder").waiting
    assert (waiting.collective, waiting.size_bytes, waiting.calls) == ("all_reduce", 1 << 20, 5)
    assert waiting.transfer_s == pytest.approx(2e-3) and waiting.waited_s == pytest.approx(8e-3)
    assert waiting.last[0][0] == 3 and waiting.last[0][2] == 1.0


def test_an_all_gather_counts_the_output():
    by_rank = [[entry(1, name="nccl:_all_gather_base", ms=1.0)]] * 2
    (call, _) = as_timed_calls(flight_calls(files(*by_rank)))
    assert (call.kind, call.size_bytes) == ("all_gather", 2 << 20)


def test_sends_become_a_profile():
    sends = [
        entry(
            number, name="nccl:send 0->1", shape=(size,), ms=1e3 * (5e-6 + 4 * size / 10e9) * slow, p2p=True
        )
        for number, (size, slow) in enumerate(
            [(1 << 16, 1.0), (1 << 20, 1.0), (1 << 22, 1.0), (1 << 20, 3.0)]
        )
    ]
    found = flight_recorded(files(sends, [], [])).sent
    profile = found.profile("PyTorch")
    assert profile.problems() == []
    assert (profile.links.src.tolist(), profile.links.dst.tolist()) == ([0], [1])
    assert profile.links.beta_s_per_byte[0] == pytest.approx(1 / 10e9, rel=1e-3)
    assert profile.links.alpha_s[0] == pytest.approx(5e-6, rel=0.01)
    assert flight_recorded(files([entry(1)])).sent.profile("PyTorch") is None


class Attack:
    def __reduce__(self):
        return (os.system, ("touch pwned",))


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_a_pickle_that_is_a_program_is_refused_and_not_carried_out(tmp_path, monkeypatch, protocol):
    monkeypatch.chdir(tmp_path)
    content = pickle.dumps({"entries": [Attack()], "profiling_name": 1}, protocol=protocol)
    with pytest.raises(DataError, match="plain data alone"):
        flight_recorded({"nccl_trace_rank_0": content})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["builtins eval", "builtins getattr", "torch _utils", "torch.jit._pickle restore_type_tag"]
)
def test_no_name_of_any_module_is_found(name):
    content = b"\x80\x02c" + name.replace(" ", "\n").encode() + b"\n."
    with pytest.raises(DataError, match="is no plain data"):
        flight_recorded({"nccl_trace_rank_0": content})


def test_lists_of_numbers_as_pytorch_pickles_them_are_lists():
    content = b"\x80\x02ctorch.jit._pickle\nbuild_intlist\n]K\x01a\x85R."
    with pytest.raises(DataError, match="a dict"):
        flight_recorded({"nccl_trace_rank_0": content})


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\x80\x04\x95", "plain data alone"),
        (as_json([1]), "a dict"),
        (as_json({"entries": 3}), "entries: expected a list"),
        (as_json({"entries": [3]}), "expected a dict"),
        (as_json({"entries": [{}]}), "collective_seq_id"),
        (as_json({"entries": []}), "no entries"),
    ],
)
def test_what_is_no_dump_is_refused(content, told):
    with pytest.raises(DataError, match=told):
        flight_recorded({"nccl_trace_rank_0": content})


def test_the_rank_is_in_the_file_or_in_its_name():
    assert flight_calls({"x": as_json({**dumped([entry(1)]), "rank": 7})})[0].rank == 7
    with pytest.raises(DataError, match="expected the rank in the dump"):
        flight_calls({"x": as_json(dumped([entry(1)]))})
    assert flight_calls({"job7/_dump_12": as_json(dumped([entry(1)]))})[0].rank == 12
    assert flight_calls({"job_rank_3_of_16.json": as_json(dumped([entry(1)]))})[0].rank == 3
    assert flight_calls({"trace4.pickle": as_json(dumped([entry(1)]))})[0].rank == 4


@pytest.mark.parametrize("form", [old_pickle, pickle.dumps, as_json])
def test_a_rank_whose_dump_has_no_entry_has_begun_nothing(form):
    content = files([entry(1, "scheduled")], [entry(1, "scheduled")], [], form=form)
    last = content["nccl_trace_rank_2"]
    assert is_flight_text(last) if form is as_json else is_flight_pickle(last)
    (lag,) = flight_recorded(content).lags
    assert (lag.what, lag.rank) == ("late", 2)
    assert lag.text == "has not begun nccl:all_reduce 1, in which 2 ranks wait; it has begun none"


def test_one_rank_waits():
    (lag,) = flight_recorded(files([entry(1, "scheduled")], [])).lags
    assert "in which 1 rank waits" in lag.text
