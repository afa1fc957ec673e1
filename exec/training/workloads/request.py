"""The request for a training run: the modes, the model, the data, the duration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from probes.base import Floats
from synth.network import Network

__all__ = ["BACKENDS", "MODELS", "MODES", "SURVIVING", "Mode", "TrainRequest"]

# The modes, each with its way to synchronize replicas.
MODES = {
    "none": "each rank alone: what computing takes without communication",
    "ddp": "all_reduce of gradient buckets behind the backward pass (PyTorch's DistributedDataParallel)",
    "dear": "reduce_scatter behind the backward pass, all_gather behind the next forward pass (DeAR)",
    "dear-nl": "DeAR with four layers a bucket",
    "horovod": "all_reduce of what is ready on all ranks at the end of each cycle (Horovod)",
    "horovod-tuned": "Horovod whose buffer is tuned while it trains, by Bayesian optimization",
    "ds-sync": "parameters averaged in small groups that change from iteration to iteration (DS-Sync)",
    "asp": "sharded parameter servers that answer each rank at once (asynchronous parallel)",
    "gossip": "parameters averaged with those of the rank 1, 2, 4 … before it (exponential graph)",
    "hierarchical": "gradients reduced within groups, all_reduced between them, broadcast within",
    "adaptive": "DDP whose gradients an adaptive session reduces, which goes on without lost ranks (AdapCC)",
}
# Modes that go on when a rank is lost.
SURVIVING = ("adaptive",)
MODELS = ("mlp", "cnn", "transformer", "moe")
BACKENDS = ("gloo", "ccctl", "nccl")


@dataclass(frozen=True)
class Mode:
    """One method of synchronization; ``bucket_bytes`` 0 is the method's default."""

    name: str
    bucket_bytes: int = 0

    @property
    def has_buckets(self) -> bool:
        return self.name in ("ddp", "dear", "horovod", "ds-sync", "hierarchical", "adaptive")


@dataclass(frozen=True, eq=False)
class TrainRequest:
    """The modes to train one after the other, all from the same parameters on the same batches.

    - ``layers``, ``width``: size of the model; 0 is the model's default.
    - ``compute_s``: seconds of sleep added to each layer's forward pass, as if a GPU computed; the backward
      pass gets twice that.
    - ``batch``: samples per rank in an iteration.
    - ``evaluate``: iterations between evaluations; ``accuracy``: the target, whose time to reach is reported.
    - ``warmup``: first iterations, which are not timed; DS-Sync averages over all ranks in them.
    - ``cycle_s``: cycle time of Horovod.
    - ``racks``: groups of hierarchical and DS-Sync; by default the ranks of each host, or else pairs.
    - ``network``: network for which DS-Sync plans; None is one of equal links.
    - ``examples``: rows of `read_examples` to train on; None is generated data.
    - ``reference``: DDP's final parameters, if it has been trained before.
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
    examples: Floats | None = None
    reference: NDArray[np.float32] | None = None
    timeout_s: float = 300.0
