"""A small network of every kind, and the same as a module of torch's own."""

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.network import Network
from curvflow.tasks.networks.problems import built_network


@dataclass(frozen=True)
class Example:
    """A model, what it is built for, and its twin, whose parameters come in order.

    Inputs are `vocabulary` tokens where there is one; outputs are of each token where
    that is said.
    """

    spec: Mapping[str, Any]
    shape: tuple[int, ...]
    outputs: int
    twin: Callable[[], nn.Module]
    vocabulary: int | None = None
    of_tokens: bool = False

    def network(self, **fields: Any) -> Network:
        spec = {**self.spec, **fields}
        own = {"tokens": self.shape[0]} if self.of_tokens else {}
        if self.vocabulary is not None:
            own["takes_integers"] = True
        return build(spec, self.shape, self.outputs, **own)

    @property
    def out_shape(self) -> tuple[int, ...]:
        return (self.shape[0], self.outputs) if self.of_tokens else (self.outputs,)


def build(
    spec: Mapping[str, Any],
    shape: tuple[int, ...],
    outputs: int,
    tokens: int | None = None,
    **own: Any,
) -> Network:
    if tokens is not None:
        own["tokens"] = tokens
    return built_network(parse_model(spec), shape, outputs, **own)


def sequential(*layers: nn.Module) -> Callable[[], nn.Module]:
    """Return a function that makes new modules like these, in double precision."""

    def make() -> nn.Module:
        return nn.Sequential(*deepcopy(layers)).double()

    return make


class ZeroLast(nn.Module):
    """Add an output that is 0."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.pad(x, (0, 1))


class Well(nn.Module):
    """A weight per eigenvalue 0.5, 2 and 3."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x * (self.weight.new_tensor([0.5, 2.0, 3.0]) / 2).sqrt() * self.weight


