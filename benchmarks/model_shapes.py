"""The models of DeAR's Table I as artifacts, from their published architectures: synth/fusion/shapes/*.json.

    python benchmarks/model_shapes.py [FOLDER]

Parameter tensors are counted layer by layer. The paper gives no times of layers, so the seconds of a layer
are proportional to its floating-point operations: 2 for a multiply-add, 4 for each value of a normalization.
Their sum is given by equation 6 and Table II for the 10GbE column, with t_bp = 2 t_ff and 1.25 GB/s (for
DenseNet-201 this is a lower bound). Images are 224 by 224, sentences 64 words, as in the paper.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ccctl.artifacts.json_text import render
from probes.base.columns import floats, ints, longs
from synth.fusion.model import Model

ITEM_BYTES = 4
# Seconds of one forward and backward pass.
COMPUTE_S = {
    "resnet-50": 0.220,
    "densenet-201": 0.192,
    "inception-v4": 0.338,
    "bert-base": 0.281,
    "bert-large": 0.407,
}
BATCH = {"resnet-50": 64, "densenet-201": 32, "inception-v4": 64, "bert-base": 64, "bert-large": 32}
FORWARD_SHARE = 1 / 3
WORDS, VOCABULARY = 64, 30522
FOLDER = Path(__file__).parents[1] / "synth" / "fusion" / "shapes"


@dataclass
class Layers:
    """A list of layers: names, operations, and the elements of their tensors."""

    names: list[str] = field(default_factory=list)
    operations: list[float] = field(default_factory=list)
    tensors: list[tuple[str, int, int]] = field(default_factory=list)

    def add(self, name: str, operations: float, **tensors: int) -> None:
        """Add a layer, with the elements of each of its tensors."""
        self.tensors += [(f"{name}.{what}", len(self.names), count) for what, count in tensors.items()]
        self.names.append(name)
        self.operations.append(operations)

    def conv(self, name: str, inputs: int, outputs: int, kernel: int, values: int) -> None:
        """Add a convolution without bias, of area ``kernel`` and with ``values`` output positions."""
        self.add(name, 2.0 * inputs * outputs * kernel * values, weight=inputs * outputs * kernel)

    def norm(self, name: str, width: int, values: int) -> None:
        """Add a normalization of ``width`` channels at ``values`` positions."""
        self.add(name, 4.0 * width * values, weight=width, bias=width)

    def dense(self, name: str, inputs: int, outputs: int, rows: int, more: float = 0.0) -> None:
        """Add a matrix with bias, applied to ``rows`` rows; ``more`` counts operations without parameters."""
        self.add(name, 2.0 * inputs * outputs * rows + more, weight=inputs * outputs, bias=outputs)

    def model(self, name: str) -> Model:
        """Return the artifact, its times scaled to the total."""
        total = COMPUTE_S[name] / sum(self.operations)
        return Model(
            name=name,
            layers=tuple(self.names),
            forward_s=floats([round(FORWARD_SHARE * total * one, 9) for one in self.operations]),
            backward_s=floats([round((1 - FORWARD_SHARE) * total * one, 9) for one in self.operations]),
            tensors=tuple(tensor for tensor, _, _ in self.tensors),
            tensor_layer=ints([layer for _, layer, _ in self.tensors]),
            tensor_bytes=longs([ITEM_BYTES * count for _, _, count in self.tensors]),
            origin=(
                "Tensors from the published architecture, in single precision. Seconds of layers in "
                "proportion to floating-point operations, forward to backward as 1 to 2; not measured. Their "
                f"sum, for {BATCH[name]} samples, is derived from DeAR's Table II by its equation 6 at "
                "1.25 GB/s."
            ),
        )


def resnet50() -> Layers:
    """Return ResNet-50 (He et al., Table 1); the stride of a stage is in its 3 by 3 convolution."""
    net = Layers()
    net.conv("conv1", 3, 64, 49, 112 * 112)
    net.norm("bn1", 64, 112 * 112)
    width = 64
    for stage, (inner, blocks, side) in enumerate(((64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7)), 1):
        for block in range(blocks):
            name = f"layer{stage}.{block}"
            before = side * 2 if stage > 1 and block == 0 else side
            net.conv(f"{name}.conv1", width, inner, 1, before**2)
            net.norm(f"{name}.bn1", inner, before**2)
            net.conv(f"{name}.conv2", inner, inner, 9, side**2)
            net.norm(f"{name}.bn2", inner, side**2)
            net.conv(f"{name}.conv3", inner, 4 * inner, 1, side**2)
            net.norm(f"{name}.bn3", 4 * inner, side**2)
            if block == 0:
                net.conv(f"{name}.downsample.0", width, 4 * inner, 1, side**2)
                net.norm(f"{name}.downsample.1", 4 * inner, side**2)
            width = 4 * inner
    net.dense("fc", width, 1000, 1)
    return net


def densenet201() -> Layers:
    """Return DenseNet-201 (Huang et al., Table 1): growth 32, blocks of 6, 12, 48 and 32 layers."""
    net = Layers()
    net.conv("features.conv0", 3, 64, 49, 112 * 112)
    net.norm("features.norm0", 64, 112 * 112)
    width, side = 64, 56
    for block, layers in enumerate((6, 12, 48, 32), 1):
        for layer in range(1, layers + 1):
            name = f"features.denseblock{block}.denselayer{layer}"
            net.norm(f"{name}.norm1", width, side**2)
            net.conv(f"{name}.conv1", width, 128, 1, side**2)
            net.norm(f"{name}.norm2", 128, side**2)
            net.conv(f"{name}.conv2", 128, 32, 9, side**2)
            width += 32
        if block < 4:
            net.norm(f"features.transition{block}.norm", width, side**2)
            net.conv(f"features.transition{block}.conv", width, width // 2, 1, side**2)
            width, side = width // 2, side // 2
    net.norm("features.norm5", width, side**2)
    net.dense("classifier", width, 1000, 1)
    return net


def inception4() -> Layers:
    """Return Inception-v4 (Szegedy et al., Figures 3 to 9); each convolution has a normalization."""
    net = Layers()

    def unit(name: str, inputs: int, outputs: int, shape: tuple[int, int], side: int) -> None:
        net.conv(f"{name}.conv", inputs, outputs, shape[0] * shape[1], side**2)
        net.norm(f"{name}.bn", outputs, side**2)

    for name, inputs, outputs, shape, side in [*_stem(), *_inception_a(), *_inception_b(), *_inception_c()]:
        unit(name, inputs, outputs, shape, side)
    net.dense("last_linear", 1536, 1000, 1)
    return net


Unit = tuple[str, int, int, tuple[int, int], int]


def _stem() -> Iterator[Unit]:
    """Figure 3, of 224 by 224: 111, 109, 109, then 54, 52 and 25 a side."""
    yield "stem.0", 3, 32, (3, 3), 111
    yield "stem.1", 32, 32, (3, 3), 109
    yield "stem.2", 32, 64, (3, 3), 109
    yield "mixed_3a.conv", 64, 96, (3, 3), 54
    yield "mixed_4a.branch0.0", 160, 64, (1, 1), 54
    yield "mixed_4a.branch0.1", 64, 96, (3, 3), 52
    yield "mixed_4a.branch1.0", 160, 64, (1, 1), 54
    yield "mixed_4a.branch1.1", 64, 64, (1, 7), 54
    yield "mixed_4a.branch1.2", 64, 64, (7, 1), 54
    yield "mixed_4a.branch1.3", 64, 96, (3, 3), 52
    yield "mixed_5a.conv", 192, 192, (3, 3), 25


def _inception_a() -> Iterator[Unit]:
    """Figure 4 four times, then Figure 7 with k = 192, l = 224, m = 256, n = 384."""
    side = 25
    for block in range(4):
        name = f"inception_a.{block}"
        yield f"{name}.branch0", 384, 96, (1, 1), side
        yield f"{name}.branch1.0", 384, 64, (1, 1), side
        yield f"{name}.branch1.1", 64, 96, (3, 3), side
        yield f"{name}.branch2.0", 384, 64, (1, 1), side
        yield f"{name}.branch2.1", 64, 96, (3, 3), side
        yield f"{name}.branch2.2", 96, 96, (3, 3), side
        yield f"{name}.branch3", 384, 96, (1, 1), side
    yield "reduction_a.branch0", 384, 384, (3, 3), 12
    yield "reduction_a.branch1.0", 384, 192, (1, 1), side
    yield "reduction_a.branch1.1", 192, 224, (3, 3), side
    yield "reduction_a.branch1.2", 224, 256, (3, 3), 12


def _inception_b() -> Iterator[Unit]:
    """Figure 5 seven times, then Figure 8."""
    side = 12
    for block in range(7):
        name = f"inception_b.{block}"
        yield f"{name}.branch0", 1024, 384, (1, 1), side
        yield f"{name}.branch1.0", 1024, 192, (1, 1), side
        yield f"{name}.branch1.1", 192, 224, (1, 7), side
        yield f"{name}.branch1.2", 224, 256, (7, 1), side
        yield f"{name}.branch2.0", 1024, 192, (1, 1), side
        yield f"{name}.branch2.1", 192, 192, (7, 1), side
        yield f"{name}.branch2.2", 192, 224, (1, 7), side
        yield f"{name}.branch2.3", 224, 224, (7, 1), side
        yield f"{name}.branch2.4", 224, 256, (1, 7), side
        yield f"{name}.branch3", 1024, 128, (1, 1), side
    yield "reduction_b.branch0.0", 1024, 192, (1, 1), side
    yield "reduction_b.branch0.1", 192, 192, (3, 3), 5
    yield "reduction_b.branch1.0", 1024, 256, (1, 1), side
    yield "reduction_b.branch1.1", 256, 256, (1, 7), side
    yield "reduction_b.branch1.2", 256, 320, (7, 1), side
    yield "reduction_b.branch1.3", 320, 320, (3, 3), 5


def _inception_c() -> Iterator[Unit]:
    """Figure 6 three times."""
    side = 5
    for block in range(3):
        name = f"inception_c.{block}"
        yield f"{name}.branch0", 1536, 256, (1, 1), side
        yield f"{name}.branch1.0", 1536, 384, (1, 1), side
        yield f"{name}.branch1.1a", 384, 256, (1, 3), side
        yield f"{name}.branch1.1b", 384, 256, (3, 1), side
        yield f"{name}.branch2.0", 1536, 384, (1, 1), side
        yield f"{name}.branch2.1", 384, 448, (3, 1), side
        yield f"{name}.branch2.2", 448, 512, (1, 3), side
        yield f"{name}.branch2.3a", 512, 256, (1, 3), side
        yield f"{name}.branch2.3b", 512, 256, (3, 1), side
        yield f"{name}.branch3", 1536, 256, (1, 1), side


def bert(layers: int, width: int) -> Layers:
    """Return BERT (Devlin et al.) with both heads of pre-training; the decoder shares the embedding."""
    net = Layers()
    rows = WORDS
    net.add("embeddings.word_embeddings", 0.0, weight=VOCABULARY * width)
    net.add("embeddings.position_embeddings", float(rows * width), weight=512 * width)
    net.add("embeddings.token_type_embeddings", float(rows * width), weight=2 * width)
    net.norm("embeddings.LayerNorm", width, rows)
    for layer in range(layers):
        name = f"encoder.layer.{layer}"
        for part in ("query", "key", "value"):
            net.dense(f"{name}.attention.self.{part}", width, width, rows)
        # The scores and what they weigh: two products of rows by rows by width.
        net.dense(f"{name}.attention.output.dense", width, width, rows, more=4.0 * rows * rows * width)
        net.norm(f"{name}.attention.output.LayerNorm", width, rows)
        net.dense(f"{name}.intermediate.dense", width, 4 * width, rows)
        net.dense(f"{name}.output.dense", 4 * width, width, rows)
        net.norm(f"{name}.output.LayerNorm", width, rows)
    net.dense("pooler.dense", width, width, 1)
    net.dense("cls.predictions.transform.dense", width, width, rows)
    net.norm("cls.predictions.transform.LayerNorm", width, rows)
    net.add("cls.predictions.decoder", 2.0 * width * VOCABULARY * rows, bias=VOCABULARY)
    net.dense("cls.seq_relationship", width, 2, 1)
    return net


MODELS = {
    "resnet-50": resnet50,
    "densenet-201": densenet201,
    "inception-v4": inception4,
    "bert-base": lambda: bert(12, 768),
    "bert-large": lambda: bert(24, 1024),
}


def content(name: str) -> bytes:
    """Return the file of a model."""
    model = MODELS[name]().model(name)
    columns = ("forward_s", "backward_s", "tensor_layer", "tensor_bytes")
    body = {column: getattr(model, column).tolist() for column in columns}
    body |= {
        "name": name,
        "origin": model.origin,
        "layers": list(model.layers),
        "tensors": list(model.tensors),
    }
    return render({"schema": "ccctl/model/1", "body": body})


def main(folder: Path) -> None:
    """Write the file of every model."""
    for name in MODELS:
        (folder / f"{name}.json").write_bytes(content(name))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
