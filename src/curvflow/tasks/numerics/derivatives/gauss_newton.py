"""Products with Gauss-Newton, Fisher and gradient covariance matrices, in a batch.

All are means over the samples of J'BJ, J the Jacobian of what a network computes:

- `ggn`: J of the outputs, B the Hessian of the loss by the outputs.
- `type-2`: the Fisher matrix over the model's own labels. Where the Hessian of the loss
  by the outputs is the same for all labels it is the GGN, and is multiplied as such.
- `mc`: the same with R labels drawn from the model for each sample; unbiased.
- `empirical`: J of the samples' losses, B = I: the second moment of their gradients.
- `covariance`: the empirical one less g g', g the mean gradient; divided by N.

No gradient of a single sample is formed: a product is a derivative along the column,
the small matrix B of each sample, and a derivative back. Where a layer has none along a
vector, it is the derivative of J'u by u; and where the gradient cannot be derived at
all, second moments are sums over the gradients of the samples, one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal, Self, get_args

import torch
from torch import Tensor
from torch.func import grad, vjp

from curvflow.errors import InputError
from curvflow.tasks.numerics.derivatives.batches import SampleLoss
from curvflow.tasks.numerics.derivatives.differentiation_modes import (
    Derivatives,
    Order,
    coarsest_eps,
    columnwise,
)
from curvflow.tasks.numerics.derivatives.fishers import fisher_draws, fisher_roots
from curvflow.tasks.numerics.derivatives.hessians import BatchedHessian
from curvflow.tasks.numerics.derivatives.output_laws import (
    LAWS,
    FisherForm,
    OutputLaw,
    law_of,
)
from curvflow.tasks.numerics.derivatives.passes import (
    Averaged,
    Draw,
    Draws,
    Part,
    Product,
)
from curvflow.tasks.numerics.derivatives.precision import (
    derivative_along,
    differentiable,
)
from curvflow.tasks.numerics.operators.algebra import OuterProduct
from curvflow.tasks.numerics.operators.base import no_sample_mean
from curvflow.tasks.numerics.streams import stream

# From weights (M, D) and inputs (M or 1, N, ...) to outputs (M, N, C); where passes
# draw, by a source `draw` of random numbers.
Outputs = Callable[..., Tensor]
Kind = Literal["ggn", "type-2", "mc", "empirical", "covariance"]
# What u.Jv and J'u.v may differ by, relative to |Jv|, with u of normal numbers: there
# may be functions that compute in single precision.
ADJOINT = 1e-4
# Numbers of gradients of samples that are kept, and samples that they are derived with.
MOST_ROW_NUMBERS, MOST_SAMPLES = 1 << 24, 32
# Power of the rounding within which gradients are the same, relative to them.
ALIKE = 2 / 3
_NO_MEANS = {"mc": "labels drawn for all of them", "covariance": "a covariance"}


def sandwich(
    outputs: Callable[[Tensor], Tensor],
    weights: Tensor,
    middle: Callable[[Tensor], Product],
    *,
    derivatives: Derivatives = "all",
    sizes: Sequence[int] | None = None,
    is_by_hand: bool = False,
) -> Product:
    """Prepare products with J'BJ, J the Jacobian of outputs.

    Args:
        outputs: of weights of shape W.
        weights: where to take J, shape W.
        middle: from the outputs to the product with B, of a shape like the outputs.
        derivatives: `all` takes those along columns; others those back alone.
        sizes: of the parameters, in the last dimension of W, each of which is looked
            at where derivatives are compared; None takes them as one.
        is_by_hand: whether some derivatives along columns are written by hand, so that
            they are compared with those back.

    Returns:
        A function from columns (W, S) to products (W, S); by derivatives back column by
        column.

    Raises:
        InputError: derivatives back, or along columns, are not the adjoint.
    """
    if derivatives != "all":
        return _sandwich_back(outputs, weights, middle, sizes)
    outputs_at, pull, *_ = vjp(outputs, weights)
    values = outputs_at.detach()
    inner = middle(values)

    def tangent_of(column: Tensor) -> Tensor:
        return derivative_along(outputs, weights, column)[1]

    def along(column: Tensor) -> Tensor:
        product: Tensor = pull(inner(tangent_of(column)))[0]
        return product

    if is_by_hand:
        cotangent = _random_like(values)
        parameters = _parted(pull(cotangent)[0], sizes)
        eps = torch.finfo(values.dtype).eps
        _check_adjoint(tangent_of, cotangent, parameters, eps)

    return columnwise(along)


def _sandwich_back(
    outputs: Callable[[Tensor], Tensor],
    weights: Tensor,
    middle: Callable[[Tensor], Product],
    sizes: Sequence[int] | None,
) -> Product:
    """Prepare products by derivatives back alone: Jv is that of J'u by u, along v."""
    with torch.enable_grad():
        leaf = weights.detach().requires_grad_()
        values = outputs(leaf)
        cotangent = _random_like(values).requires_grad_()
        back = _back(values, leaf, cotangent, create_graph=True)

    def tangent_of(column: Tensor) -> Tensor:
        return _back(back, cotangent, column, retain_graph=True)

    # Not by the same u, by which many functions that are not linear pass.
    second = cotangent.detach() + _random_like(values, seed=1)
    backs = _back(values, leaf, second, retain_graph=True)
    _check_adjoint(tangent_of, second, _parted(backs, sizes), coarsest_eps(values))
    inner = middle(values.detach())

    def along(column: Tensor) -> Tensor:
        image = inner(tangent_of(column)).detach()
        return _back(values, leaf, image, retain_graph=True)

    return lambda columns: torch.stack([along(c) for c in columns.unbind(-1)], -1)


