"""A rank in the tests of DeAR: `python dear_ranks.py CASE`, as torchrun starts it."""

import contextlib
import copy
import io
import os
import random
import socket
import struct
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import ccctl.torch
from exec.mpi import connections
from exec.sockets import mesh
from probes.base.errors import UsageError

MIB = 1 << 20


class Run:
    """A model in training, by DistributedDataParallel or by DeAR, on data of its own on each rank."""

    def __init__(self, way, build, make, plan=3000, **options):
        # The first values are those of rank 0, whatever the others have.
        torch.manual_seed(dist.get_rank())
        self.way, self.module = way, build()
        self.optimizer = make(self.module.parameters())
        self.model = self.module
        if way == "ddp":
            self.model = DistributedDataParallel(
                self.module, find_unused_parameters=True, broadcast_buffers=False, **options
            )
        else:
            self.optimizer = ccctl.torch.DistributedOptimizer(self.optimizer, self.module, plan=plan)
        self.no_sync = self.model.no_sync if way == "ddp" else self.optimizer.no_sync
        torch.manual_seed(100 + dist.get_rank())

    def backward(self, **given):
        loss = self.model(torch.randn(5, 37), **given).square().mean()
        loss.backward()
        return loss

    def steps(self, count, **given):
        for _ in range(count):
            self.optimizer.zero_grad()
            self.backward(**given)
            self.optimizer.step()

    def values(self):
        """All that a checkpoint holds, by name."""
        found = {name: each.clone() for name, each in self.module.state_dict().items()}
        for at, state in self.optimizer.state_dict()["state"].items():
            found |= {f"{at}.{name}": torch.as_tensor(each).clone() for name, each in state.items()}
        return found


def alike(one, other, most=None):
    """Whether two runs have the same state: bit for bit on two ranks, else to 1e-6."""
    left, right = ({name: each.float() for name, each in run.values().items()} for run in (one, other))
    assert left.keys() == right.keys(), left.keys() ^ right.keys()
    most = most if most is not None else 0.0 if dist.get_world_size() == 2 else 1e-6
    worst = max((left[name] - right[name]).abs().max().item() for name in left)
    assert worst <= most, worst
    total = torch.cat([each.reshape(-1) for each in other.module.state_dict().values()]).float()
    first = total.clone()
    dist.broadcast(first, 0)
    assert torch.equal(first, total), "ranks differ"


def compared(use, build, make, plan=3000, most=None):
    """Let ``use`` train both ways; the results must be alike."""
    runs, said = [], []
    for way in ("ddp", "dear"):
        runs.append(Run(way, build, make, plan))
        said.append(use(runs[-1]))
    if said[0] is not None:
        worst = max(abs(one - other) for one, other in zip(*said, strict=True))
        assert worst <= (most if most is not None else 1e-6), said
    alike(*runs, most=most)
    return runs[1]


def odd():
    return nn.Sequential(nn.Linear(37, 91), nn.Tanh(), nn.Linear(91, 53), nn.ReLU(), nn.Linear(53, 7))


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.001)


class Narrow(nn.Module):
    """Convert the input to bfloat16."""

    def forward(self, given):
        return given.to(torch.bfloat16)


class Attending(nn.Module):
    """Parameters of its own, tied ones, and modules whose own forward is never called."""

    def __init__(self):
        super().__init__()
        self.place = nn.Parameter(torch.randn(5, 36))
        self.attention = nn.MultiheadAttention(36, 4, batch_first=True)
        self.inner = nn.Linear(36, 37, bias=False)
        self.tied = nn.Linear(36, 37)
        self.tied.weight = self.inner.weight

    def forward(self, given):
        rows = (given @ self.inner.weight + self.place)[None]
        return self.tied(self.attention(rows, rows, rows)[0])


class Branching(nn.Module):
    """A layer that is never used, and one that not all ranks use."""

    def __init__(self):
        super().__init__()
        self.first, self.never, self.maybe = nn.Linear(37, 11), nn.Linear(37, 11), nn.Linear(11, 11)
        self.last = nn.Linear(11, 3)

    def forward(self, given, who=()):
        hidden = self.first(given)
        if dist.get_rank() in who:
            hidden = self.maybe(hidden)
        return self.last(hidden)


