"""Linear operators, dense matrices, and products that are checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, cast, runtime_checkable

import torch
from torch import Tensor

from curvflow.errors import InputError

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator


class Operator(Protocol):
    """A linear map known by its products.

    Attributes:
        shape: rows and columns.
        dtype: of vectors and products.
        device: of vectors and products.
    """

    @property
    def shape(self) -> tuple[int, int]: ...  # noqa: D102 -- see Attributes
    @property
    def dtype(self) -> torch.dtype: ...  # noqa: D102
    @property
    def device(self) -> torch.device: ...  # noqa: D102

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the product with a vector (D,) or columns (D, S)."""

    def adjoint(self) -> Operator:
        """Return the transposed operator."""

    def to_scipy(self) -> LinearOperator:
        """Return the same map for SciPy's solvers; products run on `device`."""


class Square(Protocol):
    """Size and type of what multiplies vectors (D,)."""

    @property
    def shape(self) -> tuple[int, int]: ...  # noqa: D102 -- as of Operator
    @property
    def dtype(self) -> torch.dtype: ...  # noqa: D102


def columns_of(operator: Square, columns: object) -> Tensor:
    """Return the vectors that a user multiplies an operator by, in its precision.

    Args:
        operator: of size D.
        columns: a vector (D,) or columns (D, S).

    Raises:
        InputError: they are no tensor, complex, or of another length.
    """
    size = operator.shape[0]
    if not isinstance(columns, Tensor):
        raise InputError(
            f"columns: expected a tensor, got {type(columns).__name__}. Pass "
            "torch.as_tensor of it, or take to_scipy() for NumPy's arrays."
        )
    if columns.ndim not in (1, 2) or len(columns) != size:
        raise InputError(
            f"columns: expected shape ({size},) or ({size}, S), got "
            f"{tuple(columns.shape)}. Pass vectors as columns."
        )
    check_real(columns)
    return columns.to(operator.dtype)


def check_real(columns: Tensor) -> None:
    """Refuse complex vectors, whose imaginary part a real operator would leave out.

    Args:
        columns: vectors to multiply.

    Raises:
        InputError: they are complex.
    """
    if columns.is_complex():
        raise InputError(
            f"columns: expected real numbers, got {columns.dtype}. Multiply the real "
            "and the imaginary part one by one."
        )


