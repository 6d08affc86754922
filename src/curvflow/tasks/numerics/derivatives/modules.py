"""Curvature of any torch module and loss, as operators: the door for other programs.

All matrices are those of the mean loss over all samples of the data, without weight
decay. See docs/operators.md for modules that are taken, and that are refused.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from numbers import Real
from typing import Any, Literal, Unpack

import torch
from torch import Tensor, nn
from torch.func import grad
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from curvflow.errors import InputError, summary
from curvflow.tasks.numerics.derivatives.batches import (
    Batch,
    Mixture,
    few_of,
    num_samples,
    split,
    targets_of,
)
from curvflow.tasks.numerics.derivatives.differentiation_modes import (
    FORWARD,
    ORDERS,
    Order,
    Product,
    Scalar,
    Trial,
    Written,
    check_derived_twice,
    copied,
    fastest,
    has_functions_by_hand,
    hessian_product,
    is_scripted,
    times_as_long,
    tried,
)
from curvflow.tasks.numerics.derivatives.fishers import fisher_draws, fisher_roots
from curvflow.tasks.numerics.derivatives.gauss_newton import (
    MOST_SAMPLES,
    gradient_of,
    outer_products,
    output_hessian,
    sandwich,
    sum_of_outer,
)
from curvflow.tasks.numerics.derivatives.guards import check_by_hand
from curvflow.tasks.numerics.derivatives.likelihoods import NAMES, Likelihood
from curvflow.tasks.numerics.derivatives.over_batches import (
    Curvature,
    OverBatches,
    Prepare,
    columns_at_once,
    in_parts,
)
from curvflow.tasks.numerics.derivatives.precision import differentiable
from curvflow.tasks.numerics.derivatives.subjects import (
    Loss,
    Settings,
    Subject,
    check_ignored,
    named_failures,
    subject,
)
from curvflow.tasks.numerics.operators.algebra import BatchedSum, OuterProduct
from curvflow.tasks.numerics.operators.base import BatchedOperator
from curvflow.tasks.numerics.streams import stream

# Columns of a trial of the orders, which must cost less than it saves.
TRIAL_COLUMNS = 2
# So few products are over before a trial is: they take the order that is soonest ready
# and asks least of a module.
FEW_PRODUCTS = 32

# A mean of a batch and the mean over its samples agree within this share of the losses,
# and, in half precision alone, within so many roundings.
SAME, ROUNDINGS = 1e-4, 4

# Losses of values, each of which counts as much as any other.
_OF_VALUES = (nn.BCEWithLogitsLoss, nn.PoissonNLLLoss)

# What makes a loss a mean over samples.
_EACH = (
    "Return the loss of each sample, as reduction='none' does; with weights of classes "
    "divide it by the mean weight of all labels."
)


def hessian(
    module: nn.Module,
    loss: Loss | str,
    data: Any,
    *,
    order: Order | Literal["auto"] = "auto",
    num_products: float = math.inf,
    tell: Callable[[Trial], None] | None = None,
    **settings: Unpack[Settings],
) -> Curvature:
    """Return the Hessian of the mean loss as an operator.

    Args:
        module: as it is to be called, in eval or in train mode.
        loss: of outputs and targets: the mean over a batch, or of each sample; or
            `cross_entropy`, `mse`, `sse`, `bce` or `poisson`.
        data: a batch (inputs, targets) or a dictionary, a list of batches, or a loader.
        order: of differentiation; `auto` tries those without a trace on a few
            samples.
        num_products: vectors to be multiplied, as far as is known; for a few, `auto`
            takes an order that is soon prepared.
        tell: called with the trial that `auto` has made.
        **settings: see `Settings`.

    Returns:
        The operator, (D, D).

    Examples:
        >>> from curvflow.tasks.numerics import hessian
        >>> net, x = torch.nn.Linear(1, 1, bias=False), torch.tensor([[1.0], [2.0]])
        >>> hessian(net, "sse", (x, x)) @ torch.ones(1)  # 2 x^2, its mean
        tensor([5.])
    """
    of = subject(module, loss, data, settings)
    key = _key("hessian", module, loss)
    many = _hessian_of(of, _loss_of(of), order, tell, key, num_products)
    return _curvature(of, many, _hessian_of(of, _loss_of(of), order, tell, key, 1))


def hessian_at(of: Subject, order: Order) -> Curvature:
    """Return the Hessian of a module that has passed all checks, at its weights.

    Args:
        of: the module, its loss and data.
        order: of differentiation.

    Returns:
        The operator of `hessian`, (D, D).
    """
    prepare = _hessian_of(of, _loss_of(of), order, None, "hessian_at", math.inf)
    return _curvature(of, prepare)


def residual(
    module: nn.Module,
    loss: Loss | str,
    data: Any,
    *,
    order: Order | Literal["auto"] = "auto",
    num_products: float = math.inf,
    tell: Callable[[Trial], None] | None = None,
    **settings: Unpack[Settings],
) -> Curvature:
    """Return the Hessian less the Gauss-Newton matrix as an operator, in one pass.

    Args:
        module: as for `hessian`.
        loss: as for `hessian`.
        data: as for `hessian`.
        order: as for `hessian`.
        num_products: as for `hessian`.
        tell: as for `hessian`.
        **settings: see `Settings`.

    Returns:
        The operator, (D, D).

    Examples:
        >>> from curvflow.tasks.numerics import residual
        >>> net, x = torch.nn.Linear(1, 1, bias=False), torch.tensor([[1.0], [2.0]])
        >>> residual(net, "sse", (x, x)) @ torch.ones(1)  # of a linear model
        tensor([0.])
    """
    of = subject(module, loss, data, settings)

    def weighted(batch: Batch) -> Scalar:
        with torch.no_grad():
            fixed = of.outputs(of.weights, batch)
        slopes = grad(lambda f: of.batch_loss(f, batch))(fixed)
        return lambda weights: (slopes * of.outputs(weights, batch)).sum()

    key = _key("residual", module, loss)
    many = _hessian_of(of, weighted, order, tell, key, num_products)
    return _curvature(of, many, _hessian_of(of, weighted, order, tell, key, 1))


def ggn(
    module: nn.Module, loss: Loss | str, data: Any, **settings: Unpack[Settings]
) -> Curvature:
    """Return the generalised Gauss-Newton matrix of the mean loss as an operator.

    Args:
        module: as for `hessian`.
        loss: as for `hessian`; convex in the outputs for a matrix without negative
            eigenvalues.
        data: as for `hessian`.
        **settings: see `Settings`.

    Returns:
        The operator, (D, D).

    Examples:
        >>> from curvflow.tasks.numerics import ggn
        >>> net, x = torch.nn.Linear(1, 1, bias=False), torch.tensor([[1.0], [2.0]])
        >>> ggn(net, "sse", (x, x)) @ torch.ones(1)
        tensor([5.])
    """
    of = subject(module, loss, data, settings)
    return _curvature(of, _gauss_newton(of))


def fisher(
    module: nn.Module,
    loss: Loss | str,
    data: Any,
    *,
    kind: Literal["type-2", "mc", "empirical"],
    mc_samples: int = 1,
    **settings: Unpack[Settings],
) -> Curvature:
    """Return a Fisher matrix as an operator.

    Args:
        module: as for `hessian`.
        loss: as for `hessian`; for `type-2` and `mc` one whose likelihood is known:
            one by name, or torch's cross entropy of labels, squared error, binary
            cross entropy of logits, or Poisson loss of logarithms of rates.
        data: as for `hessian`.
        kind: labels of the model, all of them (`type-2`, which is the GGN) or some
            drawn (`mc`), or those of the data (`empirical`).
        mc_samples: labels drawn for each sample, for `mc`.
        **settings: see `Settings`.

    Returns:
        The operator, (D, D).

    Raises:
        InputError: the loss does not fit the kind.

    Examples:
        >>> from curvflow.tasks.numerics import fisher
        >>> net, x = torch.nn.Linear(1, 1, bias=False), torch.tensor([[1.0], [2.0]])
        >>> fisher(net, "sse", (x, x), kind="type-2") @ torch.ones(1)
        tensor([5.])
    """
    if not (isinstance(kind, str) and kind in ("type-2", "mc", "empirical")):
        raise InputError(
            f"kind: expected type-2, mc or empirical, got {kind}. Name the labels."
        )
    of = subject(module, loss, data, settings)
    if kind == "empirical":
        return _curvature(of, _moment(of))
    if of.likelihood is None:
        raise InputError(
            f"loss: expected a likelihood known by name for {kind}, got "
            f"{getattr(loss, '__name__', type(loss).__name__)}. Pass "
            f"{', '.join(NAMES)}, or take ggn or the empirical one."
        )
    if kind == "type-2":
        return _curvature(of, _gauss_newton(of))
    # Labels are drawn for all data: samples cannot be taken apart.
    return _named(of, OverBatches(of, _drawn(of, of.likelihood, mc_samples)))


def gradient_covariance(
    module: nn.Module, loss: Loss | str, data: Any, **settings: Unpack[Settings]
) -> Curvature:
    """Return the covariance of the samples' gradients, divided by N, as an operator.

    Args:
        module: as for `hessian`.
        loss: as for `hessian`; the mean of the losses of the samples.
        data: as for `hessian`.
        **settings: see `Settings`.

    Returns:
        The operator, (D, D).

    Examples:
        >>> from curvflow.tasks.numerics import gradient_covariance
        >>> net = torch.nn.Linear(1, 1, bias=False)
        >>> _ = torch.nn.init.zeros_(net.weight)
        >>> x, y = torch.ones(2, 1), torch.tensor([[1.0], [-1.0]])  # gradients -2 and 2
        >>> gradient_covariance(net, "sse", (x, y)) @ torch.ones(1)
        tensor([4.])
    """
    of = subject(module, loss, data, settings)
    second = OverBatches(of, _moment(of))
    slope_MD = mean_gradient(of).unsqueeze(0)
    centred = BatchedSum([(1.0, second), (-1.0, OuterProduct(slope_MD))])
    return _named(of, centred)


def mean_gradient(of: Subject) -> Tensor:
    """Return the gradient of the mean loss over all samples, (D,)."""
    total_D, weight = torch.zeros_like(of.weights), 0.0
    with differentiable(), named_failures(of):
        for batch in of.counted():
            slope_D = gradient_of(_loss_of(of)(batch), of.weights)
            total_D += of.factor_of(batch) * slope_D
            weight += of.size_of(batch)
    return total_D / weight


def _curvature(of: Subject, prepare: Prepare, once: Prepare | None = None) -> Curvature:
    return _named(of, OverBatches(of, prepare, once or prepare))


def _named(of: Subject, batched: BatchedOperator) -> Curvature:
    return Curvature(batched, dict(zip(of.names, of.sizes, strict=True)))


def _loss_of(of: Subject) -> Callable[[Batch], Scalar]:
    return lambda batch: lambda w: of.batch_loss(of.outputs(w, batch), batch)


def _check_order(order: str, num_products: float) -> None:
    if not (isinstance(order, str) and order in (*ORDERS, "auto")):
        raise InputError(
            f"order: expected one of {', '.join(ORDERS)}, or auto, got {order}. Name "
            "one, or leave it out."
        )
    if not isinstance(num_products, Real):
        raise InputError(
            f"num_products: expected a number, got {type(num_products).__name__}. Pass "
            "how many vectors will be multiplied, or leave it out."
        )


def _hessian_of(
    of: Subject,
    scalar: Callable[[Batch], Scalar],
    order: Order | Literal["auto"],
    tell: Callable[[Trial], None] | None,
    key: Hashable,
    num_products: float,
) -> Prepare:
    _check_order(order, num_products)
    chosen: list[Order] = [] if order == "auto" else [order]
    if not chosen and num_products <= FEW_PRODUCTS:
        chosen.append("reverse_over_reverse")
    by_hand: dict[str, bool] = {}

    def prepare(batch: Batch, _first: int, columns: Tensor) -> Written:
        if not by_hand:
            few = few_of(batch)
            by_hand["is_by_hand"] = _check_twice(of, scalar(few), few, order)
        if not chosen:
            most = min(TRIAL_COLUMNS, columns_at_once(columns))
            few, trial_columns = few_of(batch), torch.ones_like(columns[:, :most])
            small, keeps = scalar(few), of.has_one_batch
            blocks = num_products / trial_columns.shape[1]
            if math.isfinite(blocks):
                blocks *= times_as_long(scalar(batch), small, of.weights)
            orders = tried(keeps=keeps, columns=trial_columns.shape[1], **by_hand)
            trial = fastest(
                {o: partial(_ordered, of, o, small) for o in orders},
                trial_columns,
                keeps=keeps,
                key=(key, of.names, _shapes(few), num_products),
                blocks=blocks,
            )
            chosen.extend(o for o in orders if o == trial.order)
            if tell:
                tell(trial)
        if order == "auto":
            return _ordered(of, chosen[0], scalar(batch))
        return _asked_for(of, order, scalar(batch))

    return prepare


def _check_twice(of: Subject, loss: Scalar, batch: Batch, order: str) -> bool:
    """Refuse wrong second derivatives; return whether derivatives are by hand."""
    check_derived_twice(loss, of.weights)
    scripted = is_scripted(lambda: loss(of.weights.detach().requires_grad_()))
    if scripted and order in FORWARD:
        raise InputError(
            f"order: {order} cannot be combined with what torch.jit has compiled, "
            "which torch leaves out of second derivatives by forward mode. Name "
            "reverse_over_reverse, or take auto."
        )
    if not has_functions_by_hand(loss, of.weights):
        return scripted
    check_by_hand(
        of.called.module,
        lambda: of.outputs(of.weights.clone(), batch),
        lambda outputs: of.batch_loss(outputs, batch),
    )
    return True


def _asked_for(of: Subject, order: Order, loss: Scalar) -> Written:
    """Return products by an order that a user has named, which may fail in torch."""
    kept: list[Written] = []

    def product(columns: Tensor, into: Tensor | None = None) -> Tensor:
        try:
            if not kept:
                kept.append(_ordered(of, order, loss))
            return kept[0](columns, into)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            kept.clear()
            if "allocate" in str(error) or not _is_of_order(of, order, loss, columns):
                raise
            said = summary(error).rstrip(".")
            raise InputError(
                f"order: expected one that torch has for this module, got {order} "
                f"({said}). Name another, or take auto."
            ) from error

    return product


def _is_of_order(of: Subject, order: Order, loss: Scalar, columns: Tensor) -> bool:
    """Return whether a failure is none of the order that asks least of a module."""
    if order == "reverse_over_reverse":
        return False
    try:
        _ordered(of, "reverse_over_reverse", loss)(columns[:, :1])
    # The first failure is told, whatever this one is.
    except Exception:
        return False
    return True


def _ordered(of: Subject, order: Order, loss: Scalar) -> Written:
    product = hessian_product(order, loss, of.weights, of.shapes)
    # The columns of this one go one by one anyway.
    return product if order == "reverse_over_reverse" else in_parts(product)


def _key(what: str, module: nn.Module, loss: Loss | str) -> Hashable:
    # Of one module, and not held: others of its class may take other ways.
    name = loss if isinstance(loss, str) else getattr(loss, "__qualname__", type(loss))
    return what, weakref.ref(module), module.training, name


def _shapes(batch: Batch) -> Hashable:
    leaves = tree_leaves(batch)
    return tuple(leaf.shape for leaf in leaves if isinstance(leaf, Tensor))


def _gauss_newton(of: Subject) -> Prepare:
    ways = _Ways()

    def prepare(batch: Batch, _first: int, _columns: Tensor) -> Written:
        middle = output_hessian(lambda f: of.batch_loss(f, batch))
        return ways.between(of, lambda w: of.outputs(w, batch), middle)

    return prepare


def _moment(of: Subject) -> Prepare:
    try:
        return _second_moment(of)
    except InputError:
        # Labels that do not count may be the cause, which the loss cannot know.
        for batch in of.batches():
            check_ignored(of, batch, all_count=True)
        raise


class _Ways:
    """Products of an operator by the first way that its module has."""

    def __init__(self) -> None:
        """Begin with derivatives along columns."""
        self._way = 0
        self._is_by_hand: bool | None = None

    def between(
        self,
        of: Subject,
        outputs: Product,
        middle: Callable[[Tensor], Product],
        *further: Callable[[], Product],
    ) -> Written:
        """Return products with J'BJ, prepared when the first is taken.

        Args:
            of: the module at its weights.
            outputs: of the weights.
            middle: the product with B, at outputs.
            *further: other ways to prepare the products.
        """
        if self._is_by_hand is None:
            self._is_by_hand = has_functions_by_hand(outputs, of.weights)
        by_hand = self._is_by_hand
        back = partial(sandwich, derivatives="reverse", sizes=of.sizes)
        ways: list[Callable[[], Product]] = [
            lambda: sandwich(
                outputs, of.weights, middle, sizes=of.sizes, is_by_hand=by_hand
            ),
            lambda: back(outputs, of.weights, middle),
            *further,
        ]
        made: dict[int, Written] = {}

        def product(columns: Tensor, into: Tensor | None = None) -> Tensor:
            first: Exception | None = None
            for number in range(self._way, len(ways)):
                try:
                    if number not in made:
                        made.clear()
                        made[number] = in_parts(copied(ways[number]()))
                    products = made[number](columns, into)
                except torch.OutOfMemoryError:
                    raise
                # A module may lack derivatives along a vector in many ways.
                except (RuntimeError, InputError) as error:
                    first = first or error
                    continue
                self._way = number
                return products
            assert first is not None
            raise first

        return product


def _second_moment(of: Subject) -> Prepare:
    check_mean(of)

    ways = _Ways()

    def losses_of(batch: Batch) -> Product:
        return lambda weights: of.losses(of.outputs(weights, batch), batch)

    def prepare(batch: Batch, _first: int, _columns: Tensor) -> Written:
        losses = losses_of(batch)

        def shared(losses_N: Tensor) -> Product:
            count = 1 if of.is_summed else len(losses_N)
            return lambda tangent: tangent / count

        def row_by_row() -> Product:
            slices = [losses_of(few) for few in split(batch, MOST_SAMPLES)]
            return sum_of_outer(losses, of.weights, shared, slices)

        return ways.between(of, losses, shared, row_by_row)

    return prepare


def check_mean(of: Subject) -> None:
    """Refuse a loss that is no mean over samples.

    It is compared on the first batch, and on targets of all batches mixed, so that
    which labels are in one batch is of no importance.

    Args:
        of: the module, its loss and data.

    Raises:
        InputError: the mean of a batch is not that of the samples' losses.
    """
    loss = of.loss
    has_classes = isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss)
    weight, reduction = (getattr(loss, n, None) for n in ("weight", "reduction"))
    if (
        has_classes
        and weight is not None
        and reduction == "mean"
        and weight.unique().numel() > 1
    ):
        raise InputError(
            "loss: expected the mean of the samples' losses, got "
            f"{type(loss).__name__} with weights of classes, whose mean is over those "
            f"of a batch's labels. {_EACH}"
        )
    with torch.no_grad(), differentiable():
        batch = next(of.batches())
        outputs = of.outputs(of.weights, batch)
        _compare(*_means(of, outputs, targets_of(batch)))
        for pair in () if _is_mean_of_any(of) else _mixed(of):
            try:
                means = _means(of, *pair)
            # A user's loss may take no other outputs than those of its own targets.
            except Exception:
                continue
            _compare(*means)


def _is_mean_of_any(of: Subject) -> bool:
    """Return whether a loss is the mean over samples, whatever the targets."""
    if of.likelihood is None or of.is_summed:
        return of.is_summed
    # A class derived from torch's may compute anything.
    is_own = isinstance(of.loss, nn.Module) and type(of.loss) not in _OF_VALUES
    return of.likelihood.name != "cross_entropy" and not is_own


def _means(of: Subject, outputs: Tensor, targets: Any) -> tuple[float, float, float]:
    """Return the mean loss, the mean over samples, and by how much they may differ."""
    batch, share = (None, targets), SAME
    if outputs.dtype.itemsize < torch.float32.itemsize:
        try:
            return _means(of, *tree_map(_in_single, (outputs, targets)))
        # A loss may hold tensors of the precision of the outputs.
        except Exception:
            share = max(SAME, ROUNDINGS * torch.finfo(outputs.dtype).eps)
    each_N = of.losses(outputs, batch)
    whole = float(of.mean_loss(outputs, batch))
    return whole, float(each_N.mean()), share * float(each_N.abs().mean())


def _in_single(leaf: Any) -> Any:
    is_real = isinstance(leaf, Tensor) and leaf.is_floating_point()
    return leaf.float() if is_real else leaf


def _compare(whole: float, mean: float, room: float) -> None:
    are_nan = math.isnan(whole) and math.isnan(mean)
    if math.isnan(mean) and not are_nan:
        raise InputError(
            "data: expected samples that have a loss each, got nan of some by "
            "themselves, as where no label counts. Leave such samples out."
        )
    if not (whole == mean or are_nan or abs(whole - mean) <= room):
        raise InputError(
            f"loss: expected the mean of the samples' losses, {mean:.4g}, got "
            f"{whole:.4g}, as where classes have weights, labels do not count, or "
            f"samples meet. {_EACH}"
        )


def _mixed(of: Subject) -> Iterator[tuple[Tensor, Any]]:
    """Yield outputs and targets of all batches mixed, those of one form together."""
    by_form: dict[Hashable, Mixture] = {}
    for batch in of.batches():
        leaves, structure = tree_flatten(batch)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        samples = num_samples(batch)
        if samples and all(t.ndim and len(t) == samples for t in tensors):
            form = str(structure), tuple((t.shape[1:], t.dtype) for t in tensors)
            mixture = by_form.setdefault(form, Mixture())
            yield from mixture.add(partial(of.outputs, of.weights, batch), batch)
        if by_form and all(mixture.is_full for mixture in by_form.values()):
            break
    for mixture in by_form.values():
        yield mixture.pairs()


def _drawn(of: Subject, likelihood: Likelihood, mc_samples: int) -> Prepare:
    generator = stream(of.settings.get("seed", 0), "labels")
    uniform: list[Tensor] = []
    ways = _Ways()

    def of_rows(first: int, terms_NTC: Tensor) -> Tensor:
        samples, terms, classes = terms_NTC.shape
        shape = (terms, *fisher_draws(likelihood.name, classes, mc_samples))
        last = first + samples
        # Drawn once, and held: every pass takes the same labels.
        more = (max(0, last - len(uniform)), *shape)
        uniform.extend(torch.rand(more, generator=generator, dtype=torch.float64))
        return torch.stack(uniform[first:last]).to(terms_NTC.device)

    def prepare(batch: Batch, first: int, _columns: Tensor) -> Written:
        def middle(outputs: Tensor) -> Product:
            terms_NTC = likelihood.terms(outputs)
            drawn = of_rows(first, terms_NTC).flatten(0, 1).unsqueeze(0)
            # A sample's terms are drawn apart, each by the law of its own outputs.
            terms_1TC = terms_NTC.flatten(0, 1).unsqueeze(0)
            scores = fisher_roots(
                "sampled", likelihood.name, terms_1TC, terms_1TC, drawn
            )[0]
            inner = outer_products(scores)
            counts_NT = likelihood.counts(targets_of(batch), terms_NTC)
            whole = likelihood.num_terms(counts_NT)
            if of.is_summed:
                whole /= len(outputs)
            counts_T1 = counts_NT.reshape(-1, 1)

            def product(tangent: Tensor) -> Tensor:
                along_TC = likelihood.terms(tangent).flatten(0, 1)
                return likelihood.outputs(counts_T1 * inner(along_TC) / whole, tangent)

            return product

        return ways.between(of, lambda w: of.outputs(w, batch), middle)

    return prepare