class Recomputing(nn.Module):
    """Layers whose activations are computed again in the backward pass."""

    def __init__(self, reentrant):
        super().__init__()
        self.reentrant = reentrant
        self.first, self.middle, self.last = nn.Linear(37, 37), nn.Linear(37, 37), nn.Linear(37, 5)

    def forward(self, given):
        hidden = self.first(given)
        for _ in range(2):
            hidden = checkpoint(self.middle, hidden, use_reentrant=self.reentrant).relu()
        return self.last(hidden)


def optimizers():
    makes = [
        lambda ps: torch.optim.SGD(ps, lr=0.1),
        sgd,
        lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True, foreach=True),
        adam,
        lambda ps: torch.optim.AdamW(ps, lr=torch.tensor(0.001), amsgrad=True),
        lambda ps: torch.optim.NAdam(ps, lr=0.001),
        lambda ps: torch.optim.RMSprop(ps, lr=0.001, centered=True),
    ]
    for make in makes:
        compared(lambda run: run.steps(4), odd, make)
    for plan in (0, 1, 15_000, None, 1 << 40):
        for make in (sgd, adam):
            run = compared(lambda run: run.steps(3), odd, make, plan)
            told = {0: 6, 1: 3, 15_000: 3}.get(plan, 1)
            assert len(run.optimizer.buckets) == told, run.optimizer.buckets
    compared(lambda run: run.steps(4), Attending, sgd, 0)
    # The gradient of the key's bias is 0 but for rounding, which Adam would make as large as any other.
    compared(lambda run: run.steps(4), Attending, lambda ps: torch.optim.Adam(ps, 0.001, eps=1e-3), 8000)


def unused():
    def use(run):
        for who in ((), (0,), (1,), (0, 1), (), ()):
            run.steps(1, who=who)

    for plan in (0, 1000, None):
        compared(use, Branching, sgd, plan)
    compared(lambda run: run.steps(4), lambda: Recomputing(False), adam, 0)
    # DDP refuses gradients of parameters that a backward pass inside a backward pass uses twice.
    against_averages(lambda run: run.steps(4), lambda: Recomputing(True), sgd, 0)

    def frozen(run):
        run.module[2].requires_grad_(False)
        run.steps(2)

    compared(frozen, odd, sgd)

    # DDP does not take up a parameter later.
    def thawed(run):
        run.module[2].requires_grad_(False)
        run.steps(2)
        run.module[2].requires_grad_(True)
        run.steps(2)

    against_averages(thawed, odd, sgd)


def against_averages(use, build, make, plan=3000):
    """Let ``use`` train by DeAR, and with gradients that are averaged by hand."""
    use(by_dear := Run("dear", build, make, plan))
    use(by_hand := ByHand(build, make))
    alike(by_hand, by_dear, most=1e-6)


class ByHand(Run):
    """Gradients are averaged one after another."""

    def __init__(self, build, make):
        super().__init__("dear", build, make)
        self.optimizer.close()
        self.optimizer = self.optimizer._optimizer

    def backward(self, **given):
        loss = super().backward(**given)
        for each in self.module.parameters():
            if each.grad is not None:
                dist.all_reduce(each.grad)
                each.grad /= dist.get_world_size()
        return loss


