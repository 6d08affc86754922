"""Four orders of differentiation for products with a Hessian, and which is fastest.

All give the same numbers up to rounding. Each takes a scalar function of weights of any
shape W, prepares what does not depend on the columns, and multiplies columns (W, S).
Those that keep a graph may take weights (D,) in parts, such as the parameters of a
module, which the function is given as a list: each is a leaf of the graph, and nothing
as long as D is joined but products.

- `forward_over_reverse`: the directional derivative of the gradient, all columns at
  once. Nothing is kept between blocks.
- `reverse_over_reverse`: one graph of the gradient is kept; columns one by one. Least
  memory, and it needs neither forward derivatives nor rules for batches.
- `retained`: the same graph, and all columns at once as batched cotangents.
- `linearised`: forward over reverse, recorded; what no column enters is computed once.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import (
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol, get_args

import torch
from torch import Tensor
from torch.func import grad, jvp, vmap
from torch.utils._pytree import tree_leaves

from curvflow.errors import InputError, summary
from curvflow.tasks.numerics.autograd_nodes import nodes_of
from curvflow.tasks.numerics.derivatives.recorded_graphs import Tape, record

Order = Literal[
    "forward_over_reverse", "reverse_over_reverse", "retained", "linearised"
]
ORDERS: tuple[Order, ...] = get_args(Order)
# Those that derive a gradient forward.
FORWARD: tuple[Order, ...] = ("forward_over_reverse", "linearised")
# Those that ask no more of a network than it has been tried for.
LEAST_ASKED: tuple[Order, ...] = ("forward_over_reverse", "reverse_over_reverse")

# What derivatives there are: all; those back alone; or first ones alone.
Derivatives = Literal["all", "reverse", "first"]

# Of differences of gradients, and what these may be off, relative to the product:
# modules may compute in single precision within.
STEPS, ROOM = (1e-5, 1e-4), 0.05
# Of a function that torch.jit compiles: it looks at the first, and one is to spare.
JIT_CALLS = 3
Scalar = Callable[[Any], Tensor]
Product = Callable[[Tensor], Tensor]
Shape = tuple[int, ...]


class Written(Protocol):
    """A product that is written into memory at hand, where it is given some."""

    def __call__(self, columns: Tensor, into: Tensor | None = None) -> Tensor:
        """Return the products of columns (W, S), in `into` if that is given."""


# The first forward derivative makes torch load rules that it compiles by its own
# torch.jit.script, which it calls deprecated (seen in 2.13).
with warnings.catch_warnings():
    warnings.filterwarnings("ignore", ".torch.jit.script. is", DeprecationWarning)
    jvp(torch.sin, (torch.zeros(1),), (torch.zeros(1),))


def hessian_product(
    order: Order, loss: Scalar, weights: Tensor, shapes: Sequence[Shape] | None = None
) -> Written:
    """Prepare products with the Hessian of a scalar function.

    Args:
        order: of differentiation.
        loss: the function, of weights of shape W; where `shapes` are given, of their
            parts as well.
        weights: where to take the Hessian, shape W.
        shapes: of parts of weights (D,), for the orders that keep a graph.

    Returns:
        A function from columns (W, S) to products (W, S).
    """
    if order in _DERIVED:
        return _DERIVED[order](loss, weights)
    return _KEPT[order](_graph(loss, weights, shapes))


def named_product(order: Order, loss: Scalar, weights: Tensor) -> Product:
    """Prepare products in an order that fails by its name where torch lacks a rule.

    Args:
        order: of differentiation.
        loss: the function, that can be derived twice in the order that asks least.
        weights: where to take the Hessian, shape W.

    Returns:
        A function from columns (W, S) to products (W, S).
    """
    with _failures_of(order):
        written = hessian_product(order, loss, weights)

    def product(columns: Tensor) -> Tensor:
        with _failures_of(order):
            return written(columns)

    return product


@contextmanager
def _failures_of(order: Order) -> Iterator[None]:
    """Refuse an order that asks more than others do, where torch fails at it."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        if order in LEAST_ASKED or "allocate" in str(error):
            raise
        raise InputError(
            f"order: expected one that torch has for this network, got {order} "
            f"({summary(error).rstrip('.')}). Name another, or take auto."
        ) from error


def tried(*, keeps: bool, columns: int, is_by_hand: bool = False) -> tuple[Order, ...]:
    """Return the orders that may be fastest.

    Args:
        keeps: whether preparation is done once for all blocks. Then a record is forward
            over reverse without what no column enters; else it costs more.
        columns: of a block; one is no batch of cotangents.
        is_by_hand: whether derivatives are written by hand: those forward may be of
            another function than those back.
    """
    if is_by_hand:
        return "reverse_over_reverse", "retained"
    if not keeps:
        return "forward_over_reverse", "reverse_over_reverse", "retained"
    batched: tuple[Order, ...] = ("retained",) if columns > 1 else ()
    return "reverse_over_reverse", *batched, "linearised"


