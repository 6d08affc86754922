"""Sharpness under the preconditioner of the learning rule, and the critical rate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.sharpness import SharpnessParams
from curvflow.schemas.kinds.shared.trained import PRECONDITIONER
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.curvature.network_operators import (
    batch_draws,
    batched_hessian,
    problem_key,
    problem_of,
    rows_together,
    stacked_weights,
)
from curvflow.tasks.networks.problems import (
    Problem,
    Samples,
    grouped,
    load_samples,
    probed_bytes,
)
from curvflow.tasks.numerics.derivatives.passes import spans
from curvflow.tasks.numerics.derivatives.precision import differentiable
from curvflow.tasks.numerics.estimators.learning_rates import Critical, critical_rate
from curvflow.tasks.numerics.kronecker.flat_blocks import BlockScaling, from_flat
from curvflow.tasks.numerics.krylov.eigenpairs import Ritz
from curvflow.tasks.numerics.krylov.restarted_lanczos import (
    basis_size,
    restarted_lanczos,
)
from curvflow.tasks.numerics.operators.algebra import (
    Preconditioned,
    Whitened,
    scaled,
)
from curvflow.tasks.numerics.operators.base import BatchedOperator
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.registry import Machine, computes
from curvflow.tasks.training.batch_draws import BatchDraws


class LossOverData:
    """Full-data losses and gradients of M models, in blocks.

    Attributes:
        share: factor of the mean over the samples: 1, or their number for sse.
    """

    def __init__(
        self,
        problem: Problem,
        weights_MW: Tensor,
        samples: Samples,
        draws: BatchDraws | None = None,
    ) -> None:
        """Take models and data.

        Args:
            problem: of all models.
            weights_MW: parameters and statistics, (M, D + S).
            samples: that losses are the means over.
            draws: random numbers of networks in training; None in evaluation.
        """
        self._problem, self._samples, self._draws = problem, samples, draws
        self._weights_MD, self._fixed_MS = problem.network.split(weights_MW)
        self.share = float(samples.count if problem.criterion.is_sum else 1)

    def at(self, rates_M: Tensor, steps_MD: Tensor) -> Tensor:
        """Return the losses (M,) at w - rate step.

        Args:
            rates_M: learning rates, one per model.
            steps_MD: steps at a learning rate of 1.
        """
        away_MD = rates_M.unsqueeze(1) * steps_MD
        moved_MD = self._weights_MD - away_MD.to(self._weights_MD)
        with torch.no_grad():
            return self._mean(lambda models, rows: self._losses(moved_MD, models, rows))

    def gradient(self) -> Tensor:
        """Return the gradients of the losses, (M, D)."""

        def summed(models: slice, rows: slice) -> Tensor:
            leaf_MD = self._weights_MD.detach().requires_grad_()
            total = self._losses(leaf_MD, models, rows).sum()
            return torch.autograd.grad(total, leaf_MD)[0][models]

        with differentiable():
            return self._mean(summed)

    def _mean(self, sums: Callable[[slice, slice], Tensor]) -> Tensor:
        """Return the sum over passes, by the number of samples, times the share."""
        parts = []
        for models in self._models():
            # In double precision, as a small step changes only the last digits.
            totals = [sums(models, rows).double() for rows in self._rows()]
            parts.append(torch.stack(totals).sum(0))
        return self.share / self._samples.count * torch.cat(parts)

    def _models(self) -> list[slice]:
        together = self._draws.batch_size if self._draws else None
        most = self._problem.models_per_pass(self._samples.count, 1, together)
        return spans(len(self._weights_MD), most)

    def _rows(self) -> Iterator[slice]:
        draws = self._draws
        size = draws.batch_size if draws else self._problem.rows_per_pass(1)
        for start in range(0, self._samples.count, size):
            yield slice(start, start + size)

    def _losses(self, weights_MD: Tensor, models: slice, rows: slice) -> Tensor:
        """Return the sums of the losses of chosen models over chosen samples."""
        samples = self._samples.models(models).rows(rows)
        some_MD = weights_MD[models]
        weights_MW = torch.cat([some_MD, self._fixed_MS[models]], dim=1)
        draw = self._draws.of(models, rows, some_MD) if self._draws else None
        losses_MN = self._problem.losses(
            weights_MW, samples.inputs, samples.targets, draw
        )
        return losses_MN.double().sum(1)


# Columns of a block; a single column would miss multiple eigenvalues.
BLOCK = 2


@dataclass(frozen=True)
class _Preconditioners:
    """Preconditioners of the members' rules; see `Preconditioner`."""

    numbers: Tensor
    rate: Tensor
    bound: Tensor

    @property
    def known(self) -> Tensor:
        """Mask of the members with a preconditioner, (M,)."""
        return torch.isfinite(self.numbers).all(1)

    def around(self, operator: BatchedOperator) -> BatchedOperator:
        """Return P^-1/2 A P^-1/2; of members without P what stands for nothing."""
        size = operator.shape[1]
        if blocks := self._blocks(size):
            return Whitened(operator, blocks)
        known_M1 = self.known[:, None]
        return Preconditioned(
            operator, torch.where(known_M1, self.numbers[:, :size], 1.0)
        )

    def divided(self, vectors_MD: Tensor) -> Tensor:
        """Return P^-1 times vectors; NaN of members without P."""
        known_M1, size = self.known[:, None], vectors_MD.shape[1]
        if blocks := self._blocks(size):
            return blocks.inverse(vectors_MD).where(known_M1, torch.nan)
        return vectors_MD / torch.where(known_M1, self.numbers[:, :size], torch.nan)

    def _blocks(self, size: int) -> BlockScaling | None:
        """Return P by its blocks; None where it is diagonal, or no member has one."""
        if self.numbers.shape[1] == size or not self.known.any():
            return None
        of_first = self.numbers[self.known][:1]
        numbers = torch.where(self.known[:, None], self.numbers, of_first)
        return BlockScaling(from_flat(numbers, size))