def accumulated():
    def micro(run):
        for _ in range(3):
            run.optimizer.zero_grad()
            with run.no_sync():
                run.backward()
                run.backward()
            run.backward()
            run.optimizer.step()

    compared(micro, odd, sgd)

    # Without no_sync DDP sums averages: the same but for rounding.
    def again(run):
        for _ in range(3):
            run.optimizer.zero_grad()
            run.backward()
            run.backward()
            run.optimizer.step()

    compared(again, odd, sgd, most=1e-6)

    def parts_of_a_model(run):
        for who in ((0,), (), (1,)):
            run.optimizer.zero_grad()
            with run.no_sync():
                run.backward(who=who)
            run.backward()
            run.optimizer.step()

    compared(parts_of_a_model, Branching, sgd, 0)

    # Work that a step left for layers unused in the next passes is not lost.
    def idle(run):
        run.steps(1, who=(0, 1))
        for _ in range(2):
            run.optimizer.zero_grad()
            run.backward()
            run.backward()
            run.optimizer.step()
        run.optimizer.zero_grad()
        run.backward()
        run.optimizer.zero_grad()

    compared(idle, Branching, sgd, 0, most=1e-6)

    def skipped(run):
        for at in range(4):
            run.optimizer.zero_grad()
            run.backward()
            if at != 1:
                run.optimizer.step()

    compared(skipped, odd, adam)

    def closure(run):
        def evaluate():
            run.optimizer.zero_grad()
            return run.backward()

        return [run.optimizer.step(evaluate).item() for _ in range(3)]

    compared(closure, odd, sgd)


def clipped():
    def clip(bitwise):
        def use(run):
            norms = []
            for _ in range(4):
                run.optimizer.zero_grad()
                run.backward()
                if run.way == "ddp":
                    norm = nn.utils.clip_grad_norm_(run.module.parameters(), 0.05)
                else:
                    norm = run.optimizer.clip_grad_norm_(0.05, bitwise=bitwise)
                norms.append(norm.item())
                run.optimizer.step()
            assert max(norms) > 0.05
            return norms

        return use

    for plan in (0, 3000):
        compared(clip(True), odd, sgd, plan)
        compared(clip(False), odd, adam, plan, most=1e-5)
    compared(clip(False), odd, sgd, most=1e-6)
    run = Run("dear", odd, sgd)
    run.backward()
    largest = run.optimizer.clip_grad_norm_(1e-3, float("inf"))
    run.optimizer.step()
    run.optimizer.synchronize()
    hand = ByHand(odd, sgd)
    hand.backward()
    assert torch.isclose(largest, max(each.grad.abs().max() for each in hand.module.parameters()))


def scheduled():
    def cycle(run):
        schedule = torch.optim.lr_scheduler.OneCycleLR(run.optimizer, 0.5, total_steps=6)
        for _ in range(5):
            run.steps(1)
            schedule.step()

    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        compared(cycle, odd, sgd)

    def resumed(run):
        run.steps(3)
        # As a script keeps it, right after a step, on one rank alone.
        kept = None
        if dist.get_rank() == 0:
            kept = copy.deepcopy((run.module.state_dict(), run.optimizer.state_dict()))
        dist.barrier()
        kept = [kept]
        dist.broadcast_object_list(kept)

        def restore(run):
            # An optimizer works on the state that it loads.
            weights, state = copy.deepcopy(kept[0])
            run.module.load_state_dict(weights)
            run.optimizer.load_state_dict(state)

        run.steps(2)
        restore(run)
        run.steps(2)
        # In a new process the run begins with other values.
        fresh = Run(run.way, odd, adam, 0)
        restore(fresh)
        fresh.steps(2)
        return [sum(each.double().sum().item() for each in fresh.values().values())]

    compared(resumed, odd, adam)

    def rebucketed(run):
        for plan in (0, 10_000, None):
            run.steps(2)
            if run.way == "dear":
                run.optimizer.rebucket(plan)
        run.steps(2)

    compared(rebucketed, odd, adam)

    def tuned(run):
        if run.way == "dear":
            run.optimizer.tune(trials=3, steps=2, search=small_search())
        run.steps(12)
        if run.way == "dear":
            assert run.optimizer.tuning.trials == 3
            assert set(run.optimizer.tuning.buffer_bytes.tolist()) <= set(range(1, 50_001))

    compared(tuned, odd, sgd)


def small_search():
    from synth.fusion.tuning import begun

    return begun("random", low_bytes=1, high_bytes=50_000, first_bytes=3000)


