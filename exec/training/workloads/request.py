"""The request for a training run: the modes, the model, the data, the duration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from synth.network import Network

__all__ = ["BACKENDS", "MODELS", "MODES", "SURVIVING", "Mode", "TrainRequest"]

# The treatment of the replicas' gradients or parameters in each mode.
MODES = {
    "none": "each rank alone: what computing takes without communication",
    "ddp": "all_reduce of gradient buckets behind the backward pass (PyTorch's DistributedDataParallel)",
    "dear": "reduce_scatter behind the backward pass, all_gather behind the next forward pass (DeAR)",
    "dear-nl": "DeAR with four layers a bucket",
    "horovod": "all_reduce of what is ready on all ranks at the end of each cycle (Horovod)",
    "ds-sync": "parameters averaged in small groups that change from iteration to iteration (DS-Sync)",
    "asp": "sharded parameter servers that answer each rank at once (asynchronous parallel)",
    "gossip": "parameters averaged with both neighbours on a ring (D-PSGD)",
    "hierarchical": "gradients reduced within groups, all_reduced between them, broadcast within",
    "adaptive": "DDP whose gradients an adaptive session reduces, which goes on without lost ranks (AdapCC)",
}
# Modes that go on when a rank is lost.
SURVIVING = ("adaptive",)
MODELS = ("mlp", "cnn", "transformer", "moe")
BACKENDS = ("gloo", "ccctl", "nccl")


@dataclass(frozen=True)
class Mode:
    """One method of synchronization; ``bucket_bytes`` 0 is its own default."""

    name: str
    bucket_bytes: int = 0

    @property
    def has_buckets(self) -> bool:
        return self.name in ("ddp", "dear", "horovod", "ds-sync", "hierarchical", "adaptive")


@dataclass(frozen=True, eq=False)
class TrainRequest:
    """The modes to train one after the other, all from the same parameters on the same batches.

    ``layers`` and ``width`` 0 are the model's own. ``compute_s`` is added to each layer's forward pass,
    asleep as while a GPU works; its backward pass gets twice that. ``batch`` is per rank. Held-out data is
    evaluated every ``evaluate`` iterations, and ``accuracy`` is the share of correct answers whose time is
    reported. The first ``warmup`` iterations are not in the times, and DS-Sync averages over all ranks in
    them. ``racks`` are the groups of hierarchical and DS-Sync; by default hosts, or pairs if that gives no
    groups. ``network`` is the network that DS-Sync plans for; None: equal links. ``reference`` are DDP's
    parameters if it has been trained before.
    """

    modes: tuple[Mode, ...]
    model: str = "mlp"
    backend: str = "gloo"
    steps: int = 100
    warmup: int = 8
    batch: int = 16
    layers: int = 0
    width: int = 0
    compute_s: float = 0.0
    accuracy: float = 0.9
    evaluate: int = 10
    seed: int = 0
    cycle_s: float = 5e-3
    racks: tuple[tuple[int, ...], ...] = ()
    network: Network | None = None
    reference: NDArray[np.float32] | None = None
    timeout_s: float = 300.0
