"""Rules that see tensors of parameters as matrices, for stacked models."""

from __future__ import annotations

import json
import math
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.models import model_name
from curvflow.schemas.rules.matrices import Muon
from curvflow.tasks.networks.network import Layout
from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.rules import Functions
from curvflow.tasks.rules.adaptive import adamw
from curvflow.tasks.rules.shared.moments import Moments
from curvflow.tasks.training.step_context import Hyper, Step

# Of the quintic of Newton and Schulz; Jordan (2024).
QUINTIC = 3.4445, -4.7750, 2.0315

# Of the mean eigenvalue, added along the diagonal so that eigenvectors are fixed.
RAMP = 1e-6


class Split(NamedTuple):
    """Parameters of matrices, and the rest.

    Attributes:
        matrices: columns of the vector (M, D) of the matrices.
        others: the other columns.
        shapes: of the matrices in order, rows and columns.
    """

    matrices: Tensor
    others: Tensor
    shapes: tuple[tuple[int, int], ...]


@lru_cache(maxsize=64)
def split(layout: Layout, left_out: tuple[str, ...], device: torch.device) -> Split:
    """Separate matrices from the other parameters.

    Args:
        layout: of the parameters.
        left_out: patterns of the names of matrices that belong to the rest.
        device: of the columns' numbers.

    Returns:
        The two parts.
    """
    columns = torch.split(torch.arange(layout.size, device=device), layout.sizes)
    parts: dict[bool, list[Tensor]] = {True: [], False: []}
    shapes = []
    for name, shape, numbers in zip(layout.names, layout.shapes, columns, strict=True):
        named = any(fnmatchcase(name, pattern) for pattern in left_out)
        is_matrix = len(shape) > 1 and not named
        parts[is_matrix].append(numbers)
        if is_matrix:
            shapes.append((shape[0], math.prod(shape[1:])))
    nothing = columns[0][:0]
    matrices, others = (torch.cat([nothing, *parts[key]]) for key in (True, False))
    return Split(matrices, others, tuple(shapes))


class MuonState(NamedTuple):
    """State of Muon.

    Attributes:
        mean: gradients of the matrices, one after another, (M, D').
        moments: of AdamW for the other parameters.
    """

    mean: Tensor
    moments: Moments


def muon_check(rule: Muon, problem: Problem) -> None:
    """Refuse a model without matrices for it, and patterns of names that fit none.

    Raises:
        InputError: with names that there are.
    """
    layout, patterns = problem.network.layout, rule.adamw_also
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in layout.names):
            raise InputError(
                "adamw_also: expected names of parameters, such as "
                f"{layout.names[0]}, got {pattern}. Correct it."
            )
    if not split(layout, patterns, torch.device("cpu")).shapes:
        name = model_name(json.loads(problem.text)["model"])
        raise InputError(
            f"rule: muon: expected a model with matrices of weights, got {name} "
            "without any left. Take adamw, or shorten adamw_also."
        )


def muon_init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> MuonState:
    """Return means before the first step.

    Raises:
        InputError: there is no matrix, or a pattern of names fits none.
    """
    muon_check(hyper.rule, problem)
    parts = split(problem.network.layout, hyper.rule.adamw_also, weights_MD.device)
    others_MO = weights_MD[:, parts.others]
    moments = adamw.init(others_MO, hyper.within("adamw"), problem)
    return MuonState(torch.zeros_like(weights_MD[:, parts.matrices]), moments)


def muon_step(
    gradient_MD: Tensor,
    state: MuonState,
    weights_MD: Tensor,
    hyper: Hyper,
    context: Step,
) -> tuple[Tensor, MuonState]:
    """Take one step: W <- (1 - lr weight_decay) W - lr a O, AdamW's for the rest.

    Args:
        gradient_MD: gradients g of the loss.
        state: mean gradients, and the moments of AdamW.
        weights_MD: weights w.
        hyper: lr, momentum, nesterov (0 or 1), weight_decay and eps, each (M, 1), the
            choices ns_steps, adjust_lr and adamw_also, and those of AdamW.
        context: for the shapes of the tensors.

    Returns:
        The new weights and state.

    Reference:
        Jordan (2024), https://kellerjordan.github.io/posts/muon/, as torch.optim.Muon,
        but in the precision of the weights instead of bfloat16.
    """
    rule, layout = hyper.rule, context.problem.network.layout
    parts = split(layout, rule.adamw_also, weights_MD.device)
    stepped_MO, moments = adamw.step(
        gradient_MD[:, parts.others],
        state.moments,
        weights_MD[:, parts.others],
        hyper.within("adamw"),
        context,
    )
    slope_ME = gradient_MD[:, parts.matrices]
    mean_ME = torch.lerp(slope_ME, state.mean, hyper["momentum"])
    ahead_ME = torch.lerp(slope_ME, mean_ME, hyper["momentum"])
    along_ME = torch.where(hyper["nesterov"] > 0, ahead_ME, mean_ME)
    sizes = [rows * columns for rows, columns in parts.shapes]
    pieces = [
        _factor(rule.adjust_lr, *shape)
        * orthogonalised(
            piece.reshape(-1, *shape), rule.ns_steps, hyper["eps"].unsqueeze(2)
        ).flatten(1)
        for piece, shape in zip(
            torch.split(along_ME, sizes, dim=1), parts.shapes, strict=True
        )
    ]
    kept_ME = weights_MD[:, parts.matrices] * (1 - hyper["lr"] * hyper["weight_decay"])
    new_MD = torch.empty_like(weights_MD)
    new_MD[:, parts.others] = stepped_MO
    new_MD[:, parts.matrices] = kept_ME - hyper["lr"] * torch.cat(pieces, dim=1)
    return new_MD, MuonState(mean_ME, moments)


