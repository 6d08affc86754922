"""Newton's method for the density of largest entropy that has given moments.

Further letters: K orders, G nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

# Standard errors by which a moment may be missed before the moments count as those of
# no density on the support. The optimum misses none by more than sqrt(2 KL) of them if
# there is a density with the moments whose relative entropy is KL.
STRAINED = 6.0

# Errors are begun with at FIRST, and shrunk to the asked ones, each optimum found from
# the last: straight from alpha = 0 Newton's steps are short where q is to vanish.
FIRST, SHRINK, ROUGHLY = 0.3, 0.1, 1e-2

# Newton's steps are damped by adding a multiple of the errors' squares: a direction in
# which q hardly varies is one in which the model is right for short steps alone. It is
# raised by DAMPED_MORE, and by more from trial to trial, and lowered by DAMPED_LESS.
DAMPED_MORE, DAMPED_LESS, LEAST_DAMPING, TRIALS = 3.0, 1.5, 1e-3, 40


@dataclass(frozen=True)
class Path:
    """Optima for errors that shrink to those asked.

    Attributes:
        log_prior: as of the dual.
        missing: as of the dual.
        tol: largest entry allowed of the gradient at the end.
        max_iterations: steps at most.
    """

    log_prior: Tensor
    missing: Tensor
    tol: float
    max_iterations: int

    def follow(
        self, asked_K: Tensor, alpha_K: Tensor, least: float
    ) -> tuple[Dual, Tensor, float, int]:
        """Return the last dual, its optimum, the residual there, and all steps made.

        Args:
            asked_K: errors to end with, unless the strain begins before.
            alpha_K: where to begin.
            least: errors to begin with, where those asked are smaller.
        """
        iterations = 0
        while True:
            s_K = asked_K.clamp_min(least)
            dual = Dual(self.log_prior, self.missing, s_K)
            ends = bool((s_K == asked_K).all()) or iterations >= self.max_iterations
            tol = self.tol if ends else max(self.tol, ROUGHLY * least)
            left = self.max_iterations - iterations
            alpha_K, residual, steps = dual.minimised(alpha_K, tol, left)
            iterations += steps
            strain = float((s_K * alpha_K).abs().max()) if len(alpha_K) else 0.0
            if ends or strain > STRAINED:
                return dual, alpha_K, residual, iterations
            least *= SHRINK


@dataclass(frozen=True)
class Dual:
    """The function of alpha that is minimised, log int q + alpha.mu + |s alpha|^2 / 2.

    Attributes:
        log_prior: of the masses of q0, (G,).
        missing: the polynomials at the nodes, less the moments, (G, K): their means
            under q are what q misses.
        errors: s, (K,).
    """

    log_prior: Tensor
    missing: Tensor
    errors: Tensor

    def value(self, alpha_K: Tensor) -> float:
        """Return the value at alpha."""
        penalty = (self.errors * alpha_K).square().sum() / 2
        return self._at(alpha_K).log_sum + float(penalty)

    def masses(self, alpha_K: Tensor) -> Tensor:
        """Return the masses of the density that alpha stands for, (G,)."""
        return self._at(alpha_K).masses

    def minimised(
        self, alpha_K: Tensor, tol: float, max_iterations: int
    ) -> tuple[Tensor, float, int]:
        """Return alpha, the largest entry of its gradient, and the steps made."""
        at, damping = self._at(alpha_K), 0.0
        for steps in range(max_iterations + 1):
            slack_K = at.masses @ self.missing
            slope_K = self.errors.square() * at.alpha - slack_K
            residual = float(slope_K.abs().max()) if len(slope_K) else 0.0
            if residual <= tol or steps == max_iterations:
                break
            step = self._step(at, _Model(self, at.masses, slack_K, slope_K), damping)
            if step is None:
                break
            at, damping = step
        return at.alpha, residual, steps

    def _at(self, alpha_K: Tensor) -> _Point:
        log_G = self.log_prior - self.missing @ alpha_K
        log_sum = torch.logsumexp(log_G, 0)
        return _Point(alpha_K, float(log_sum), torch.exp(log_G - log_sum))

    def _step(
        self, at: _Point, model: _Model, damping: float
    ) -> tuple[_Point, float] | None:
        """Return where the value is lower and the damping to go on with.

        The damping is raised until the value falls by a part of what the model says,
        and lowered where the model is right; None if no step lowers the value.
        """
        rise, rounding = DAMPED_MORE, 1e-15 * (1 + abs(at.log_sum))
        for _ in range(TRIALS):
            direction_K, foreseen = model.step(damping)
            trial = self._at(at.alpha + direction_K)
            fall = -self._change(at, trial, direction_K)
            if fall >= 1e-4 * foreseen - rounding:
                damping /= DAMPED_LESS ** sum(fall > p * foreseen for p in (0.25, 0.75))
                return trial, damping if damping >= LEAST_DAMPING else 0.0
            damping, rise = max(rise * damping, LEAST_DAMPING), 1.5 * rise
        return None

    def _change(self, at: _Point, trial: _Point, direction_K: Tensor) -> float:
        """Return how the value differs, without the difference of large numbers."""
        pull_K = self.errors.square() * (at.alpha + direction_K / 2)
        return trial.log_sum - at.log_sum + float(direction_K @ pull_K)


class _Point(NamedTuple):
    """An alpha, log int exp of it, and the masses of its density, (G,)."""

    alpha: Tensor
    log_sum: float
    masses: Tensor


class _Model:
    """The dual to second order about a point, damped by the moments' errors."""

    def __init__(
        self, dual: Dual, masses_G: Tensor, slack_K: Tensor, slope_K: Tensor
    ) -> None:
        self._dual, self._masses_G = dual, masses_G
        self._slack_K, self._slope_K = slack_K, slope_K
        squares_KK = (masses_G[:, None] * dual.missing).T @ dual.missing
        self._covariance_KK = squares_KK - torch.outer(slack_K, slack_K)
        self._variance_K = dual.errors.square()

    def step(self, damping: float) -> tuple[Tensor, float]:
        """Return the step to the least value, and by how much the model falls."""
        added_K = (1 + damping) * self._variance_K
        matrix_KK = self._covariance_KK + torch.diag(added_K)
        root_KK, failed = torch.linalg.cholesky_ex(matrix_KK, upper=True)
        if failed:
            centred_GK = self._dual.missing - self._slack_K
            root_KK = triangle(self._masses_G, centred_GK, added_K.sqrt())
        right_K1 = -self._slope_K[:, None]
        step_K = torch.cholesky_solve(right_K1, root_KK, upper=True)[:, 0]
        spared = damping * float(self._variance_K @ step_K.square())
        return step_K, (spared - float(self._slope_K @ step_K)) / 2


def triangle(masses_G: Tensor, F_GK: Tensor, s_K: Tensor) -> Tensor:
    """Return R with R^T R = F^T diag(q) F + diag(s)^2, of no squared condition.

    Args:
        masses_G: q.
        F_GK: polynomials at the nodes, less their means.
        s_K: errors.
    """
    stacked = torch.cat([masses_G.sqrt()[:, None] * F_GK, torch.diag(s_K)])
    R_KK: Tensor = torch.linalg.qr(stacked, mode="r").R
    return R_KK
