"""Sums over data in passes that fit into memory, and the memory that they take."""

from __future__ import annotations

import copy
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from curvflow.errors import InputError
from curvflow.tasks.numerics.derivatives.precision import differentiable
from curvflow.tasks.numerics.operators.base import no_sample_mean


class _Meter(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch has no types
    """Counts the bytes of all tensors made within it while they live.

    Tensors that torch keeps for a derivative live as long as their graph does.
    """

    def __init__(self, given: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch has no types
        self.peak = 0
        self._now = 0
        self._sizes: dict[int, int] = {}
        self._given = {tensor.untyped_storage()._cdata for tensor in given}

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                self._add(leaf.untyped_storage())
        return out

    def _add(self, storage: torch.UntypedStorage) -> None:
        number = storage._cdata
        if number in self._sizes or number in self._given:
            return
        self._sizes[number] = storage.nbytes()
        self._now += storage.nbytes()
        self.peak = max(self.peak, self._now)
        weakref.finalize(storage, self._drop, number)

    def _drop(self, number: int) -> None:
        self._now -= self._sizes.pop(number)


def peak_bytes(compute: Callable[[], object], given: Sequence[Tensor] = ()) -> int:
    """Return the bytes that a computation has at its peak, beyond what it was given.

    Args:
        compute: run once, on tensors of the device `meta`, which takes neither the
            memory nor the time; elsewhere it is counted as well, and runs in full.
        given: tensors that exist before, so that a view of them is nothing new.

    Returns:
        Bytes of all tensors that were made within and lived at once. What kernels use
        inside, and what an allocator keeps, is not counted.
    """
    meter = _Meter(given)
    with meter:
        kept = compute()
    del kept
    return meter.peak


# Models that must fit into a pass on a CPU for vmap to be faster than one call after
# another: where they are fewer, each is arithmetic, of which vmap makes more.
FEWEST_TOGETHER = 8


def models_together(most: int, *, has_plain_path: bool) -> int:
    """Return how many models a pass on a CPU takes.

    Args:
        most: models that fit into one.
        has_plain_path: a model alone needs no copy: see decision 0027.

    Returns:
        1 where they go one by one, else two or more.
    """
    return 1 if has_plain_path and most < FEWEST_TOGETHER else max(2, most)


def spans(models: int, most: int, *, fewest: int = 2) -> list[slice]:
    """Cut models into even spans, none of a single model: see decision 0003.

    Args:
        models: how many, M.
        most: models wanted per span; exceeded where a span of one were left.
        fewest: models of a span, 1 where one of them takes the plain path.

    Returns:
        The spans in order; their lengths differ by at most one.
    """
    count = max(1, min(-(-models // max(fewest, most)), models // fewest))
    bounds = [models * number // count for number in range(count + 1)]
    return [slice(*bounds[number : number + 2]) for number in range(count)]


def in_separate_memory(weights_MD: Tensor) -> Tensor:
    """Return weights as all that lies in their memory, copied if it holds others.

    Torch gives a derivative forward the layout of all the memory in which that lies by
    which it derives. Of some of many models, it would take room for all of them, and
    last bits would depend on where among them these are.

    Args:
        weights_MD: of some models.
    """
    is_whole = weights_MD.untyped_storage().nbytes() == weights_MD.nbytes
    return weights_MD if is_whole else weights_MD.clone()


# From columns (M, D, S) of the models of a pass to products (M, D, S).
Product = Callable[[Tensor], Tensor]

# From a shape to uniform numbers of each model, (M, *shape).
Draw = Callable[[tuple[int, ...]], Tensor]

# What an operator holds before it multiplies.
GIVEN = ("_weights_MD", "_fixed_MS", "_inputs", "_targets")


@dataclass(frozen=True)
class Part:
    """The models and the samples of one pass.

    Attributes:
        models: which models.
        rows: which samples.
        weights: of these models, (M, D).
        fixed: constants behind the weights, (M, S).
        inputs: shape (M or 1, N, ...).
        targets: shape (M or 1, N, ...).
        drawn: random numbers that a call takes, in their order; None if it is given no
            source of them.
    """

    models: slice
    rows: slice
    weights: Tensor
    fixed: Tensor
    inputs: Tensor
    targets: Tensor
    drawn: tuple[Tensor, ...] | None = None

    def drawing(self) -> dict[str, Draw]:
        """Return the keyword by which one call is given its random numbers, if any."""
        if self.drawn is None:
            return {}
        left = iter(self.drawn)
        return {"draw": lambda _: next(left)}

    def first(self, count: int) -> Part:
        """Return the part of the first samples, without its random numbers."""
        start = self.rows.start
        return replace(
            self,
            rows=slice(start, start + count),
            inputs=self.inputs[:, :count],
            targets=self.targets[:, :count],
            drawn=None,
        )

    def split(self, most: int) -> list[Part]:
        """Return the parts of consecutive samples, at most so many each.

        Samples that share random numbers are not taken apart.
        """
        if self.drawn is not None:
            return [self]
        count = self.inputs.shape[1]
        return [
            replace(
                self,
                rows=slice(self.rows.start + start, self.rows.start + start + most),
                inputs=self.inputs[:, start : start + most],
                targets=self.targets[:, start : start + most],
            )
            for start in range(0, count, most)
        ]

    def full(self, weights_MD: Tensor) -> Tensor:
        """Return weights with the constants behind them, (M, D + S)."""
        if not self.fixed.shape[1]:
            return weights_MD
        return torch.cat([weights_MD, self.fixed], dim=1)


def passes(
    weights_MD: Tensor,
    fixed_MS: Tensor,
    inputs: Tensor,
    targets: Tensor,
    *,
    batch_size: int,
    models_per_pass: int,
    fewest: int = 2,
) -> Iterator[Part]:
    """Yield passes over models and samples, samples within models.

    Args:
        weights_MD: of the models.
        fixed_MS: constants behind them.
        inputs: shape (M or 1, N, ...).
        targets: shape (M or 1, N, ...).
        batch_size: samples per pass.
        models_per_pass: models per pass, at least two where there are as many.
        fewest: models of a pass, as of `spans`.
    """
    for models in spans(len(weights_MD), models_per_pass, fewest=fewest):
        of_models = slice(None) if len(inputs) == 1 else models
        few_MD = in_separate_memory(weights_MD[models])
        for start in range(0, inputs.shape[1], batch_size):
            rows = slice(start, start + batch_size)
            yield Part(
                models,
                rows,
                few_MD,
                fixed_MS[models],
                inputs[of_models, rows],
                targets[of_models, rows],
            )


class Draws(Protocol):
    """Sources of random numbers of models, for each pass."""

    def at(self, part: Part) -> Draw:
        """Return the source of a pass; those of equal passes draw the same."""

    def select(self, models: Tensor) -> Draws:
        """Return the sources of some of the models, by their indices (m,)."""


class Averaged(ABC):
    """A symmetric operator of M models that is a mean over samples.

    Data are read once per block of columns. Where all models and samples fit into one
    pass, what does not depend on the columns is kept for the next block; so it is of
    models that go one by one, if all samples fit and memory is counted on for it.
    """

    def __init__(
        self,
        weights_MD: Tensor,
        inputs: Tensor,
        targets: Tensor,
        *,
        fixed_MS: Tensor | None = None,
        batch_size: int | None = None,
        models_per_pass: int | None = None,
        draws: Draws | None = None,
    ) -> None:
        """Take where to expand, and the data to average over.

        Args:
            weights_MD: where to expand; finite.
            inputs: shape (M or 1, N, ...); 1 shares the data between models.
            targets: shape (M or 1, N) or (M or 1, N, C).
            fixed_MS: what functions take behind the weights and nothing is derived
                by, such as the running statistics of a batch norm.
            batch_size: samples per pass, bounding memory; the mean stays exact.
            models_per_pass: models per pass; None for all.
            draws: sources of random numbers, which functions then take as `draw`;
                samples of a pass may meet in them.
        """
        models, size = weights_MD.shape
        self.shape = (models, size, size)
        self.dtype, self.device = weights_MD.dtype, weights_MD.device
        self.num_samples: int = inputs.shape[1]
        self._weights_MD = weights_MD.detach().contiguous()
        self._inputs, self._targets = inputs, targets
        self._fixed_MS = weights_MD[:, :0] if fixed_MS is None else fixed_MS.detach()
        self._batch_size = batch_size or inputs.shape[1]
        self._models_per_pass = models_per_pass or models
        self._sources, self._fewest, self._keeps_each = draws, 2, False
        self._kept: dict[int, Product] = {}

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the products with vectors (M, D) or columns (M, D, S)."""
        if columns.ndim == 2:
            return (self @ columns.unsqueeze(-1)).squeeze(-1)
        # Made behind the first product, so that it is not there at its peak. New memory
        # costs as much as arithmetic: it is written to but once.
        total: Tensor | None = None
        with differentiable():
            for part in self.parts():
                first = part.models.start
                product = self._kept.get(first) or self.prepare(part, columns.shape[2])
                if self._keeps():
                    self._kept[first] = product
                products = product(columns[part.models])
                total = torch.empty_like(columns) if total is None else total
                into = total[part.models]
                (into.copy_ if part.rows.start == 0 else into.add_)(products)
                del products
        assert total is not None  # there is no mean over no samples
        return total.div_(self.num_samples)

    def parts(self) -> Iterator[Part]:
        """Yield the passes, samples within models."""
        for part in passes(
            self._weights_MD,
            self._fixed_MS,
            self._inputs,
            self._targets,
            batch_size=self._batch_size,
            models_per_pass=self._models_per_pass,
            fewest=self._fewest,
        ):
            yield self._drawing(part)

    def _drawing(self, part: Part) -> Part:
        """Return a part with the random numbers of its call, if it takes any."""
        if self._sources is None:
            return part
        return replace(part, drawn=self._numbers(part))

    def _numbers(self, part: Part) -> tuple[Tensor, ...]:
        """Return the random numbers of a call: nothing can be drawn within vmap."""
        assert self._sources is not None
        source = self._sources.at(part)
        drawn: list[Tensor] = []

        def noted(shape: tuple[int, ...]) -> Tensor:
            drawn.append(source(shape))
            return drawn[-1]

        with torch.no_grad():
            self.call(part, noted)
        return tuple(drawn)

    @abstractmethod
    def call(self, part: Part, draw: Draw) -> object:
        """Compute a part once, for the random numbers that it takes.

        Args:
            part: of one pass.
            draw: source of the numbers.
        """

    def _keeps(self) -> bool:
        models, most = len(self._weights_MD), self._models_per_pass
        is_one = len(spans(models, most, fewest=self._fewest)) == 1
        return (is_one or self._keeps_each) and self._batch_size >= self.num_samples

    @abstractmethod
    def prepare(self, part: Part, columns: int) -> Product:
        """Return the product with the sum over a part's samples.

        Args:
            part: of one pass.
            columns: how many will be multiplied at once.

        Returns:
            A function from columns (M, D, S) of the part's models to their products.
        """

    def product_bytes(self, columns: int) -> int:
        """Return the estimated peak bytes of a product with a block of columns.

        Args:
            columns: how many, S.

        Returns:
            Additional bytes: the block, its product and what a pass
            makes. No number is computed.
        """
        twin = self._on("meta")
        shape = (*self.shape[:2], columns)
        return peak_bytes(
            lambda: twin @ torch.ones(shape, dtype=self.dtype, device="meta"),
            given=[getattr(twin, name) for name in GIVEN],
        )

    def _on(self, device: str) -> Self:
        twin = copy.copy(self)
        twin.device = torch.device(device)
        for name in GIVEN:
            setattr(twin, name, getattr(self, name).to(device))
        twin._kept = {}
        return twin

    def of_samples(self, models: Tensor, rows: Tensor) -> Self:
        """Return the operators of the means over some of the samples.

        Args:
            models: of each operator, (R,).
            rows: samples that each is the mean over, (R, B).

        Raises:
            InputError: samples of a pass meet, so that it is no mean over samples.
        """
        if self._sources is not None:
            raise InputError(no_sample_mean("samples that meet in their batch"))
        models, rows = models.to(self.device), rows.to(self.device)

        def pick(data: Tensor) -> Tensor:
            sets_R = models if len(data) > 1 else torch.zeros_like(models)
            return data[sets_R.unsqueeze(1), rows]

        few = copy.copy(self)
        few.shape = (len(models), *self.shape[1:])
        few.num_samples = rows.shape[1]
        few._batch_size = min(self._batch_size, few.num_samples)
        few._models_per_pass = len(models)
        few._weights_MD, few._fixed_MS = (
            self._weights_MD[models],
            self._fixed_MS[models],
        )
        few._inputs, few._targets = pick(self._inputs), pick(self._targets)
        few._kept = {}
        return few

    def in_training(self, draws: Draws) -> Self:
        """Return the operator of the same samples, which meet in one batch.

        Args:
            draws: sources of random numbers, as `__init__` takes them.
        """
        twin = copy.copy(self)
        twin._sources, twin._batch_size = draws, self.num_samples
        twin._kept = {}
        return twin

    def one_by_one(self, *, keeps: bool = True) -> Self:
        """Return the same operator, each of whose models has separate passes.

        Functions take one model as they take several, with the bits of one alone.

        Args:
            keeps: keep what each pass prepares, such as a graph of each model, where
                all samples fit into one.
        """
        twin = copy.copy(self)
        twin._models_per_pass = twin._fewest = 1
        twin._keeps_each = keeps
        twin._kept = {}
        return twin

    def select(self, models: Tensor) -> Self:
        """Return the operator of some of the models, by their indices (m,)."""

        def pick(data: Tensor) -> Tensor:
            return data if data.shape[0] == 1 else data[models]

        subset = copy.copy(self)
        subset.shape = (len(models), *self.shape[1:])
        subset._weights_MD = self._weights_MD[models]
        subset._fixed_MS = self._fixed_MS[models]
        subset._inputs, subset._targets = pick(self._inputs), pick(self._targets)
        subset._models_per_pass = min(self._models_per_pass, len(models))
        subset._sources = self._sources and self._sources.select(models)
        subset._kept = {}
        return subset