def orthogonalised(matrices_MRC: Tensor, steps: int, eps_M11: Tensor) -> Tensor:
    """Move all singular values close to 1 by Newton and Schulz' iteration.

    Args:
        matrices_MRC: one matrix of each model.
        steps: of the iteration.
        eps_M11: least Frobenius norm that a matrix is divided by.

    Returns:
        The matrices, of the same singular vectors.
    """
    a, b, c = QUINTIC
    is_tall = matrices_MRC.shape[1] > matrices_MRC.shape[2]
    X = matrices_MRC.mT if is_tall else matrices_MRC
    length_M11 = torch.linalg.matrix_norm(X, keepdim=True)
    X = X / torch.maximum(length_M11, eps_M11)
    for _ in range(steps):
        gram = X @ X.mT
        X = a * X + (b * gram + c * gram @ gram) @ X
    return X.mT if is_tall else X


def _factor(kind: str, rows: int, columns: int) -> float:
    if kind == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1.0, rows / columns))


class ShampooState(NamedTuple):
    """State of Shampoo.

    Attributes:
        moments: second moments H of each scaled axis, (M, n, n), tensor by tensor.
        roots: their roots, (M, n, n).
        velocity: of scaled gradients, (M, D); None where no model has momentum.
    """

    moments: tuple[Tensor, ...]
    roots: tuple[Tensor, ...]
    velocity: Tensor | None


def shampoo_init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> ShampooState:
    """Return moments of zero before the first step."""
    sizes = [
        shape[axis]
        for shape in _with_axes(problem.network.layout)
        for axis in _scaled_axes(shape, hyper.rule.max_size)
    ]
    empty = tuple(weights_MD.new_zeros(len(weights_MD), n, n) for n in sizes)
    has_velocity = bool(hyper["momentum"].any())
    return ShampooState(
        empty, empty, torch.zeros_like(weights_MD) if has_velocity else None
    )


def shampoo_step(
    gradient_MD: Tensor,
    state: ShampooState,
    weights_MD: Tensor,
    hyper: Hyper,
    context: Step,
) -> tuple[Tensor, ShampooState]:
    """Take one step: v <- momentum v + P g, w <- (1 - lr weight_decay) w - lr v.

    P multiplies each axis of a tensor of k axes by (H + eps I)^(-1/2k).

    Args:
        gradient_MD: gradients g of the loss.
        state: second moments, roots and velocity.
        weights_MD: weights w.
        hyper: lr, momentum, beta2, eps and weight_decay, each (M, 1), and the choices
            update_every and max_size.
        context: for the shapes of the tensors and the count of steps.

    Returns:
        The new weights and state.

    Reference:
        Gupta, Koren and Singer (2018), arXiv:1802.09568, Algorithm 2, with H_0 = eps I
        there; for beta2 = 1 both are the same.
    """
    layout, beta_M11 = context.problem.network.layout, hyper["beta2"].unsqueeze(2)
    share_M11 = torch.where(beta_M11 < 1, 1 - beta_M11, 1.0)
    is_due = context.count % hyper.rule.update_every == 0
    before = zip(state.moments, state.roots, strict=True)
    moments: list[Tensor] = []
    roots: list[Tensor] = []
    scaled: list[Tensor] = []
    for piece, shape in zip(
        torch.split(gradient_MD, layout.sizes, dim=1), _with_axes(layout), strict=True
    ):
        gradient = tensor = piece.reshape(-1, *shape)
        axes = _scaled_axes(shape, hyper.rule.max_size)
        for axis in axes:
            old_MNN, root_MNN = next(before)
            slices = _slices(gradient, axis)
            moments.append(beta_M11 * old_MNN + share_M11 * slices.mT @ slices)
            if is_due:
                root_MNN = inverse_root(moments[-1], 2 * len(axes), hyper["eps"])
            roots.append(root_MNN)
            tensor = _along(tensor, axis, root_MNN)
        scaled.append(tensor.flatten(1))
    direction_MD, velocity = torch.cat(scaled, dim=1), state.velocity
    if velocity is not None:
        direction_MD = velocity = hyper["momentum"] * velocity + direction_MD
    kept_MD = weights_MD * (1 - hyper["lr"] * hyper["weight_decay"])
    new = ShampooState(tuple(moments), tuple(roots), velocity)
    return kept_MD - hyper["lr"] * direction_MD, new


