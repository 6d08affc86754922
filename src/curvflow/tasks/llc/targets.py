"""Targets of chains: weights of a tile's members, or of any problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import cast

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.operators import OperatorParams, nearest_pattern
from curvflow.schemas.kinds.shared.sampling import LlcParams, ObservingLlcParams
from curvflow.schemas.nodes import Member
from curvflow.tasks.curvature.network_operators import (
    batch_draws,
    problem_of,
    stacked_weights,
)
from curvflow.tasks.curvature.operators import tile_operator
from curvflow.tasks.curvature.stored_factors import preconditioner_of
from curvflow.tasks.llc.losses import SampledLosses
from curvflow.tasks.llc.observed import ObservedSamples, observed_samples
from curvflow.tasks.networks.problems import Problem, Samples, load_samples
from curvflow.tasks.numerics.derivatives.variances import gradient_variance
from curvflow.tasks.numerics.operators.base import BatchedOperator
from curvflow.tasks.numerics.sampling.chain_targets import ChainTargets, SamplingOptions
from curvflow.tasks.registry import Machine
from curvflow.tasks.training.batch_draws import BatchDraws

# Numbers that gradients of single samples may hold in one pass about one target.
PASS_NUMBERS = 1 << 20


def params_of(member: Member) -> ObservingLlcParams:
    """Return a member's parameters, with the localization that it is given."""
    params = cast("ObservingLlcParams", member.params)
    if "hold" not in member.inputs:
        return params
    gamma = float(member.one("hold")["localization"][0])
    return params.model_copy(update={"localization": gamma})


def options_of(params: LlcParams) -> SamplingOptions:
    """Return parameters as options of the sampling."""
    names = [field.name for field in fields(SamplingOptions)]
    return SamplingOptions(**{name: getattr(params, name) for name in names})


def member_targets(members: Sequence[Member], machine: Machine) -> ChainTargets:
    """Bring weights and data of a tile to the device.

    Args:
        members: `weights` and `data`, of the same problem.
        machine: where to compute.

    Returns:
        The targets, one for each member.

    Raises:
        InputError: a weight is NaN or infinite, `layers` names no tensor, or the data
            lack what is to be observed.
    """
    params, problem = params_of(members[0]), problem_of(members[0])
    weights_MW = stacked_weights(members, machine, dtype=params.dtype)
    data = [member.one("data") for member in members]
    layout = problem.network.layout
    weights_MD, statistics_MS = problem.network.split(weights_MW)
    at = ProblemAt(
        problem,
        load_samples(problem, data, "", machine.device, weights_MW.dtype),
        weights_MD.contiguous(),
        statistics_MS.contiguous(),
        batch_draws([params_of(m) for m in members], len(data[0]["inputs"])),
    )
    targets = problem_targets(
        at,
        [params_of(member).seed for member in members],
        free_parameters(layout.names, layout.sizes, params.layers),
        lambda columns: _hessians(members, machine, columns),
    )
    factors = preconditioner_of(members, machine, targets.num_free)
    targets = replace(targets, factors=factors)
    if params.keep_losses is None:
        return targets
    observed = _observed(at, members, machine)
    return replace(targets, observables=partial(observed.of_chains, at.statistics))


def _observed(
    at: ProblemAt, members: Sequence[Member], machine: Machine
) -> ObservedSamples:
    """Return the samples whose losses are kept."""
    params, data = params_of(members[0]), [member.one("data") for member in members]
    splits = ("train", "test") if params.observed == "both" else (params.observed,)
    samples = {
        split: at.samples
        if split == "train"
        else load_samples(at.problem, data, "test_", machine.device, at.weights.dtype)
        for split in splits
    }
    return observed_samples(
        at.problem,
        samples,
        kept=params.keep_losses or "samples",
        most=params.max_observed,
        num_samples=at.samples.count,
    )


def _hessians(
    members: Sequence[Member], machine: Machine, columns: int
) -> BatchedOperator:
    """Build the Hessians of all members, of the parameters that move."""
    probed = [
        replace(
            member,
            params=OperatorParams(
                layers=params.layers,
                mode=params.mode,
                train_batch_size=params.train_batch_size,
                seed=params.seed,
            ),
        )
        for member, params in ((member, params_of(member)) for member in members)
    ]
    return tile_operator(probed, machine, columns=columns).operator


