"""Iterations equal the closed forms of pipelines, and keep what DeAR's equations say of any of them."""

from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st
from random_models import costs, models

from probes.base.columns import floats, ints, longs
from probes.base.errors import UsageError
from synth.fusion.buckets import by_size, layer_of, size_of
from synth.fusion.costs import RingCosts
from synth.fusion.methods import METHODS, Overheads, fusion_plan
from synth.fusion.model import Model, shape
from synth.fusion.timeline import ALL_REDUCE
from synth.fusion.tuning import best_plan

BUFFERS = st.integers(1, 100 << 20)
NEAR = pytest.approx
few = settings(max_examples=drawn(40))
SLACK = 1 + 1e-9


def pipeline(model, ring, buffer, collective):
    """(layer of each bucket, when it is ready, the seconds of its collective), in backward order."""
    found = by_size(model, buffer)
    layers = [layer_of(model, one) for one in found]
    seconds = [getattr(ring, f"{collective}_s")(size_of(model, one)) for one in found]
    return layers, [float(model.ready_s[layer]) for layer in layers], seconds


def ends(ready, seconds):
    """When the last of a queue is done: each begins when it is ready and the one before it is done."""
    return max(at + sum(seconds[number:]) for number, at in enumerate(ready))


def even(layers, forward_s, size_bytes):
    """A model of equal layers, whose backward pass takes twice the forward pass."""
    return Model(
        "even",
        tuple(map(str, range(layers))),
        floats([forward_s / layers] * layers),
        floats([2 * forward_s / layers] * layers),
        tuple(map(str, range(layers))),
        ints(range(layers)),
        longs([size_bytes // layers] * layers),
    )


@pytest.mark.parametrize("method", METHODS)
@few
@given(model=models(), ring=costs(), buffer=BUFFERS)
def test_every_plan_is_consistent_and_no_faster_than_its_parts(method, model, ring, buffer):
    plan = fusion_plan(model, ring, method, max(buffer, 1 << 20))
    assert plan.problems() == []
    assert plan.iteration_s * SLACK >= max(plan.compute_s, plan.timeline.busy_s(1))
    assert plan.compute_s == NEAR(model.forward_total_s + model.backward_total_s)
    assert 0 < plan.speedup <= plan.ranks * SLACK
    sent = plan.timeline.on_network == 1
    assert set(plan.timeline.item[sent].tolist()) == set(range(plan.buckets))


@few
@given(models(), costs(), BUFFERS)
def test_dear_is_the_closed_form_of_two_pipelines(model, ring, buffer):
    layers, ready, seconds = pipeline(model, ring, buffer, "reduce_scatter")
    begin_s = max(ends(ready, seconds), model.backward_total_s)
    gathered_s = [begin_s + held for held in accumulate(seconds[::-1])][::-1]
    behind_s = [at + model.forward_s[layer:].sum() for layer, at in zip(layers, gathered_s, strict=True)]
    expected_s = max(*behind_s, begin_s + model.forward_total_s)
    assert fusion_plan(model, ring, "dear", buffer).iteration_s == NEAR(expected_s)
    one_half_s = max(gathered_s) + model.forward_total_s
    assert fusion_plan(model, ring, "dear-backpipe", buffer).iteration_s == NEAR(one_half_s)


@few
@given(models(), costs())
def test_wfbp_is_the_closed_form_of_one_pipeline(model, ring):
    _, ready, seconds = pipeline(model, ring, 1, "all_reduce")
    expected_s = max(ends(ready, seconds), model.backward_total_s) + model.forward_total_s
    assert fusion_plan(model, ring, "wfbp").iteration_s == NEAR(expected_s)


@few
@given(models(most_backward=2.0), costs())
def test_dear_is_never_slower_than_wfbp_with_the_same_buckets(model, ring):
    dear, wfbp = fusion_plan(model, ring, "dear", 1), fusion_plan(model, ring, "wfbp")
    assert dear.bucket.tolist() == wfbp.bucket.tolist()
    assert dear.iteration_s <= wfbp.iteration_s * SLACK
    for half in ("dear-backpipe", "dear-feedpipe"):
        assert dear.iteration_s <= fusion_plan(model, ring, half, 1).iteration_s * SLACK


@few
@given(models(), costs())
def test_dear_saves_at_most_the_forward_pass(model, ring):
    saved_s = fusion_plan(model, ring, "wfbp").iteration_s - fusion_plan(model, ring, "dear", 1).iteration_s
    assert saved_s <= model.forward_total_s * SLACK


def test_a_long_backward_pass_hides_an_all_reduce_that_dear_delays():
    # Beyond t_bp = 2 t_ff, which the paper assumes, WFBP may be the faster one.
    model = replace(even(8, 0.01, 8 << 20), backward_s=floats([1.0] * 8))
    ring = RingCosts(4, 0.0, 1e-8)
    assert fusion_plan(model, ring, "dear", 1).iteration_s > fusion_plan(model, ring, "wfbp").iteration_s


def pipelined_s(forward_s, backward_s, scatter_s, gather_s):
    """Equation 7."""
    return max(forward_s, gather_s) + max(backward_s, scatter_s)


def baseline_s(forward_s, backward_s, all_reduce_s):
    """Equation 8."""
    return forward_s + max(backward_s, all_reduce_s)


def test_all_gathers_begin_with_the_forward_pass_even_if_all_is_scattered_before():
    last = {"tensors": ("only",), "tensor_layer": ints([1]), "tensor_bytes": longs([1 << 20])}
    model = replace(even(2, 1.0, 2), backward_s=floats([3.0, 0.1]), **last)
    ring = RingCosts(2, 0.0, 1.2 * 2 / (1 << 20))
    half_s = ring.reduce_scatter_s(1 << 20)
    dear = fusion_plan(model, ring, "dear", 1)
    assert 1.0 < half_s < 3.1
    assert dear.iteration_s == NEAR(3.1 + half_s + 0.5)


@few
@given(models(), costs(), BUFFERS)
def test_equations_7_and_8_are_lower_bounds(model, ring, buffer):
    half_s = RingCosts(ring.ranks, 0.0, ring.beta_s_per_byte).reduce_scatter_s(model.total_bytes)
    passes = (model.forward_total_s, model.backward_total_s)
    dear = fusion_plan(model, ring, "dear", buffer)
    assert dear.iteration_s * SLACK >= pipelined_s(*passes, half_s, half_s)
    assert dear.speedup <= dear.speedup_max * SLACK
    for method in ("wfbp", "ddp", "mg-wfbp", "horovod"):
        assert fusion_plan(model, ring, method).iteration_s * SLACK >= baseline_s(*passes, 2 * half_s)


@pytest.mark.parametrize("half_s", [0.05, 0.15, 0.5])
def test_many_small_layers_reach_the_equations(half_s):
    model, layers = even(1000, 0.1, 1000 << 16), 1000
    ring = RingCosts(8, 0.0, half_s / (7 / 8 * model.total_bytes))
    dear, wfbp = fusion_plan(model, ring, "dear", 1), fusion_plan(model, ring, "wfbp")
    one_s = 2 * (half_s + 0.3) / layers
    assert dear.iteration_s == NEAR(pipelined_s(0.1, 0.2, half_s, half_s), abs=one_s)
    assert wfbp.iteration_s == NEAR(baseline_s(0.1, 0.2, 2 * half_s), abs=one_s)


def test_bytescheduler_sends_first_what_the_forward_pass_needs_first():
    model, ring = even(4, 0.004, 16 << 20), RingCosts(4, 0.0, 1e-8)
    plan = fusion_plan(model, ring, "bytescheduler", 1 << 20, Overheads(negotiation_s=0.001))
    line = plan.timeline
    parts = line.item[line.kind == ALL_REDUCE].tolist()
    assert len(parts) == 16
    # The last layer's first parts go alone, then the first layers overtake the rest of it.
    assert parts[0] == 0 and parts[-1] == 0
    assert line.busy_s(1) == NEAR(16 * (0.001 + ring.all_reduce_s(1 << 20)))


def test_a_plan_reads_the_same_from_the_tensors_end(samples):
    plan = fusion_plan(shape("resnet-50"), RingCosts(64, 26e-6, 0.8e-9), "dear", 25 << 20)
    held = np.bincount(plan.bucket, weights=plan.tensor_bytes)
    assert held.max() <= 25 << 20
    assert plan.bucket[0] == plan.buckets - 1
    assert plan.bucket[-1] == 0
    with pytest.raises(UsageError, match="method: expected one of wfbp"):
        fusion_plan(samples["model"], plan.costs, "ring")


@pytest.mark.parametrize("method", ["dear", "horovod"])
def test_a_tuned_buffer_is_no_worse_than_the_default(method):
    model, ring = shape("resnet-50"), RingCosts(64, 26e-6, 0.8e-9)
    assert best_plan(model, ring, method).iteration_s <= fusion_plan(model, ring, method).iteration_s


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"iteration_s": 1.0}, "iteration_s: expected"),
        ({"ranks": 1}, "ranks: expected 2"),
        ({"bucket": ints([0, 1, 0])}, "bucket[1]: expected 0 or one less"),
        ({"bucket": ints([1, 1, 1])}, "bucket[2]: expected 0"),
        ({"bucket": ints([0, 0])}, "bucket: expected 3 values, as many as tensors"),
        ({"beta_s_per_byte": -1.0}, "beta_s_per_byte: expected a number from 0"),
        ({"tensor_bytes": longs([0, 1, 1])}, "tensor_bytes[0]: expected 1 to"),
    ],
)
def test_what_is_wrong_with_a_plan_is_told_by_its_path(samples, change, path):
    assert any(problem.startswith(path) for problem in replace(samples["fusion"], **change).problems())
