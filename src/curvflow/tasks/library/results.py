"""Measured quantities of one operator, each with its error, its draws and its work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, Unpack

import numpy as np
import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kind import Kind, Variable
from curvflow.schemas.kinds.probes.densities.moments import KIND as MOMENTS
from curvflow.schemas.kinds.probes.densities.moments import MomentsParams
from curvflow.schemas.kinds.probes.effective_dimension import (
    KIND as EFFECTIVE_DIMENSION,
)
from curvflow.schemas.kinds.probes.effective_dimension import EffectiveDimensionParams
from curvflow.schemas.kinds.probes.extremes.eigenvalues import KIND as EIGENVALUES
from curvflow.schemas.kinds.probes.extremes.eigenvalues import EigenvaluesParams
from curvflow.schemas.kinds.probes.logdet import KIND as LOGDET
from curvflow.schemas.kinds.probes.logdet import LogdetParams
from curvflow.schemas.kinds.shared.operators import UNITS, judged
from curvflow.schemas.nodes import Array, Member, Ritz
from curvflow.tasks.curvature.ritz_data import functional_arrays
from curvflow.tasks.library.arguments import (
    FitSettings,
    checked,
    number,
    numbers,
    precisions,
    short,
)
from curvflow.tasks.numerics.estimators.traces import Estimate
from curvflow.tasks.numerics.krylov.densities import density, kernel_width
from curvflow.tasks.numerics.krylov.functionals import Bernstein, bounded
from curvflow.tasks.numerics.krylov.lanczos import RitzData
from curvflow.tasks.numerics.krylov.quadrature import extremes
from curvflow.tasks.numerics.krylov.ritz_spectra import mass
from curvflow.tasks.probes.densities.moments import moments
from curvflow.tasks.probes.effective_dimension import effective_dimension
from curvflow.tasks.probes.extremes.eigenvalues import eigenvalues
from curvflow.tasks.probes.logdet import logdet
from curvflow.tasks.registry import Machine, TileFunction

if TYPE_CHECKING:
    import xarray as xr

Number = float | Array

# Smoothing of a density where no width is given, in units of the spectral range.
KAPPA = 0.02
NUM_POINTS = 512


@dataclass(frozen=True, repr=False, eq=False)
class Result:
    """A measured quantity.

    Attributes:
        value: the quantity, a number or an array.
        sem: standard error of the value, of its shape; NaN for a single draw, None of
            numbers that are not drawn.
        draws: whose mean the value is, along the last dimension; None if not
            drawn.
        num_matvecs: work, products with a vector.
        variables: all that was measured, by the names that a study gives them.
        declared: dimensions, units and descriptions of the variables.
    """

    value: Number
    sem: Number | None
    draws: Array | None
    num_matvecs: int
    variables: Mapping[str, Array]
    declared: tuple[Variable, ...]

    def __repr__(self) -> str:
        error = "" if self.sem is None else f" ± {_shown(self.sem, 2)}"
        noun = "product" if self.num_matvecs == 1 else "products"
        work = f"{self.num_matvecs} {noun}"
        return f"{type(self).__name__}({_shown(self.value)}{error}, {work})"

    def __float__(self) -> float:
        return float(self.value)

    def to_xarray(self) -> xr.Dataset:
        """Return all that was measured, with dimensions, units and descriptions.

        Examples:
            >>> import curvflow, torch
            >>> trace = curvflow.from_matrix(torch.eye(2)).trace(4)
            >>> float(trace.to_xarray()["trace"])
            2.0
        """
        import xarray as xr

        present = [v for v in self.declared if v.name in self.variables]
        groups: dict[bool, dict[str, Any]] = {True: {}, False: {}}
        for variable in present:
            array = np.asarray(self.variables[variable.name])
            attrs = {"units": variable.units, "description": variable.description}
            is_coordinate = variable.dims == (variable.name,)
            groups[is_coordinate][variable.name] = (variable.dims, array, attrs)
        return xr.Dataset(groups[False], groups[True])


def _shown(value: Number, digits: int = 5) -> str:
    if np.ndim(value) == 0:
        return f"{float(value):.{digits}g}"
    return np.array2string(
        np.asarray(value),
        threshold=6,
        edgeitems=2,
        separator=", ",
        formatter={"float_kind": lambda x: f"{x:.{digits}g}"},
    )


def _number(array: Array) -> Number:
    return array.item() if array.ndim == 0 else array


def parts(
    kind: Kind, arrays: Mapping[str, Array], name: str, sem: str = "", draws: str = ""
) -> dict[str, Any]:
    """Return the fields of a result from the variables that a probe returns."""
    return {
        "value": _number(arrays[name]),
        "sem": _number(arrays[sem]) if sem else None,
        "draws": arrays.get(draws),
        "num_matvecs": int(arrays["num_matvecs"]),
        "variables": arrays,
        "declared": kind.outputs,
    }


R = TypeVar("R", bound=Result)


@dataclass(frozen=True, repr=False, eq=False)
class Eigenvalues(Result):
    """Extreme eigenvalues, the most wanted first, each with a bound of its error."""

    value: Array

    @classmethod
    def of(cls, arrays: Mapping[str, Array]) -> Eigenvalues:
        """Take the variables of `probe.eigenvalues`."""
        return cls(**parts(EIGENVALUES, arrays, "eigenvalues"))

    @property
    def residuals(self) -> Array:
        """||A v - value v||: some eigenvalue lies within it of the value, (k,)."""
        return self.variables["residuals"]

    @property
    def converged(self) -> Array:
        """True where the residual is within the tolerance, (k,)."""
        return self.variables["converged"]

    @property
    def iterations(self) -> int:
        """Products with a block."""
        return int(self.variables["iterations"])

    @property
    def vectors(self) -> Array | None:
        """Unit eigenvectors as rows, (k, D); None unless requested."""
        return self.variables.get("eigenvectors")

    def __repr__(self) -> str:
        count = int(self.converged.sum())
        return (
            f"Eigenvalues({_shown(self.value)}, {count} of {len(self.converged)} "
            f"converged, {self.num_matvecs} products)"
        )


@dataclass(frozen=True, repr=False, eq=False)
class Trace(Result):
    """The trace of an operator, whole and by parameter tensor."""

    value: float
    sem: float

    @property
    def reached(self) -> bool:
        """True if the relative standard error requested was reached."""
        return bool(self.variables["reached"])

    @property
    def layers(self) -> dict[str, tuple[float, float]]:
        """Trace and standard error of the diagonal block of each parameter tensor."""
        names, values, errors = (
            self.variables[name].tolist()
            for name in ("layer", "layer_trace", "layer_trace_sem")
        )
        pairs = zip(values, errors, strict=True)
        return dict(zip(names, pairs, strict=True))


@dataclass(frozen=True, repr=False, eq=False)
class Diagonal(Result):
    """The diagonal of an operator, an entry for each parameter."""

    value: Array
    sem: Array

    @property
    def interval(self) -> tuple[Array, Array]:
        """Ends of intervals of 95 %, each for an entry."""
        return self.variables["diagonal_low"], self.variables["diagonal_high"]

    @property
    def reached(self) -> bool:
        """True if the relative error requested was reached."""
        return bool(self.variables["reached"])

    @property
    def layers(self) -> dict[str, Array]:
        """Entries of each parameter tensor, flat."""
        ends = np.cumsum(self.variables["layer_size"])[:-1]
        pieces = np.split(self.value, ends)
        return dict(zip(self.variables["layer"].tolist(), pieces, strict=True))


@dataclass(frozen=True, repr=False, eq=False)
class SquaredNorm(Result):
    """The squared Frobenius norm of an operator."""

    value: float
    sem: float

    @property
    def reached(self) -> bool:
        """True if the relative standard error requested was reached."""
        return bool(self.variables["reached"])


@dataclass(frozen=True, repr=False, eq=False)
class Moments(Result):
    """Moments tr p_k(A) / D of the spectrum, k = 0 .. K."""

    value: Array
    sem: Array

    @classmethod
    def of(cls, arrays: Mapping[str, Array]) -> Moments:
        """Take the variables of `probe.moments`."""
        result = cls(**parts(MOMENTS, arrays, "moments", "moments_sem"))
        return replace(result, draws=arrays["moment_draws"].T)

    @property
    def covariance(self) -> Array:
        """Covariance of the moments over the random vectors, (K + 1, K + 1)."""
        return self.variables["moments_covariance"]

    @property
    def support(self) -> Array:
        """Interval that the polynomials are taken over, (2,)."""
        return self.variables["support"]


@dataclass(frozen=True, repr=False, eq=False)
class LogDet(Result):
    """The log-determinant of a positive definite operator."""

    value: float
    sem: float

    @classmethod
    def of(cls, arrays: Mapping[str, Array]) -> LogDet:
        """Take the variables of `probe.logdet`."""
        return cls(**parts(LOGDET, arrays, "logdet", "logdet_sem", "logdet_draws"))

    @property
    def converged(self) -> bool:
        """True if the quadrature is within the vectors' error, and a fit converged."""
        return bool(self.variables["converged"])

    @property
    def interval(self) -> tuple[float, float]:
        """Ends of an interval of 95 % for random vectors and quadrature together."""
        low, high = (self.variables[f"logdet_{end}"] for end in ("low", "high"))
        return float(low), float(high)

    @property
    def definite(self) -> str:
        """The proof that the operator is positive definite, or `assumed`."""
        return str(self.variables["definite"])

    @property
    def gap(self) -> float:
        """Distance to another rule from the same runs; 0 for dense."""
        return float(self.variables["gap"])

    @property
    def smallest(self) -> float:
        """Least Ritz value, damped; NaN where none was taken."""
        return float(self.variables["smallest"])