def columnwise(along: Product) -> Product:
    """Return a map of one vector, shape W, as a map of columns, (W, S)."""
    # In front, for torch 2.13 breaks elsewhere if products do not depend on columns.
    # What is drawn, such as a mask that is allowed, is the same for every column.
    together = vmap(along, randomness="same")
    return lambda columns: together(_rows(columns)).movedim(0, -1)


def copied(product: Product) -> Written:
    """Return a product as one that is copied into memory at hand."""

    def into_place(columns: Tensor, into: Tensor | None = None) -> Tensor:
        products = product(columns)
        return products if into is None else into.copy_(products)

    return into_place


def _rows(columns: Tensor) -> Tensor:
    # Contiguous, for what is recorded has views that not all strides allow.
    return columns.movedim(-1, 0).contiguous()


def _derivative(loss: Scalar, weights: Tensor) -> Product:
    def along(column: Tensor) -> Tensor:
        product: Tensor = jvp(grad(loss), (weights,), (column,))[1]
        return product

    return along


def _forward_over_reverse(loss: Scalar, weights: Tensor) -> Written:
    return copied(columnwise(_derivative(loss, weights)))


def _linearised(loss: Scalar, weights: Tensor) -> Written:
    along = vmap(_derivative(loss, weights), randomness="same")
    tapes: dict[torch.Size, Tape] = {}

    def product(columns: Tensor, into: Tensor | None = None) -> Tensor:
        rows, room = _rows(columns), None if into is None else into.movedim(-1, 0)
        if rows.shape in tapes:
            return tapes[rows.shape](rows, into=room).movedim(0, -1)
        tapes[rows.shape], products = record(along, rows)
        return (products if room is None else room.copy_(products)).movedim(0, -1)

    return product


@dataclass(frozen=True)
class _Graph:
    """The gradient of a function, part by part, and how it came about.

    Attributes:
        slopes: gradient by each leaf.
        leaves: parts of the weights (D,), or the weights themselves.
        shapes: of the parts; None for one leaf.
    """

    slopes: Sequence[Tensor]
    leaves: Sequence[Tensor]
    shapes: Sequence[Shape] | None

    def along(self, rows: Tensor, *, batched: bool) -> Sequence[Tensor]:
        """Return the parts of the product with (D,), or with rows (S, D)."""
        return torch.autograd.grad(
            self.slopes,
            self.leaves,
            parted(rows, self.shapes) if self.shapes else [rows],
            retain_graph=True,
            is_grads_batched=batched,
            materialize_grads=True,
        )

    def join(self, parts: Iterable[Tensor], into: Tensor) -> None:
        """Write the parts of products into (D,), or rows (S, D)."""
        places = parted(into, self.shapes) if self.shapes else [into]
        for place, part in zip(places, parts, strict=True):
            place.copy_(part)


def parted(rows: Tensor, shapes: Sequence[Shape]) -> list[Tensor]:
    """Return views of the consecutive parts of vectors.

    Args:
        rows: vectors, (..., D).
        shapes: of the parts, D entries in sum.
    """
    parts = torch.split(rows, [math.prod(shape) for shape in shapes], -1)
    return [
        part.view((*rows.shape[:-1], *shape))
        for part, shape in zip(parts, shapes, strict=True)
    ]


def _graph(loss: Scalar, weights: Tensor, shapes: Sequence[Shape] | None) -> _Graph:
    parts = parted(weights, shapes) if shapes else [weights]
    leaves = [part.detach().requires_grad_() for part in parts]
    with torch.enable_grad():
        value = loss(leaves if shapes else leaves[0])
        if not value.requires_grad:
            raise InputError(
                "loss: expected a function of the weights, got a constant. Compute it "
                "by torch, without item(), detach() or NumPy."
            )
        slopes = torch.autograd.grad(
            value,
            leaves,
            create_graph=True,
            materialize_grads=True,
        )
        # A slope that is constant has no graph; this gives it one.
        kept = [
            slope if slope.requires_grad else slope + 0 * leaf
            for slope, leaf in zip(slopes, leaves, strict=True)
        ]
    return _Graph(kept, leaves, shapes)