class Crossing(nn.Module):
    """Outputs a b^2, c^3 and d."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        a, b, c, d = self.weight
        return x * torch.stack([a * b**2, c**3, d])


class Residual(nn.Module):
    """A block with pre-activation."""

    def __init__(self, before: int, width: int, stride: int, has_norm: bool) -> None:
        super().__init__()
        bias = not has_norm
        self.body = nn.Sequential(
            nn.BatchNorm2d(before) if has_norm else nn.Identity(),
            nn.ReLU(),
            nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=bias),
            nn.BatchNorm2d(width) if has_norm else nn.Identity(),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=bias),
        )
        self.shortcut = (
            nn.Identity()
            if (before, stride) == (width, 1)
            else nn.Conv2d(before, width, 1, stride=stride, bias=bias)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + self.shortcut(x)


class Basic(nn.Module):
    """A block that is activated after its sum."""

    def __init__(self, before: int, width: int, stride: int, norm, padded) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *normed(nn.Conv2d(before, width, 3, stride, 1), norm),
            nn.ReLU(),
            *normed(nn.Conv2d(width, width, 3, 1, 1), norm),
        )
        self.shortcut = nn.Sequential()
        if padded:
            self.shortcut = nn.Sequential(
                nn.AvgPool2d(1, stride),
                nn.ConstantPad3d((0, 0, 0, 0, 0, width - before), 0.0),
            )
        elif (before, stride) != (width, 1):
            self.shortcut = nn.Sequential(
                *normed(nn.Conv2d(before, width, 1, stride), norm)
            )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def normed(conv: nn.Conv2d, norm) -> list[nn.Module]:
    """Return a convolution and its norm, in whose place it has a bias."""
    if norm is None:
        return [conv]
    conv.bias = None
    return [conv, norm(conv.out_channels)]


def resnet(channels: int, blocks: tuple[int, ...], widths, norm, *, padded=False):
    def make() -> nn.Module:
        layers = [*normed(nn.Conv2d(channels, widths[0], 3, 1, 1), norm), nn.ReLU()]
        before = widths[0]
        for stage, (width, count) in enumerate(zip(widths, blocks, strict=True)):
            for block in range(count):
                stride = 2 if stage and not block else 1
                layers.append(Basic(before, width, stride, norm, padded))
                before = width
        end = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 3)]
        return nn.Sequential(*layers, *end).double()

    return make


def preresnet(channels: int, blocks: int, widths: tuple[int, ...], *, norm: bool):
    def make() -> nn.Module:
        layers: list[nn.Module] = [
            nn.Conv2d(channels, widths[0], 3, padding=1, bias=not norm)
        ]
        before = widths[0]
        for stage, width in enumerate(widths):
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                layers.append(Residual(before, width, stride, norm))
                before = width
        end: list[nn.Module] = [nn.BatchNorm2d(before)] if norm else []
        end += [nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 3)]
        return nn.Sequential(*layers, *end).double()

    return make


def vgg(*stages: tuple[int, ...], channels: int, dense: nn.Module, norm: bool):
    def make() -> nn.Module:
        layers: list[nn.Module] = []
        before = channels
        for stage in stages:
            for width in stage:
                layers.append(nn.Conv2d(before, width, 3, padding=1))
                layers += [nn.BatchNorm2d(width)] if norm else []
                layers.append(nn.ReLU())
                before = width
            layers.append(nn.MaxPool2d(2))
        return nn.Sequential(*layers, nn.Flatten(), dense).double()

    return make


def lenet5(channels: int, flat: int, padding: int, act: type, pool: type):
    return sequential(
        nn.Conv2d(channels, 6, 5, padding=padding), act(), pool(2),
        nn.Conv2d(6, 16, 5), act(), pool(2), nn.Flatten(),
        nn.Linear(flat, 120), act(), nn.Linear(120, 84), act(), nn.Linear(84, 3),
    )  # fmt: skip


def small_cnn_cifar(channels: int, flat: int, act: type):
    return sequential(
        nn.Conv2d(channels, 3, 7), act(), nn.MaxPool2d(2), nn.Conv2d(3, 5, 2), act(),
        nn.Flatten(), nn.Linear(flat, 7), act(), nn.Linear(7, 4), act(),
        nn.Linear(4, 3),
    )  # fmt: skip


def cnn_cifar(channels: int, flat: int, act: type):
    return sequential(
        nn.Conv2d(channels, 32, 7), act(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 2), act(),
        nn.Flatten(), nn.Linear(flat, 500), act(), nn.Linear(500, 100), act(),
        nn.Linear(100, 50), act(), nn.Linear(50, 20), act(), nn.Linear(20, 3),
    )  # fmt: skip


class Attend(nn.Module):
    """Attention by PyTorch's own function, maybe of the last token alone."""

    def __init__(self, width: int, heads: int, causal: bool, turned: bool) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (
            nn.Linear(width, width) for _ in range(4)
        )
        self.heads, self.causal, self.turned = heads, causal, turned

    def forward(self, x: Tensor) -> Tensor:
        split = (self.heads, -1)
        q, k, v = (
            layer(x).unflatten(2, split).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        if self.turned:
            q, k = turn(q), turn(k)
        # Kernels that are fused have no second derivatives.
        with sdpa_kernel(SDPBackend.MATH):
            y = nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=self.causal
            )
        return self.out(y.transpose(1, 2).flatten(2))