@dataclass(frozen=True, repr=False, eq=False)
class Quadrature(Result):
    """A trace of a function by quadrature; its error has two parts.

    The standard error is of both: of the random vectors, and of the rule, whose bound
    counts as two of its standard deviations.
    """

    quantity: ClassVar[str]

    @property
    def interval(self) -> tuple[Number, Number]:
        """Ends of an interval of 95 % for random vectors and quadrature together."""
        return self._of(f"{self.quantity}_low"), self._of(f"{self.quantity}_high")

    @property
    def quadrature_error(self) -> Number:
        """The most that the quadrature may be off."""
        return self._of(f"{self.quantity}_quadrature")

    @property
    def converged(self) -> Number:
        """True where that is below what was requested."""
        return self._of("converged")

    def _of(self, name: str) -> Number:
        """Return a variable in the shape of the value."""
        return _number(self.variables[name].reshape(np.shape(self.value)))


@dataclass(frozen=True, repr=False, eq=False)
class EffectiveDimension(Quadrature):
    """The sum of lambda / (lambda + prior precision) over the spectrum."""

    quantity = "effective_dimension"

    @classmethod
    def of(cls, arrays: Mapping[str, Array], *, is_scalar: bool) -> EffectiveDimension:
        """Take the variables of `probe.effective_dimension`."""
        name = "effective_dimension"
        names = (name, f"{name}_sem", f"{name}_draws")
        result = cls(**parts(EFFECTIVE_DIMENSION, arrays, *names))
        if not is_scalar:
            return result
        value, sem, draws = (arrays[name][0] for name in names)
        return replace(result, value=float(value), sem=float(sem), draws=draws)

    @property
    def prior_precision(self) -> Array:
        """Numbers in units of the eigenvalues, (P,)."""
        return self.variables["prior_precision"]


