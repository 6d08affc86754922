"""Fisher matrices of networks by their rows: F = G'G, G of one row per sample and draw.

The likelihood is the one whose negative logarithm is the loss of a sample, up to a
constant: the softmax for cross_entropy; for squared errors a Gaussian of variance 1/2
in each output for sse, C/2 for mse, which is the mean over C outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from curvflow.tasks.numerics.derivatives.row_factors import OuterLayer, OuterRows
from curvflow.tasks.numerics.kronecker.uses import AnyUse, Rows, Use

FisherForm = Literal["sampled", "empirical", "exact"]


def fisher_draws(loss: str, outputs: int, num_samples: int) -> tuple[int, ...]:
    """Return how many uniform numbers a sampled Fisher matrix takes of each sample.

    Args:
        loss: `cross_entropy`, `mse` or `sse`.
        outputs: C.
        num_samples: labels drawn for each input, R.

    Returns:
        A shape, (R,) or (R, C, 2).

    Examples:
        >>> from curvflow.tasks.numerics import fisher_draws
        >>> fisher_draws("cross_entropy", 10, 4), fisher_draws("mse", 3, 4)
        ((4,), (4, 3, 2))
    """
    per_draw = () if loss == "cross_entropy" else (outputs, 2)
    return (num_samples, *per_draw)


def fisher_roots(
    form: FisherForm,
    loss: str,
    outputs_MNC: Tensor,
    targets: Tensor,
    uniform: Tensor | None = None,
) -> Tensor:
    """Return S of each sample, R rows of C, so that its Fisher matrix is J'S'SJ.

    J is the Jacobian of the outputs. The Fisher matrix, of which `exact` gives all and
    `sampled` an unbiased estimate, is the Gauss-Newton matrix of the loss; in that of
    the data's own labels, `empirical`, rows are the gradients of the samples' losses.

    Args:
        form: whose labels rows are taken from: drawn from the model, the data's, or
            every one weighted by its probability.
        loss: `cross_entropy`, `mse` or `sse`.
        outputs_MNC: of the models.
        targets: labels (M or 1, N) or values (M or 1, N, C).
        uniform: for `sampled`, numbers in [0, 1), (M, N, *fisher_draws).

    Returns:
        Rows (M, N, R, C): R is 1, the number of draws, or C.

    Examples:
        >>> from curvflow.tasks.numerics import fisher_roots
        >>> outputs = torch.zeros(1, 1, 2)  # both labels have the probability 1/2
        >>> fisher_roots("empirical", "cross_entropy", outputs, torch.tensor([[0]]))
        tensor([[[[-0.5000,  0.5000]]]])

    Reference:
        Martens (2020), arXiv:1412.1193, for the Fisher and Gauss-Newton matrices, and
        for what the empirical one lacks.
    """
    roots = _softmax_roots if loss == "cross_entropy" else _squared_roots(loss)
    return roots(form, outputs_MNC, targets, uniform)


def _softmax_roots(
    form: FisherForm, outputs_MNC: Tensor, targets: Tensor, uniform_MNR: Tensor | None
) -> Tensor:
    classes = outputs_MNC.shape[-1]
    chances_MNC = outputs_MNC.softmax(-1)
    if form == "exact":
        labels = _eye(classes, chances_MNC)
        surprises = labels - chances_MNC.unsqueeze(2)
        return chances_MNC.sqrt().unsqueeze(3) * surprises
    if uniform_MNR is None:
        drawn = targets.expand(chances_MNC.shape[:2]).unsqueeze(2)
    else:
        # All but the last bound, which rounding may leave below 1.
        bounds = chances_MNC.cumsum(-1)[:, :, None, :-1]
        drawn = (uniform_MNR.unsqueeze(3) >= bounds).sum(-1)
    labels = one_hot(drawn, classes).to(chances_MNC)
    return (chances_MNC.unsqueeze(2) - labels) / math.sqrt(drawn.shape[2])


def _squared_roots(loss: str) -> Callable[..., Tensor]:
    def roots(
        form: FisherForm, outputs_MNC: Tensor, targets: Tensor, uniform: Tensor | None
    ) -> Tensor:
        outputs = outputs_MNC.shape[-1]
        # 1 / variance.
        sharpness = 2 / outputs if loss == "mse" else 2.0
        if form == "exact":
            eye = math.sqrt(sharpness) * _eye(outputs, outputs_MNC)
            return eye.expand(*outputs_MNC.shape, outputs)
        if uniform is None:
            return sharpness * (outputs_MNC - targets).unsqueeze(2)
        # Normal numbers from pairs of uniform ones (Box and Muller 1958); 1 - u > 0.
        radius = (-2 * (1 - uniform[..., 0]).log()).sqrt()
        normal_MNRC = radius * (2 * math.pi * uniform[..., 1]).cos()
        return math.sqrt(sharpness / normal_MNRC.shape[2]) * normal_MNRC

    return roots


def _eye(size: int, like: Tensor) -> Tensor:
    return torch.eye(size, dtype=like.dtype, device=like.device)


def fisher_rows(
    outputs: Callable[[Tensor, Tensor], Tensor],
    weights_MD: Tensor,
    inputs: Tensor,
    roots: Callable[[Tensor], Tensor],
) -> Tensor:
    """Return the rows S J of each sample, in double precision.

    A sample of a model is computed as a model of its own, with a copy of its weights.

    Args:
        outputs: from weights (M, D) and inputs (M, N, ...) to outputs (M, N, C); the
            samples must not meet in it.
        weights_MD: of the models.
        inputs: shape (M or 1, N, ...).
        roots: from outputs (M, N, C) to S, (M, N, R, C).

    Returns:
        Rows (M, N R, D).

    Examples:
        >>> from curvflow.tasks.numerics import fisher_rows
        >>> def outputs(weights, inputs):
        ...     return (inputs @ weights.unsqueeze(2)).reshape(*inputs.shape[:2], 1)
        >>> inputs, ones = torch.tensor([[[1.0, 2.0]]]), torch.ones(1, 1, 1, 1)
        >>> fisher_rows(outputs, torch.zeros(1, 2), inputs, lambda _: ones)
        tensor([[[1., 2.]]], dtype=torch.float64)
    """
    models, size = weights_MD.shape
    samples = inputs.shape[1]
    copies = weights_MD.detach().repeat_interleave(samples, dim=0).requires_grad_()
    each = inputs.expand(models, *inputs.shape[1:]).flatten(0, 1).unsqueeze(1)
    computed = outputs(copies, each)
    roots_MNRC = roots(computed.detach().reshape(models, samples, *computed.shape[2:]))
    number = roots_MNRC.shape[2]
    rows = copies.new_empty((models, samples, number, size), dtype=torch.float64)
    for draw in range(number):
        (gradient,) = torch.autograd.grad(
            computed,
            copies,
            roots_MNRC[:, :, draw].reshape(computed.shape),
            retain_graph=draw + 1 < number,
        )
        rows[:, :, draw] = gradient.view(models, samples, size)
    return rows.flatten(1, 2)


def outer_rows(
    outputs_seen: Callable[[Tensor, Tensor], tuple[Tensor, Sequence[AnyUse]]],
    places: Mapping[str, int],
    weights_MD: Tensor,
    inputs: Tensor,
    roots: Callable[[Tensor], Tensor],
) -> OuterRows | None:
    """Return the rows S J of each sample by the layers' inputs and deltas.

    Args:
        outputs_seen: from weights (M, D) and inputs (M or 1, N, ...) to outputs (M, N,
            C), and the uses of parameters; the samples must not meet in it.
        places: of each parameter tensor in the weights, by name.
        weights_MD: of the models.
        inputs: shape (M or 1, N, ...).
        roots: from outputs (M, N, C) to S, (M, N, R, C).

    Returns:
        The rows; None if parameters are in anything but dense layers used once.

    Reference:
        Goodfellow (2015), arXiv:1510.01799, for gradients of samples by outer products.
    """
    weights_MD = weights_MD.detach().requires_grad_()
    found_MNC, uses = outputs_seen(weights_MD, inputs)
    used = [name for use in uses for name in (use.weight, use.bias) if name]
    is_dense = all(
        isinstance(use, Use)
        and isinstance(use.form, Rows)
        and not use.apart
        and use.inputs.shape[1:-1] == inputs.shape[1:2]
        for use in uses
    )
    if not is_dense or sorted(used) != sorted(places):
        return None
    roots_MNRC = roots(found_MNC.detach())
    outputs = [use.outputs[0] for use in uses]
    number = roots_MNRC.shape[2]
    deltas = [
        torch.autograd.grad(
            found_MNC, outputs, roots_MNRC[:, :, draw], retain_graph=draw + 1 < number
        )
        for draw in range(number)
    ]
    layers = [
        OuterLayer(
            torch.stack(per_draw, dim=2).flatten(1, 2).double(),
            use.inputs.detach().double(),
            places[use.weight],
            None if use.bias is None else places[use.bias],
        )
        for use, per_draw in zip(uses, zip(*deltas, strict=True), strict=True)
    ]
    return OuterRows(layers, weights_MD.shape[1])
