"""Stored draws of `probe.llc`, and estimates from losses alone."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from curvflow.schemas.kinds.shared.sampling import LlcParams
from curvflow.schemas.nodes import Array, NodeData
from curvflow.tasks.numerics.sampling.chain_results import EarlierChains
from curvflow.tasks.numerics.sampling.chain_targets import ChainSettings
from curvflow.tasks.numerics.sampling.diagnostics import summarise

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
    "hold_of_spectrum",
    "whitening_vectors",
    "whitening_curvatures",
    "metric",
    "condition",
    "factors_condition",
    "metric_values",
    "metric_weights",
    "metric_parts",
    "trial_parameter",
    "trial_value",
    "trial_lr",
    "trial_llc",
    "trial_sem",
    "trial_acceptance",
    "trial_in_plateau",
)


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
        torch.tensor(earlier["observed_losses"])
        if "observed_losses" in earlier
        else None,
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
