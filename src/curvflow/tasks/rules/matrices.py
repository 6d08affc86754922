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
from curvflow.tasks.networks.network import Layout
from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.rules import Functions, adamw
from curvflow.tasks.rules.shared.moments import Moments
from curvflow.tasks.training.step_context import Hyper, Step

# Of the quintic of Newton and Schulz; Jordan (2024).
QUINTIC = 3.4445, -4.7750, 2.0315


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
    """Tell matrices from the other parameters.

    Args:
        layout: of the parameters.
        left_out: patterns of the names of matrices that belong to the rest.
        device: of the columns' numbers.

    Returns:
        The two parts.
    """
    columns = torch.arange(layout.size, device=device).split(layout.sizes)
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


def muon_init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> MuonState:
    """Return means before the first step.

    Raises:
        InputError: there is no matrix, or a pattern of names fits none.
    """
    layout, patterns = problem.network.layout, hyper.rule.adamw_also
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in layout.names):
            raise InputError(
                "adamw_also: expected names of parameters, such as "
                f"{layout.names[0]}, got {pattern}. Correct it."
            )
    parts = split(layout, patterns, weights_MD.device)
    if not parts.shapes:
        name = model_name(json.loads(problem.text)["model"])
        raise InputError(
            f"rule: muon: expected a model with matrices of weights, got {name} "
            "without any left. Take adamw, or shorten adamw_also."
        )
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
        for piece, shape in zip(along_ME.split(sizes, 1), parts.shapes, strict=True)
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


RULES = {"muon": Functions(init=muon_init, step=muon_step)}
