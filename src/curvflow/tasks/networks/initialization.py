"""Initial weights of networks: normal, uniform, fan-in, Glorot, variance scaling."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor

from curvflow.schemas.kinds.shared.networks import (
    FanIn,
    Glorot,
    Init,
    Normal,
    Uniform,
    VarianceScaling,
)
from curvflow.tasks.networks.network import Layout, Network

# Deviation of a standard normal law cut at two of its deviations.
CUT_DEVIATION = 0.8796256610342398

# Parameters of a normalisation, which no law draws, by the last part of their names.
NOT_DRAWN = ("scale", "shift")


def initial_weights(
    network: Network, generator: torch.Generator, init: Init | None
) -> Tensor:
    """Draw initial parameters, and append the first statistics.

    Laws that differ in scale alone use the same draws, so that runs are paired.

    Args:
        network: the network.
        generator: the member's stream.
        init: the law; None takes the network's `draw_initial`.

    Returns:
        Weights (D + S,) in float64 on the CPU.
    """
    base_D = torch.zeros(network.layout.size, dtype=torch.float64)
    if network.draw_initial is not None:
        base_D = network.draw_initial(generator)
    if init is not None:
        drawn_D = _drawn(init, network.layout, base_D, generator)
        base_D = torch.where(_has_prefix(network.layout, NOT_DRAWN), base_D, drawn_D)
    return torch.cat([base_D, network.first_statistics(generator)])


def _drawn(
    init: Init, layout: Layout, base_D: Tensor, generator: torch.Generator
) -> Tensor:
    match init:
        case Normal():
            return _deviations(init, layout) * _normal(layout.size, generator)
        case FanIn():
            return _fan_in(init, layout, base_D, generator)
        case VarianceScaling():
            return _scaled(init, layout, base_D, generator)
    uniform_D = torch.rand(layout.size, generator=generator, dtype=torch.float64)
    match init:
        case Glorot():
            fan_D = _fans(layout, "in") + _fans(layout, "out")
            bound_D = init.glorot * (6 / fan_D).sqrt()
            return torch.where(fan_D > 0, bound_D * (2 * uniform_D - 1), base_D)
        case Uniform():
            return init.uniform * (2 * uniform_D - 1)
    return init.uniform_positive * uniform_D


def _normal(size: int, generator: torch.Generator) -> Tensor:
    return torch.randn(size, generator=generator, dtype=torch.float64)


def _deviations(init: Normal, layout: Layout) -> Tensor:
    scale_D = torch.full((layout.size,), init.normal, dtype=torch.float64)
    if init.bias is not None:
        scale_D[_has_prefix(layout, ("bias",))] = init.bias
    return scale_D


def _has_prefix(layout: Layout, prefixes: tuple[str, ...]) -> Tensor:
    """Return a mask of the parameters whose last name has one of the prefixes, (D,)."""
    flags = [
        torch.full((size,), name.rpartition(".")[2].startswith(prefixes))
        for name, size in zip(layout.names, layout.sizes, strict=True)
    ]
    return torch.cat(flags)


def _fans(layout: Layout, side: str) -> Tensor:
    """Return the fan-in or fan-out of each weight, 0 for biases and the like.

    Reference:
        Glorot and Bengio (2010), Proceedings of AISTATS. A kernel counts all its
        pixels.
    """
    axis = 1 if side == "in" else 0
    fans = [
        torch.full((size,), shape[axis] * math.prod(shape[2:]) if shape[1:] else 0)
        for shape, size in zip(layout.shapes, layout.sizes, strict=True)
    ]
    return torch.cat(fans).double()


def _scaled(
    init: VarianceScaling, layout: Layout, base_D: Tensor, generator: torch.Generator
) -> Tensor:
    fan_D = _fans(layout, "in")
    if init.fan == "avg":
        fan_D = (fan_D + _fans(layout, "out")) / 2
    # By inversion of the distribution, so that each draw takes exactly one number.
    low, high = (0.5 * (1 + math.erf(cut / math.sqrt(2))) for cut in (-2.0, 2.0))
    uniform_D = torch.rand(layout.size, generator=generator, dtype=torch.float64)
    cut_D = torch.special.ndtri(low + (high - low) * uniform_D) / CUT_DEVIATION
    bias_D = init.bias * _normal(layout.size, generator)
    others_D = torch.where(_has_prefix(layout, ("bias",)), bias_D, base_D)
    scale_D = (init.variance_scaling / fan_D).sqrt()
    return torch.where(fan_D > 0, scale_D * cut_D, others_D)


def _fan_in(
    init: FanIn, layout: Layout, base_D: Tensor, generator: torch.Generator
) -> Tensor:
    fan_D = _fans(layout, "in")
    drawn_D = (init.fan_in / fan_D).sqrt() * _normal(layout.size, generator)
    weights_D = torch.where(fan_D > 0, drawn_D, base_D)
    if init.unbalanced is None:
        return weights_D
    tensors = {name: t[0] for name, t in layout.named(weights_D[None]).items()}
    _unbalance(tensors, init.unbalanced, generator)
    return torch.cat([tensors[name].flatten() for name in layout.names])


def _unbalance(
    tensors: dict[str, Tensor], factor: float, generator: torch.Generator
) -> None:
    """Rescale hidden units at random, in place.

    Reference:
        Neyshabur, Salakhutdinov and Srebro (2015), arXiv:1506.02617, section 5.
    """
    dense = [name for name, tensor in tensors.items() if tensor.ndim == 2]
    for before, after in pairwise(dense):
        units = len(tensors[before])
        chosen = torch.randint(units, (units,), generator=generator)
        c_U = factor * torch.exp(_normal(units, generator))
        # A unit drawn twice is scaled twice.
        scale_U = torch.ones(units, dtype=torch.float64)
        for unit, c in zip(chosen.tolist(), c_U, strict=True):
            scale_U[unit] *= c
        bias = before.replace("weight", "bias")
        tensors[before] = scale_U[:, None] * tensors[before]
        tensors[after] = tensors[after] / scale_U
        if bias in tensors:
            tensors[bias] = scale_U * tensors[bias]