def turn(x: Tensor) -> Tensor:
    """Multiply pairs of entries, as complex numbers, by powers of the place."""
    length, size = x.shape[-2:]
    rates = 10_000.0 ** (-2 * torch.arange(size // 2, dtype=x.dtype) / size)
    phases = torch.outer(torch.arange(length, dtype=x.dtype), rates)
    matrix = torch.stack(
        [torch.stack([phases.cos(), -phases.sin()], -1),
         torch.stack([phases.sin(), phases.cos()], -1)], -2
    )  # fmt: skip
    pairs = x.unflatten(-1, (-1, 2, 1))
    return (matrix @ pairs).flatten(-3)


class Block(nn.Module):
    """A residual block with a norm in front, behind, or none."""

    def __init__(
        self, form: str, body: nn.Module, width: int, eps: float = 1e-5
    ) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, eps) if form != "none" else nn.Identity()
        self.body, self.form = body, form
        if form == "post":  # parameters come in the order of their use
            del self.norm
            self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        if self.form == "post":
            return self.norm(x + self.body(x))
        return x + self.body(self.norm(x))


class Places(nn.Module):
    """Learned vectors, of which the first are added."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(length, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight[: x.shape[1]]


class Sines(nn.Module):
    """Sines and cosines of the place."""

    def forward(self, x: Tensor) -> Tensor:
        length, width = x.shape[1:]
        table = torch.tensor(
            [
                [
                    (math.cos if entry % 2 else math.sin)(
                        place / 10_000 ** ((entry - entry % 2) / width)
                    )
                    for entry in range(width)
                ]
                for place in range(length)
            ],
            dtype=torch.float64,
        )
        return x + table.to(x)


class Read(nn.Module):
    """One token, or the mean of all."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "mean":
            return x.mean(1)
        return x[:, {"first": 0, "last": -1}[self.how]]


class States(nn.Module):
    """Recurrent layers of torch, which begin with zeros."""

    def __init__(self, layers: nn.RNNBase) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        backend: Any = torch.backends.mkldnn
        before = backend.enabled
        backend.enabled = False  # whose kernels have no second derivatives
        try:
            return self.layers(x)[0]
        finally:
            backend.enabled = before


class Tied(nn.Module):
    """Layers between an embedding and its transpose."""

    def __init__(self, embedding: nn.Embedding, *layers: nn.Module) -> None:
        super().__init__()
        self.embedding, self.layers = embedding, nn.Sequential(*layers)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.layers(self.embedding(tokens)) @ self.embedding.weight.T


class Patches(nn.Module):
    """Vectors of the patches of an image, by a convolution of their size."""

    def __init__(self, channels: int, side: int, width: int) -> None:
        super().__init__()
        self.layer = nn.Conv2d(channels, width, side, stride=side)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).flatten(2).transpose(1, 2)