@dataclass(frozen=True)
class ProblemAt:
    """A problem at the weights of M models, with its data.

    Attributes:
        problem: network and loss.
        samples: shared by all models, or of each.
        weights: parameters, (M, D).
        statistics: of the networks, (M, S).
        draws: random numbers of networks in training; None in evaluation.
    """

    problem: Problem
    samples: Samples
    weights: Tensor
    statistics: Tensor
    draws: BatchDraws | None = None

    def losses(self, owner_C: Tensor) -> SampledLosses:
        """Return the mean losses of chains, from the model each belongs to."""
        statistics_CS = self.statistics[owner_C]
        draws = self.draws and self.draws.select(owner_C)
        return SampledLosses(self.problem, self.samples, statistics_CS, owner_C, draws)

    def counted(self) -> list[int] | None:
        """Return how many samples of each model have a label that counts, or None.

        They are the n of the posterior: one without such a label is no observation.
        """
        if not self.problem.criterion.weighs_terms:
            return None
        terms_MN, _ = self.problem.criterion.weights_of(self.samples.targets)
        counts_M = (terms_MN > 0).sum(1).expand(len(self.weights))
        return [int(count) for count in counts_M]

    def gradient_variance(
        self, free: Tensor | None, weights_MD: Tensor, rows_Mn: Tensor
    ) -> Tensor:
        """Return the variance between samples' gradients, (M,).

        Args:
            free: whether a parameter moves, (D,); None lets all move.
            weights_MD: where to take the gradients.
            rows_Mn: numbers of the samples.
        """
        sizes = self.problem.network.layout.sizes
        taken = self.samples.taken(rows_Mn.to(self.weights.device))
        variance = gradient_variance(
            self.problem.losses,
            weights_MD,
            taken.inputs,
            taken.targets,
            sizes=sizes,
            num_samples=self.samples.count,
            fixed_MS=self.statistics,
            samples_per_pass=max(1, min(64, PASS_NUMBERS // self.weights.shape[1])),
        )
        return sum_over_free(variance.layer_variance, sizes, free)


def sum_over_free(
    layers_ML: Tensor, sizes: Sequence[int], free: Tensor | None
) -> Tensor:
    """Return the sum over those parameter tensors that move, (M,), on the CPU.

    Args:
        layers_ML: of each tensor.
        sizes: of the tensors.
        free: whether a parameter moves, (D,); None lets all move.
    """
    layers_ML = layers_ML.cpu().double()
    if free is not None:
        first_L = torch.tensor([0, *sizes]).cumsum(0)[:-1]
        layers_ML = layers_ML * free.cpu()[first_L]
    return layers_ML.sum(1)


def problem_targets(
    at: ProblemAt,
    seeds: Sequence[int],
    free: Tensor | None,
    operator: Callable[[int], BatchedOperator],
) -> ChainTargets:
    """Return the targets of a problem at the weights of several models.

    Args:
        at: the problem, its data and the weights.
        seeds: of the models.
        free: whether a parameter moves, (D,); None lets all move.
        operator: see `ChainTargets`.
    """
    return ChainTargets(
        at.losses,
        at.samples.count,
        at.weights,
        seeds,
        None if free is None else free.to(at.weights.device),
        operator,
        partial(at.gradient_variance, free),
        counted=at.counted(),
    )


def free_parameters(
    names: Sequence[str], sizes: Sequence[int], patterns: Sequence[str] | None
) -> Tensor | None:
    """Return which parameters move, (D,), or None if all do.

    Args:
        names: of the parameter tensors.
        sizes: of these.
        patterns: names or patterns of those that move; None moves all.

    Returns:
        One entry for each parameter, on the CPU.

    Raises:
        InputError: a pattern fits no name.
    """
    if patterns is None:
        return None
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise InputError(
                f"layers: expected names of parameter tensors, got {pattern}. "
                f"{nearest_pattern(pattern, names)}"
            )
    moves = [any(fnmatchcase(name, p) for p in patterns) for name in names]
    return torch.tensor(moves).repeat_interleave(torch.tensor(sizes))
