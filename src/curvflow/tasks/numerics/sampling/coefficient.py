"""Local learning coefficients by sampling: settings, chains, estimates, verdicts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from curvflow.tasks.numerics.derivatives.precision import full_precision
from curvflow.tasks.numerics.sampling.calibration import calibrated
from curvflow.tasks.numerics.sampling.chain_results import (
    ChainResults,
    EarlierChains,
    biases,
    results_of,
)
from curvflow.tasks.numerics.sampling.chain_targets import (
    ChainGroup,
    ChainSettings,
    ChainTargets,
    SamplingOptions,
    by_key,
    given,
    steps_of,
)
from curvflow.tasks.numerics.sampling.coefficient_errors import Errors, Hold, errors_of
from curvflow.tasks.numerics.sampling.diagnostics import Summary, summarise
from curvflow.tasks.numerics.sampling.posteriors import Steps
from curvflow.tasks.numerics.sampling.verdicts import Chains, Verdict, judge

# Statistics of the draws that are single numbers.
SUMMARISED = ("llc_mean", "llc_std", "r_hat", "ess_bulk", "ess_tail")


@dataclass(frozen=True)
class CoefficientEstimate:
    """Estimate of the coefficient about one target.

    Attributes:
        chains: the draws, and the estimate by them, as they were judged.
        verdict: whether the chains can be trusted, with the reason.
        settings: of the chains.
        results: traces, state and work of the chains.
        step_bias: relative excess by finite steps.
        batch_bias: bound of that by the noise of batches.
        num_samples: of which a label counts, n.
        batch_size: samples of a step, whether they count or not.
        errors: of the estimate.
        hold: what the localization takes.
    """

    chains: Chains
    verdict: Verdict
    settings: ChainSettings
    results: ChainResults
    step_bias: float
    batch_bias: float
    num_samples: int
    batch_size: int
    errors: Errors
    hold: Hold

    @property
    def summary(self) -> Summary:
        """Mean, standard error and diagnostics."""
        return self.chains.summary

    @property
    def has_failed(self) -> bool:
        """True if no chain stayed finite."""
        return self.summary.num_failed == len(self.results.failed_at)

    @property
    def work(self) -> float:
        """Gradients over all data that calibration and chains took."""
        return self.results.passes + self.settings.work


@full_precision()
def estimate_coefficients(
    targets: ChainTargets,
    options: Sequence[SamplingOptions],
    earlier: Sequence[EarlierChains] | None = None,
) -> list[CoefficientEstimate]:
    """Estimate nbeta (E L(w) - L(w*)) under the posterior about each target.

    Args:
        targets: the weights and losses.
        options: of each target; they differ in nbeta, lr and localization at most.
        earlier: the chains about each target to resume; None to start.

    Returns:
        The estimate about each target.

    Raises:
        InputError: options that the data do not allow, or products with the Hessian
            that hold NaN or infinity.

    Reference:
        Lau et al. (2023), arXiv:2308.12108, equation 20.
    """
    settings = _settings(targets, options, earlier)
    estimates: dict[int, CoefficientEstimate] = {}
    for numbers in by_key([_shared(each) for each in settings]):
        sampled = _sampled(targets, options, settings, numbers, earlier)
        estimates.update(zip(numbers, sampled, strict=True))
    return [estimates[number] for number in range(len(settings))]


def _shared(settings: ChainSettings) -> object:
    """Return the settings that all chains of one program share."""
    adapts = settings.first_lr is not None
    known = settings.eigenvectors
    vectors = None if known is None else known.vectors.shape[1]
    return (
        settings.method,
        settings.batch_size,
        settings.num_burnin_steps,
        adapts,
        vectors,
        settings.in_metric,
    )


def _settings(
    targets: ChainTargets,
    options: Sequence[SamplingOptions],
    earlier: Sequence[EarlierChains] | None,
) -> Sequence[ChainSettings]:
    counts = [targets.num_counted(number) for number in range(len(options))]
    for each, count in zip(options, counts, strict=True):
        each.check(targets.num_samples, count)
    nbeta = [each.nbeta_of(n) for each, n in zip(options, counts, strict=True)]
    if earlier is not None:
        return [each.settings for each in earlier]
    if options[0].calibrate == "none":
        has_factors = targets.factors is not None
        return [
            given(each, count, has_factors=has_factors)
            for each, count in zip(options, counts, strict=True)
        ]
    return calibrated(targets, options, nbeta)


def _sampled(
    targets: ChainTargets,
    options: Sequence[SamplingOptions],
    settings: Sequence[ChainSettings],
    numbers: Sequence[int],
    earlier: Sequence[EarlierChains] | None,
) -> list[CoefficientEstimate]:
    """Sample about some targets in one program."""
    groups = [_group(number, settings[number]) for number in numbers]
    before = None if earlier is None else [earlier[number] for number in numbers]
    steps = _steps(
        options[0],
        [settings[number] for number in numbers],
        observe=targets.observables is not None,
    )
    chains = options[0].num_chains
    state = None if before is None else _joined(before)
    draws = targets.sample(groups, chains, steps, state)
    return [
        _estimate(
            targets,
            number,
            options[number],
            settings[number],
            steps,
            results_of(
                draws,
                slice(row * chains, (row + 1) * chains),
                None if before is None else before[row],
            ),
        )
        for row, number in enumerate(numbers)
    ]


def _group(number: int, settings: ChainSettings) -> ChainGroup:
    return ChainGroup(
        number,
        settings.nbeta,
        settings.localization,
        settings.lr,
        eigenvectors=settings.eigenvectors,
        metric=settings.localization if settings.in_metric else None,
    )


def _joined(earlier: Sequence[EarlierChains]) -> dict[str, Tensor]:
    names = earlier[0].state
    return {name: torch.cat([each.state[name] for each in earlier]) for name in names}


def _steps(
    options: SamplingOptions, settings: Sequence[ChainSettings], *, observe: bool
) -> Steps:
    adapt = settings[0].first_lr is not None

    def of_chains(values: Sequence[float]) -> Tensor:
        values_G = torch.tensor(values, dtype=torch.float64)
        return values_G.repeat_interleave(options.num_chains)

    return steps_of(
        options,
        settings[0],
        of_chains([each.first_lr or each.lr for each in settings]),
        num_draws=options.num_draws,
        at_draws=options.at_draws,
        adapt=adapt,
        most_lr=of_chains([each.lr for each in settings]) if adapt else None,
        keep_draws=options.keep_draws,
        observe=observe,
    )


def _estimate(
    targets: ChainTargets,
    number: int,
    options: SamplingOptions,
    settings: ChainSettings,
    steps: Steps,
    results: ChainResults,
) -> CoefficientEstimate:
    init_loss = float(targets.first_losses[number])
    losses_CK, num_free = results.traces["loss_trace"], targets.num_free
    summary = summarise(losses_CK, init_loss, settings.nbeta, results.failed_at)
    of_steps, of_batches = bias = biases(
        settings, results, summary.llc_mean, damping=options.damping, num_free=num_free
    )
    errors, hold = errors_of(settings, results, steps, init_loss, num_free)
    chains = Chains(
        summary,
        losses_CK,
        results.traces["distance_trace"],
        results.acceptance,
        results.failed_at,
        init_loss=init_loss,
        nbeta=settings.nbeta,
        localization=settings.localization,
        num_parameters=num_free,
        bias=float(np.nansum(bias)),
        slow_error=errors.slow,
        hold_share=hold.share,
        # Of a localization that was given, what it takes is reported alone.
        max_hold=options.max_hold if options.localization is None else math.inf,
        off_plateau=settings.off_plateau,
    )
    return CoefficientEstimate(
        chains,
        _with_metric(judge(chains), settings),
        settings,
        results,
        step_bias=of_steps,
        batch_bias=of_batches,
        num_samples=targets.num_counted(number),
        batch_size=settings.batch_size or targets.num_samples,
        errors=errors,
        hold=hold,
    )


def _with_metric(verdict: Verdict, settings: ChainSettings) -> Verdict:
    """Add to a verdict's reason whether the metric of factors was taken, and why."""
    calibration = settings.calibration
    if "factors_condition" not in calibration:
        return verdict
    inside, without = (
        float(calibration["factors_condition"]),
        float(calibration["condition"]),
    )
    text = f"a condition number of {inside:.3g}, against {without:.3g} without"
    if settings.in_metric:
        text = f"steps take the metric of the factors: {text}"
    else:
        text = f"the metric of the factors is not taken: {text}"
    ends = verdict.reason.endswith(".")
    text = f" {text[0].upper()}{text[1:]}." if ends else f"; {text}"
    return replace(verdict, reason=verdict.reason + text)