@dataclass(frozen=True, repr=False, eq=False)
class Density(Quadrature):
    """A spectral density, smoothed by a Gaussian kernel, of integral 1."""

    quantity = "density"
    value: Array
    sem: Array

    @property
    def grid(self) -> Array:
        """Points at which the density was taken, (G,)."""
        return self.variables["grid"]

    @property
    def sigma(self) -> float:
        """Width of the kernel, in units of the eigenvalues."""
        return float(self.variables["sigma"])


@dataclass(frozen=True, repr=False, eq=False)
class Functional(Quadrature):
    """The trace of a function of an operator, tr f(A)."""

    quantity = "functional"
    value: float
    sem: float


@dataclass(frozen=True, repr=False, eq=False)
class Mass(Result):
    """The fraction of the eigenvalues in an interval."""

    value: float
    sem: float

    @property
    def interval(self) -> tuple[float, float]:
        """Interval of 95 % for random vectors and quadrature together."""
        return float(self.variables["low"]), float(self.variables["high"])


@dataclass(frozen=True, repr=False, eq=False)
class Solution(Result):
    """The solution of A x = b, of the shape of b.

    Attributes:
        x: the solution, on the device of b and of its precision; float64 if b holds
            integers or half precision.
    """

    x: Tensor

    @property
    def residual(self) -> Number:
        """||b - A x|| / ||b||, measured by a last product; of each column of b."""
        return _number(self.variables["residual"])

    @property
    def iterations(self) -> int:
        """Products with the block of right-hand sides, at most over its columns."""
        return int(self.variables["iterations"].max())

    @property
    def converged(self) -> bool:
        """True if all columns are within the tolerance."""
        return bool(self.variables["converged"].all())

    @property
    def least_squares(self) -> bool:
        """True if a column is above the tolerance, with the least residual there is.

        So they end for a singular operator and a b outside its range. It is up to
        rounding, of all columns that have not converged, and where it is known.
        """
        least, converged = self.variables["least_squares"], self.variables["converged"]
        return bool(least.any() and (least | converged).all())

    @property
    def method(self) -> str:
        """`cg`, conjugate gradients, or `minres`."""
        return str(self.variables["method"])

    def __repr__(self) -> str:
        is_there = "converged" if self.converged else "not converged"
        if self.least_squares:
            is_there = "least squares"
        return (
            f"Solution({_shown(self.value)}, {is_there} by {self.method}, residual "
            f"{float(np.max(self.residual)):.2g}, {self.num_matvecs} products)"
        )


