"""Networks as curvflow has them and as equal torch modules, with their data.

Parameters of a module come in the order of those of curvflow's model, so that vectors
of both are the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from curvflow.schemas.losses import LossName
from curvflow.schemas.models import parse_model
from curvflow.schemas.nodes import Data, Member, Weights
from curvflow.schemas.params import Params
from curvflow.tasks.networks.problems import Problem, pose

# Layers that every peer knows.
KNOWN = nn.Linear | nn.Conv2d


@dataclass(frozen=True)
class Net:
    """A network, the loss and the samples it is averaged over.

    Attributes:
        name: in tables.
        spec: the model of a study.
        module: the same as a module, in evaluation.
        loss: `cross_entropy` or `mse`.
        inputs: of the samples.
        targets: labels or values.
    """

    name: str
    spec: Mapping[str, Any]
    module: nn.Module
    loss: str
    inputs: Tensor
    targets: Tensor

    @property
    def device(self) -> str:
        """Where the module and its samples are."""
        return str(self.inputs.device)

    @property
    def batch(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets."""
        return self.inputs, self.targets

    @property
    def criterion(self) -> nn.CrossEntropyLoss | nn.MSELoss:
        """The mean loss as a module."""
        return nn.CrossEntropyLoss() if self.loss == "cross_entropy" else nn.MSELoss()

    @cached_property
    def data(self) -> Data:
        """The samples as a node."""
        inputs, targets = self.inputs.cpu().numpy(), self.targets.cpu().numpy()
        arrays = {"inputs": inputs, "targets": targets}
        arrays |= {"test_inputs": inputs[:1], "test_targets": targets[:1]}
        if self.loss == "cross_entropy":
            arrays["num_classes"] = np.array(self.num_outputs)
        return Data("data", "data.points", {}, arrays, "points")

    @cached_property
    def num_outputs(self) -> int:
        """Outputs of a sample."""
        with torch.no_grad():
            return int(self.module(self.inputs[:1]).shape[1])

    @cached_property
    def problem(self) -> Problem:
        """The network and the loss as curvflow has them."""
        model = parse_model(json.loads(json.dumps(self.spec)))
        return pose(model, cast("LossName", self.loss), self.data)

    @cached_property
    def weights(self) -> Weights:
        """The weights as a node."""
        with torch.no_grad():
            flat = nn.utils.parameters_to_vector(self.module.parameters())
        fixed = self.problem.network.first_statistics().to(flat)
        arrays = {
            "weights": torch.cat([flat, fixed]).cpu().numpy(),
            "network": np.array(self.problem.text),
        }
        return Weights("fit", "train", {}, arrays, "weights")

    def member(self, params: Params) -> Member:
        """Return what a run would hand to a probe."""
        return Member(params, {"weights": [self.weights], "data": [self.data]})

    @cached_property
    def known(self) -> list[tuple[str, nn.Parameter]]:
        """Parameters of layers that every peer knows, with curvflow's names."""
        layers = [one for one in self.module.modules() if isinstance(one, KNOWN)]
        wanted = {id(p) for layer in layers for p in layer.parameters()}
        names = self.problem.network.layout.names
        pairs = zip(names, self.module.parameters(), strict=True)
        return [(name, p) for name, p in pairs if id(p) in wanted]

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Parameters of layers that every peer knows."""
        return [parameter for _, parameter in self.known]

    @property
    def size(self) -> int:
        """Number of these."""
        return sum(p.numel() for p in self.parameters)


def mlp(widths: list[int], act: Callable[[], nn.Module]) -> nn.Module:
    """Return dense layers."""
    layers: list[nn.Module] = [nn.Flatten()]
    for come, go in pairwise(widths):
        layers += [nn.Linear(come, go), act()]
    return nn.Sequential(*layers[:-1])


def lenet(
    shape: tuple[int, int], padding: int, act: Callable[[], nn.Module], pool: type
) -> nn.Module:
    """Return LeNet-5 for `shape`, channels and flat features, and ten outputs."""
    channels, flat = shape
    return nn.Sequential(
        *(nn.Conv2d(channels, 6, 5, padding=padding), act(), pool(2)),
        *(nn.Conv2d(6, 16, 5), act(), pool(2), nn.Flatten()),
        *(nn.Linear(flat, 120), act(), nn.Linear(120, 84), act()),
        nn.Linear(84, 10),
    )


class Skip(nn.Module):
    """Two convolutions beside a shortcut, with batch norms."""

    def __init__(self, come: int, go: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            *(nn.Conv2d(come, go, 3, stride, 1, bias=False), nn.BatchNorm2d(go)),
            nn.ReLU(),
            *(nn.Conv2d(go, go, 3, 1, 1, bias=False), nn.BatchNorm2d(go)),
        )
        self.shortcut = nn.Sequential()
        if come != go:
            self.shortcut = nn.Sequential(
                nn.Conv2d(come, go, 1, stride, bias=False), nn.BatchNorm2d(go)
            )

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the sum of both."""
        return nn.functional.relu(self.path(inputs) + self.shortcut(inputs))