def _parted(back: Tensor, sizes: Sequence[int] | None) -> Sequence[Tensor]:
    return torch.split(back, list(sizes or back.shape[-1:]), -1)


def _random_like(values: Tensor, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(values.shape, generator=generator, dtype=values.dtype).to(
        values.device
    )


def _back(values: Tensor, leaf: Tensor, cotangent: Tensor, **graph: bool) -> Tensor:
    """Return the derivative back of values by a leaf, zero where there is none."""
    if not values.requires_grad:
        return torch.zeros_like(leaf)
    return torch.autograd.grad(
        values, leaf, cotangent, materialize_grads=True, **graph
    )[0]


def _check_adjoint(
    tangent_of: Product, cotangent: Tensor, backs: Sequence[Tensor], eps: float
) -> None:
    """Compare u.Jv with J'u.v: of functions written by hand they may differ.

    Along v = J'u, for along a random one all of J'u.v would be within its spread; and
    with each parameter scaled to the same J'u.v, so that none is within the rounding of
    others. Where J'u may be rounding itself, as of a bias in front of a norm, it stays
    small.

    Args:
        tangent_of: v -> Jv, as it is derived.
        cotangent: u, of normal numbers.
        backs: J'u of each parameter.
        eps: rounding of the least precise numbers within.

    Raises:
        InputError: they differ.
    """
    lengths = torch.stack([back.norm(dtype=torch.float64) for back in backs])
    longest = lengths.max()
    scales = lengths.clamp(min=torch.finfo(cotangent.dtype).tiny)
    scales = torch.maximum(scales, eps**0.25 * longest)
    factors = longest / scales / scales
    columns = [back * factor for back, factor in zip(backs, factors, strict=True)]
    column = torch.cat(columns, -1)
    tangent = tangent_of(column).double()
    if tangent.is_meta:
        return
    gap = (cotangent * tangent).sum() - (lengths.square() * factors).sum()
    share = gap.abs() / tangent.norm()
    if gap and not (
        share <= max(ADJOINT, eps**0.5)
        or share <= _rounding(tangent_of, column, tangent) ** 0.5
    ):
        raise InputError(
            "module: expected a gradient that is linear in that of the outputs, and "
            "adjoint to derivatives along vectors, got another, off by "
            f"{float(gap):.2g}. Correct the backward of its function, or its jvp."
        )


def _rounding(tangent_of: Product, column: Tensor, tangent: Tensor) -> float:
    """Return by what share of its length a derivative is rounded within.

    A function written by hand may compute in fewer digits than what it takes and
    returns, and no graph shows it. Twice a vector then has twice the derivative, and
    other multiples do not.

    Args:
        tangent_of: v -> Jv.
        column: v.
        tangent: Jv.

    Returns:
        At most the rounding of bfloat16; 0 where the derivative is not linear.
    """
    twice, scaled = (tangent_of(by * column).double() / by for by in (2, 4 / 3))
    off = torch.dist(scaled, tangent)
    # Not to the bit: the least numbers of half precision have fewer digits.
    if 10 * torch.dist(twice, tangent) > off:
        return 0.0
    return min(float(off / tangent.norm()), torch.finfo(torch.bfloat16).eps)


def sum_of_outer(
    losses: Callable[[Tensor], Tensor],
    weights: Tensor,
    middle: Callable[[Tensor], Product],
    slices: Sequence[Callable[[Tensor], Tensor]] = (),
) -> Product:
    """Prepare products with the sum of g g' over samples, by first derivatives alone.

    Args:
        losses: of samples, (..., N), of weights of shape (..., D).
        weights: where to take the gradients g, one after another.
        middle: from the losses to what scales products with the rows, (..., N, S).
        slices: losses of consecutive samples, N in all. A gradient back through a few
            samples is soon taken; they are used if no samples meet.

    Returns:
        A function from columns (..., D, S) to products (..., D, S).
    """
    leaf = weights.detach().requires_grad_()
    with torch.enable_grad():
        parts = _apart(leaf, losses, slices) or [losses(leaf)]
    values = torch.cat([part.detach() for part in parts], -1)
    count, inner = values.shape[-1], middle(values)

    def rows() -> Iterator[Tensor]:
        for part in parts:
            for number in range(part.shape[-1]):
                unit = torch.zeros_like(part)
                unit[..., number] = 1
                yield _back(part, leaf, unit, retain_graph=True).unsqueeze(-2)

    if count * weights.numel() <= MOST_ROW_NUMBERS:
        kept = torch.cat(list(rows()), -2)
        return lambda columns: kept.mT @ inner(kept @ columns)

    def product(columns: Tensor) -> Tensor:
        total = torch.zeros_like(columns)
        for row in rows():
            total += row.mT @ inner(row @ columns)
        return total

    return product


def _apart(
    leaf: Tensor,
    losses: Callable[[Tensor], Tensor],
    slices: Sequence[Callable[[Tensor], Tensor]],
) -> list[Tensor]:
    """Return the losses of slices; nothing if their gradients are not those of all."""
    if len(slices) < 2:
        return []
    values = losses(leaf)
    factors = _random_like(values)
    whole = _back(values, leaf, factors)
    try:
        parts = [few(leaf) for few in slices]
    except torch.OutOfMemoryError:
        raise
    # A module may take no other number of samples.
    except Exception:
        return []
    sizes = [part.shape[-1] for part in parts]
    if sum(sizes) != values.shape[-1]:
        return []
    of_slices = torch.zeros_like(whole)
    for part, of_part in zip(parts, torch.split(factors, sizes, -1), strict=True):
        of_slices += _back(part, leaf, of_part, retain_graph=True)
    room = torch.finfo(whole.dtype).eps ** ALIKE * whole.norm()
    return parts if whole.is_meta or torch.dist(whole, of_slices) <= room else []


def gradient_of(function: Callable[[Tensor], Tensor], weights: Tensor) -> Tensor:
    """Return the gradient of a scalar function, of the shape of the weights.

    Not by functorch, which takes no functions of a user's without `setup_context`.
    """
    with torch.enable_grad():
        leaf = weights.detach().requires_grad_()
        value = function(leaf)
        return _back(value, leaf, torch.ones_like(value))


def output_hessian(
    loss: Callable[[Tensor], Tensor],
) -> Callable[[Tensor], Product]:
    """Return the product with the Hessian of a loss by the outputs, at outputs.

    Args:
        loss: scalar, of outputs.
    """

    def at(outputs: Tensor) -> Product:
        # Symmetric, so that the derivative back, which every loss has, will do.
        _, pull, *_ = vjp(grad(loss), outputs)

        def inner(tangent: Tensor) -> Tensor:
            product: Tensor = pull(tangent)[0]
            return product

        return inner

    return at


def outer_products(scores_MNRC: Tensor) -> Product:
    """Return the product with the sum over R of s s' of each sample.

    Args:
        scores_MNRC: the s.
    """

    def inner(tangent_MNC: Tensor) -> Tensor:
        along = (scores_MNRC * tangent_MNC.unsqueeze(-2)).sum(-1, keepdim=True)
        return (scores_MNRC * along).sum(-2)

    return inner


class BatchedGaussNewton(Averaged):
    """Matrices J'BJ of M models as one symmetric operator of shape (M, D, D)."""

    def __init__(
        self,
        outputs: Outputs,
        output_losses: SampleLoss,
        weights_MD: Tensor,
        inputs: Tensor,
        targets: Tensor,
        *,
        fixed_MS: Tensor | None = None,
        batch_size: int | None = None,
        models_per_pass: int | None = None,
        kind: Kind = "ggn",
        loss: str | OutputLaw | None = None,
        mc_samples: int = 1,
        seeds: Sequence[int] | None = None,
        derivatives: Derivatives = "all",
        sizes: Sequence[int] | None = None,
        draws: Draws | None = None,
    ) -> None:
        """Take the network, the loss of its outputs, and the data to average over.

        Args:
            outputs: from weights and inputs to outputs, (M, N, C).
            output_losses: from outputs and targets to the loss of each sample, (M, N).
            weights_MD: where to expand; finite.
            inputs: shape (M or 1, N, ...); 1 shares the data between models.
            targets: shape (M or 1, N) or (M or 1, N, C).
            fixed_MS: what `outputs` takes behind the weights and nothing is derived
                by, such as the running statistics of a batch norm.
            batch_size: samples per pass, bounding memory; the mean stays exact.
            models_per_pass: models per pass; None for all.
            kind: which matrix.
            loss: name of `output_losses`, or its law, whose likelihood `type-2` and
                `mc` take; see `fisher_roots`.
            mc_samples: labels drawn for each sample, R, for `mc`.
            seeds: of each model's labels, M of them, for `mc`; None takes zeros.
            derivatives: of the network; first ones do for second moments.
            sizes: of its parameters, as `sandwich` takes them.
            draws: see `Averaged`.

        Raises:
            InputError: the kind is not known, or its likelihood is not.
        """
        super().__init__(
            weights_MD,
            inputs,
            targets,
            fixed_MS=fixed_MS,
            batch_size=batch_size,
            models_per_pass=models_per_pass,
            draws=draws,
        )
        self._law = _checked_law(kind, loss)
        self._outputs, self._output_losses = outputs, output_losses
        self._kind, self._draws = kind, mc_samples
        self._derivatives, self._sizes = derivatives, sizes
        self._seeds = list(seeds or [0] * len(weights_MD))
        self._uniform: Tensor | None = None
        self._slope_MD: Tensor | None = None

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the products with vectors (M, D) or columns (M, D, S)."""
        product = super().__matmul__(columns)
        if self._kind != "covariance" or columns.ndim == 2:
            return product
        return product - OuterProduct(self.mean_gradient()) @ columns

    def prepare(self, part: Part, columns: int) -> Product:
        """Return the product with the sum over a part's samples.

        Args:
            part: of one pass.
            columns: how many will be multiplied at once.

        Returns:
            A function from columns (M, D, S) of the part's models to their products.
        """
        between = partial(sandwich, derivatives=self._derivatives, sizes=self._sizes)
        if self._kind in ("empirical", "covariance"):
            losses = self._losses(part)
            if self._derivatives == "first":
                slices = [self._losses(few) for few in part.split(MOST_SAMPLES)]
                return sum_of_outer(losses, part.weights, lambda _: _same, slices)
            return between(losses, part.weights, lambda _: _same)
        if self._takes_roots:
            return between(
                self._computed(part),
                part.weights,
                lambda outputs: outer_products(self._scores(part, outputs)),
            )

        def loss(outputs: Tensor) -> Tensor:
            return self._output_losses(outputs, part.targets).sum()

        return between(self._computed(part), part.weights, output_hessian(loss))

    @property
    def _takes_roots(self) -> bool:
        is_other = self._law is not None and self._law.depends_on_targets
        return self._kind == "mc" or (self._kind == "type-2" and is_other)

    def call(self, part: Part, draw: Draw) -> Tensor:
        """Return the outputs of a part, (M, N, C), by numbers from a source."""
        return self._outputs(part.full(part.weights), part.inputs, draw=draw)

    def mean_gradient(self) -> Tensor:
        """Return the gradient of the mean loss, (M, D)."""
        if self._slope_MD is None:
            slope_MD = torch.zeros_like(self._weights_MD)
            with differentiable():
                for part in self.parts():
                    slope_MD[part.models] += gradient_of(
                        self._total(part), part.weights
                    )
            self._slope_MD = slope_MD / self.num_samples
        return self._slope_MD

    def _total(self, part: Part) -> Callable[[Tensor], Tensor]:
        losses = self._losses(part)
        return lambda weights: losses(weights).sum()

    def _computed(self, part: Part) -> Callable[[Tensor], Tensor]:
        return lambda weights: self._outputs(
            part.full(weights), part.inputs, **part.drawing()
        )

    def _losses(self, part: Part) -> Callable[[Tensor], Tensor]:
        computed = self._computed(part)
        return lambda weights: self._output_losses(computed(weights), part.targets)

    def _scores(self, part: Part, outputs_MNC: Tensor) -> Tensor:
        assert self._law is not None
        terms = outputs_MNC.shape[2:-1]  # of each sample: none, or its tokens
        form: FisherForm = "sampled" if self._kind == "mc" else "exact"
        given = [outputs_MNC, part.targets]
        if form == "sampled":
            given.append(self._uniform_of(part, outputs_MNC))
        if not terms:
            return fisher_roots(form, self._law, *given)
        # Each term has a label of its own; the loss is their mean, or weighs them.
        flat = [tensor.flatten(1, 2) for tensor in given]
        scores = fisher_roots(form, self._law, *flat)
        of_terms = (len(scores), *outputs_MNC.shape[1:3], *scores.shape[2:])
        scores = scores.reshape(of_terms)
        return scores if self._law.weighs_terms else scores / math.sqrt(terms[0])

    def _uniform_of(self, part: Part, outputs_MNC: Tensor) -> Tensor:
        assert self._law is not None
        if self._uniform is None:
            shape = fisher_draws(self._law, outputs_MNC.shape[-1], self._draws)
            terms = outputs_MNC.shape[2:-1]
            self._uniform = self._drawn((self.num_samples, *terms, *shape))
        return self._uniform[part.models, part.rows].to(outputs_MNC.device)

    def _drawn(self, shape: tuple[int, ...]) -> Tensor:
        drawn = {
            seed: torch.rand(
                shape, generator=stream(seed, "labels"), dtype=torch.float64
            )
            for seed in set(self._seeds)
        }
        return torch.stack([drawn[seed] for seed in self._seeds])

    def of_samples(self, models: Tensor, rows: Tensor) -> Self:
        """Return the operators of the means over some of the samples.

        Args:
            models: of each operator, (R,).
            rows: samples that each is the mean over, (R, B).

        Raises:
            InputError: the kind is `mc`, whose labels are drawn for all samples, or
                `covariance`, which is no mean over samples.
        """
        if self._kind in _NO_MEANS:
            raise InputError(no_sample_mean(_NO_MEANS[self._kind]))
        return super().of_samples(models, rows)

    def select(self, models: Tensor) -> Self:
        """Return the operator of some of the models, by their indices (m,)."""
        subset = super().select(models)
        subset._seeds = [self._seeds[model] for model in models.tolist()]
        subset._uniform = None if self._uniform is None else self._uniform[models.cpu()]
        subset._slope_MD = None if self._slope_MD is None else self._slope_MD[models]
        return subset


def _same(tangent: Tensor) -> Tensor:
    return tangent


def _checked_law(kind: str, loss: str | OutputLaw | None) -> OutputLaw | None:
    if kind not in get_args(Kind):
        raise InputError(
            f"kind: expected one of {', '.join(get_args(Kind))}, got {kind}. "
            "Take one of them."
        )
    if kind not in ("type-2", "mc"):
        return None
    if loss is None or (isinstance(loss, str) and loss not in LAWS):
        raise InputError(
            f"loss: expected a likelihood known by name for {kind}, got {loss}. Take "
            f"{', '.join(LAWS)}, or the kind ggn or empirical."
        )
    return law_of(loss)


class BatchedResidual(BatchedHessian):
    """The residual H - G of M models in one pass, (M, D, D).

    It is the Hessian of sum_nc s_nc f_nc by the weights, s the gradient of the loss by
    the outputs f, fixed.
    """

    def __init__(
        self,
        outputs: Outputs,
        output_losses: SampleLoss,
        weights_MD: Tensor,
        inputs: Tensor,
        targets: Tensor,
        *,
        fixed_MS: Tensor | None = None,
        batch_size: int | None = None,
        models_per_pass: int | None = None,
        order: Order | Literal["auto"] = "forward_over_reverse",
        draws: Draws | None = None,
    ) -> None:
        """Take the network, the loss of its outputs, and the data to average over.

        Args:
            outputs: from weights and inputs to outputs, (M, N, C).
            output_losses: from outputs and targets to the loss of each sample, (M, N).
            weights_MD: where to expand; finite.
            inputs: shape (M or 1, N, ...); 1 shares the data between models.
            targets: shape (M or 1, N) or (M or 1, N, C).
            fixed_MS: as for `BatchedGaussNewton`.
            batch_size: samples per pass, bounding memory; the mean stays exact.
            models_per_pass: models per pass; None for all.
            order: of differentiation, as for `BatchedHessian`.
            draws: see `Averaged`.
        """

        def losses(
            weights_MW: Tensor, inputs: Tensor, targets: Tensor, **drawing: Draw
        ) -> Tensor:
            return output_losses(outputs(weights_MW, inputs, **drawing), targets)

        super().__init__(
            losses,
            weights_MD,
            inputs,
            targets,
            fixed_MS=fixed_MS,
            batch_size=batch_size,
            models_per_pass=models_per_pass,
            order=order,
            draws=draws,
        )
        self._outputs, self._output_losses = outputs, output_losses

    def scalar(self, part: Part) -> Callable[[Tensor], Tensor]:
        """Return the function of weights (M, D) whose Hessian is the part's sum."""
        with torch.no_grad():
            values = self._outputs(
                part.full(part.weights), part.inputs, **part.drawing()
            )
        slopes = grad(lambda f: self._output_losses(f, part.targets).sum())(values)

        def linear(weights_MD: Tensor) -> Tensor:
            outputs = self._outputs(
                part.full(weights_MD), part.inputs, **part.drawing()
            )
            total: Tensor = (slopes * outputs).sum()
            return total

        return linear
