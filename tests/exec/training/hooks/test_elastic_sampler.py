"""Every sample of an epoch is used once, whoever is lost and whenever."""

import random

import pytest

from exec.training.hooks.elastic_sampler import ElasticSampler
from probes.base.errors import UsageError


def samplers(samples, global_batch, members, **options):
    return {rank: ElasticSampler(samples, global_batch, rank, members, **options) for rank in members}


def train(every, chance, losing=0.0, ahead=1):
    """Run an epoch on all ranks; (samples in the order of steps, sizes of global batches).

    Ranks are lost with probability ``losing`` a step, but for one; loaders draw ``ahead`` batches early.
    """
    used, sizes = [], []
    while len(next(iter(every.values()))):
        loaders = {rank: iter(sampler) for rank, sampler in every.items()}
        queues = {rank: [] for rank in every}
        changed = False
        while not changed:
            for rank, queue in queues.items():
                while len(queue) < ahead and (batch := next(loaders[rank], None)) is not None:
                    queue.append(batch)
            if not all(queues.values()):
                assert not any(queues.values())
                break
            weights = next(iter(every.values())).weights()
            assert all(sampler.weights() == weights for sampler in every.values())
            sizes.append(sum(weights.values()))
            assert max(weights.values()) - min(weights.values()) <= 1
            lost = [rank for rank in every if chance.random() < losing][: len(every) - 1]
            for rank, queue in queues.items():
                batch = queue.pop(0)
                assert len(batch) == max(1, weights[rank])
                if rank not in lost:
                    used += batch[: weights[rank]]
            for rank in lost:
                del every[rank], queues[rank]
            told = {sampler.record(set(every)) for sampler in every.values()}
            assert told == {bool(lost)}
            changed = bool(lost)
    return used, sizes


@pytest.mark.parametrize("ahead", [1, 3])
def test_each_sample_is_used_once_while_ranks_are_lost(ahead):
    chance = random.Random(5)
    for samples, global_batch, ranks in [(100, 8, 4), (101, 7, 5), (3, 6, 6), (64, 64, 3), (1, 2, 2)]:
        every = samplers(samples, global_batch, range(ranks), seed=ranks)
        for epoch in range(3):
            for sampler in every.values():
                sampler.set_epoch(epoch)
            used, sizes = train(every, chance, losing=0.05, ahead=ahead)
            assert sorted(used) == list(range(samples))
            assert all(size == global_batch for size in sizes[:-1]) or len(sizes) <= 2


def test_global_batches_do_not_depend_on_the_members():
    two, three = samplers(60, 12, range(2), seed=9), samplers(60, 12, [0, 4, 7], seed=9)
    for _ in range(5):
        batches = []
        for every in (two, three):
            batches.append(sorted(sample for one in every.values() for sample in next(iter(one))))
            for one in every.values():
                one.record(one.members)
        assert batches[0] == batches[1]
    assert not len(two[0])


def test_epochs_and_seeds_have_orders_of_their_own():
    def order(seed, epoch, **options):
        sampler = ElasticSampler(50, 50, 0, [0], seed=seed, **options)
        sampler.set_epoch(epoch)
        return next(iter(sampler))

    assert order(1, 0) == order(1, 0)
    assert len({tuple(order(*at)) for at in [(1, 0), (1, 1), (2, 0), (2, 1)]}) == 4
    assert order(1, 3, shuffle=False) == list(range(50))


def test_what_was_drawn_and_not_recorded_is_drawn_again():
    sampler = ElasticSampler(10, 4, 0, [0, 1])
    first, *_ = list(sampler)
    assert next(iter(sampler)) == first
    sampler.record([0, 1])
    assert next(iter(sampler)) != first
    assert sampler.left == 6


def test_steps_of_several_batches_are_recorded_together():
    sampler = ElasticSampler(12, 4, 0, [0, 1], shuffle=False)
    drawn = iter(sampler)
    assert [next(drawn), next(drawn)] == [[0, 2], [4, 6]]
    assert sampler.weights(2) == {0: 4, 1: 4}
    assert sampler.record([0], 2)
    assert list(sampler) == [[1, 3, 5, 7], [8, 9, 10, 11]]


def test_a_checkpoint_goes_on_with_other_members():
    every = samplers(40, 8, range(4), seed=2)
    used = []
    for lost in (None, 3):
        for rank, sampler in every.items():
            batch = next(iter(sampler))
            used += batch if rank != lost else []
        for sampler in every.values():
            sampler.record([rank for rank in every if rank != lost])
    states = [every[rank].state_dict() for rank in range(3)]
    assert states[0] == states[1] == states[2]
    resumed = samplers(40, 8, [5, 6], seed=2)
    for sampler in resumed.values():
        sampler.load_state_dict(states[0])
        sampler.set_epoch(0)
    rest, _ = train(resumed, random.Random(1))
    assert sorted(used + rest) == list(range(40))
    with pytest.raises(UsageError, match="seed"):
        ElasticSampler(40, 8, 0, [0], seed=3).load_state_dict(states[0])


def test_a_small_last_batch_may_be_dropped():
    sampler = ElasticSampler(10, 4, 0, [0, 1], drop_last=True)
    assert len(sampler) == len(list(sampler)) == 2


@pytest.mark.parametrize(("samples", "batch", "rank"), [(0, 4, 0), (10, 1, 0), (10, 4, 2)])
def test_what_cannot_be_divided_is_refused(samples, batch, rank):
    with pytest.raises(UsageError):
        ElasticSampler(samples, batch, rank, [0, 1])