class FirstToken(nn.Module):
    """A learned vector before the others."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.weight.expand(len(x), 1, -1), x], dim=1)


def dense_block(width: int, hidden: int, act: type) -> nn.Module:
    return nn.Sequential(nn.Linear(width, hidden), act(), nn.Linear(hidden, width))


XORD = {"kind": "conv1d_xord", "filters": 3}
VGG = {"kind": "vgg", "stages": [[2, 2], [3]]}
RESIDUAL = {"kind": "preresnet", "depth": 8, "width": 0.125}
STREAM = {"kind": "transformer", "layers": 1, "width": 4, "heads": 2, "hidden": 3}
VIT = {
    "kind": "vit",
    "patch_size": 2,
    "depth": 1,
    "width": 4,
    "heads": 2,
    "mlp_ratio": 0.75,
}
DENSE_END = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3))

EXAMPLES = {
    "quadratic_well": Example(
        {"kind": "quadratic_well", "eigenvalues": [0.5, 2.0, 3.0]}, (1,), 3, Well
    ),
    "normal_crossing": Example(
        {"kind": "normal_crossing", "powers": [[1, 2], [3], [1]]}, (1,), 3, Crossing
    ),
    "deep_linear": Example(
        {"kind": "deep_linear", "hidden": [3, 2]},
        (2, 2),
        3,
        sequential(
            nn.Flatten(), nn.Linear(4, 3, bias=False), nn.Linear(3, 2, bias=False),
            nn.Linear(2, 3, bias=False),
        ),
    ),
    "mlp": Example(
        {"kind": "mlp", "hidden": [4, 3], "activation": "tanh"},
        (2, 2),
        3,
        sequential(
            nn.Flatten(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3), nn.Tanh(),
            nn.Linear(3, 3),
        ),
    ),
    "linear": Example(
        {"kind": "linear"}, (2, 2), 3, sequential(nn.Flatten(), nn.Linear(4, 3))
    ),
    "logistic": Example(
        {"kind": "logistic"},
        (2, 2),
        3,
        sequential(nn.Flatten(), nn.Linear(4, 2), ZeroLast()),
    ),
    "logistic-without-bias": Example(
        {"kind": "logistic", "bias": False},
        (4,),
        3,
        sequential(nn.Linear(4, 2, bias=False), ZeroLast()),
    ),
    "conv1d_xord": Example(
        {**XORD, "separate_filters": False},
        (5, 2),
        2,
        sequential(
            nn.Flatten(), nn.Unflatten(1, (1, 10)), nn.Conv1d(1, 3, 2, stride=2),
            nn.Tanh(), nn.Flatten(), nn.Linear(15, 2),
        ),
    ),
    "autoencoder": Example(
        {"kind": "autoencoder", "hidden": [3, 2]},
        (2, 2),
        4,
        sequential(
            nn.Flatten(), nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2), nn.Linear(2, 3),
            nn.Tanh(), nn.Linear(3, 4),
        ),
    ),
    "autoencoder-without-bias": Example(
        {"kind": "autoencoder", "hidden": [2], "linear_code": False, "bias": False},
        (4,),
        4,
        sequential(
            nn.Linear(4, 2, bias=False), nn.Tanh(), nn.Linear(2, 4, bias=False)
        ),
    ),
    "lenet5": Example(
        {"kind": "lenet5"}, (1, 12, 16), 3, lenet5(1, 32, 2, nn.Tanh, nn.AvgPool2d)
    ),
    "lenet5-max": Example(
        {"kind": "lenet5", "padding": 0, "activation": "relu", "pooling": "max"},
        (2, 17, 16),
        3,
        lenet5(2, 16, 0, nn.ReLU, nn.MaxPool2d),
    ),
    "cnn_cifar": Example(
        {"kind": "cnn_cifar"}, (2, 10, 12), 3, cnn_cifar(2, 128, nn.ReLU)
    ),
    "cnn_cifar-widths": Example(
        {"kind": "cnn_cifar", "channels": [3, 5], "hidden": [7, 4]},
        (2, 10, 12),
        3,
        small_cnn_cifar(2, 10, nn.ReLU),
    ),
    "vgg": Example(VGG, (2, 4, 5), 3, vgg((2, 2), (3,), channels=2, norm=False,
                                          dense=nn.Linear(3, 3))),
    "vgg-norm": Example(
        {**VGG, "batch_norm": True, "hidden": [4]},
        (1, 4, 4),
        3,
        vgg((2, 2), (3,), channels=1, norm=True, dense=DENSE_END),
    ),
    "preresnet": Example(
        RESIDUAL, (1, 4, 4), 3, preresnet(1, 1, (2, 4, 8), norm=True)
    ),
    "preresnet-plain": Example(
        {**RESIDUAL, "batch_norm": False, "depth": 14, "width": 0.0625},
        (2, 5, 4),
        3,
        preresnet(2, 2, (1, 2, 4), norm=False),
    ),
    "transformer": Example(
        {**STREAM, "layers": 2, "context": 6},
        (4,),
        3,
        sequential(
            nn.Embedding(3, 4), Places(6, 4),
            *(
                Block("pre", body, 4)
                for _ in range(2)
                for body in (Attend(4, 2, True, False), dense_block(4, 3, nn.GELU))
            ),
            nn.LayerNorm(4), nn.Linear(4, 3),
        ),
        vocabulary=3,
        of_tokens=True,
    ),
    "transformer-tied": Example(
        {**STREAM, "vocabulary": 6, "positions": "rotary", "tied": True},
        (3,),
        6,
        lambda: Tied(
            nn.Embedding(6, 4), Block("pre", Attend(4, 2, True, True), 4),
            Block("pre", dense_block(4, 3, nn.GELU), 4), nn.LayerNorm(4), Read("last"),
        ).double(),
        vocabulary=6,
    ),
    "transformer-encoder": Example(
        {**STREAM, "causal": False, "norm": "post", "positions": "sinusoidal",
         "activation": "tanh"},
        (3, 2),
        2,
        sequential(
            nn.Linear(2, 4), Sines(), Block("post", Attend(4, 2, False, False), 4),
            Block("post", dense_block(4, 3, nn.Tanh), 4), Read("mean"), nn.Linear(4, 2),
        ),
    ),
    "attention_only": Example(
        {"kind": "attention_only", "layers": 2, "width": 4, "heads": 1, "norm": "none",
         "positions": "none", "causal": False, "readout": "first"},
        (3, 2),
        3,
        sequential(
            nn.Linear(2, 4), Block("none", Attend(4, 1, False, False), 4),
            Block("none", Attend(4, 1, False, False), 4), Read("first"),
            nn.Linear(4, 3),
        ),
    ),
    "vit": Example(
        {**VIT, "depth": 2},
        (2, 4, 6),
        3,
        sequential(
            Patches(2, 2, 4), FirstToken(4), Places(7, 4),
            *(
                Block("pre", body, 4, eps=1e-6)
                for _ in range(2)
                for body in (Attend(4, 2, False, False), dense_block(4, 3, nn.GELU))
            ),
            nn.LayerNorm(4, eps=1e-6), Read("first"), nn.Linear(4, 3),
        ),
    ),
    "vit-mean": Example(
        {**VIT, "pooling": "mean", "activation": "tanh", "eps": 1e-5},
        (1, 4, 4),
        2,
        sequential(
            Patches(1, 2, 4), Places(4, 4),
            Block("pre", Attend(4, 2, False, False), 4),
            Block("pre", dense_block(4, 3, nn.Tanh), 4),
            nn.LayerNorm(4), Read("mean"), nn.Linear(4, 2),
        ),
    ),
    "lstm": Example(
        {"kind": "lstm", "hidden": 3, "layers": 2},
        (3, 2),
        2,
        sequential(
            States(nn.LSTM(2, 3, 2, batch_first=True)), Read("last"), nn.Linear(3, 2)
        ),
    ),
    "lstm-tokens": Example(
        {"kind": "lstm", "hidden": 3, "embedding": 2},
        (4,),
        3,
        sequential(
            nn.Embedding(3, 2), States(nn.LSTM(2, 3, batch_first=True)),
            nn.Linear(3, 3),
        ),
        vocabulary=3,
        of_tokens=True,
    ),
    "gru": Example(
        {"kind": "gru", "hidden": 3, "layers": 2},
        (3, 2),
        2,
        sequential(
            States(nn.GRU(2, 3, 2, batch_first=True)), Read("last"), nn.Linear(3, 2)
        ),
    ),
    "gru-without-bias": Example(
        {"kind": "gru", "hidden": 4, "vocabulary": 6, "readout": "mean",
         "bias": False},
        (3,),
        2,
        sequential(
            nn.Embedding(6, 4), States(nn.GRU(4, 4, batch_first=True, bias=False)),
            Read("mean"), nn.Linear(4, 2, bias=False),
        ),
        vocabulary=6,
    ),
    "resnet": Example(
        {"kind": "resnet", "widths": [2, 3], "blocks": [1, 2]},
        (1, 4, 4),
        3,
        resnet(1, (1, 2), (2, 3), nn.BatchNorm2d),
    ),
    "resnet-group": Example(
        {"kind": "resnet", "widths": [4, 4], "blocks": [1, 1], "norm": "group",
         "groups": 2},
        (2, 5, 4),
        3,
        resnet(2, (1, 1), (4, 4), lambda width: nn.GroupNorm(2, width)),
    ),
    "resnet-plain": Example(
        {"kind": "resnet", "widths": [2, 3], "blocks": [1, 1], "norm": "none",
         "shortcut": "padding"},
        (1, 5, 4),
        3,
        resnet(1, (1, 1), (2, 3), None, padded=True),
    ),
}  # fmt: skip