def inverse_root(matrices_MNN: Tensor, power: int, eps_M1: Tensor) -> Tensor:
    """Compute (H + eps I)^(-1/power) of symmetric matrices in double precision.

    Args:
        matrices_MNN: positive semi-definite up to rounding.
        power: which root.
        eps_M1: added to each eigenvalue.

    Returns:
        The roots, in the precision of the matrices; NaN where they are not finite.
    """
    values_MN, vectors_MNN = _decomposed(matrices_MNN)
    scales_MN = (values_MN.clamp(min=0) + eps_M1.double()) ** (-1 / power)
    return ((vectors_MNN * scales_MN.unsqueeze(1)) @ vectors_MNN.mT).to(matrices_MNN)


class SoapState(NamedTuple):
    """State of SOAP.

    Attributes:
        mean: of the gradient, (M, D).
        square: mean of its square in the eigenvectors, (M, D).
        fading1: beta1^t of each model, (M, 1).
        fading2: beta2^t of each model, (M, 1).
        moments: L and R of each matrix, as far as they are rotated, (M, n, n).
        bases: their eigenvectors as columns.
    """

    mean: Tensor
    square: Tensor
    fading1: Tensor
    fading2: Tensor
    moments: tuple[Tensor, ...]
    bases: tuple[Tensor, ...]


def soap_init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> SoapState:
    """Return moments of zero before the first step."""
    layout, zeros_MD = problem.network.layout, torch.zeros_like(weights_MD)
    sizes = [
        shape[axis]
        for shape in _as_matrices(layout)
        for axis in _rotated_axes(shape, hyper.rule.max_size)
    ]
    empty = tuple(weights_MD.new_zeros(len(weights_MD), n, n) for n in sizes)
    ones_M1 = torch.ones_like(hyper["lr"])
    return SoapState(zeros_MD, zeros_MD, ones_M1, ones_M1, empty, empty)


def soap_step(
    gradient_MD: Tensor,
    state: SoapState,
    weights_MD: Tensor,
    hyper: Hyper,
    context: Step,
) -> tuple[Tensor, SoapState]:
    """Take one step of AdamW in the eigenvectors of L and R of each matrix.

    The first gradient makes the first eigenvectors, and no step. In its own it is
    diagonal, and all else that is divided by its size there would be rounding.

    Args:
        gradient_MD: gradients g of the loss.
        state: means, moments and eigenvectors.
        weights_MD: weights w.
        hyper: lr, beta1, beta2, eps and weight_decay, each (M, 1), and the choices
            update_every and max_size.
        context: for the shapes of the tensors and the count of steps.

    Returns:
        The new weights and state.

    Reference:
        Vyas et al. (2024), arXiv:2409.11321, Algorithm 3. Eigenvectors are exact
        instead of a step of the power method, and eps stands beside the corrected root,
        as in torch's AdamW.
    """
    layout, beta1, beta2 = (
        context.problem.network.layout,
        hyper["beta1"],
        hyper["beta2"],
    )
    most, bases = hyper.rule.max_size, state.bases
    moments = _soap_moments(gradient_MD, state.moments, beta2, layout, most)
    if context.count % hyper.rule.update_every == 0:
        bases = tuple(map(eigenvectors, moments))
    if context.count == 0:
        return weights_MD, state._replace(moments=moments, bases=bases)
    turned_MD = _rotated(gradient_MD, state.bases, layout, most)
    mean_MD = torch.lerp(gradient_MD, state.mean, beta1)
    square_MD = torch.lerp(turned_MD.square(), state.square, beta2)
    fading1, fading2 = state.fading1 * beta1, state.fading2 * beta2
    scale_MD = (square_MD / (1 - fading2)).sqrt() + hyper["eps"]
    update_MD = _rotated(mean_MD, state.bases, layout, most) / (1 - fading1) / scale_MD
    back = tuple(basis.mT for basis in state.bases)
    kept_MD = weights_MD * (1 - hyper["lr"] * hyper["weight_decay"])
    new_MD = kept_MD - hyper["lr"] * _rotated(update_MD, back, layout, most)
    return new_MD, SoapState(mean_MD, square_MD, fading1, fading2, moments, bases)