class BatchedOperator(Protocol):
    """One symmetric linear map for each of M models, multiplied together.

    Attributes:
        shape: models, rows and columns.
        dtype: of vectors and products.
        device: of vectors and products.
    """

    @property
    def shape(self) -> tuple[int, int, int]: ...  # noqa: D102 -- see Attributes
    @property
    def dtype(self) -> torch.dtype: ...  # noqa: D102
    @property
    def device(self) -> torch.device: ...  # noqa: D102

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the products with vectors (M, D) or columns (M, D, S)."""

    def select(self, models: Tensor) -> Self:
        """Return the operator of some of the models, by their indices (m,)."""


@runtime_checkable
class SampleMean(Protocol):
    """A batched operator that is a mean over samples.

    Attributes:
        shape: models, rows and columns.
        dtype: of vectors and products.
        device: of vectors and products.
        num_samples: N.
    """

    @property
    def shape(self) -> tuple[int, int, int]: ...  # noqa: D102 -- see Attributes
    @property
    def dtype(self) -> torch.dtype: ...  # noqa: D102
    @property
    def device(self) -> torch.device: ...  # noqa: D102
    @property
    def num_samples(self) -> int: ...  # noqa: D102

    def of_samples(self, models: Tensor, rows: Tensor) -> BatchedOperator:
        """Return operators (R, D, D) of models (R,): means over samples (R, B)."""


def as_sample_mean(operator: BatchedOperator) -> SampleMean:
    """Return an operator whose samples can be taken apart.

    Raises:
        InputError: it is no mean over samples.
    """
    if not isinstance(operator, SampleMean):
        raise InputError(no_sample_mean(type(operator).__name__))
    return operator


def no_sample_mean(name: str) -> str:
    """Word the refusal of an operator whose samples cannot be taken apart."""
    return (
        f"operator: expected a mean over samples, to take batches of them, got {name}. "
        "Take probes_per data."
    )


# Functions of symmetric operators take both; see `as_batched`.
AnyOperator = Operator | BatchedOperator


def scipy_operator(operator: Operator) -> LinearOperator:
    """Wrap an operator for SciPy's solvers.

    Args:
        operator: the map.

    Returns:
        A LinearOperator on NumPy arrays of the same precision.
    """
    from scipy.sparse.linalg import LinearOperator as Wrapped

    def product(of: Operator, columns: Any) -> Any:
        tensor = torch.as_tensor(columns, device=of.device)
        check_real(tensor)
        return (of @ tensor.to(of.dtype)).cpu().numpy()

    transposed = operator.adjoint()
    return Wrapped(
        dtype=torch.empty(0, dtype=operator.dtype).numpy().dtype,
        shape=operator.shape,
        matvec=lambda v: product(operator, v),
        matmat=lambda v: product(operator, v),
        rmatvec=lambda v: product(transposed, v),
        rmatmat=lambda v: product(transposed, v),
    )


class Dense:
    """An operator whose matrix (rows, columns) is at hand."""

    def __init__(self, matrix: Tensor) -> None:
        self.matrix = matrix
        self.shape = (matrix.shape[0], matrix.shape[1])
        self.dtype, self.device = matrix.dtype, matrix.device

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the product with a vector (D,) or columns (D, S)."""
        return self.matrix @ columns

    def adjoint(self) -> Dense:
        """Return the transposed operator."""
        return Dense(self.matrix.T)

    def to_scipy(self) -> LinearOperator:
        """Return the same map for SciPy's solvers."""
        return scipy_operator(self)


class BatchedDense:
    """A batched operator whose symmetric matrices (M, D, D) are at hand."""

    def __init__(self, matrices_MDD: Tensor) -> None:
        self.matrices_MDD = matrices_MDD
        models, rows, columns = matrices_MDD.shape
        self.shape = (models, rows, columns)
        self.dtype, self.device = matrices_MDD.dtype, matrices_MDD.device

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the products with vectors (M, D) or columns (M, D, S)."""
        if columns.ndim == 2:
            return (self.matrices_MDD @ columns.unsqueeze(-1)).squeeze(-1)
        return self.matrices_MDD @ columns

    def select(self, models: Tensor) -> BatchedDense:
        """Return the operator of some of the models, by their indices (m,)."""
        return BatchedDense(self.matrices_MDD[models])


@dataclass(frozen=True)
class Affine:
    """The map c A + s I of one model.

    Attributes:
        operator: A.
        factor: c.
        shift: s.
    """

    operator: WritingOne
    factor: float = 1.0
    shift: float = 0.0


class Repeated:
    """A batched operator of few maps, each that of one model or more.

    All models of one map are multiplied by it at once: their columns side by side.
    """

    def __init__(self, operators: Sequence[Operator], which: Sequence[int]) -> None:
        """Take the maps, of equal shape, and for each model the number of its map."""
        self._operators, self._which = operators, list(which)
        rows, columns = operators[0].shape
        self.shape = (len(self._which), rows, columns)
        self.dtype, self.device = operators[0].dtype, operators[0].device

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the products with vectors (M, D) or columns (M, D, S)."""
        if columns.ndim == 2:
            return (self @ columns.unsqueeze(-1)).squeeze(-1)
        products = torch.empty_like(columns)
        for number, operator in enumerate(self._operators):
            models = [m for m, which in enumerate(self._which) if which == number]
            if models:
                side_by_side_DS = torch.cat([columns[m] for m in models], dim=1)
                product_DS = operator @ side_by_side_DS
                products[models] = torch.stack(product_DS.chunk(len(models), dim=1))
        return products

    def multiply_into(self, columns: Tensor, into: Tensor) -> None:
        """Write the products with columns (M, D, S) into memory like them."""
        if single := self.single:
            single.operator.multiply_into(columns[0], into[0])
        else:
            into.copy_(self @ columns)

    @property
    def single(self) -> Affine | None:
        """The map of the only model, if it can write into memory at hand."""
        first = self._operators[self._which[0]]
        is_single = len(self._which) == 1 and hasattr(first, "recur_into")
        return Affine(cast("WritingOne", first)) if is_single else None

    def select(self, models: Tensor) -> Repeated:
        """Return the operator of some of the models, by their indices (m,)."""
        return Repeated(self._operators, [self._which[m] for m in models.tolist()])