def evaluated():
    given = torch.randn(3, 37, generator=torch.Generator().manual_seed(5))

    def use(run):
        said = []
        for context in (torch.no_grad, torch.inference_mode, contextlib.nullcontext):
            run.steps(1)
            run.module.eval()
            # One rank alone, as scripts do.
            if dist.get_rank() == 0:
                with context():
                    said.append(run.module(given).sum().item())
            dist.barrier()
            run.module.train()
            run.steps(1)
            with torch.no_grad():
                said.append(run.module(given).sum().item())
            # A part of the model, by itself.
            run.steps(1)
            said.append(run.module[2](torch.ones(91)).sum().item())
        run.steps(1)
        return said

    compared(use, odd, sgd, most=None if dist.get_world_size() == 2 else 1e-5)

    def narrow(run):
        with torch.autocast("cpu", torch.bfloat16):
            run.steps(3)

    compared(narrow, odd, adam, most=None if dist.get_world_size() == 2 else 1e-2)
    if dist.get_world_size() == 2:
        compared(lambda run: run.steps(3), lambda: nn.Sequential(Narrow(), *odd().to(torch.bfloat16)), sgd)


def weights(run):
    return list(run.module.parameters())


@torch.no_grad()
def clamp(run):
    for each in run.module.parameters():
        each.clamp_(-0.05, 0.05)


@torch.no_grad()
def decay(run):
    torch._foreach_mul_(weights(run), 0.99)


def replace_data(run):
    for each in run.module.parameters():
        each.data = each.data * 0.9


def by_aliases(run):
    """Tensors on the memory of parameters that were made before training."""
    if not hasattr(run, "aliases"):
        ways = (
            lambda each: each.data,
            lambda each: each.detach().view(-1),
            lambda each: each.detach().numpy(),
        )
        run.aliases = [ways[at % 3](each) for at, each in enumerate(weights(run))]
    for each in run.aliases[:-2]:
        each *= 0.9


def by_vector(run):
    row = nn.utils.parameters_to_vector(run.module.parameters()).detach()
    nn.utils.vector_to_parameters(row * 0.9, run.module.parameters())


def move_average(run):
    """The average goes on in the run, and back into the parameters."""
    if not hasattr(run, "average"):
        run.average = torch.optim.swa_utils.AveragedModel(run.module)
    run.average.update_parameters(run.module)
    with torch.no_grad():
        for each, mean in zip(run.module.parameters(), run.average.module.parameters(), strict=True):
            each.lerp_(mean, 0.1)


def through_copies(run):
    copied = copy.deepcopy(run.module)
    file = io.BytesIO()
    torch.save(weights(run), file)
    file.seek(0)
    for each, one, other in zip(weights(run), copied.parameters(), torch.load(file), strict=True):
        assert type(one) is type(other) is nn.Parameter
        each.data.copy_((one + other).detach() / 2 * 0.9)


@torch.no_grad()
def broadcast_again(run):
    for each in run.module.parameters():
        dist.broadcast(each.detach() if dist.get_rank() else each, 0)


def reload(run):
    run.module.load_state_dict({name: each * 0.9 for name, each in run.module.state_dict().items()})


def log_gradients(run):
    run.seen = [*getattr(run, "seen", ()), sum(float(each.grad.double().sum()) for each in weights(run))]


def log_on_one_rank(run):
    if dist.get_rank() == 0:
        log_gradients(run)


def clip_norm(run):
    nn.utils.clip_grad_norm_(run.module.parameters(), 0.05)


def clip_values(run):
    nn.utils.clip_grad_value_(run.module.parameters(), 0.001)


def scale_gradients(run):
    for each in run.module.parameters():
        each.grad = each.grad * 0.5


def drop_one(run):
    run.module[2].weight.grad = None


def decay_gradients(run):
    for each in run.module.parameters():
        each.grad.add_(each.data, alpha=0.1)


def sum_more(run):
    run.backward()


def zero_in_place(run):
    run.optimizer.zero_grad(set_to_none=False)


def zero_by_model(run):
    run.module.zero_grad()


def look_forward(run):
    run.seen = [*getattr(run, "seen", ()), run.module(torch.ones(2, 37)).sum().item()]


