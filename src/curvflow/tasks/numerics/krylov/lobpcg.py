"""Extreme eigenpairs by the locally optimal conjugate gradient method, batch of models.

Further letters: B columns of a block, Q of the basis (X, P, R).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.krylov.eigenpairs import (
    Ritz,
    Which,
    all_pairs,
    at_least_two,
    preference,
    within_tolerance,
    zero_level,
)
from curvflow.tasks.numerics.operators.base import (
    AnyOperator,
    BatchedOperator,
    as_batched,
    as_columns,
    product,
)


def lobpcg(
    operator: AnyOperator,
    start_MDB: Tensor,
    *,
    k: int,
    which: Which = "LA",
    tol: float,
    max_iterations: int,
    preconditioner: BatchedOperator | None = None,
) -> Ritz:
    """Find eigenpairs at one end of the spectrum in the memory of six blocks.

    Each model stops by itself, so what it returns does not depend on its siblings.
    Products are made in the operator's precision, all else in double precision. An
    operator no larger than three blocks is multiplied with the identity.

    Args:
        operator: symmetric maps A of M models, or one of a single model, (D, D).
        start_MDB: first blocks of B >= k columns, linearly independent, such as the
            eigenvectors of a similar operator; (D, B) of a single model.
        k: eigenpairs wanted.
        which: the upper or the lower end of the spectrum.
        tol: residual allowed, relative to the eigenvalue.
        max_iterations: products with a block at most; at least 1.
        preconditioner: positive definite maps of the M models, that residuals are
            multiplied with: near the inverse of A less a number below its spectrum
            (SA), or of a number above it less A (LA). None takes residuals as they are.

    Returns:
        The pairs with residuals and flags, float64; those that have not converged are
        flagged.

    Raises:
        InputError: `which` is LM, or a product holds NaN or infinity.

    Examples:
        >>> from curvflow.tasks.numerics import Dense, lobpcg
        >>> A = Dense(torch.diag(torch.arange(1.0, 41.0).double()))
        >>> start = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
        >>> found = lobpcg(A, start, k=2, which="SA", tol=1e-8, max_iterations=99)
        >>> [round(value, 6) for value in found.values[0].tolist()]
        [1.0, 2.0]

    Reference:
        Knyazev (2001), doi:10.1137/S1064827500366124; the basis by Duersch, Shao, Yang
        and Gu (2018), doi:10.1137/17M1129830: orthonormal throughout, the conjugate
        directions made so by their coefficients.
    """
    if which == "LM":
        raise InputError(
            "which: expected LA or SA for lobpcg, got LM. Take restarted_lanczos."
        )
    operator, start_MDB = as_batched(operator), as_columns(start_MDB)
    size, block = start_MDB.shape[1:]
    if size < 4 * block:
        return all_pairs(operator, k=k, which=which, tol=tol)
    start_MDB = start_MDB.to(operator.device).double()
    ritz = Ritz.empty(len(start_MDB), size, k, start_MDB)
    basis = _Basis.of(operator, start_MDB, preconditioner)
    zero = zero_level(size, operator.dtype)
    for iteration in range(1, max_iterations + 1):
        values_MB, basis = basis.improved(block, which)
        R_MDB = basis.residuals(values_MB)
        within = basis.written(
            ritz, values_MB, R_MDB, tol=tol, zero=zero, iteration=iteration
        )
        going = ~within[:, :k].all(1)
        if not going.any() or iteration == max_iterations:
            break
        if not going.all():
            kept = at_least_two(going.nonzero().squeeze(1))
            basis, R_MDB = basis.select(kept), R_MDB[kept]
        basis = basis.widened(R_MDB)
    return ritz


@dataclass(frozen=True)
class _Basis:
    """The columns searched for those models that go on.

    Attributes:
        operator: their maps.
        active: their numbers among all models.
        S_MDQ: orthonormal columns.
        AS_MDQ: the images of these.
        largest: length of the longest image so far.
        preconditioner: of residuals.
    """

    operator: BatchedOperator
    active: Tensor
    S_MDQ: Tensor
    AS_MDQ: Tensor
    largest: Tensor
    preconditioner: BatchedOperator | None

    @classmethod
    def of(
        cls,
        operator: BatchedOperator,
        start_MDB: Tensor,
        preconditioner: BatchedOperator | None,
    ) -> _Basis:
        S_MDQ = torch.linalg.qr(start_MDB).Q
        AS_MDQ = product(operator, S_MDQ)
        active = torch.arange(len(S_MDQ), device=S_MDQ.device)
        largest = AS_MDQ.norm(dim=1).amax(1)
        return cls(operator, active, S_MDQ, AS_MDQ, largest, preconditioner)

    def improved(self, block: int, which: Which) -> tuple[Tensor, _Basis]:
        """Return Ritz values, and the basis (X, P) that is kept."""
        values_MB, S_MDQ, AS_MDQ = _improved(self.S_MDQ, self.AS_MDQ, block, which)
        return values_MB, replace(self, S_MDQ=S_MDQ, AS_MDQ=AS_MDQ)

    def residuals(self, values_MB: Tensor) -> Tensor:
        """Return AX - X theta of the first columns."""
        block = values_MB.shape[1]
        X_MDB, AX_MDB = self.S_MDQ[..., :block], self.AS_MDQ[..., :block]
        return AX_MDB - X_MDB * values_MB.unsqueeze(1)

    def written(
        self,
        ritz: Ritz,
        values_MB: Tensor,
        R_MDB: Tensor,
        *,
        tol: float,
        zero: float,
        iteration: int,
    ) -> Tensor:
        """Write down Ritz pairs, and return which of them are within the tolerance."""
        residuals = R_MDB.norm(dim=1)
        within = within_tolerance(
            values_MB, residuals, self.largest, tol=tol, zero=zero
        )
        ritz.write(
            self.active,
            values=values_MB,
            vectors=self.S_MDQ,
            residuals=residuals,
            within=within,
            iteration=iteration,
        )
        return within

    def select(self, kept: Tensor) -> _Basis:
        """Return the columns of some of the models."""
        return _Basis(
            self.operator.select(kept),
            self.active[kept],
            self.S_MDQ[kept],
            self.AS_MDQ[kept],
            self.largest[kept],
            self.preconditioner and self.preconditioner.select(kept),
        )

    def widened(self, R_MDB: Tensor) -> _Basis:
        """Return the basis with the directions of residuals."""
        if self.preconditioner is not None:
            # Residuals of pairs found are tiny: scaled, they do not underflow.
            scale = R_MDB.norm(dim=1, keepdim=True).clamp_min(1e-300)
            R_MDB = self.preconditioner @ (R_MDB / scale)
        R_MDB = _directions(R_MDB, self.S_MDQ)
        AR_MDB = product(self.operator, R_MDB)
        return replace(
            self,
            S_MDQ=torch.cat([self.S_MDQ, R_MDB], dim=2),
            AS_MDQ=torch.cat([self.AS_MDQ, AR_MDB], dim=2),
            largest=torch.maximum(self.largest, AR_MDB.norm(dim=1).amax(1)),
        )


def _improved(
    S_MDQ: Tensor, AS_MDQ: Tensor, block: int, which: Which
) -> tuple[Tensor, Tensor, Tensor]:
    """Return Ritz values, the basis (X, P) that is kept, and its images."""
    small = (S_MDQ.mT @ AS_MDQ).cpu()
    values, turn = torch.linalg.eigh((small + small.mT) / 2)
    order = preference(values, which)[:, :block]
    best_MQB = turn.gather(2, order.unsqueeze(1).expand(-1, turn.shape[1], -1))
    kept = best_MQB
    if S_MDQ.shape[2] > block:
        # What the new columns owe to the directions taken, not to the old columns.
        steps_MQB = best_MQB.clone()
        steps_MQB[:, :block] = 0
        kept = torch.linalg.qr(torch.cat([best_MQB, steps_MQB], dim=2)).Q
        # QR may change signs; the first columns are orthonormal already.
        kept[..., :block] = best_MQB
    kept = kept.to(S_MDQ.device)
    values_MB = values.gather(1, order).to(S_MDQ.device)
    return values_MB, S_MDQ @ kept, AS_MDQ @ kept


def _directions(R_MDB: Tensor, S_MDQ: Tensor) -> Tensor:
    """Return residuals as orthonormal columns, orthogonal to the basis.

    Those of pairs found are of the size of rounding: scaled up they still are
    directions, and with the basis taken off again, orthogonal ones.
    """
    R_MDB = R_MDB / R_MDB.norm(dim=1, keepdim=True).clamp_min(1e-300)
    for _ in range(3):
        R_MDB = torch.linalg.qr(R_MDB - S_MDQ @ (S_MDQ.mT @ R_MDB)).Q
    return R_MDB