def as_batched(operator: AnyOperator) -> BatchedOperator:
    """Return an operator (D, D) as a batched one of one model, (1, D, D).

    Functions that take batched operators call it first, so that each takes both. What
    they return keeps the leading dimension of models, of length one.

    Args:
        operator: a symmetric map, or one for each of M models, returned as it is.

    Returns:
        The batched operator.

    Raises:
        InputError: the map is not square.

    Examples:
        >>> identity = Dense(torch.eye(3))
        >>> as_batched(identity).shape
        (1, 3, 3)
        >>> as_batched(as_batched(identity)).shape
        (1, 3, 3)
    """
    if len(operator.shape) == 3:
        return operator
    if hasattr(operator, "batched"):
        return cast("BatchedOperator", operator.batched)
    rows, columns = operator.shape
    if rows != columns:
        raise InputError(
            f"operator: expected a square one, got {rows} by {columns}. Take A'A, "
            "which has the squares of its singular values."
        )
    return Repeated([operator], [0])


def as_columns(start: Tensor) -> Tensor:
    """Return columns (D, S) or a vector (D,) of one model as columns (1, D, S)."""
    if start.ndim == 1:
        start = start.unsqueeze(-1)
    return start.unsqueeze(0) if start.ndim == 2 else start


# Entries of a vector that are added up at once.
PART = 1 << 17


class WritingOne(Protocol):
    """An operator of one model whose products can be written into memory at hand.

    Attributes:
        common: multiple of the identity in it, which a product adds in a pass of its
            own.
    """

    @property
    def common(self) -> float: ...  # noqa: D102 -- see Attributes

    def multiply_into(self, columns: Tensor, into: Tensor) -> None:
        """Write the product with columns (D, S) into memory like them."""

    def recur_into(
        self, columns: Tensor, into: Tensor, factor: float, shift: float
    ) -> None:
        """Replace `into` by factor A columns + shift columns - into, all (D, S)."""


class Writing(Protocol):
    """An operator whose products can be written into memory at hand."""

    def multiply_into(self, columns: Tensor, into: Tensor) -> None:
        """Write the products with columns (M, D, S) into memory like them."""


def product(operator: BatchedOperator, columns_MDS: Tensor) -> Tensor:
    """Multiply in the precision of the operator, and return in double precision.

    Args:
        operator: maps of M models.
        columns_MDS: what to multiply, (M, D, S), float64.

    Returns:
        The products, (M, D, S), float64.

    Raises:
        InputError: a product holds NaN or infinity.
    """
    images_MDS, _ = measured_product(operator, columns_MDS)
    return images_MDS.double()