def look_functional(run):
    made = torch.func.functional_call(run.module, dict(run.module.named_parameters()), torch.ones(2, 37))
    run.seen = [*getattr(run, "seen", ()), made.sum().item()]


def nothing(run):
    pass


BEFORE_STEP = (
    nothing,
    log_gradients,
    log_on_one_rank,
    clip_norm,
    clip_values,
    scale_gradients,
    drop_one,
    decay_gradients,
    sum_more,
    clamp,
    decay,
)
AFTER_STEP = (
    nothing,
    clamp,
    decay,
    replace_data,
    by_aliases,
    by_vector,
    move_average,
    through_copies,
    broadcast_again,
    reload,
    log_gradients,
    zero_in_place,
    zero_by_model,
    look_forward,
    look_functional,
)


def trained(run, before, after, steps=4):
    """Return what a script sees that calls ``before`` and ``after`` around each step."""
    for at in range(steps):
        run.optimizer.zero_grad()
        run.backward()
        before[at % len(before)](run)
        run.optimizer.step()
        after[at % len(after)](run)
    return getattr(run, "seen", None) if dist.get_rank() == 0 else None


def idioms():
    """Other calls of scripts have the effect that they have with DDP."""
    plain = Run("dear", odd, sgd)
    plain.steps(2)
    plain.optimizer.zero_grad()
    assert all(bucket.pending for bucket in plain.optimizer._back.buckets), "nothing is left to overlap"
    for before in BEFORE_STEP[1:]:
        # Without no_sync DDP sums averages, which rounds otherwise.
        most = 1e-6 if before is sum_more else None
        compared(lambda run, before=before: trained(run, [before], [nothing]), odd, sgd, most=most)
    for after in AFTER_STEP[1:]:
        compared(lambda run, after=after: trained(run, [nothing], [after]), odd, adam)


def idioms_at_random():
    chosen = random.Random(7)
    for at in range(12):
        before = [chosen.choice([each for each in BEFORE_STEP if each is not sum_more]) for _ in range(5)]
        after = [chosen.choice(AFTER_STEP) for _ in range(5)]
        named = [each.__name__ for each in (*before, *after)]
        try:
            compared(
                lambda run, before=before, after=after: trained(run, before, after, 5),
                odd,
                sgd if at % 2 else adam,
                chosen.choice([0, 3000, None]),
            )
        except Exception as error:
            raise AssertionError(named) from error


def scaled():
    """Train with `torch.amp.GradScaler`; one scaled loss overflows."""

    def use(clip):
        def train(run):
            scaler = torch.amp.GradScaler("cpu", init_scale=2.0**60, backoff_factor=2.0**-50)
            for at in range(5):
                run.optimizer.zero_grad()
                with torch.autocast("cpu", torch.bfloat16):
                    loss = run.model(torch.randn(5, 37)).float().square().mean()
                # On one rank alone: the others have to leave out the step, too.
                loss = loss * 1e30 if at == 1 and dist.get_rank() == 1 else loss
                scaler.scale(loss).backward()
                if clip:
                    scaler.unscale_(run.optimizer)
                    norm = nn.utils.clip_grad_norm_(run.module.parameters(), 0.05)
                    run.seen = [*getattr(run, "seen", ()), float(norm.isfinite())]
                scaler.step(run.optimizer)
                scaler.update()
            assert scaler.get_scale() == 2.0**10
            return getattr(run, "seen", None)

        return train

    for clip in (False, True):
        compared(use(clip), odd, sgd)
        compared(use(clip), odd, lambda ps: torch.optim.Adam(ps, 0.001, fused=True))


