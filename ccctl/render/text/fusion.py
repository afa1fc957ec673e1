"""Models, fusion plans and buffer searches as text; comparisons of methods also as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.completion import words
from ccctl.render import Column, about, figures, percent, print_table, seconds
from probes.base import plural

if TYPE_CHECKING:
    from synth.fusion import FusionPlan, Model, RingCosts, Tuning

__all__ = ["FusionComparison", "draw", "draw_model", "draw_tuning", "headline_of"]

_MOST_BUCKETS, _MOST_LAYERS = 32, 64


@dataclass(frozen=True)
class FusionComparison:
    """All methods' plans for a model, the method asked for, and the buffer search if any."""

    model: Model
    costs: RingCosts
    method: str
    plans: Mapping[str, FusionPlan]
    search: Tuning | None

    def summary(self) -> dict[str, Any]:
        """Return what ``--json`` prints."""
        names = "iteration_s exposed_s speedup speedup_max buffer_bytes buckets"
        plans = {name: figures(plan, names) for name, plan in self.plans.items()}
        result = figures(self, "model=model.name ranks=costs.ranks method")
        result |= figures(self.costs, "alpha_s beta_s_per_byte") | plans[self.method]
        if self.search is not None:
            result["tuning"] = figures(self.search, "strategy trials") | {"best_s": self.search.best[1]}
        return result | {"methods": plans}

    def draw(self, predicted_s: Callable[[int], float] | None) -> None:
        """Print the methods, then the search's trials, with predicted times if there are any."""
        console.data(headline_of(self.model))
        console.data(_costs(self.costs))
        fastest_s = min(plan.iteration_s for plan in self.plans.values())
        columns = (
            Column("method", lambda name: name),
            *(one.below(self.plans.__getitem__) for one in _PLAN),
            Column("", lambda name: "fastest" if self.plans[name].iteration_s == fastest_s else ""),
            Column("communication", lambda name: _METHODS.get(name, "")),
        )
        print_table(columns, list(self.plans))
        if self.search is not None:
            draw_tuning(self.search, predicted_s)
        most = self.plans[self.method].speedup_max
        console.data(
            f"S_max {most:.1f}: the largest speed-up over one rank, if reduce_scatters hide behind the "
            "backward pass and all_gathers behind the forward pass"
        )


_METHODS = words.FUSION_METHODS | {
    "horovod-tuned": "horovod with the best buffer and cycle",
    "dear-tuned": "dear with the best buffer",
}
_PLAN = (
    Column("buckets", "buckets"),
    Column("buffer", lambda plan: plan.buffer_bytes or None, about),
    Column("iteration", "iteration_s", seconds),
    Column("not hidden", "exposed_s", seconds),
    Column("speed-up", "speedup", "{:.1f}"),
    Column("of S_max", lambda plan: plan.speedup / plan.speedup_max, percent),
)


def draw(plan: FusionPlan) -> None:
    """Print the time of an iteration, and the buckets in the order in which they are communicated."""
    buffer = f", buffer {about(plan.buffer_bytes)}" if plan.buffer_bytes else ""
    console.data(f"{plan.model} by {plan.method}{buffer}: {plural(plan.buckets, 'bucket')}")
    console.data(_costs(plan.costs))
    console.data(
        f"iteration {seconds(plan.iteration_s)}: {seconds(plan.compute_s)} of computation, "
        f"{seconds(plan.exposed_s)} of communication that is not hidden; speed-up {plan.speedup:.3g} "
        f"of at most {plan.speedup_max:.3g}"
    )
    rows = [_bucket(plan, bucket) for bucket in range(min(plan.buckets, _MOST_BUCKETS))]
    console.table(("bucket", "tensors", "bytes", "first", "last", "from", "to"), rows)
    if plan.buckets > _MOST_BUCKETS:
        console.data(f"… and {plan.buckets - _MOST_BUCKETS} more buckets")


def _costs(costs: RingCosts) -> str:
    """Return one line with the assumed cost of collectives."""
    rate = f"{1e-9 / costs.beta_s_per_byte:.3g} GB/s" if costs.beta_s_per_byte else "no limit"
    return f"{costs.ranks} ranks, a ring: alpha {seconds(costs.alpha_s)}, bandwidth {rate}"


def _bucket(plan: FusionPlan, bucket: int) -> tuple[object, ...]:
    import numpy as np

    line = plan.timeline
    inside = np.flatnonzero(plan.bucket == bucket)
    sent = (line.on_network == 1) & (line.item == bucket)
    return (
        bucket,
        len(inside),
        about(int(plan.tensor_bytes[inside].sum())),
        plan.tensors[inside[0]],
        plan.tensors[inside[-1]],
        seconds(float(line.start_s[sent].min(initial=plan.iteration_s))),
        seconds(float(line.end_s[sent].max(initial=0.0))),
    )


def headline_of(model: Model) -> str:
    """Return the model in one line: tensors, bytes, computation."""
    return (
        f"{model.name}: {plural(len(model.tensors), 'tensor')} of {plural(len(model.layers), 'layer')}, "
        f"{about(model.total_bytes)}; forward {seconds(model.forward_total_s)}, "
        f"backward {seconds(model.backward_total_s)}"
    )


def draw_model(model: Model) -> None:
    """Print the layers in forward order, at most 64."""
    import numpy as np

    console.data(headline_of(model))
    if model.origin:
        console.data(model.origin)
    size = np.zeros(len(model.layers), dtype=np.int64)
    np.add.at(size, model.tensor_layer, model.tensor_bytes)
    tensors = np.bincount(model.tensor_layer, minlength=len(model.layers))
    columns = (
        Column("layer", model.layers.__getitem__),
        Column("tensors", tensors.__getitem__),
        Column("bytes", size.tolist().__getitem__, about),
        Column("forward", model.forward_s.__getitem__, seconds),
        Column("backward", model.backward_s.__getitem__, seconds),
    )
    print_table(columns, range(len(model.layers)), most=_MOST_LAYERS, noun="layers")


def draw_tuning(tuning: Tuning, predicted_s: Callable[[int], float] | None = None) -> None:
    """Print the trials in order; ``predicted_s`` simulates the time of a buffer size."""
    console.data(
        f"{tuning.subject}: {tuning.strategy} from {about(tuning.low_bytes)} to {about(tuning.high_bytes)}, "
        f"{plural(tuning.trials, 'trial')}"
    )
    sizes, times_s = tuning.buffer_bytes.tolist(), tuning.seconds.tolist()
    best_bytes = tuning.best[0] if tuning.trials else 0
    predicted = [Column("predicted", lambda at: predicted_s(sizes[at]), seconds)] if predicted_s else []
    columns = (
        Column("trial", lambda at: at + 1),
        Column("buffer", sizes.__getitem__, about),
        Column("iteration", times_s.__getitem__, seconds),
        *predicted,
        Column("", lambda at: "best" if sizes[at] == best_bytes else ""),
    )
    print_table(columns, range(tuning.trials))
