"""Symmetric operators of one model with the probes as methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Literal, Self, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from curvflow.errors import InputError
from curvflow.schemas.kind import Kind
from curvflow.schemas.kinds.probes.densities.moments import KIND as MOMENTS
from curvflow.schemas.kinds.probes.densities.spectrum import KIND as SPECTRUM
from curvflow.schemas.kinds.probes.diagonal import KIND as DIAGONAL
from curvflow.schemas.kinds.probes.effective_dimension import (
    KIND as EFFECTIVE_DIMENSION,
)
from curvflow.schemas.kinds.probes.extremes.eigenvalues import KIND as EIGENVALUES
from curvflow.schemas.kinds.probes.logdet import KIND as LOGDET
from curvflow.schemas.kinds.probes.logdet import Method
from curvflow.schemas.kinds.probes.squared_norm import KIND as SQUARED_NORM
from curvflow.schemas.kinds.probes.trace import KIND as TRACE
from curvflow.schemas.kinds.shared.operators import (
    AnyOperatorName,
    OperatorName,
    OperatorParams,
)
from curvflow.schemas.nodes import Array, Matrix, Member
from curvflow.schemas.params import Params
from curvflow.tasks.curvature.operators import MATRIX, OperatorNode
from curvflow.tasks.library.arguments import (
    LogdetSettings,
    SpectrumSettings,
    checked,
    number,
    numbers,
    precisions,
)
from curvflow.tasks.library.preconditioners import Preconditioner, factors_beside
from curvflow.tasks.library.results import (
    SOLUTION,
    Density,
    Diagonal,
    EffectiveDimension,
    Eigenvalues,
    Functional,
    LogDet,
    Moments,
    Solution,
    Spectrum,
    SquaredNorm,
    Trace,
    parts,
)
from curvflow.tasks.numerics.derivatives.over_batches import Curvature
from curvflow.tasks.numerics.krylov import linear_solvers
from curvflow.tasks.numerics.operators.base import BatchedOperator
from curvflow.tasks.probes.densities.moments import moments
from curvflow.tasks.probes.densities.spectrum import spectrum
from curvflow.tasks.probes.diagonal import diagonal
from curvflow.tasks.probes.effective_dimension import effective_dimension
from curvflow.tasks.probes.extremes.eigenvalues import eigenvalues
from curvflow.tasks.probes.logdet import logdet
from curvflow.tasks.probes.squared_norm import squared_norm
from curvflow.tasks.probes.trace import trace
from curvflow.tasks.registry import Machine, TileFunction

# What is probed and in which precision, as callers outside the tasks name them.
Module = nn.Module
Dtype = torch.dtype

Law = Literal["rademacher", "gaussian"]
Compute = Callable[[], Mapping[str, Array]]


@dataclass(frozen=True)
class Probe:
    """A probe that is about to run on an operator, as a memory is given it.

    Attributes:
        kind: its declaration.
        params: its parameters.
        compute: makes the variables of its result.
        given: digests of the further inputs, by their names.
    """

    kind: Kind
    params: Params
    compute: Compute
    given: Mapping[str, str] = field(default_factory=dict)


# Where results are kept, and returned from when they are there.
Memory = Callable[[Probe], Mapping[str, Array]]


def at_once(probe: Probe) -> Mapping[str, Array]:
    """Run a probe, without a memory."""
    return probe.compute()


class SymmetricOperator(Curvature):
    """A symmetric operator (D, D) of one model that can be measured.

    It multiplies vectors, `H @ v`, and adds, subtracts, scales and shifts. Each method
    runs the probe of its name, so that equal seeds give the numbers of a study.

    Attributes:
        shape: rows and columns, (D, D).
        dtype: of vectors and products.
        device: of vectors and products.
        sizes: entries of each parameter by name, in the order of the dimension D.
        name: which matrix, as `operator:` of a study names it; `hessian` if unknown.
        entries: the same operator as a matrix that is data, if it is one.

    Examples:
        >>> import curvflow, torch
        >>> H = curvflow.from_matrix(torch.tensor([[2.0, 1.0], [1.0, 2.0]]))
        >>> (2 * H - H) @ torch.ones(2)
        tensor([3., 3.])
    """

    def __init__(
        self,
        batched: BatchedOperator,
        sizes: dict[str, int],
        *,
        name: AnyOperatorName = "hessian",
        entries: Matrix | None = None,
        memory: Memory = at_once,
    ) -> None:
        """Take the products and their known properties.

        Args:
            batched: of one model, (1, D, D).
            sizes: of the consecutive blocks of the dimension D, by name.
            name: which matrix, from which follows whether it can have negative
                eigenvalues; `hessian` if unknown.
            entries: the same operator as a matrix that is data.
            memory: runs probes, or returns what they returned before.
        """
        super().__init__(batched, sizes)
        self.name, self.entries, self._memory = name, entries, memory

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.name}, {self.shape[0]} by {self.shape[1]}, "
            f"{str(self.dtype).removeprefix('torch.')}, {self.device})"
        )

    def like(self, batched: BatchedOperator) -> Self:
        """Return an operator of this size that multiplies by another.

        Args:
            batched: of one model, (1, D, D).
        """
        other = super().like(batched)
        other.name, other.entries, other._memory = "hessian", None, at_once
        return other

    def remembered(self, memory: Memory) -> Self:
        """Return the same operator whose probes a memory runs.

        Args:
            memory: runs probes, or returns what they returned before.
        """
        same = copy(self)
        same._memory = memory
        return same

    def eigenvalues(
        self,
        k: int = 3,
        *,
        which: Literal["LM", "LA", "SA"] = "LM",
        method: Literal["power", "lanczos", "lobpcg"] = "lanczos",
        block: int = 4,
        oversampling: int = 8,
        tol: float = 1e-6,
        max_iterations: int = 500,
        vectors: bool = False,
        preconditioner: Preconditioner | None = None,
        seed: int = 0,
    ) -> Eigenvalues:
        """Find extreme eigenvalues, as `probe.eigenvalues` does.

        Args:
            k: eigenvalues wanted.
            which: LM, largest magnitude; LA, largest; SA, smallest with its sign.
            method: lanczos, by blocks with thick restarts; power, LM alone; lobpcg,
                LA or SA in little memory.
            block: columns of lanczos, which finds a repeated eigenvalue so many times.
            oversampling: further columns of power and lobpcg.
            tol: residual allowed, relative to the eigenvalue.
            max_iterations: products with the block at most.
            vectors: whether to return the eigenvectors, too.
            preconditioner: factors of the same module by `curvflow.kronecker`, which
                save lobpcg products.
            seed: of the first block.

        Returns:
            The eigenvalues with residuals and flags.

        Raises:
            InputError: an argument is out of its range, or a product is not finite.

        Examples:
            >>> import curvflow, torch
            >>> H = curvflow.from_matrix(torch.diag(torch.arange(6.0).double()))
            >>> H.eigenvalues(k=2)
            Eigenvalues([5, 4], 2 of 2 converged, 6 products)
        """
        arrays = self._measured(
            EIGENVALUES,
            eigenvalues,
            preconditioner,
            k=k,
            which=which,
            method=method,
            block=block,
            oversampling=oversampling,
            tol=tol,
            max_iterations=max_iterations,
            eigenvectors=vectors,
            seed=seed,
        )
        return Eigenvalues.of(arrays)

    def trace(
        self,
        num_probes: int = 64,
        *,
        rel_sem: float | None = None,
        max_probes: int | None = None,
        method: Literal["hutchinson", "hutch++", "xtrace", "auto"] = "hutchinson",
        probes_per: Literal["data", "batch"] = "data",
        batch_size: int = 64,
        distribution: Law = "rademacher",
        preconditioner: Preconditioner | None = None,
        seed: int = 0,
    ) -> Trace:
        """Estimate the trace, whole and by parameter tensor, as `probe.trace` does.

        Args:
            num_probes: random vectors; with rel_sem at the first look.
            rel_sem: double the vectors until the standard error is at most this part
                of the trace; None draws num_probes.
            max_probes: vectors at most, with rel_sem; None takes 64 num_probes.
            method: hutchinson, a product a vector; hutch++, three for two; xtrace, two
                a vector; auto, with rel_sem, what a pilot of num_probes expects to
                be the least work.
            probes_per: data, each vector for all data; batch, two vectors for each
                batch of the data, of which few may do.
            batch_size: samples per batch.
            distribution: law of the entries of the vectors.
            preconditioner: factors of the same module by `curvflow.kronecker`, whose
                exact trace takes variance off draws of hutchinson over all data.
            seed: of the vectors and batches.

        Returns:
            The trace with its standard error and draws.

        Raises:
            InputError: an argument is out of its range, or a product is not finite.

        Examples:
            >>> import curvflow, torch
            >>> H = curvflow.from_matrix(torch.diag(torch.arange(6.0).double()))
            >>> H.trace(num_probes=32)  # signs see a diagonal matrix exactly
            Trace(15 ± 0, 32 products)

            Factors that are the matrix leave nothing:

            >>> net = torch.nn.Linear(2, 1, bias=False).double()
            >>> x = torch.tensor([[1.0, 2.0], [0.0, 1.0]]).double()
            >>> of = net, "sse", (x, x[:, :1])
            >>> G, K = curvflow.ggn(*of), curvflow.kronecker(*of)
            >>> G.trace(8, preconditioner=K).sem < 1e-6 < G.trace(8).sem
            True
        """
        arrays = self._measured(
            TRACE,
            trace,
            preconditioner,
            num_probes=num_probes,
            rel_sem=rel_sem,
            max_probes=max_probes,
            method=method,
            probes_per=probes_per,
            batch_size=batch_size,
            distribution=distribution,
            seed=seed,
        )
        return Trace(**parts(TRACE, arrays, "trace", "trace_sem", "trace_draws"))

    def diagonal(
        self,
        num_probes: int = 64,
        *,
        rel_sem: float | None = None,
        max_probes: int | None = None,
        probes_per: Literal["data", "batch"] = "data",
        batch_size: int = 64,
        distribution: Law = "rademacher",
        seed: int = 0,
    ) -> Diagonal:
        """Estimate the diagonal, as `probe.diagonal` does.

        Args:
            num_probes: random vectors; with rel_sem at the first look.
            rel_sem: double the vectors until the root of the sum of squared standard
                errors is at most this part of the norm of the diagonal; None draws
                num_probes.
            max_probes: vectors at most, with rel_sem; None takes 64 num_probes.
            probes_per: data, each vector for all data; batch, two vectors for each
                batch of the data, of which few may do.
            batch_size: samples per batch.
            distribution: law of the entries of the vectors.
            seed: of the vectors and batches.

        Returns:
            The entries, in the order of the parameters, each with its standard error.

        Raises:
            InputError: an argument is out of its range, or a product is not finite.

        Examples:
            >>> import curvflow, torch
            >>> H = curvflow.from_matrix(torch.diag(torch.arange(4.0).double()))
            >>> H.diagonal(num_probes=32)  # signs see a diagonal matrix exactly
            Diagonal([0, 1, 2, 3] ± [0, 0, 0, 0], 32 products)
        """
        arrays = self._measured(
            DIAGONAL,
            diagonal,
            num_probes=num_probes,
            rel_sem=rel_sem,
            max_probes=max_probes,
            probes_per=probes_per,
            batch_size=batch_size,
            distribution=distribution,
            seed=seed,
        )
        return Diagonal(**parts(DIAGONAL, arrays, "diagonal", "diagonal_sem"))

    def squared_norm(
        self,
        num_probes: int = 64,
        *,
        rel_sem: float | None = None,
        max_probes: int | None = None,
        probes_per: Literal["data", "batch"] = "data",
        batch_size: int = 64,
        num_batches: int = 8,
        distribution: Law = "rademacher",
        seed: int = 0,
    ) -> SquaredNorm:
        """Estimate the squared Frobenius norm, as `probe.squared_norm` does.

        Args:
            num_probes: random vectors; with rel_sem at the first look.
            rel_sem: double the vectors until the standard error is at most this part
                of the estimate; None draws num_probes.
            max_probes: vectors at most, with rel_sem; None takes 64 num_probes.
            probes_per: data, each vector for all data; batch, each for some batches of
                its own.
            batch_size: samples per batch.
            num_batches: batches of each vector.
            distribution: law of the entries of the vectors.
            seed: of the vectors and batches.

        Returns:
            The sum of the squares of the eigenvalues with its standard error and draws.

        Raises:
            InputError: an argument is out of its range, or a product is not finite.

        Examples:
            >>> import curvflow, torch
            >>> H = curvflow.from_matrix(torch.diag(torch.arange(6.0).double()))
            >>> H.squared_norm(num_probes=32)  # signs see a diagonal matrix exactly
            SquaredNorm(55 ± 0, 32 products)
        """
        arrays = self._measured(
            SQUARED_NORM,
            squared_norm,
            num_probes=num_probes,
            rel_sem=rel_sem,
            max_probes=max_probes,
            probes_per=probes_per,
            batch_size=batch_size,
            num_batches=num_batches,
            distribution=distribution,
            seed=seed,
        )
        names = ("squared_norm", "squared_norm_sem", "squared_norm_draws")
        return SquaredNorm(**parts(SQUARED_NORM, arrays, *names))

    def spectrum(
        self,
        num_runs: int = 10,
        num_steps: int = 100,
        *,
        distribution: Law = "rademacher",
        seed: int = 0,
        **settings: Unpack[SpectrumSettings],
    ) -> Spectrum:
        """Run Lanczos from random vectors, as `probe.spectrum` does.

        Args:
            num_runs: runs; of a single one no standard error is known.
            num_steps: products per run.
            distribution: law of the entries of the first vectors.
            seed: of the first vectors.
            **settings: further parameters, see `SpectrumSettings`.

        Returns:
            Ritz values, weights and residuals, and what follows without a product.

        Raises:
            InputError: an argument is out of its range, or a product is not finite.

        Examples:
            >>> import curvflow, torch
            >>> H = curvflow.from_matrix(torch.diag(torch.arange(1.0, 7.0).double()))
            >>> s = H.spectrum(num_runs=4, num_steps=6)
            >>> s
            Spectrum(1 to 6, 4 runs of 6 steps, 24 products)
            >>> s.functional(torch.log).value  # ln 720
            6.57925121201...
        """
        arrays = self._measured(
            SPECTRUM,
            spectrum,
            num_runs=num_runs,
            num_steps=num_steps,
            distribution=distribution,
            seed=seed,
            **settings,
        )
        return Spectrum(**parts(SPECTRUM, arrays, "ritz_values"))

    def moments(
        self,
        num_moments: int = 30,
        *,
        num_probes: int = 50,
        basis: Literal["power", "chebyshev"] = "chebyshev",
        support: tuple[float, float] | None = None,
        support_steps: int = 20,
        distribution: Law = "rademacher",
        seed: int = 0,
    ) -> Moments:
        """Estimate the moments tr p_k(A) / D, k = 0 .. K, as `probe.moments` does.

        Args:
            num_moments: highest order, K.
            num_probes: random vectors, each of K / 2 products.
            basis: polynomials p_k: powers, or Chebyshev's over the support.
            support: interval that holds the spectrum; None measures one.
            support_steps: products by which the support is measured.
            distribution: law of the entries of the vectors.
            seed: of the vectors.

        Returns:
            The moments with standard errors, covariance and draws.

        Raises:
            InputError: an argument is out of its range, the support lacks part of the
                spectrum, or a product is not finite.

        Examples:
            >>> import curvflow, torch
            >>> H = curvflow.from_matrix(torch.tensor([[2.0, 1.0], [1.0, 2.0]]))
            >>> H.moments(2, num_probes=32, basis="power", support=(0, 4))
            Moments([1, 2.125, 5.5] ± [0, 0.18, 0.7], 32 products)
        """
        arrays = self._measured(
            MOMENTS,
            moments,
            num_moments=num_moments,
            num_probes=num_probes,
            basis=basis,
            support=support,
            support_steps=support_steps,
            distribution=distribution,
            seed=seed,
        )
        return Moments.of(arrays)

    def effective_dimension(
        self,
        prior_precision: float | tuple[float, ...],
        *,
        num_runs: int = 10,
        num_steps: int = 100,
        distribution: Law = "rademacher",
        seed: int = 0,
    ) -> EffectiveDimension:
        """Estimate the sum of lambda / (lambda + prior precision) by quadrature.

        Args:
            prior_precision: one positive number, or several, in units of the
                eigenvalues.
            num_runs: Lanczos runs.
            num_steps: products per run.
            distribution: law of the entries of the first vectors.
            seed: of the first vectors.

        Returns:
            The dimension at each precision, as `probe.effective_dimension` has it.

        Raises:
            InputError: an argument is out of its range, or a product is not finite.

        Examples:
            >>> import curvflow, torch
            >>> H = curvflow.from_matrix(torch.diag(torch.arange(6.0).double()))
            >>> H.effective_dimension(1.0, num_runs=8)
            EffectiveDimension(3.55 ± 0.35, 48 products)
        """
        arrays = self._measured(
            EFFECTIVE_DIMENSION,
            effective_dimension,
            prior_precision=precisions(prior_precision),
            num_runs=num_runs,
            num_steps=num_steps,
            distribution=distribution,
            seed=seed,
        )
        return EffectiveDimension.of(arrays, is_scalar=np.ndim(prior_precision) == 0)

    def logdet(
        self,
        *,
        method: Method = "auto",
        damping: float = 0.0,
        num_runs: int = 10,
        num_steps: int = 100,
        preconditioner: Preconditioner | str | None = None,
        seed: int = 0,
        **settings: Unpack[LogdetSettings],
    ) -> LogDet:
        """Estimate log det(A + damping I), as `probe.logdet` does.

        Args:
            method: slq, quadrature; chebyshev, interpolation; meme, density of largest
                entropy; preconditioned_slq, preconditioned_meme; dense, Cholesky; auto,
                dense of up to 1,024 rows in float64 where the runs would take as many
                products, else preconditioned_meme of matrices with entries and slq of
                others.
            damping: added to every eigenvalue first.
            num_runs: Lanczos runs.
            num_steps: products per run.
            preconditioner: factors of the same module by `curvflow.kronecker`, whose
                determinant is exact; or auto, cholesky or nystrom.
            seed: of the first vectors.
            **settings: further parameters, see `LogdetSettings`.

        Returns:
            The estimate with its standard error, draws and flags.

        Raises:
            InputError: an argument is out of its range, the damped operator is not
                positive definite, or a product is not finite.

        Examples:
            >>> import curvflow, torch
            >>> H = curvflow.from_matrix(torch.diag(torch.arange(1.0, 5.0).double()))
            >>> H.logdet(method="slq", num_runs=8)  # ln 24
            LogDet(3.1781 ± 0.52, 32 products)
        """
        is_name = isinstance(preconditioner, str)
        by_name = {"preconditioner": preconditioner} if is_name else {}
        arrays = self._measured(
            LOGDET,
            logdet,
            None if isinstance(preconditioner, str) else preconditioner,
            method=method,
            damping=damping,
            num_runs=num_runs,
            num_steps=num_steps,
            seed=seed,
            **settings,
            **by_name,
        )
        return LogDet.of(arrays)

    def density(
        self,
        grid: Array | Tensor | None = None,
        *,
        kappa: float | None = None,
        sigma: float | None = None,
        num_runs: int = 10,
        num_steps: int = 100,
        seed: int = 0,
    ) -> Density:
        """Return the smooth density of `spectrum`.

        Args:
            grid: as for `Spectrum.density`.
            kappa: as for `Spectrum.density`.
            sigma: as for `Spectrum.density`.
            num_runs: Lanczos runs.
            num_steps: products per run.
            seed: of the first vectors.

        Returns:
            The density with its standard error over the runs.

        Examples:
            >>> import curvflow, torch
            >>> H = curvflow.from_matrix(torch.diag(torch.arange(6.0).double()))
            >>> H.density(torch.tensor([2.5]), sigma=1.0, num_runs=8)
            Density([0.16637] ± [0.028], 48 products)
        """
        runs = self.spectrum(num_runs, num_steps, seed=seed)
        return runs.with_work(runs.density(grid, kappa=kappa, sigma=sigma))

    def functional(
        self,
        f: Callable[[Tensor], Tensor],
        *,
        num_runs: int = 10,
        num_steps: int = 100,
        seed: int = 0,
    ) -> Functional:
        """Estimate tr f(A) by quadrature of Lanczos runs.

        Args:
            f: from a tensor of eigenvalues to a tensor, element by element.
            num_runs: Lanczos runs.
            num_steps: products per run.
            seed: of the first vectors.

        Returns:
            The estimate, a draw for each run.

        Raises:
            InputError: what f returns has another shape, or is not finite at a Ritz
                value.

        Examples:
            >>> import curvflow, torch
            >>> H = curvflow.from_matrix(torch.diag(torch.arange(6.0).double()))
            >>> H.functional(torch.square, num_runs=8)
            Functional(55 ± 11, 48 products)
        """
        runs = self.spectrum(num_runs, num_steps, seed=seed)
        return runs.with_work(runs.functional(f))

    def solve(
        self,
        b: Tensor,
        *,
        method: Literal["auto", "cg", "minres"] = "auto",
        tol: float = 1e-6,
        max_iterations: int = 1000,
    ) -> Solution:
        """Solve A x = b by conjugate gradients or MINRES.

        Args:
            b: a vector (D,), or right-hand sides as columns (D, S).
            method: cg, for positive definite operators; minres, for all; auto, cg, and
                minres anew where it meets a direction of negative curvature or only
                leads away from b.
            tol: residual allowed, relative to ||b||.
            max_iterations: products with the block at most, of each method.

        Returns:
            The solution with its residual, the iterations and a flag. Of a singular A
            with a b outside its range no x has residual 0: MINRES returns one of the
            least, not converged, with `least_squares` where it is known to be so. No
            residual is above that of zero.

        Raises:
            InputError: an argument is out of its range, b is of another length, or a
                product is not finite.

        Examples:
            >>> import curvflow, torch
            >>> diagonal = torch.tensor([1.0, 2.0, 4.0]).double()
            >>> H = curvflow.from_matrix(torch.diag(diagonal))
            >>> H.solve(torch.ones(3).double()).x
            tensor([1.0000, 0.5000, 0.2500], dtype=torch.float64)
            >>> H.shifted(-3.0).solve(torch.ones(3).double()).method
            'minres'
        """
        tol, max_iterations = _limits(method, tol, max_iterations)
        b = numbers("b", b)
        if b.ndim > 2:
            raise InputError(
                f"b: expected a vector, or vectors as columns, got shape "
                f"{tuple(b.shape)}. Reshape it."
            )
        solvers = {"auto": ("cg", "minres")}.get(method, (method,))
        work = 0
        for solver in solvers:
            solution = _SOLVERS[solver](self, b, tol=tol, max_iterations=max_iterations)
            work += int(solution.num_matvecs)
            if not solution.gave_up.any():
                break
        return _solution(solution, b, method=solver, work=work)

    def _measured(
        self,
        kind: Kind,
        probe: TileFunction,
        preconditioner: Preconditioner | None = None,
        /,
        **fields: Any,
    ) -> Mapping[str, Array]:
        dtype = str(self.dtype).removeprefix("torch.")
        name = "hessian" if self.entries is not None else self.name
        for fixed in {"operator", "dtype"} & fields.keys():
            raise InputError(
                f"{fixed} cannot be combined with an operator, which has its own. "
                "Remove it."
            )
        params = checked(kind.params, operator=name, dtype=dtype, **fields)
        assert isinstance(params, OperatorParams)
        beside = factors_beside(kind, params, preconditioner, self.sizes)

        def compute() -> Mapping[str, Array]:
            matrix = {MATRIX: [self.entries or self._node()]}
            member = Member(params, {**matrix, **beside})
            # As in a study, for equal bits: see decision 0003.
            outcome, _ = probe([member, member], Machine(str(self.device)))
            return outcome.arrays

        digests = {name: node.digest for name, (node,) in beside.items()}
        return self._memory(Probe(kind, params, compute, digests))

    def _node(self) -> OperatorNode:
        arrays = {
            "form": np.array("operator"),
            "size": np.array(self.shape[0], dtype=np.int64),
        }
        return OperatorNode(
            "library", "", {}, arrays, "", operator=self.batched, sizes=self.sizes
        )


_SOLVERS = {"cg": linear_solvers.conjugate_gradients, "minres": linear_solvers.minres}


def _limits(method: str, tol: float, max_iterations: int) -> tuple[float, int]:
    """Return when a solver ends.

    Raises:
        InputError: it is no solver, or it would never end.
    """
    if not (isinstance(method, str) and method in ("auto", "cg", "minres")):
        raise InputError(
            f"method: expected auto, cg or minres, got {method}. Take one of them."
        )
    residual = number("tol", tol)
    if not 0 < residual < 1:
        raise InputError(
            f"tol: expected a number within 0 and 1, got {tol}. Change it."
        )
    most = number("max_iterations", max_iterations)
    if not (most >= 1 and most.is_integer()):
        raise InputError(
            f"max_iterations: expected a whole number from 1, got {most:g}. Change it."
        )
    return residual, int(most)


def _solution(
    solution: linear_solvers.Solution, b: Tensor, *, method: str, work: int
) -> Solution:
    variables = {
        "solution": solution.x[0].cpu().numpy(),
        "residual": solution.residuals[0].cpu().numpy(),
        "iterations": solution.iterations[0].cpu().numpy(),
        "converged": solution.converged[0].cpu().numpy(),
        "least_squares": solution.least_squares[0].cpu().numpy(),
        "method": np.array(method),
    }
    x = solution.x[0] if b.ndim == 2 else solution.x[0, :, 0]
    # Half precision would lose what the residual promises, and NumPy has no bfloat16.
    x = x.to(b.device, torch.float32 if b.dtype == torch.float32 else torch.float64)
    return Solution(x.cpu().numpy(), None, None, work, variables, SOLUTION, x)


def of_curvature(curvature: Curvature, name: OperatorName) -> SymmetricOperator:
    """Return an operator of the numerics as one that can be measured.

    Args:
        curvature: of a module.
        name: which matrix it is.
    """
    return SymmetricOperator(curvature.batched, curvature.sizes, name=name)