def unusual():
    """Idioms that need loops of their own."""

    def by_the_inner(run):
        inner = getattr(run.optimizer, "_optimizer", run.optimizer)
        for _ in range(3):
            inner.zero_grad()
            run.backward()
            inner.step()

    compared(by_the_inner, odd, sgd)

    def late_look(run):
        """Gradients are looked at when the next forward pass has been."""
        for _ in range(3):
            loss = run.model(torch.randn(5, 37)).square().mean()
            if run.module[0].weight.grad is not None:
                log_gradients(run)
            run.optimizer.zero_grad()
            loss.backward()
            run.optimizer.step()
        return run.seen

    compared(late_look, odd, sgd)

    def twice(run):
        """Two backward passes with a look between them, and two steps."""
        for _ in range(2):
            run.optimizer.zero_grad()
            run.backward()
            clip_norm(run)
            run.backward()
            run.optimizer.step()
            run.optimizer.step()

    compared(twice, odd, sgd, most=1e-6)

    def one_graph_twice(run):
        """DDP averages in the first backward pass of a graph alone."""
        for _ in range(3):
            run.optimizer.zero_grad()
            loss = run.model(torch.randn(5, 37)).square().mean()
            if run.way == "ddp":
                (loss * 2).backward()
            else:
                loss.backward(retain_graph=True)
                loss.backward()
            run.optimizer.step()

    compared(one_graph_twice, odd, sgd, most=1e-6)

    def in_parts(run):
        """A loss of other layers, after gradients were looked at."""
        for who in ((), (0, 1), ()):
            run.optimizer.zero_grad()
            run.backward()
            for each in weights(run):
                assert each.grad is None or each.grad.isfinite().all()
            run.backward(who=who)
            run.optimizer.step()

    compared(in_parts, Branching, sgd, 0, most=1e-6)

    def thawing(run):
        for at in range(6):
            run.module[0].requires_grad_(at % 3 != 1)
            run.optimizer.zero_grad()
            run.backward()
            run.optimizer.step()
            clamp(run)

    against_averages(thawing, odd, sgd)

    class Bypassing(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.direct = nn.Linear(37, 5), False

        def forward(self, given):
            return given @ self.one.weight.T + self.one.bias if self.direct else self.one(given)

    def around_modules(run):
        run.steps(2)
        run.module.direct = True
        run.steps(2)

    compared(around_modules, Bypassing, sgd)

    def parametrized():
        model = odd()
        nn.utils.parametrizations.weight_norm(model[0])
        return model

    compared(lambda run: trained(run, [nothing, clip_norm], [nothing, decay]), parametrized, sgd)
    compared(lambda run: (by_aliases(run), trained(run, [nothing], [nothing, by_aliases]))[1], odd, sgd, 0)
    compared(
        lambda run: trained(run, [clip_norm, nothing], [nothing, decay]),
        lambda: nn.Sequential(Narrow(), *odd().to(torch.bfloat16)),
        sgd,
    )

    def compiled(run):
        torch._dynamo.reset()
        run.model = torch.compile(run.model, backend="eager")
        return trained(run, [nothing, clip_norm, nothing], [nothing, clamp, look_forward], 6)

    compared(compiled, odd, sgd)


def refused():
    model = odd()
    optim = torch.optim
    for make, reason in (
        (lambda ps: optim.LBFGS(ps), "several times"),
        (lambda ps: optim.SparseAdam(ps), "sparse"),
        (lambda ps: optim.Adafactor(ps), "rows and columns"),
        (lambda ps: optim.Muon([each for each in ps if each.ndim == 2]), "matrix"),
    ):
        with raised(reason):
            ccctl.torch.DistributedOptimizer(make(model.parameters()), model)

    class Own(optim.SGD):
        pass

    with raised("not known"):
        ccctl.torch.DistributedOptimizer(Own(model.parameters(), lr=0.1), model)
    ccctl.torch.DistributedOptimizer(Own(model.parameters(), lr=0.1), model, elementwise=True).close()
    with raised("model.module"):
        ccctl.torch.DistributedOptimizer(sgd(model.parameters()), DistributedDataParallel(odd()))
    with raised("number of bytes"):
        ccctl.torch.DistributedOptimizer(sgd(model.parameters()), model, plan="4M")
    run = Run("dear", odd, sgd)
    run.backward()
    with raised("under way"):
        run.optimizer.rebucket(0)
    run.optimizer.zero_grad()
    run.optimizer.zero_grad(set_to_none=False)
    run.steps(1)
    aliases = [each.grad for each in run.module.parameters()]
    run.optimizer.zero_grad(set_to_none=False)
    run.backward()
    aliases[0].mul_(2)
    with raised("gradients were changed"):
        run.optimizer.step()
    run.optimizer.zero_grad()
    run.steps(1)

    class Counting(optim.Optimizer):
        """Keeps its count of steps in the group, as many optimizers outside of torch do."""

        def __init__(self, parameters):
            super().__init__(parameters, {"lr": 0.1, "step": 0})

        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                group["step"] += 1
                for each in group["params"]:
                    each.sub_(each.grad, alpha=group["lr"] / group["step"])

    model = odd()
    optimizer = ccctl.torch.DistributedOptimizer(Counting(model.parameters()), model, elementwise=True)
    model(torch.ones(37)).sum().backward()
    optimizer.step()
    with raised("'step' of parameter group 0"):
        optimizer.synchronize()
    model = odd()
    first, second = (ccctl.torch.DistributedOptimizer(sgd(model.parameters()), model) for _ in range(2))
    with raised("in two optimizers"):
        model(torch.ones(37)).sum().backward()
    del first, second

    class Tagged(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})

    own = nn.Linear(3, 3)
    own.bias = nn.Parameter(torch.zeros(3).as_subclass(Tagged))
    with raised("plain tensors"):
        ccctl.torch.DistributedOptimizer(sgd(own.parameters()), own)

    # The parameters that compiled graphs use are not seen before the backward pass.
    run = Run("dear", odd, sgd)
    graph = torch.jit.trace(run.module, torch.ones(2, 37))
    run.steps(1)
    with raised("was used in a forward pass before it was updated"):
        graph(torch.ones(2, 37)).sum().backward()
    embedded = nn.Embedding(5, 3, sparse=True)
    optimizer = ccctl.torch.DistributedOptimizer(sgd(embedded.parameters()), embedded)
    with raised("sparse"):
        embedded(torch.tensor([1, 2])).sum().backward()
    del optimizer