@dataclass(frozen=True, repr=False, eq=False)
class Spectrum(Result):
    """Ritz data of Lanczos runs from random vectors, and all that follows from them.

    The value is the Ritz values of each run, (runs, steps). No method takes a product.

    Examples:
        >>> import curvflow, torch
        >>> H = curvflow.from_matrix(torch.diag(torch.arange(6.0).double()))
        >>> runs = H.spectrum(num_runs=8)
    """

    value: Array

    @property
    def ritz_values(self) -> Array:
        """Ritz values, ascending, (runs, steps); NaN behind an early end."""
        return self.variables["ritz_values"]

    @property
    def ritz_weights(self) -> Array:
        """Weights of the Ritz values, (runs, steps), of sum 1 over a run."""
        return self.variables["ritz_weights"]

    @property
    def residuals(self) -> Array:
        """Residual of each Ritz vector, (runs, steps)."""
        return self.variables["ritz_residuals"]

    @property
    def size(self) -> int:
        """Dimension of the operator, D."""
        return int(self.variables["size"])

    def __repr__(self) -> str:
        runs, steps = self.ritz_values.shape
        low, high = (float(self.variables[name]) for name in ("smallest", "largest"))
        return (
            f"Spectrum({low:.5g} to {high:.5g}, {runs} runs of {steps} steps, "
            f"{self.num_matvecs} products)"
        )

    def eigenvalues(
        self, k: int = 3, *, which: Literal["LM", "LA", "SA"] = "LM", tol: float = 1e-6
    ) -> Eigenvalues:
        """Take eigenvalues from the run whose worst residual is the least.

        Args:
            k: eigenvalues wanted.
            which: LM, largest magnitude; LA, largest; SA, smallest with its sign.
            tol: residual allowed, relative to the eigenvalue.

        Returns:
            The eigenvalues; a repeated one occurs once.

        Examples:
            >>> runs.eigenvalues(k=2)
            Eigenvalues([5, 4], 2 of 2 converged, 0 products)
        """
        params = checked(EigenvaluesParams, k=k, which=which, tol=tol, method="lanczos")
        return Eigenvalues.of(self._read(eigenvalues, params))

    def moments(
        self,
        num_moments: int = 30,
        *,
        basis: Literal["power", "chebyshev"] = "power",
        support: tuple[float, float] | None = None,
    ) -> Moments:
        """Take the moments tr p_k(A) / D, k = 0 .. K.

        Args:
            num_moments: highest order, K; at most 2 steps - 1.
            basis: polynomials p_k: powers, or Chebyshev's over the support.
            support: interval that holds the spectrum; None takes the Ritz values'.

        Returns:
            The moments with their covariance over the runs.

        Examples:
            >>> runs.moments(1)
            Moments([1, 2.5] ± [0, 0.35], 0 products)
        """
        params = checked(
            MomentsParams, num_moments=num_moments, basis=basis, support=support
        )
        return Moments.of(self._read(moments, params))

    def effective_dimension(
        self, prior_precision: float | tuple[float, ...]
    ) -> EffectiveDimension:
        """Estimate the sum of lambda / (lambda + prior precision).

        Args:
            prior_precision: one positive number, or several, in units of the
                eigenvalues.

        Returns:
            The dimension at each of them.

        Examples:
            >>> runs.effective_dimension(1.0)
            EffectiveDimension(3.55 ± 0.35, 0 products)
        """
        params = checked(
            EffectiveDimensionParams, prior_precision=precisions(prior_precision)
        )
        arrays = self._read(effective_dimension, params)
        return EffectiveDimension.of(arrays, is_scalar=np.ndim(prior_precision) == 0)

    def logdet(
        self,
        *,
        damping: float = 0.0,
        method: Literal["slq", "chebyshev", "meme"] = "slq",
        **settings: Unpack[FitSettings],
    ) -> LogDet:
        """Estimate log det(A + damping I).

        Args:
            damping: added to every eigenvalue first.
            method: slq, quadrature; chebyshev, interpolation; meme, density of largest
                entropy.
            **settings: further parameters, see `FitSettings`.

        Returns:
            The estimate.

        Examples:
            >>> runs.logdet(damping=1.0)  # ln 6!
            LogDet(6.5793 ± 0.74, 0 products)
        """
        params = checked(LogdetParams, damping=damping, method=method, **settings)
        return LogDet.of(self._read(logdet, params))

    def density(
        self,
        grid: Array | Tensor | None = None,
        *,
        kappa: float | None = None,
        sigma: float | None = None,
    ) -> Density:
        """Smooth the spectrum by a Gaussian kernel.

        Args:
            grid: points to take it at; None takes 512 over the spectrum and four widths
                on either side.
            kappa: width of the kernel in units of the spectral range, 0.02 unless
                sigma is given.
            sigma: width in units of the eigenvalues.

        Returns:
            The density with its standard error, of the random vectors and of the
            quadrature, which a kernel narrower than the steps resolve makes large.

        Raises:
            InputError: both widths are given, one is not positive, or the grid holds
                no points or points that are not finite.

        Examples:
            >>> runs.density(torch.tensor([2.5]), sigma=1.0)
            Density([0.16637] ± [0.028], 0 products)
        """
        if kappa is not None and sigma is not None:
            raise InputError(
                "kappa cannot be combined with sigma. Remove one of the two."
            )
        name, given = ("sigma", sigma) if kappa is None else ("kappa", kappa)
        width = KAPPA if given is None else number(name, given)
        if not width > 0:
            raise InputError(
                f"{name}: expected a number above 0, got {width}. Raise it."
            )
        sigma, kappa = (None, width) if sigma is None else (width, None)
        ritz = self._ritz()
        points_G = self._grid(ritz, kappa, sigma) if grid is None else _points(grid)
        smooth = density(ritz, points_G, sigma=sigma, kappa=kappa)
        variables = {
            "grid": points_G.numpy(),
            **functional_arrays("density", smooth.found.of_model(0)),
            "sigma": smooth.sigma[0].numpy(),
            "size": np.array(self.size),
        }
        return Density(
            variables["density"], variables["density_sem"], None, 0, variables, DENSITY
        )

    def functional(self, f: Callable[[Tensor], Tensor]) -> Functional:
        """Estimate tr f(A).

        Args:
            f: from a tensor of eigenvalues to a tensor, element by element; one that
                knows the signs of its derivatives, a `numerics.Bernstein`, has tighter
                bounds.

        Returns:
            The estimate, a draw for each run, with the error of the quadrature.

        Raises:
            InputError: what f returns has another shape, or is not finite at a Ritz
                value.

        Examples:
            >>> runs.functional(torch.square)
            Functional(55 ± 11, 0 products)
        """
        ritz = self._ritz()
        _check_finite(_elementwise(f)(ritz.values), ritz.values)
        checked_f = f if isinstance(f, Bernstein) else _elementwise(f)
        value = bounded(ritz, checked_f).of_model(0)
        estimate = value.estimate
        variables = {
            **functional_arrays("functional", value),
            "functional_draws": estimate.draws.numpy(),
        }
        return Functional(
            value=float(estimate.mean),
            sem=float(value.total),
            draws=variables["functional_draws"],
            num_matvecs=0,
            variables=variables,
            declared=FUNCTIONAL,
        )

    def mass(self, low: float = -torch.inf, high: float = torch.inf) -> Mass:
        """Estimate the fraction of the eigenvalues from low to high.

        Args:
            low: lower end, included.
            high: upper end, included.

        Returns:
            The fraction with an interval that allows for the quadrature too.

        Raises:
            InputError: the lower end is not below the upper one or equal to it.

        Examples:
            >>> runs.mass(low=0.5)  # five of six
            Mass(0.83333 ± 0, 0 products)
        """
        low, high = number("low", low), number("high", high)
        if not low <= high:
            raise InputError(
                f"low: expected at most the upper end, {high}, got {low}. Swap or "
                "change them."
            )
        ends = (torch.tensor([end], dtype=torch.float64) for end in (low, high))
        fraction = mass(self._ritz(), *ends)
        fields = _estimated("mass", fraction.estimate)
        low_1, high_1 = fraction.interval()
        fields["variables"].update(low=low_1[0].numpy(), high=high_1[0].numpy())
        return Mass(**fields, declared=MASS)

    def with_work(self, derived: R) -> R:
        """Return what was derived from these runs with their products as its work.

        Args:
            derived: a result of one of the methods.
        """
        return replace(derived, num_matvecs=self.num_matvecs)

    def _read(self, compute: TileFunction, params: Any) -> Mapping[str, Array]:
        node = Ritz("library", "probe.spectrum", {}, self.variables, digest="")
        member = Member(params, {"ritz": [node]})
        # As in a study, for equal bits: see decision 0003.
        outcome, _ = compute([member, member], Machine())
        return outcome.arrays

    def _ritz(self) -> RitzData:
        values, weights, residuals = (
            torch.as_tensor(self.variables[f"ritz_{name}"]).unsqueeze(0)
            for name in ("values", "weights", "residuals")
        )
        steps = values.isfinite().sum(2)
        has_copies = not self.variables.get("reorthogonalized", True)
        return RitzData(
            values, weights, residuals, steps, self.size, has_copies=has_copies
        )

    def _grid(self, ritz: RitzData, kappa: float | None, sigma: float | None) -> Tensor:
        width = kernel_width(ritz, sigma, kappa)
        low, high = extremes(ritz)
        first, last = float(low - 4 * width), float(high + 4 * width)
        return torch.linspace(first, last, NUM_POINTS, dtype=torch.float64)


