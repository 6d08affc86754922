"""Estimates of coefficients as the variables of `probe.llc`, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from curvflow.schemas.kinds.shared.sampling import LlcParams
from curvflow.schemas.nodes import Array, NodeData
from curvflow.tasks.numerics.sampling.chain_results import EarlierChains
from curvflow.tasks.numerics.sampling.chain_settings import ChainSettings
from curvflow.tasks.numerics.sampling.coefficient import CoefficientEstimate
from curvflow.tasks.numerics.sampling.diagnostics import Summary, summarise

# Statistics of the draws that are single numbers.
SUMMARISED = ("llc_mean", "llc_std", "llc_sem", "r_hat", "ess_bulk", "ess_tail")

TRACES = ("loss_trace", "batch_loss_trace", "distance_trace")

# Variables that the calibration measures and tries.
CALIBRATION = (
    "predicted",
    "predicted_sem",
    "largest_eigenvalue",
    "smallest_eigenvalue",
    "typical_curvature",
    "gradient_variance",
    "ritz_values",
    "ritz_weights",
    "trial_parameter",
    "trial_value",
    "trial_lr",
    "trial_llc",
    "trial_sem",
    "trial_acceptance",
    "trial_in_plateau",
)


def packed(estimate: CoefficientEstimate) -> dict[str, Array]:
    """Return an estimate as the variables of `probe.llc`, by name."""
    summary, results = estimate.summary, estimate.results
    arrays: dict[str, Array] = {
        **_numbers(summary),
        **_settings(estimate),
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
        arrays["slow_error"] = np.array(estimate.slow_error)
    if results.weights is not None:
        arrays["draws"] = results.weights.numpy()
    return arrays


def _numbers(summary: Summary) -> dict[str, Array]:
    return {name: np.array(getattr(summary, name)) for name in SUMMARISED}


def _settings(estimate: CoefficientEstimate) -> dict[str, Array]:
    """Return the settings, and where the chains ended."""
    settings, results = estimate.settings, estimate.results
    count, finite_C = estimate.num_samples, estimate.results.is_finite
    numbers = {
        "acceptance": float(results.acceptance[finite_C].mean()),
        "distance": float(results.traces["distance_trace"][finite_C, -1].mean()),
        "init_loss": estimate.init_loss,
        "nbeta": settings.nbeta,
        "localization": settings.localization,
        "lr": results.lr,
        "gradient_equivalents": estimate.work,
        "calibration_equivalents": settings.work,
    }
    counts = {
        "batch_size": settings.batch_size or count,
        "num_burnin_steps": settings.num_burnin_steps,
        "num_samples": count,
        "num_parameters": estimate.num_free,
    }
    return {
        **{name: np.array(value, dtype=np.float64) for name, value in numbers.items()},
        **{name: np.array(value, dtype=np.int64) for name, value in counts.items()},
        "sampling_method": np.array(settings.method),
    }


def packed_state(state: Mapping[str, Tensor]) -> dict[str, Array]:
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


def unpacked_state(arrays: NodeData | Mapping[str, Array]) -> dict[str, Tensor]:
    """Return the state of chains from the variables of the kind, in double precision.

    Args:
        arrays: `chain_state` and `chain_state_form`.
    """
    form = json.loads(str(arrays["chain_state_form"].item()))
    whole_CE = torch.tensor(arrays["chain_state"])
    sizes = [int(np.prod(shape, dtype=np.int64)) for shape in form.values()]
    pieces = torch.split(whole_CE, sizes, dim=1)
    return {
        name: piece.reshape(-1, *shape)
        for (name, shape), piece in zip(form.items(), pieces, strict=True)
    }


def unpacked(earlier: NodeData, params: LlcParams, num_samples: int) -> EarlierChains:
    """Return the chains of a stored result, to be resumed.

    Args:
        earlier: the result.
        params: of the further draws.
        num_samples: N.
    """
    batch_size = int(earlier["batch_size"])
    settings = ChainSettings(
        str(earlier["sampling_method"].item()),
        float(earlier["nbeta"]),
        float(earlier["lr"]),
        float(earlier["localization"]),
        params.batch_size or (batch_size if batch_size < num_samples else None),
        int(earlier["num_burnin_steps"]),
        calibration={name: earlier[name] for name in CALIBRATION if name in earlier},
        work=float(earlier["calibration_equivalents"]),
    )
    return EarlierChains(
        settings,
        {name: torch.tensor(earlier[name]) for name in TRACES},
        torch.tensor(earlier["draws"]) if "draws" in earlier else None,
        unpacked_state(earlier),
    )


def summary_arrays(
    losses_CK: Array, init_loss: float, nbeta: float
) -> dict[str, Array]:
    """Estimate a learning coefficient from losses alone.

    Args:
        losses_CK: of the draws of each chain; NaN from where a chain failed.
        init_loss: at the weights.
        nbeta: inverse temperature.

    Returns:
        The variables of `probe.llc` that follow from these.
    """
    finite_CK = np.isfinite(losses_CK)
    failed_at_C = np.where(finite_CK.all(1), -1, finite_CK.argmin(1))
    losses, failed_at = torch.as_tensor(losses_CK), torch.as_tensor(failed_at_C)
    summary = summarise(losses, init_loss, nbeta, failed_at)
    return {
        "llc_mean": np.array(summary.llc_mean),
        "llc_std": np.array(summary.llc_std),
        "llc_sem": np.array(summary.llc_sem),
        "llc_per_chain": summary.llc_per_chain.numpy(),
        "r_hat": np.array(summary.r_hat),
        "ess_bulk": np.array(summary.ess_bulk),
        "ess_tail": np.array(summary.ess_tail),
        "num_failed": np.array(summary.num_failed),
        "failed_at": failed_at_C,
    }
