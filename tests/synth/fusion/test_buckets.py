"""Whatever the rule, buckets are neighbours and hold every tensor once; each rule keeps what it promises."""

import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st
from random_models import costs, models

from synth.fusion import buckets as rules
from synth.fusion.costs import RingCosts

MIB = 1 << 20
RULES = {
    "layer": lambda model, costs, buffer: rules.by_layer(model),
    "tensor": lambda model, costs, buffer: rules.by_tensor(model),
    "count": lambda model, costs, buffer: rules.by_count(model, 4),
    "size": lambda model, costs, buffer: rules.by_size(model, buffer),
    "torch": lambda model, costs, buffer: rules.by_torch(model, buffer, MIB),
    "cycle": lambda model, costs, buffer: rules.by_cycle(model, buffer, 5e-3),
    "merged": lambda model, costs, buffer: rules.merged(model, costs),
}


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=drawn(40))
@given(model=models(), ring=costs(), buffer=st.integers(1, 200 * MIB))
def test_every_tensor_is_in_one_bucket(rule, model, ring, buffer):
    found = RULES[rule](model, ring, buffer)
    tensors = [tensor for one in reversed(found) for tensor in range(one.first, one.end)]
    assert tensors == list(range(len(model.tensors)))
    assert all(one.first < one.end for one in found)


@settings(max_examples=drawn(40))
@given(models(), st.integers(1, 200 * MIB))
def test_a_buffer_is_exceeded_only_by_a_layer_alone_and_no_two_buckets_would_fit(model, buffer):
    found = rules.by_size(model, buffer)
    size = [rules.size_of(model, one) for one in found]
    for one, held in zip(found, size, strict=True):
        assert held <= buffer or model.tensor_layer[one.first] == model.tensor_layer[one.end - 1]
    first_layer = [next(part for part in rules.by_layer(model) if part.end == one.end) for one in found]
    for held, follower in zip(size, first_layer[1:], strict=False):
        assert held + rules.size_of(model, follower) > buffer
    assert rules.by_size(model, model.total_bytes) == [rules.Bucket(0, len(model.tensors))]
    assert rules.by_size(model, 1) == rules.by_layer(model)


@settings(max_examples=drawn(40))
@given(models(), st.integers(MIB, 200 * MIB))
def test_torch_closes_a_bucket_with_the_tensor_that_fills_it(model, buffer):
    for at, one in enumerate(rules.by_torch(model, buffer, MIB)):
        least = MIB if at == 0 else buffer
        without_last = rules.size_of(model, one._replace(first=one.first + 1))
        assert without_last < least
        assert one.first == 0 or rules.size_of(model, one) >= least


@settings(max_examples=drawn(40))
@given(models(), st.integers(1, 200 * MIB), st.floats(1e-4, 1.0))
def test_horovod_sends_at_the_end_of_a_cycle_what_became_ready_in_it(model, buffer, cycle_s):
    for one in rules.by_cycle(model, buffer, cycle_s):
        ready_s = model.ready_s[model.tensor_layer[one.first : one.end]]
        assert (ready_s <= one.release_s + 1e-12).all()
        assert (ready_s > one.release_s - cycle_s - 1e-12).all()


@settings(max_examples=drawn(40))
@given(models(), costs())
def test_a_network_without_latency_merges_nothing(model, ring):
    free = RingCosts(ring.ranks, 0.0, ring.beta_s_per_byte)
    assert rules.merged(model, free) == rules.by_layer(model)


@settings(max_examples=drawn(40))
@given(models())
def test_a_latency_beyond_the_iteration_merges_all(model):
    slow = RingCosts(2, 10 * model.backward_total_s, 1e-9)
    assert rules.merged(model, slow) == [rules.Bucket(0, len(model.tensors))]
