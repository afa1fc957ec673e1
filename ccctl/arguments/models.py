"""The model that an argument means: a shipped one by its name, or an artifact."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccctl.artifacts import codec, exists
from ccctl.errors import UsageError
from probes.base import meant, quoted

if TYPE_CHECKING:
    from synth.fusion import Model

__all__ = ["load_model"]


def load_model(spec: str) -> tuple[Model, dict[str, str]]:
    """(model, digests of the artifact it came from); raises UsageError, MissingInputError and DataError."""
    from synth.fusion import shape, shapes

    if spec in shapes() and not exists(spec):
        return shape(spec), {}
    if spec != "-" and not exists(spec) and "/" not in spec and "." not in spec:
        close = meant(spec, shapes())
        raise UsageError(
            f"MODEL {quoted(spec)}: neither a file nor a model that has a name",
            hint=f"{close + ' ' if close else ''}models: {', '.join(shapes())}; or model.json",
        )
    read = codec.read(spec, "model")
    return read.body, {"model": read.sha256}