def eigenvectors(matrices_MNN: Tensor) -> Tensor:
    """Compute eigenvectors of symmetric matrices, fixed where eigenvalues are equal.

    Args:
        matrices_MNN: symmetric up to rounding.

    Returns:
        Columns, ascending by eigenvalue; the identity where a matrix is not finite.
    """
    size = matrices_MNN.shape[-1]
    mean_M1 = matrices_MNN.diagonal(dim1=1, dim2=2).double().mean(1, keepdim=True)
    ramp_N = torch.linspace(0, RAMP, size, dtype=torch.float64).to(mean_M1.device)
    shifted = matrices_MNN.double() + torch.diag_embed(mean_M1 * ramp_N)
    return _decomposed(shifted)[1].to(matrices_MNN)


def _decomposed(matrices_MNN: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues and vectors; a model that is not finite has no effect."""
    finite_M = torch.isfinite(matrices_MNN).flatten(1).all(1)
    usable = torch.where(finite_M[:, None, None], matrices_MNN.double(), 0.0)
    values_MN, vectors_MNN = torch.linalg.eigh(usable)
    return values_MN.masked_fill(~finite_M[:, None], torch.nan), vectors_MNN


def _soap_moments(
    gradient_MD: Tensor,
    moments: tuple[Tensor, ...],
    beta_M1: Tensor,
    layout: Layout,
    most: int,
) -> tuple[Tensor, ...]:
    """Return L and R of each matrix with one more gradient in them."""
    before, after = iter(moments), []
    for piece, shape in zip(
        torch.split(gradient_MD, layout.sizes, dim=1), _as_matrices(layout), strict=True
    ):
        for axis in _rotated_axes(shape, most):
            G = piece.reshape(-1, *shape)
            product = G @ G.mT if axis == 0 else G.mT @ G
            after.append(torch.lerp(product, next(before), beta_M1.unsqueeze(2)))
    return tuple(after)


def _rotated(
    vectors_MD: Tensor, bases: tuple[Tensor, ...], layout: Layout, most: int
) -> Tensor:
    """Return Q_L' X Q_R of each matrix X, and the rest as it is."""
    left, turned = iter(bases), []
    for piece, shape in zip(
        torch.split(vectors_MD, layout.sizes, dim=1), _as_matrices(layout), strict=True
    ):
        tensor = piece.reshape(-1, *shape)
        for axis in _rotated_axes(shape, most):
            tensor = _along(tensor, axis, next(left))
        turned.append(tensor.flatten(1))
    return torch.cat(turned, dim=1)


def _along(tensor: Tensor, axis: int, matrices_MNN: Tensor) -> Tensor:
    """Multiply each slice of a tensor along an axis by a matrix's transpose."""
    shape = tensor.movedim(axis + 1, -1).shape
    product = _slices(tensor, axis) @ matrices_MNN
    return product.reshape(shape).movedim(-1, axis + 1)


def _slices(tensor: Tensor, axis: int) -> Tensor:
    """Return a stacked tensor as stacked matrices whose columns are along an axis."""
    last = tensor.movedim(axis + 1, -1)
    return last.reshape(len(last), -1, last.shape[-1])


def _with_axes(layout: Layout) -> list[tuple[int, ...]]:
    """Return the shapes of tensors, each of one axis at least."""
    return [shape or (1,) for shape in layout.shapes]


def _as_matrices(layout: Layout) -> list[tuple[int, ...]]:
    """Return the shapes of tensors, those of several axes as of matrices."""
    return [
        (shape[0], math.prod(shape[1:])) if len(shape) > 1 else shape or (1,)
        for shape in layout.shapes
    ]


def _scaled_axes(shape: tuple[int, ...], most: int) -> list[int]:
    return [axis for axis, size in enumerate(shape) if size <= most]


def _rotated_axes(shape: tuple[int, ...], most: int) -> list[int]:
    return _scaled_axes(shape, most) if len(shape) > 1 else []


RULES = {
    "muon": Functions(init=muon_init, step=muon_step, check=muon_check),
    "shampoo": Functions(init=shampoo_init, step=shampoo_step),
    "soap": Functions(init=soap_init, step=soap_step),
}