def _points(grid: Array | Tensor) -> Tensor:
    points_G = numbers("grid", grid).to("cpu", torch.float64).flatten()
    if not len(points_G) or not points_G.isfinite().all():
        raise InputError(
            f"grid: expected finite points, got {len(points_G)} points, "
            f"{int((~points_G.isfinite()).sum())} of them not finite. Change it."
        )
    return points_G


def _elementwise(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Refuse what a function returns if it is not of the shape of its argument."""
    if not callable(f):
        raise InputError(
            f"f: expected a function of eigenvalues, got {short(f)}. Pass one, such as "
            "torch.exp."
        )

    def checked_f(values: Tensor) -> Tensor:
        result = torch.as_tensor(f(values))
        if result.shape != values.shape:
            raise InputError(
                f"f: expected a tensor of the shape of the eigenvalues, "
                f"{tuple(values.shape)}, got {tuple(result.shape)}. Compute it "
                "element by element."
            )
        return result

    return checked_f


def _check_finite(result: Tensor, values: Tensor) -> None:
    """Refuse a function that is not finite at some of the Ritz values."""
    wrong = values[~result.isfinite() & ~values.isnan()]
    if len(wrong):
        count = int((~values.isnan()).sum())
        raise InputError(
            f"f: expected finite numbers at the Ritz values, got NaN or infinity at "
            f"{len(wrong)} of {count}, from {float(wrong.min()):.5g} to "
            f"{float(wrong.max()):.5g}. Shift the operator, or define f there."
        )


def _estimated(name: str, estimate: Estimate) -> dict[str, Any]:
    value, sem, draws = (
        t[0].numpy() for t in (estimate.mean, estimate.sem, estimate.draws)
    )
    return {
        "value": float(value),
        "sem": float(sem),
        "draws": draws,
        "num_matvecs": 0,
        "variables": {name: value, f"{name}_sem": sem, f"{name}_draws": draws},
    }


DENSITY = (
    Variable("grid", "eigenvalue", ("grid",), units=UNITS),
    *judged("density", "of the eigenvalues, of integral 1", ("grid",)),
    Variable("sigma", "width of the kernel", units=UNITS),
    Variable("size", "dimension of the operator, D", dtype="int64"),
)
SOLUTION = (
    Variable("solution", "x of A x = b", ("parameter", "right_hand_side")),
    Variable("residual", "||b - A x|| / ||b||", ("right_hand_side",)),
    Variable("iterations", "products with the block", ("right_hand_side",)),
    Variable("converged", "whether the residual is in tol", ("right_hand_side",)),
    Variable(
        "least_squares",
        "whether the residual is above tol, and known to be the least there is",
        ("right_hand_side",),
    ),
    Variable("method", "cg or minres", dtype="str"),
)
FUNCTIONAL = (
    *judged("functional", "tr f(A)"),
    Variable("functional_draws", "estimate of each run", ("run",)),
)
MASS = (
    Variable("mass", "fraction of the eigenvalues in the interval"),
    Variable("mass_sem", "standard error over the runs"),
    Variable("mass_draws", "weight of the nodes of each run", ("run",)),
    Variable("low", "lower end of an interval of 95 %"),
    Variable("high", "upper end of an interval of 95 %"),
)
