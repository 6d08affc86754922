"""Statistics of chains whose losses others have sampled."""

from __future__ import annotations

import numpy as np
import torch

from curvflow.schemas.nodes import Array
from curvflow.tasks.numerics.sampling.summaries import summarise


def summarised(losses_CK: Array, init_loss: float, nbeta: float) -> dict[str, Array]:
    """Estimate a learning coefficient from losses alone.

    Args:
        losses_CK: of the draws of each chain; NaN from where a chain failed.
        init_loss: at the weights.
        nbeta: inverse temperature.

    Returns:
        The variables of `probe.llc` that these tell.
    """
    finite_CK = np.isfinite(losses_CK)
    failed_at_C = np.where(finite_CK.all(1), -1, finite_CK.argmin(1))
    losses, failed_at = torch.as_tensor(losses_CK), torch.as_tensor(failed_at_C)
    found = summarise(losses, init_loss, nbeta, failed_at)
    return {
        "llc_mean": np.array(found.llc_mean),
        "llc_std": np.array(found.llc_std),
        "llc_sem": np.array(found.llc_sem),
        "llc_per_chain": found.llc_per_chain.numpy(),
        "r_hat": np.array(found.r_hat),
        "ess_bulk": np.array(found.ess_bulk),
        "ess_tail": np.array(found.ess_tail),
        "num_failed": np.array(found.num_failed),
        "failed_at": failed_at_C,
    }