@contextlib.contextmanager
def raised(reason):
    try:
        yield
    except UsageError as error:
        said = f"{error} {error.hint}"
        assert any(part in said for part in reason.split("|")), said
    else:
        raise AssertionError(f"nothing was raised: {reason}")


def planned():
    """Train by a plan of `synth.fusion` for a captured model."""
    from synth.fusion.costs import RingCosts
    from synth.fusion.methods import fusion_plan

    captured = ccctl.torch.capture(odd(), torch.randn(5, 37), steps=1)
    assert captured.problems() == []
    plan = fusion_plan(captured, RingCosts(dist.get_world_size(), 1e-5, 1e-9), "dear", 15_000)
    run = compared(lambda run: run.steps(3), odd, adam, plan)
    assert run.optimizer.buckets == [["4.weight", "4.bias"], ["2.weight", "2.bias"], ["0.weight", "0.bias"]]
    with raised("the plan lacks"):
        Run("dear", Branching, sgd, plan)


def two_optimizers():
    """Each for a part of the model, one of which gets gradients that are dropped."""

    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.maker, self.judge = nn.Linear(37, 37), nn.Linear(37, 3)

        def forward(self, given):
            return self.judge(self.maker(given))

    def train(way):
        torch.manual_seed(dist.get_rank())
        model = Pair()
        for each in model.parameters():
            dist.broadcast(each.detach(), 0)
        makers = [sgd(part.parameters()) for part in (model.maker, model.judge)]
        if way == "dear":
            makers = [ccctl.torch.DistributedOptimizer(each, model, plan=0) for each in makers]
        torch.manual_seed(100 + dist.get_rank())
        for at in range(6):
            maker = makers[at % 2]
            maker.zero_grad()
            model(torch.randn(5, 37)).square().mean().backward()
            if way == "hand":
                for each in model.parameters():
                    dist.all_reduce(each.grad)
                    each.grad /= dist.get_world_size()
            maker.step()
            for each in makers:
                each.zero_grad()
        return model.state_dict()

    by_hand, by_dear = train("hand"), train("dear")
    assert all(torch.allclose(by_hand[name], by_dear[name], atol=1e-6) for name in by_hand)


