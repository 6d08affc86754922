"""Norms of weights over paths and units of dense layers, by dynamic programming.

Layers are stacked weights (M, out, in) from the inputs to the outputs, and biases
(M, out). A path begins at an input or a bias and ends at an output.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor


def dense_gammas(
    weights: Sequence[Tensor], biases: Sequence[Tensor] | None, p: float
) -> tuple[list[Tensor], list[Tensor]]:
    """Return for each parameter the paths through it: (sum of prod |w'|^p)^(2/p).

    The sum is over the paths through the parameter, the product over the path's other
    parameters w'.

    Args:
        weights: of each layer, (M, out, in).
        biases: of each layer, (M, out); None without biases.
        p: power of the path norm, at least 1.

    Returns:
        gamma_p of the weights and of the biases, in their shapes; no biases, no gammas.

    Examples:
        >>> from curvflow.tasks.numerics import dense_gammas
        >>> weights = [torch.tensor([[[2.0]]]), torch.tensor([[[3.0]]])]
        >>> [float(g) for g in dense_gammas(weights, None, 2.0)[0]]  # 3^2 and 2^2
        [9.0, 4.0]

    Reference:
        Neyshabur, Salakhutdinov and Srebro (2015), arXiv:1506.02617, section 4.
    """
    powers = [weight.abs() ** p for weight in weights]
    into = _from_inputs(powers, biases, p)
    ends_MO = torch.ones_like(weights[-1][:, :, 0])
    backward = accumulate(
        reversed(powers[1:]),
        lambda after_MO, power: torch.einsum("moi,mo->mi", power, after_MO),
        initial=ends_MO,
    )
    out_of = list(backward)[::-1]
    through = [
        (after_MO.unsqueeze(2) * before_MI.unsqueeze(1)) ** (2 / p)
        for after_MO, before_MI in zip(out_of, into, strict=False)
    ]
    through_biases = [] if biases is None else [after ** (2 / p) for after in out_of]
    return through, through_biases


def path_norm(
    weights: Sequence[Tensor], biases: Sequence[Tensor] | None, p: float
) -> Tensor:
    """Return the p-norm of the vector of all paths' products of weights, (M,).

    Args:
        weights: of each layer, (M, out, in).
        biases: of each layer, (M, out); None without biases.
        p: power, at least 1.

    Examples:
        >>> from curvflow.tasks.numerics import path_norm
        >>> path_norm([torch.tensor([[[2.0]]]), torch.tensor([[[3.0]]])], None, 2.0)
        tensor([6.])
    """
    powers = [weight.abs() ** p for weight in weights]
    return _from_inputs(powers, biases, p)[-1].sum(1) ** (1 / p)


def group_norm(weights: Sequence[Tensor], p: float, q: float) -> Tensor:
    """Return the q-norm over all units of the p-norm of the weights into each, (M,).

    Args:
        weights: of each layer, (M, out, ...); all further axes lead into a unit.
        p: power within a unit, at least 1.
        q: power over units, at least 1 or infinite: mu_{2,2} is the Frobenius norm,
            mu_{1,1} the sum of absolute values, mu_{p,inf} the largest unit's norm.

    Examples:
        >>> from curvflow.tasks.numerics import group_norm
        >>> group_norm([torch.tensor([[[3.0, 4.0], [0.0, 2.0]]])], 2.0, float("inf"))
        tensor([5.])

    Reference:
        Neyshabur, Tomioka and Srebro (2015), arXiv:1503.00036.
    """
    units = [torch.linalg.vector_norm(w.flatten(2), ord=p, dim=2) for w in weights]
    norms_M: Tensor = torch.linalg.vector_norm(torch.cat(units, dim=1), ord=q, dim=1)
    return norms_M


def balanced(weights: Sequence[Tensor], p: float) -> list[Tensor]:
    """Rescale hidden units so that the weights into each have the same p-norm.

    For a single output this common norm, to the power of the number of layers, is the
    path norm, and no rescaling has a smaller mu_{p,inf}.

    Args:
        weights: of each layer, (M, out, in), of units that no bias goes into and that
            some weight above zero goes into.
        p: power, at least 1.

    Returns:
        Weights of the same function, if activations are homogeneous.

    Examples:
        >>> from curvflow.tasks.numerics import balanced
        >>> weights = [torch.tensor([[[4.0]]]), torch.tensor([[[9.0]]])]
        >>> [round(float(w), 4) for w in balanced(weights, 2.0)]
        [6.0, 6.0]

    Reference:
        Neyshabur, Salakhutdinov and Srebro (2015), arXiv:1506.02617, section 2. It
        holds for one output: with more, the path norm sums over them while mu_{p,inf}
        takes the largest.
    """
    common_M = path_norm(weights, None, p) ** (1 / len(weights))
    rescaled = []
    scale_MI = torch.ones_like(weights[0][:, 0])
    for weight_MOI in weights[:-1]:
        weight_MOI = weight_MOI / scale_MI.unsqueeze(1)
        norm_MO = torch.linalg.vector_norm(weight_MOI, ord=p, dim=2)
        scale_MI = common_M.unsqueeze(1) / norm_MO
        rescaled.append(weight_MOI * scale_MI.unsqueeze(2))
    return [*rescaled, weights[-1] / scale_MI.unsqueeze(1)]


def _from_inputs(
    powers: Sequence[Tensor], biases: Sequence[Tensor] | None, p: float
) -> list[Tensor]:
    """Return the sums of all paths to the units of each layer, inputs included."""
    sums = [torch.ones_like(powers[0][:, 0])]
    for number, power_MOI in enumerate(powers):
        sum_MO = torch.einsum("moi,mi->mo", power_MOI, sums[-1])
        if biases is not None:
            sum_MO = sum_MO + biases[number].abs() ** p
        sums.append(sum_MO)
    return sums
