"""The optimizer that overlaps communication with both passes, on any backend of torch.distributed."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from exec.training import Watch, shared_memory
from exec.training.dear.backpipe import BackPipe
from exec.training.dear.bucket import GradientBucket
from exec.training.dear.bucket_assignment import DEFAULT_BYTES, Plan, buckets_of
from exec.training.dear.bucket_tuning import Retuning
from exec.training.dear.clipping import clip_shards
from exec.training.dear.elementwise import SharedNumbers, refuse_unless_elementwise
from exec.training.dear.feedpipe import FeedPipe
from probes.base import UsageError

if TYPE_CHECKING:
    from synth.fusion import Strategy, Tuning

__all__ = ["DistributedOptimizer"]

_log = logging.getLogger(__name__)


class DistributedOptimizer(torch.optim.Optimizer):  # type: ignore[misc]  # torch is not there for mypy
    """``optimizer`` for ``model`` on all ranks of ``group``, by DeAR (paper, Sec. III to V).

    Gradients are reduce_scattered bucket by bucket in the backward pass. `step` only waits for that, starts
    the all_gathers and returns. Each bucket is updated in the next forward pass, before the first layer that
    needs it, with the learning rate and other settings of the parameter groups at `step`.

    ``plan`` says which tensors share a bucket: a fusion plan (``ccctl.load("fusion.json")``), a number of
    bytes (0: each parameter has a bucket of its own), or None for 25 MiB. All ranks must give the same plan.
    Parameters and buffers start as rank 0's. Later each rank has its own buffers, and those of rank 0 are the
    same as with DistributedDataParallel.

    Every rank updates all parameters, from gathered gradients, and has the whole state of the optimizer. So
    `state_dict` is that of the wrapped optimizer for any number of ranks, and updates give the same bits as
    with DistributedDataParallel. If each rank updated a part and gathered the other parameters, the same
    bytes would move and ranks would compute less, but each would have only a part of the state.

    Scripts see the same values as with DistributedDataParallel:

    - A parameter that the script reads or writes after `step` is updated first, on this rank only. A
      parameter whose memory other tensors share is updated in `step`.
    - If the script reads or writes ``.grad`` between the backward pass and `step`, the averages are gathered
      into it at once, and `step` updates from it. That step does not overlap with the next forward pass, and
      the gathering waits until all other ranks have reached `step` or such a use.
    - Some uses cannot be noticed (`exec.training.watching`); call `synchronize` before those.

    Raises UsageError for optimizers that are not elementwise. For a class outside torch.optim, pass
    ``elementwise=True`` to assert that it is.
    """

    def __init__(
        self,
        optimizer: Any,
        model: Any,
        plan: Plan = None,
        *,
        group: Any = None,
        elementwise: bool = False,
    ) -> None:
        if isinstance(optimizer, DistributedOptimizer):
            raise UsageError("the optimizer is already distributed")
        refuse_unless_elementwise(optimizer, elementwise)
        if isinstance(model, torch.nn.parallel.DistributedDataParallel):
            raise UsageError(
                "the model is in DistributedDataParallel, which reduces gradients itself",
                hint="Give the model that is inside: model.module.",
            )
        if not dist.is_initialized():
            raise UsageError("torch.distributed has no process group", hint="Call init_process_group first.")
        self._optimizer, self._model = optimizer, model
        self._group = group if group is not None else dist.group.WORLD
        # The state that Optimizer needs for its hooks, without parameters of its own.
        self.__setstate__({})
        for name in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
            setattr(self, name, getattr(optimizer, name))
        self._plan: Plan = plan
        self._syncing = True
        self._groups: list[dict[str, Any]] = []
        self._group_of: dict[Any, int] = {}
        self._retuning: Retuning | None = None
        self._handles: list[Any] = []
        self._hooked: dict[Any, Any] = {}
        this = weakref.ref(self)
        self._watch = Watch(lambda *use: living._touched(*use) if (living := this()) is not None else False)
        self._watch.check(each for group in self.param_groups for each in group["params"])
        # The current backward pass; parameters are watched again at its end.
        self._backward = -1
        # Whether ``.grad`` already holds averages, which `step` then uses as they are.
        self._shown = self._said_shown = False
        self._shared_checked = False
        # Whether torch.compile has traced the model. It would recompile for watched parameters.
        self._compiled = False
        self._share_first_values()
        self._build(plan)
        self._feed = FeedPipe(
            model, list(self._back.bucket_of), _call(this, "_need"), _call(this, "synchronize")
        )
        self._hook_state_dicts(this)

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override, unused-ignore]
        """The groups of the wrapped optimizer."""
        groups: list[dict[str, Any]] = self._optimizer.param_groups
        return groups

    @property
    def state(self) -> Any:  # type: ignore[override, unused-ignore]
        """The state of the wrapped optimizer, after all updates."""
        self.synchronize()
        return self._optimizer.state

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override, unused-ignore]
        """The defaults of the wrapped optimizer."""
        defaults: dict[str, Any] = self._optimizer.defaults
        return defaults

    @property
    def buckets(self) -> list[list[str]]:
        """The names of the parameters in each bucket, in the order in which buckets are reduced."""
        return [[self._name_of(each) for each in bucket.parameters] for bucket in self._back.buckets]

    @property
    def tuning(self) -> Tuning | None:
        """The trials of `tune` so far."""
        return None if self._retuning is None else self._retuning.search

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Wait for the reduce_scatters and leave the update to the next forward pass.

        Returns the result of ``closure``. All ranks must call `step`, even without gradients.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._reduce()
        self._capture_groups()
        if self._shown:
            self._update_by(self._optimizer.param_groups)
        else:
            for bucket in reversed(self._back.buckets):
                bucket.gather()
                bucket.pending = True
            # Scripts may use this memory through other tensors, which are not watched: update it now.
            self._need(shared_memory(self._back.bucket_of))
        self._back.reset()
        self._shown = False
        self._watch_again()
        self._optimizer._opt_called = True
        self._retune()
        return loss

    def synchronize(self) -> None:
        """Finish all updates that wait for the next forward pass; other ranks need not call it."""
        self._need_all()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients that no `step` has used."""
        self._watch.disarm(self._back.bucket_of)
        if self._back.begun:
            self._back.end()
        self._shown = False
        for bucket in self._back.buckets:
            bucket.forget()
        self._optimizer.zero_grad(set_to_none)
        self._watch_again()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate gradients within the block; the first backward pass after it communicates them."""
        before, self._syncing = self._syncing, False
        try:
            yield
        finally:
            self._syncing = before

    def clip_grad_norm_(
        self,
        max_norm: float,
        norm_type: float = 2.0,
        error_if_nonfinite: bool = False,
        *,
        bitwise: bool = False,
    ) -> Any:
        """Scale the averaged gradients so that their norm is at most ``max_norm``; return the norm before.

        Call it on all ranks, between the backward pass and `step`. The norm is summed from the ranks' parts,
        so it differs by rounding from that of `torch.nn.utils.clip_grad_norm_`. With ``bitwise`` the result
        is exactly that function's: gradients are gathered at once, and this step does not overlap with the
        next forward pass.
        """
        if bitwise or self._shown:
            self._show_averages()
            order = [each for _, each in self._named()]
            return torch.nn.utils.clip_grad_norm_(order, max_norm, norm_type, error_if_nonfinite)
        self._reduce()
        total = clip_shards(
            self._back.buckets, self._group, float(max_norm), float(norm_type), error_if_nonfinite
        )
        self._watch_again()
        return total

    def rebucket(self, plan: Plan) -> None:
        """Use the buckets of ``plan``; call it on all ranks between `step` and the next backward pass."""
        if self._back.begun:
            raise UsageError("buckets cannot change while their gradients are under way")
        self._build(plan)
        self._feed.expect(list(self._back.bucket_of))

    def tune(
        self, trials: int = 10, steps: int = 10, strategy: Strategy = "bo", search: Tuning | None = None
    ) -> None:
        """Search for the bucket size with the shortest iteration during training (Sec. IV-B).

        Each of ``trials`` takes ``steps`` iterations after an untimed one; then the best size stays. Call it
        on all ranks, between `step` and the next backward pass. ``search`` gives the range of sizes, and
        earlier trials.
        """
        # The import is here because it loads scipy.
        from synth.fusion import begun

        if trials < 1 or steps < 1:
            raise UsageError(f"trials, steps: expected at least 1 of each, found {trials} and {steps}")
        device = self._back.buckets[0].exchange.row.device
        self._retuning = Retuning(search or begun(strategy), trials, steps, self._group, device)
        self.rebucket(self._retuning.first_bytes)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters; they join buckets at the next `step`."""
        self.synchronize()
        self._optimizer.add_param_group(param_group)
        self._watch.check(set(self._optimizer.param_groups[-1]["params"]) - self._back.bucket_of.keys())

    def state_dict(self) -> dict[str, Any]:
        """Return the wrapped optimizer's state, whole on each rank, after all updates."""
        found: dict[str, Any] = self._optimizer.state_dict()
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state of this or of the wrapped optimizer."""
        self._optimizer.load_state_dict(state_dict)

    def close(self) -> None:
        """Finish all updates and remove all hooks; the wrapped optimizer can then be used alone."""
        self.synchronize()
        self._watch.disarm(self._back.bucket_of)
        self._feed.close()
        for handle in [*self._handles, *self._hooked.values()]:
            handle.remove()
        self._handles, self._hooked = [], {}

    def _build(self, plan: Plan) -> None:
        """Make buckets by ``plan``; raises UsageError before anything is changed."""
        named = [(name, each) for name, each in self._named() if each.requires_grad]
        if not named:
            raise UsageError("the optimizer has no parameters that require gradients")
        groups = buckets_of(named, plan)
        self._check_alike(groups)
        if hasattr(self, "_back"):
            self.synchronize()
            self._watch.disarm(self._back.bucket_of)
        self._plan = plan
        this = weakref.ref(self)
        buckets = [GradientBucket(each, self._group) for each in groups]
        self._back: BackPipe = BackPipe(buckets, self._name_of, _call(this, "synchronize"))
        for _, each in named:
            if each not in self._hooked:
                self._hooked[each] = each.register_post_accumulate_grad_hook(_call(this, "_arrived"))

    def _rebuild(self) -> None:
        """Rebuild buckets for the parameters that require gradients now, and reduce their gradients again."""
        self._back.end()
        self._shown = False
        plan = self._plan if isinstance(self._plan, int) else DEFAULT_BYTES
        self._build(plan)
        self._feed.expect(list(self._back.bucket_of))

    def _arrived(self, parameter: Any) -> None:
        self._back.arrived(parameter, accumulating=not self._syncing)
        if not self._syncing:
            return
        self._shown = False
        if self._backward != (now := torch._C._current_graph_task_id()):
            self._backward = now
            torch.autograd.Variable._execution_engine.queue_callback(self._watch_again)

    def _watch_again(self) -> None:
        """Watch the parameters whose values or gradients are not up to date."""
        if self._compiled:
            self.synchronize()
            if self._back.begun:
                self._show_averages()
        elif self._back.begun and not self._shown:
            self._watch.arm(self._back.bucket_of)
        else:
            for bucket in self._back.buckets:
                if bucket.pending:
                    self._watch.arm(bucket.parameters)

    def _touched(self, parameter: Any, gradient: bool) -> bool:
        """Bring the used value or gradient up to date; return whether to keep watching the parameter."""
        if gradient and torch._C._current_graph_task_id() != -1:
            # In a backward pass, scripts see this rank's gradients, as with DistributedDataParallel.
            return True
        if not self._compiled and torch._guards.TracingContext.try_get() is not None:
            self._compiled = self._said_shown = True
            if dist.get_rank(self._group) == 0:
                _log.warning("the model is compiled: step() updates at once, without overlap")
            self.synchronize()
            self._feed.close()
        self._need([parameter])
        if gradient and self._back.begun:
            self._show_averages()
        return self._back.begun and not self._shown

    def _show_averages(self) -> None:
        """Gather the averaged gradients into ``.grad``; `step` then uses them from there."""
        if self._shown:
            return
        if not self._said_shown and dist.get_rank(self._group) == 0:
            _log.warning(
                "gradients are used between the backward pass and step(): they are gathered there, and "
                "these steps do not overlap with the next forward pass"
            )
        self._said_shown = True
        self._reduce()
        for bucket in reversed(self._back.buckets):
            bucket.gather()
        for bucket in self._back.buckets:
            bucket.show(bucket.finish_gathering())
        self._shown = True

    def _reduce(self) -> None:
        """Stop watching, and wait for the averaged gradients of all parameters that require gradients."""
        self._watch.disarm(self._back.bucket_of)
        if set(self._trainable()) != self._back.bucket_of.keys():
            self._rebuild()
        self._back.reduce_all()
        if not self._shown and not all(bucket.unchanged() for bucket in self._back.buckets):
            raise UsageError(
                "gradients were changed after the backward pass, when they were already under way",
                hint="Change them by the .grad of a parameter, not by a tensor that was read before; do not "
                "put the model into DistributedDataParallel as well.",
            )

    def _need(self, parameters: Sequence[Any]) -> None:
        for parameter in parameters:
            bucket = self._back.bucket_of.get(parameter)
            if bucket is not None and bucket.pending:
                self._update(bucket)

    def _need_all(self) -> None:
        for bucket in reversed(self._back.buckets):
            if bucket.pending:
                self._update(bucket)

    def _update(self, bucket: GradientBucket) -> None:
        """Update a bucket by the wrapped optimizer, with the groups as they were at `step`."""
        self._watch.disarm(bucket.parameters)
        pairs = bucket.finish_gathering()
        bucket.pending = False
        chosen: dict[int, list[Any]] = {}
        for parameter, _ in pairs:
            chosen.setdefault(self._group_of[parameter], []).append(parameter)
        with _gradients(pairs):
            self._update_by(
                [{**self._groups[at], "params": parameters} for at, parameters in sorted(chosen.items())]
            )
        bucket.show(pairs)

    def _update_by(self, groups: list[dict[str, Any]]) -> None:
        """Run the wrapped optimizer on the parameters of ``groups``, as if they were its own."""
        optimizer, before = self._optimizer, self._optimizer.param_groups
        step = type(optimizer).step
        # The undecorated step: hooks run once for each step of this optimizer, not for each bucket.
        step = step.__wrapped__ if getattr(step, "hooked", False) else step
        device = self._back.buckets[0].exchange.row.device.type
        outside = torch.inference_mode(False), torch.no_grad(), torch.autocast(device, enabled=False)
        with outside[0], outside[1], outside[2]:
            try:
                optimizer.param_groups = groups
                shared = None if self._shared_checked else SharedNumbers(optimizer)
                step(optimizer)
                if shared:
                    shared.refuse_changes()
                self._shared_checked = True
            finally:
                optimizer.param_groups = before

    def _capture_groups(self) -> None:
        """Copy the current settings of the groups, including values of tensors such as a learning rate."""
        self._groups = [
            {key: each.clone() if isinstance(each, torch.Tensor) else each for key, each in group.items()}
            for group in self.param_groups
        ]
        self._group_of = {each: at for at, group in enumerate(self._groups) for each in group["params"]}

    def _retune(self) -> None:
        if self._retuning is None or self._retuning.done or not isinstance(self._plan, int):
            return
        size = self._retuning.stepped(self._plan)
        if size is not None and size != self._plan:
            self.rebucket(size)

    def _named(self) -> list[tuple[str, Any]]:
        """Return the optimizer's parameters by their names in the model, in the model's order."""
        owned = {each: None for group in self.param_groups for each in group["params"]}
        named = [(name, each) for name, each in self._model.named_parameters() if each in owned]
        known = {each for _, each in named}
        others = [each for each in owned if each not in known]
        return [*named, *((f"optimizer.{at}", each) for at, each in enumerate(others))]

    def _trainable(self) -> list[Any]:
        return [each for group in self.param_groups for each in group["params"] if each.requires_grad]

    def _name_of(self, parameter: Any) -> str:
        return next((name for name, each in self._named() if each is parameter), "a parameter")

    def _share_first_values(self) -> None:
        """Give all ranks the parameters and buffers of rank 0."""
        parameters = dict.fromkeys([*self._model.parameters(), *(each for _, each in self._named())])
        self._broadcast([each.detach() for each in [*parameters, *self._model.buffers()]])

    def _broadcast(self, tensors: Sequence[Any]) -> None:
        source = dist.get_global_rank(self._group, 0)
        rows = [each.contiguous() for each in tensors]
        works = [dist.broadcast(row, source, group=self._group, async_op=True) for row in rows]
        for work, row, each in zip(works, rows, tensors, strict=True):
            work.wait()
            if row is not each:
                each.copy_(row)

    def _check_alike(self, groups: Sequence[Sequence[Any]]) -> None:
        """Raise UsageError on a rank whose buckets differ from those of rank 0."""
        shape = [len(groups), *(each.numel() for group in groups for each in group), *map(len, groups)]
        device = groups[0][0].device
        count = torch.tensor([len(shape)], device=device)
        self._broadcast([count])
        first_shape = torch.zeros(int(count.item()), dtype=torch.int64, device=device)
        if dist.get_rank(self._group) == 0:
            first_shape = torch.tensor(shape, device=device)
        self._broadcast([first_shape])
        if first_shape.tolist() != shape:
            raise UsageError(
                "the buckets of this rank are not those of rank 0: another model, or another plan"
            )

    def _hook_state_dicts(self, this: Any) -> None:
        sync = _call(this, "synchronize")
        self._handles += [
            self._optimizer.register_state_dict_pre_hook(sync),
            self._optimizer.register_load_state_dict_pre_hook(sync),
        ]


@contextmanager
def _gradients(pairs: Sequence[tuple[Any, Any]]) -> Iterator[None]:
    """Replace the parameters' ``.grad`` within the block."""
    before = [(parameter, parameter.grad) for parameter, _ in pairs]
    try:
        for parameter, gradient in pairs:
            parameter.grad = gradient
        yield
    finally:
        for parameter, gradient in before:
            parameter.grad = gradient


def _call(this: Any, name: str) -> Callable[..., None]:
    """Return a hook that calls a method while its object lives; `synchronize` gets no arguments."""

    def hook(*args: Any) -> None:
        if (living := this()) is not None:
            getattr(living, name)(*(() if name == "synchronize" else args))

    return hook