def documented():
    """The script of the documentation runs."""
    page = (Path(__file__).parents[2] / "docs/explanation/training/dear.md").read_text()
    script = page.partition("```python\n")[2].partition("```")[0]
    assert "DistributedOptimizer" in script
    script = script.replace("dist.destroy_process_group()", "").replace("checkpoint.pt", os.devnull)
    exec(compile(script, "dear.md", "exec"), {})


def bytes_received():
    """Return the bytes that this process's TCP connections received, as the kernel counts them (TCP_INFO)."""
    total = 0
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if str(link.readlink()).startswith("socket:"):
                with socket.socket(fileno=os.dup(int(link.name))) as one:
                    info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                    total += struct.unpack_from("Q", info, 128)[0]
    return total


def wire(width=20_000, most=1.02):
    """An iteration moves what an all_reduce of the same gradients moves, to 2 %."""
    run = Run("dear", lambda: nn.Sequential(nn.Linear(37, width), nn.Linear(width, 37)), sgd, 2 * MIB)
    count = sum(each.numel() for each in run.module.parameters())

    def counted(use, times=3):
        use()
        dist.barrier()
        before = bytes_received()
        # Else what a faster rank sends next could be among what came before.
        dist.barrier()
        for _ in range(times):
            use()
        moved = torch.tensor([(bytes_received() - before) / times], dtype=torch.float64)
        dist.all_reduce(moved)
        return moved.item()

    def iteration():
        run.steps(1)
        run.optimizer.synchronize()

    row = torch.ones(count)
    whole, halves = counted(lambda: dist.all_reduce(row)), counted(iteration)
    size = dist.get_world_size()
    assert whole > 1.9 * (size - 1) * 4 * count, (whole, count)
    print(f"all_reduce {whole:.0f} bytes, DeAR {halves:.0f}, {halves / whole:.4f}")
    # No all_reduce moves less (Chan et al., Sec. 4).
    assert halves <= most * min(whole, 2 * (size - 1) * 4 * count), (halves, whole)


def wire_of_little():
    """So does one of few gradients, which ccctl leaves to gloo; messages have heads."""
    wire(150, 1.1)


def planned_halves():
    """Buckets that ccctl's own reduce_scatter and all_gather carry, with an odd one and a remainder."""

    def build():
        return nn.Sequential(nn.Linear(37, 1999), nn.Tanh(), nn.Linear(1999, 53))

    # Adam makes rounding as large as any other gradient where that is near 0, but for its eps.
    for make in (sgd, lambda ps: torch.optim.Adam(ps, 0.001, eps=1e-3)):
        run = compared(lambda run: run.steps(3), build, make, 350_000)
        assert len(run.optimizer.buckets) == 2


CASES = {
    "two": (
        optimizers,
        unused,
        accumulated,
        clipped,
        scheduled,
        evaluated,
        idioms,
        idioms_at_random,
        scaled,
        unusual,
        refused,
        planned,
        wire,
        two_optimizers,
    ),
    "four": (optimizers, unused, accumulated, clipped, scheduled, evaluated, wire),
    # Each rank as on a host of its own, so that what they exchange goes over sockets and is counted.
    "apart": (planned_halves, wire, wire_of_little),
}


def main(case):
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message=".*broadcast_buffers.*")
    warnings.filterwarnings("ignore", message=".*find_unused_parameters=True.*")
    if case == "two":
        documented()
    elif case == "apart":
        os.environ["CCCTL_PREFER"] = "ccctl"
        connections.host_key = mesh.host_key = lambda: ("apart", os.getpid())
        dist.init_process_group("ccctl")
    else:
        dist.init_process_group(os.environ.get("BACKEND", "gloo"))
    for each in CASES.get(case) or [globals()[name] for name in case.split(",")]:
        each()
        print(f"{each.__name__} done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