def measured_product(
    operator: BatchedOperator, columns_MDS: Tensor, *, out_MDS: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Multiply in the precision of the operator, and return the lengths as well.

    Args:
        operator: maps of M models.
        columns_MDS: what to multiply, (M, D, S).
        out_MDS: memory that the products may be written to: where D is large, new
            memory costs as much as arithmetic.

    Returns:
        The products, (M, D, S), in the operator's precision, and their lengths, (M, S),
        float64.

    Raises:
        InputError: a product holds NaN or infinity.
    """
    images_MDS = _image(operator, columns_MDS, out_MDS)
    # A length is finite where every entry is, and is wanted anyway.
    lengths_MS = lengths(images_MDS, dim=1)
    check_finite(lengths_MS)
    return images_MDS, lengths_MS


def check_finite(products: Tensor) -> None:
    """Refuse products, or sums of all their entries, that are not finite.

    Raises:
        InputError: there is NaN or infinity.
    """
    if not torch.isfinite(products).all():
        raise InputError(
            "operator: expected finite products, got NaN or infinity. Take curvature "
            "where the loss is finite, or products in double precision."
        )


def product_into(
    operator: BatchedOperator, columns_MDS: Tensor, into_MDS: Tensor
) -> None:
    """Multiply in the precision of the operator; whether it is finite is not looked at.

    Args:
        operator: maps of M models.
        columns_MDS: what to multiply, (M, D, S).
        into_MDS: memory of any precision that takes the products, (M, D, S).
    """
    same = into_MDS.dtype == operator.dtype
    images_MDS = _image(operator, columns_MDS, into_MDS if same else None)
    if images_MDS is not into_MDS:
        into_MDS.copy_(images_MDS)


def recur_into(
    operator: BatchedOperator,
    columns_MDS: Tensor,
    into_MDS: Tensor,
    factor_M: Tensor,
    shift_M: Tensor | None,
) -> None:
    """Make a step of a recurrence of three terms, in place of the first of them.

    Args:
        operator: maps A of M models.
        columns_MDS: what to multiply, (M, D, S).
        into_MDS: replaced by factor A columns + shift columns - itself, (M, D, S).
        factor_M: of each model, (M,).
        shift_M: of each model, (M,); None leaves out factor times what `common_shift`
            returns.
    """
    single: Affine | None = getattr(operator, "single", None)
    same = columns_MDS.dtype == into_MDS.dtype == operator.dtype
    if single is not None and same:
        factor = float(factor_M[0])
        shift, factor = factor * single.shift, factor * single.factor
        if shift_M is None:
            shift = -(factor * single.operator.common)
        else:
            shift += float(shift_M[0])
        single.operator.recur_into(columns_MDS[0], into_MDS[0], factor, shift)
        return
    if shift_M is None:
        shift_M = -common_shift(operator) * factor_M
    images_MDS = _image(operator, columns_MDS, None)
    factor_M11, shift_M11 = (x.to(into_MDS)[:, None, None] for x in (factor_M, shift_M))
    into_MDS.neg_().addcmul_(images_MDS, factor_M11).addcmul_(columns_MDS, shift_M11)


def common_shift(operator: BatchedOperator) -> float:
    """Return a multiple of the identity that `recur_into` is faster without, or 0.

    Args:
        operator: maps of M models.
    """
    single: Affine | None = getattr(operator, "single", None)
    if single is None:
        return 0.0
    return single.factor * single.operator.common + single.shift


def _image(
    operator: BatchedOperator, columns_MDS: Tensor, out_MDS: Tensor | None
) -> Tensor:
    """Return the products, in memory at hand if the operator can write them there."""
    columns_MDS = columns_MDS.to(operator.dtype)
    # A check of the protocol takes as long as a product with a small matrix.
    if out_MDS is None or not hasattr(operator, "multiply_into"):
        return operator @ columns_MDS
    cast("Writing", operator).multiply_into(columns_MDS, out_MDS)
    return out_MDS


def lengths(vectors: Tensor, *, dim: int) -> Tensor:
    """Return the Euclidean lengths of vectors of any precision, added up in float64."""
    parts: list[Tensor] = [
        torch.linalg.vector_norm(part, dim=dim, dtype=torch.float64)
        for part in _parts(vectors, dim)
    ]
    return parts[0] if len(parts) == 1 else lengths(torch.stack(parts), dim=0)


def inner(first: Tensor, second: Tensor, *, dim: int) -> Tensor:
    """Return inner products of vectors of any precision, added up in float64."""
    parts = [
        (a * b).sum(dim, dtype=torch.float64)
        for a, b in zip(_parts(first, dim), _parts(second, dim), strict=True)
    ]
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)


def _parts(vectors: Tensor, dim: int) -> tuple[Tensor, ...]:
    # What is added up in float64 is copied before, and large copies take new memory.
    return (vectors,) if vectors.shape[dim] <= PART else torch.split(vectors, PART, dim)