def variables(estimate: CoefficientEstimate) -> dict[str, NDArray[Any]]:
    """Return an estimate as the variables of `probe.llc`, by name."""
    summary, results = estimate.summary, estimate.results
    arrays: dict[str, NDArray[Any]] = {
        **_numbers(summary),
        **_state_and_settings(estimate),
        "llc_sem": np.array(estimate.errors.total),
        "llc_mcse": np.array(estimate.errors.mcse),
        "llc_along": np.array(estimate.errors.along),
        "llc_unspread": np.array(estimate.errors.unspread),
        "llc_unheld": np.array(estimate.hold.unheld),
        "llc_unheld_sem": np.array(estimate.hold.unheld_sem),
        "hold_share": np.array(estimate.hold.share),
        "step_bias": np.array(estimate.step_bias),
        "batch_bias": np.array(estimate.batch_bias),
        **{name: trace_CK.numpy() for name, trace_CK in results.traces.items()},
        **estimate.settings.calibration,
        **packed_state(results.state),
        "llc_per_chain": summary.llc_per_chain.numpy(),
        "acceptance_per_chain": results.acceptance.numpy(),
        "lr_per_chain": results.state["lr"].cpu().double().numpy(),
        "failed_at": results.failed_at.numpy(),
        "num_failed": np.array(summary.num_failed, dtype=np.int64),
        "verdict": np.array(estimate.verdict.name),
        "reason": np.array(estimate.verdict.reason),
    }
    if estimate.settings.ritz:
        arrays["slow_error"] = np.array(estimate.chains.slow_error)
    if results.weights is not None:
        arrays["draws"] = results.weights.numpy()
    return arrays