def resnet(widths: list[int]) -> nn.Module:
    """Return a residual network of two blocks a stage, for small images."""
    blocks: list[nn.Module] = []
    for come, go in pairwise([widths[0], *widths]):
        blocks += [Skip(come, go, 1 if come == go else 2), Skip(go, go, 1)]
    return nn.Sequential(
        *(nn.Conv2d(3, widths[0], 3, 1, 1, bias=False), nn.BatchNorm2d(widths[0])),
        nn.ReLU(),
        *blocks,
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 10)),
    )


class Patches(nn.Module):
    """Vectors of the patches of an image."""

    def __init__(self, patch: int, width: int) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, width, patch, patch)

    def forward(self, images: Tensor) -> Tensor:
        """Return the tokens, (N, T, W)."""
        tokens: Tensor = self.layer(images).flatten(2).transpose(1, 2)
        return tokens


class Token(nn.Module):
    """A learned vector before those of the patches."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return one token more."""
        return torch.cat([self.weight.expand(len(x), 1, -1), x], dim=1)


class Places(nn.Module):
    """Learned vectors of the places, which are added."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.1 * torch.randn(count, width))

    def forward(self, x: Tensor) -> Tensor:
        """Return tokens that know their places."""
        return x + self.weight


class Block(nn.Module):
    """Attention and dense layers; a last one computes the first token alone."""

    def __init__(self, width: int, heads: int, is_last: bool) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, 1e-6)
        self.query, self.key, self.value, self.out = (
            nn.Linear(width, width) for _ in range(4)
        )
        self.norm2 = nn.LayerNorm(width, 1e-6)
        self.dense = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.heads, self.is_last = heads, is_last

    def forward(self, x: Tensor) -> Tensor:
        """Return what is added up."""
        normed = self.norm1(x)
        asking = normed[:, :1] if self.is_last else normed
        given = self.query(asking), self.key(normed), self.value(normed)
        q, k, v = (y.unflatten(2, (self.heads, -1)).transpose(1, 2) for y in given)
        with sdpa_kernel(SDPBackend.MATH):
            y = nn.functional.scaled_dot_product_attention(q, k, v)
        x = (x[:, :1] if self.is_last else x) + self.out(y.transpose(1, 2).flatten(2))
        added: Tensor = x + self.dense(self.norm2(x))
        return added


class First(nn.Module):
    """The first token."""

    def forward(self, x: Tensor) -> Tensor:
        """Return it, (N, W)."""
        return x[:, 0]


def vit(width: int, heads: int, depth: int) -> nn.Module:
    """Return a vision transformer on patches of 4 by 4 of images of 32 by 32."""
    blocks = (Block(width, heads, number + 1 == depth) for number in range(depth))
    begin = Patches(4, width), Token(width), Places(65, width)
    end = nn.LayerNorm(width, 1e-6), First(), nn.Linear(width, 10)
    return nn.Sequential(*begin, *blocks, *end)


def posed(
    name: str,
    spec: Mapping[str, Any],
    make: Callable[[], nn.Module],
    shape: tuple[int, ...],
    *,
    count: int,
    loss: str = "cross_entropy",
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
) -> Net:
    """Return a network with weights and samples, which are drawn on the CPU."""
    torch.manual_seed(0)
    module = make().eval().to(dtype)
    inputs = torch.randn(count, *shape, dtype=dtype)
    targets = torch.randint(10, (count,))
    if loss == "mse":
        targets = torch.randn(count, 10, dtype=dtype)
    module = module.to(device)
    return Net(name, spec, module, loss, inputs.to(device), targets.to(device))