def has_reverse_mode(loss: Scalar, weights: Tensor) -> bool:
    """Return whether second derivatives by reverse mode are what they should be.

    Where a function says that it can be derived but once, torch leaves its part out
    without a word if gradients by some tensors are requested (2.13); and one written by
    hand may forget on what its gradient depends. So the graph is searched for the
    former, and a product is compared with a difference of gradients.

    Args:
        loss: the function, smooth about the weights, of weights of shape W.
        weights: in double precision.

    Returns:
        False if they are missing or wrong.

    Raises:
        Exception: whatever deriving it raises.

    Examples:
        >>> from curvflow.tasks.numerics.derivatives.differentiation_modes import (
        ...     has_reverse_mode,
        ... )
        >>> has_reverse_mode(lambda w: w.sin().sum(), torch.ones(3).double())
        True
        >>> has_reverse_mode(
        ...     lambda w: (w.detach() * w).sum(), torch.ones(3).double()
        ... )
        False
    """
    graph = _graph(loss, weights, None)
    if any(_derives_once(slope) for slope in graph.slopes):
        return False
    # Not of ones, along which much may cancel.
    generator = torch.Generator().manual_seed(0)
    along = torch.randn(weights.shape, generator=generator, dtype=weights.dtype)
    along = along.to(weights.device)
    (product,) = graph.along(along, batched=False)
    return any(
        torch.dist(product, _difference(loss, weights, step * along, step))
        <= ROOM * product.norm()
        for step in STEPS
    )


def is_coarse(loss: Scalar, weights: Tensor) -> bool:
    """Return whether a gradient is rounded too much to be compared with differences.

    A function written by hand may compute in half precision whatever it is given. The
    gradient of twice a function is then twice as long, and of other multiples is not.

    Args:
        loss: the function, of weights of shape W.
        weights: in double precision.
    """

    def slope(by: float) -> Tensor:
        (slope,) = _graph(lambda w: by * loss(w), weights, None).slopes
        return slope.detach() / by

    once, twice, scaled = map(slope, (1, 2, 4 / 3))
    # Not to the bit: the least numbers of half precision have fewer digits.
    off, room = torch.dist(scaled, once), max(STEPS) * ROOM * once.norm()
    return bool(off > room and 10 * torch.dist(twice, once) <= off)


def check_derived_twice(loss: Scalar, weights: Tensor) -> None:
    """Refuse a function of which a part may be derived but once.

    Torch leaves it out of second derivatives by reverse mode without a word (2.13).

    Args:
        loss: the function, of weights of shape W.
        weights: where it is derived.

    Raises:
        InputError: it is marked as `once_differentiable`.
    """
    if any(_derives_once(slope) for slope in _graph(loss, weights, None).slopes):
        raise InputError(
            "module: expected second derivatives, got a function that is marked as "
            "once_differentiable. Write its backward by functions of torch, without "
            "that mark, or replace its layer."
        )


def _difference(loss: Scalar, weights: Tensor, move: Tensor, step: float) -> Tensor:
    above, below = (
        _graph(loss, weights + way * move, None).slopes[0].detach() for way in (1, -1)
    )
    return (above - below) / (2 * step)


def _derives_once(tensor: Tensor) -> bool:
    """Return whether the graph of a tensor holds what must not be derived."""
    return any(node.name() == "torch::autograd::Error" for node in nodes_of([tensor]))


def has_functions_by_hand(function: Callable[[Tensor], Tensor], at: Tensor) -> bool:
    """Return whether a function takes some whose derivatives a user has written."""
    with torch.enable_grad():
        value = function(at.detach().requires_grad_())
    by_hand = torch.autograd.function.BackwardCFunction
    return any(isinstance(node, by_hand) for node in nodes_of([value]))


def is_scripted(call: Callable[[], Any]) -> bool:
    """Return whether torch.jit computes, and derives, a part of some outputs.

    It compiles a function by what its first call was given, and torch then leaves it
    out of second derivatives by forward mode without a word (2.13).

    Args:
        call: returns the outputs, of tensors that require a gradient.
    """
    with torch.enable_grad():
        calls = [call() for _ in range(JIT_CALLS)]
    tensors = [leaf for leaf in tree_leaves(calls[-1]) if isinstance(leaf, Tensor)]
    return any("DifferentiableGraph" in node.name() for node in nodes_of(tensors))


def refuse_scripted(expected: str) -> None:
    """Refuse functions that torch.jit has compiled.

    Args:
        expected: field and form of what holds them.

    Raises:
        InputError: always.
    """
    raise InputError(
        f"{expected}, got functions that torch.jit has compiled, which torch leaves "
        "out of second derivatives. Take those that it was given, without its "
        "decorator."
    )


def coarsest_eps(tensor: Tensor) -> float:
    """Return the rounding of the least precise numbers that a tensor is made of."""
    # Not all versions of torch tell.
    inputs = [
        like.dtype
        for node in nodes_of([tensor])
        for like in getattr(node, "_input_metadata", ())
    ]
    reals = [d for d in inputs if d.is_floating_point]
    return max(torch.finfo(dtype).eps for dtype in (tensor.dtype, *reals))