def _numbers(summary: Summary) -> dict[str, NDArray[Any]]:
    return {name: np.array(getattr(summary, name)) for name in SUMMARISED}


def _state_and_settings(estimate: CoefficientEstimate) -> dict[str, NDArray[Any]]:
    """Return the settings, and where the chains ended."""
    settings, results = estimate.settings, estimate.results
    finite_C = estimate.results.is_finite
    numbers = {
        "acceptance": float(results.acceptance[finite_C].mean()),
        "distance": float(results.traces["distance_trace"][finite_C, -1].mean()),
        "init_loss": estimate.chains.init_loss,
        "nbeta": settings.nbeta,
        "localization": settings.localization,
        "lr": results.lr,
        "gradient_equivalents": estimate.work,
        "calibration_equivalents": settings.work,
    }
    counts = {
        "batch_size": estimate.batch_size,
        "num_burnin_steps": settings.num_burnin_steps,
        "num_samples": estimate.num_samples,
        "num_parameters": estimate.chains.num_parameters,
    }
    return {
        **{name: np.array(value, dtype=np.float64) for name, value in numbers.items()},
        **{name: np.array(value, dtype=np.int64) for name, value in counts.items()},
        "sampling_method": np.array(settings.method),
    }


def packed_state(state: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    """Return the state of chains as variables of the kind.

    Args:
        state: tensors whose first dimension is the chain, by name; every number is
            exact in double precision.

    Returns:
        `chain_state` (chain, entry), and `chain_state_form`, its names and shapes.
    """
    parts = {name: state[name].cpu() for name in sorted(state)}
    flat = [part.reshape(len(part), -1) for part in parts.values()]
    form = {name: list(part.shape[1:]) for name, part in parts.items()}
    return {
        "chain_state": torch.cat([part.double() for part in flat], dim=1).numpy(),
        "chain_state_form": np.array(json.dumps(form)),
    }