def _params(member: Member) -> SharpnessParams:
    return cast("SharpnessParams", member.params)


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory: products, the basis, data."""
    problem = problem_of(member)
    basis = 8 * problem.network.num_parameters * 3 * basis_size(1, BLOCK)
    rows = rows_together(member, _params(member))
    products = problem.product_bytes(member.one("data"), BLOCK, rows=rows)
    weights, name = member.one("weights"), PRECONDITIONER[0]
    stored = weights[name].nbytes if name in weights else 0
    return products + basis + 3 * max(0, stored - 8 * problem.network.num_parameters)


@computes("probe.sharpness", member_bytes=member_bytes, data_bytes=probed_bytes)
def sharpness(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Find the sharpness under each rule's preconditioner, and the critical rate.

    Args:
        members: `weights` with their preconditioner, and `data`; parameters that differ
            in the seed.
        machine: the device to compute on.

    Returns:
        Per member sharpness, learning rate, bound and critical rate, with flags and
        work.

    Raises:
        InputError: the training has stored no preconditioner, or weights or products
            hold NaN or infinity.

    Reference:
        Cohen et al. (2022), arXiv:2207.14484, section 2, for the preconditioned
        sharpness; Kalra et al. (2026), arXiv:2601.16979, for the critical one.
    """
    for member in members:
        if PRECONDITIONER[0] not in member.one("weights"):
            raise InputError(
                "weights: expected a training with a stored preconditioner, got "
                f"'{member.one('weights').stage}' without. Set keep_preconditioner: "
                "true there."
            )
    return grouped(members, _key, partial(_together, machine=machine))


def _key(member: Member) -> object:
    return problem_key(member), len(member.one("weights")[PRECONDITIONER[0]])


def _together(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    params, preconditioners = _params(members[0]), _preconditioners(members, machine)
    losses = _full_data_loss(members, machine)
    ritz = _largest_eigenvalue(members, machine, preconditioners, losses.share)
    step_MD = preconditioners.divided(losses.gradient())
    critical = critical_rate(
        lambda rate_M: losses.at(rate_M, step_MD),
        torch.where(preconditioners.rate > 0, preconditioners.rate, 1.0),
        tol=params.critical_tol,
        max_passes=params.max_passes,
    )
    return [
        _outcome(number, ritz, preconditioners, critical)
        for number in range(len(members))
    ]


def _preconditioners(members: Sequence[Member], machine: Machine) -> _Preconditioners:
    parts = [
        torch.as_tensor(
            np.stack([member.one("weights")[name] for member in members]),
            device=machine.device,
            dtype=torch.float64,
        )
        for name in PRECONDITIONER
    ]
    return _Preconditioners(*parts)


def _largest_eigenvalue(
    members: Sequence[Member],
    machine: Machine,
    preconditioners: _Preconditioners,
    share: float,
) -> Ritz:
    """Find the largest eigenvalue of P^-1/2 H P^-1/2 for the minimised loss."""
    several = [_params(member) for member in members]
    params = several[0]
    hessian = batched_hessian(
        members, machine, dtype=params.dtype, columns=BLOCK, modes=several
    )
    operator = scaled(hessian, share)
    size = operator.shape[1]
    start_MDB = torch.stack([_start(each.seed, size) for each in several])
    return restarted_lanczos(
        preconditioners.around(operator),
        start_MDB,
        k=1,
        which="LA",
        tol=params.tol,
        max_iterations=params.max_iterations,
    )


def _start(seed: int, size: int) -> Tensor:
    columns, generator = min(BLOCK, size), stream(seed, "block")
    return torch.randn(size, columns, generator=generator, dtype=torch.float64)


def _full_data_loss(members: Sequence[Member], machine: Machine) -> LossOverData:
    problem = problem_of(members[0])
    weights_MW = stacked_weights(members, machine, dtype=_params(members[0]).dtype)
    data = [member.one("data") for member in members]
    samples = load_samples(problem, data, "", machine.device, weights_MW.dtype)
    draws = batch_draws([_params(member) for member in members], samples.count)
    return LossOverData(problem, weights_MW, samples, draws)


def _outcome(
    number: int, ritz: Ritz, preconditioners: _Preconditioners, critical: Critical
) -> Outcome:
    is_known = bool(preconditioners.known[number])
    nothing = np.array(np.nan)

    def value(tensor_M: Tensor) -> np.ndarray:
        return tensor_M[number].double().cpu().numpy() if is_known else nothing

    largest, rate = value(ritz.values[:, 0]), value(preconditioners.rate)
    bound, critical_lr = value(preconditioners.bound), value(critical.rate)
    return Outcome(
        {
            "sharpness": np.array(largest),
            "residual": np.array(value(ritz.residuals[:, 0])),
            # Without a preconditioner there is no value that could be unconverged.
            "converged": np.array(not is_known or bool(ritz.converged[number, 0])),
            "rule_lr": np.array(rate),
            "scaled_sharpness": np.array(rate * largest),
            "stable_up_to": np.array(bound),
            "edge": np.array(rate * largest / bound),
            "critical_lr": np.array(critical_lr),
            "critical_sharpness": np.array(2 / critical_lr),
            "critical_converged": np.array(
                not is_known or bool(critical.converged[number])
            ),
            "num_matvecs": np.array(int(ritz.num_matvecs[number]), dtype=np.int64),
            "num_passes": np.array(int(critical.passes[number]), dtype=np.int64),
        }
    )