def _reverse_over_reverse(graph: _Graph) -> Written:
    def product(columns: Tensor, into: Tensor | None = None) -> Tensor:
        if into is not None:
            products = into.movedim(-1, 0)
        elif columns.shape[-1] == 1 and not graph.shapes:
            return graph.along(columns[..., 0], batched=False)[0].unsqueeze(-1)
        else:
            products = columns.new_empty(columns.shape[-1], *columns.shape[:-1])
        for row, column in zip(products, columns.unbind(-1), strict=True):
            graph.join(graph.along(column, batched=False), row)
        return products.movedim(0, -1)

    return product


def _retained(graph: _Graph) -> Written:
    def product(columns: Tensor, into: Tensor | None = None) -> Tensor:
        rows = _rows(columns)
        products = graph.along(rows, batched=True)
        if into is None and not graph.shapes:
            return products[0].movedim(0, -1)
        joined = torch.empty_like(rows) if into is None else into.movedim(-1, 0)
        graph.join(products, joined)
        return joined.movedim(0, -1)

    return product


_DERIVED: dict[Order, Callable[[Scalar, Tensor], Written]] = {
    "forward_over_reverse": _forward_over_reverse,
    "linearised": _linearised,
}
_KEPT: dict[Order, Callable[[_Graph], Written]] = {
    "reverse_over_reverse": _reverse_over_reverse,
    "retained": _retained,
}


@dataclass(frozen=True)
class Trial:
    """Times and choice of a trial of the orders.

    Attributes:
        order: the fastest.
        seconds: of one block of products, by order.
        failed: why an order cannot be taken, by order.
    """

    order: str
    seconds: Mapping[str, float]
    failed: Mapping[str, str] = field(default_factory=dict)


_trials: dict[Hashable, Trial] = {}


def fastest(
    prepared: Mapping[str, Callable[[], Product]],
    columns: Tensor,
    *,
    keeps: bool,
    key: Hashable = None,
    blocks: float = math.inf,
) -> Trial:
    """Try each order on one block, and return which is fastest.

    Each is called twice and the second call counts, so that what is done once per
    process, such as loading kernels, does not. Where few blocks are to be multiplied,
    what the first call took beyond the second is spread over them: a record may take as
    long as ten products.

    Args:
        prepared: functions that prepare products, by order.
        columns: to multiply, (W, S).
        keeps: whether preparation is done once for all blocks.
        key: of the problem; a trial of the same key, device, precision and number of
            columns is made once per process. None makes it each time.
        blocks: how many blocks like this one, or their worth in time if this one is of
            fewer samples, preparation is kept for.

    Returns:
        The trial.

    Raises:
        InputError: every order fails.
    """
    like = columns.shape, columns.dtype, columns.device
    seat = (key, *like, tuple(prepared), keeps)
    if key is not None and seat in _trials:
        return _trials[seat]
    seconds: dict[str, float] = {}
    failed: dict[str, str] = {}
    cause: Exception | None = None
    for order, prepare in prepared.items():
        try:
            seconds[order] = _timed(prepare, columns, keeps=keeps, blocks=blocks)
        except InputError:
            raise
        # A module lacks a derivative or a rule, and says so in many ways.
        except Exception as error:
            cause = cause or error
            failed[order] = summary(error)
    if not seconds:
        raise InputError(
            f"module: expected second derivatives, got {next(iter(failed.values()))}. "
            "Replace the layer that lacks them."
        ) from cause
    trial = Trial(min(seconds, key=lambda order: seconds[order]), seconds, failed)
    if key is not None:
        _trials[seat] = trial
    return trial


def _timed(
    prepare: Callable[[], Product], columns: Tensor, *, keeps: bool, blocks: float
) -> float:
    kept: list[Product] = []

    def call() -> None:
        if not (kept and keeps):
            kept[:] = [prepare()]
        kept[0](columns)

    first, again = (_seconds(call, columns.device) for _ in range(2))
    return again + (max(0.0, first - again) / blocks if keeps else 0.0)


def times_as_long(whole: Scalar, small: Scalar, weights: Tensor) -> float:
    """Return how many times as long one function takes as another."""
    with torch.no_grad():
        products = [
            min(_seconds(partial(of, weights), weights.device) for _ in range(2))
            for of in (whole, small)
        ]
    return products[0] / products[1]


def _seconds(call: Callable[[], object], device: torch.device) -> float:
    # The time of a single thread is its own, whatever else the machine does.
    is_alone = device.type == "cpu" and torch.get_num_threads() == 1
    clock = time.thread_time if is_alone else time.perf_counter
    _wait(device)
    start = clock()
    call()
    _wait(device)
    return clock() - start


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
