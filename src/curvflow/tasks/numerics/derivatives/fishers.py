"""Fisher matrices of networks by their rows: F = G'G, G of one row per sample and draw.

The likelihood is the one whose negative logarithm is the loss of a sample, up to a
constant, as `output_laws` has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.func import grad, vjp, vmap

from curvflow.errors import InputError
from curvflow.tasks.numerics.derivatives.batches import SampleLoss
from curvflow.tasks.numerics.derivatives.output_laws import (
    LAWS,
    FisherForm,
    OutputLaw,
    law_of,
)
from curvflow.tasks.numerics.derivatives.precision import differentiable
from curvflow.tasks.numerics.derivatives.row_factors import OuterLayer, OuterRows
from curvflow.tasks.numerics.kronecker.uses import AnyUse, Rows, Use

Psd = Literal["refuse", "clip", "abs", "fisher"]


def fisher_draws(
    loss: str | OutputLaw, outputs: int, num_samples: int
) -> tuple[int, ...]:
    """Return how many uniform numbers a sampled Fisher matrix takes of each sample.

    Args:
        loss: `cross_entropy`, `mse`, `sse`, `bce`, `poisson`, `gaussian`,
            `mixture_bernoulli` of two components, or a law.
        outputs: C.
        num_samples: labels drawn for each input, R.

    Returns:
        A shape that begins with R: (R,) for labels, (R, C, 2) for squared errors.

    Raises:
        InputError: there is no law of this name.

    Examples:
        >>> from curvflow.tasks.numerics import fisher_draws
        >>> fisher_draws("cross_entropy", 10, 4), fisher_draws("mse", 3, 4)
        ((4,), (4, 3, 2))
    """
    return (num_samples, *law_of(loss).uniforms(outputs))


def fisher_roots(
    form: FisherForm,
    loss: str | OutputLaw,
    outputs_MNC: Tensor,
    targets: Tensor,
    uniform: Tensor | None = None,
) -> Tensor:
    """Return S of each sample, R rows of C, so that its Fisher matrix is J'S'SJ.

    J is the Jacobian of the outputs. The Fisher matrix, of which `exact` gives all and
    `sampled` an unbiased estimate, is the Gauss-Newton matrix of the loss where outputs
    are natural parameters, as of all these but `gaussian` and `mixture_bernoulli`; in
    that of the data's own labels, `empirical`, rows are the gradients of the samples'
    losses. Of a mean over V values the Fisher matrix is the mean of theirs, so that
    sampled rows are sqrt(V) times gradients.

    Args:
        form: whose labels rows are taken from: drawn from the model, the data's, or
            every one weighted by its probability.
        loss: `cross_entropy`, `mse`, `sse`, `bce`, `poisson`, `gaussian`,
            `mixture_bernoulli` of two components, or a law.
        outputs_MNC: of the models.
        targets: labels (M or 1, N) or values (M or 1, N, V).
        uniform: for `sampled`, numbers in [0, 1), (M, N, *fisher_draws).

    Returns:
        Rows (M, N, R, C): R is 1, the number of draws, or C; of an exact mixture the
        number of possible targets.

    Raises:
        InputError: there is no law of this name, no numbers to draw by, or too many
            possible targets of a mixture.

    Examples:
        >>> from curvflow.tasks.numerics import fisher_roots
        >>> outputs = torch.zeros(1, 1, 2)  # both labels have the probability 1/2
        >>> fisher_roots("empirical", "cross_entropy", outputs, torch.tensor([[0]]))
        tensor([[[[-0.5000,  0.5000]]]])

    Reference:
        Martens (2020), arXiv:1412.1193, for the Fisher and Gauss-Newton matrices, and
        for what the empirical one lacks.
    """
    if form == "sampled" and uniform is None:
        raise InputError(
            "uniform: expected numbers for sampled rows, got none. Draw them in the "
            "shape of fisher_draws."
        )
    drawn = uniform if form == "sampled" else None
    return law_of(loss).roots(form, outputs_MNC, targets, drawn)


def ggn_roots(
    output_losses: SampleLoss,
    outputs_MNC: Tensor,
    targets: Tensor,
    *,
    psd: Psd = "refuse",
    loss: str | OutputLaw = "",
) -> Tensor:
    """Return S of each sample, so that its Gauss-Newton matrix is J'S'SJ.

    S'S is the Hessian of the sample's loss by its outputs, of any loss. Where it is the
    Fisher matrix of a known law the roots are those. Else they are by eigenvectors, and
    eigenvalues down to -sqrt(eps) of the largest magnitude of a model's samples are
    rounding of 0, eps the precision of the outputs. Samples whose Hessian is not finite
    get NaN.

    Args:
        output_losses: from outputs and targets to the losses of the samples, (M, N).
        outputs_MNC: of the models; a term of several to a sample is a sample here.
        targets: of the samples, (M or 1, N, ...).
        psd: treatment of an indefinite Hessian: `refuse`, set negative
            eigenvalues to 0 (`clip`), take magnitudes (`abs`), or take the Fisher
            matrix of the loss in place of all Hessians (`fisher`).
        loss: name or law of the loss, for `fisher` and for messages.

    Returns:
        Rows (M, N, C, C); by `fisher` as many as `fisher_roots` gives.

    Raises:
        InputError: a Hessian is indefinite and `psd` is `refuse`, `psd` is not known,
            or it is `fisher` and the loss has no law of that name.

    Examples:
        >>> from curvflow.tasks.numerics import ggn_roots, sample_losses
        >>> outputs, targets = torch.zeros(1, 1, 2), torch.tensor([[[3.0, 4.0]]])
        >>> roots = ggn_roots(sample_losses("sse"), outputs, targets)
        >>> (roots.mT @ roots).round(decimals=4)
        tensor([[[[2., 0.],
                  [0., 2.]]]])
    """
    if psd not in get_args(Psd):
        raise InputError(
            f"psd: expected one of {', '.join(get_args(Psd))}, got {psd}. Take one of "
            "them."
        )
    law = LAWS.get(loss) if isinstance(loss, str) else loss
    name = (law.name if law else str(loss)) or "this loss"
    if law is not None and (psd == "fisher" or not law.depends_on_targets):
        return law.roots("exact", outputs_MNC, targets, None)
    if psd == "fisher":
        raise InputError(
            f"psd: expected a loss with a known likelihood for fisher, got {name}. "
            "Take clip or abs."
        )
    B_MNCC = output_hessians(output_losses, outputs_MNC, targets).double()
    is_finite = B_MNCC.isfinite().all(-1).all(-1)[..., None, None]
    values_MNC, vectors = torch.linalg.eigh(B_MNCC.where(is_finite, 0.0))
    if psd == "refuse":
        _check_signs(values_MNC, torch.finfo(outputs_MNC.dtype).eps, name)
    values_MNC = values_MNC.abs() if psd == "abs" else values_MNC.clamp(min=0)
    roots: Tensor = values_MNC.sqrt().unsqueeze(-1) * vectors.mT
    return roots.where(is_finite, torch.nan).to(outputs_MNC)


def _check_signs(values_MNC: Tensor, eps: float, name: str) -> None:
    if values_MNC.is_meta or not values_MNC.numel():
        return
    least_M, largest_M = values_MNC.amin((1, 2)), values_MNC.abs().amax((1, 2))
    is_indefinite = least_M < -math.sqrt(eps) * largest_M
    if is_indefinite.any():
        raise InputError(
            "loss: expected a Hessian by the outputs without negative eigenvalues for "
            f"{name}, got {float(least_M[is_indefinite].min()):.3g}. Set psd to clip, "
            "abs or fisher."
        )


def output_hessians(
    output_losses: SampleLoss, outputs_MNC: Tensor, targets: Tensor
) -> Tensor:
    """Return the Hessian of each sample's loss by its outputs, (M, N, C, C).

    Args:
        output_losses: from outputs and targets to the losses of the samples, (M, N).
        outputs_MNC: of the models; no sample's loss depends on another's.
        targets: of the samples, (M or 1, N, ...).
    """

    def total(outputs: Tensor) -> Tensor:
        return output_losses(outputs, targets).sum()

    with differentiable():
        # Symmetric, so that the derivative back, which every loss has, will do.
        _, pull, *_ = vjp(grad(total), outputs_MNC)
        units = torch.eye(
            outputs_MNC.shape[-1], dtype=outputs_MNC.dtype, device=outputs_MNC.device
        )
        rows_CMNC: Tensor = vmap(lambda unit: pull(unit.expand_as(outputs_MNC))[0])(
            units
        )
    B_MNCC = rows_CMNC.movedim(0, -2)
    return (B_MNCC + B_MNCC.mT) / 2


def fisher_rows(
    outputs: Callable[[Tensor, Tensor], Tensor],
    weights_MD: Tensor,
    inputs: Tensor,
    roots: Callable[[Tensor], Tensor],
) -> Tensor:
    """Return the rows S J of each sample, in double precision.

    A sample of a model is computed as a separate model, with a copy of its weights.

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
    computed = connected(outputs(copies, each), copies)
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


def connected(values: Tensor, weights: Tensor) -> Tensor:
    """Return values with a derivative by weights, of zero where they have none."""
    return values if values.requires_grad else values + 0 * weights.sum()


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
