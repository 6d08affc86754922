"""How the chains of one member walk: as parameters say, or as was found before."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from curvflow.schemas.kinds.shared.sampling import LlcParams
from curvflow.schemas.nodes import Array, Member, NodeData
from curvflow.tasks.llc.targets import params_of

# The method that accepts or rejects, and so is exact over all the data.
EXACT = "mala"

# What a calibration tells beside the setting, as outputs of the kind.
TOLD = (
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


@dataclass(frozen=True)
class Setting:
    """How the chains of one member walk.

    Attributes:
        method: the sampler.
        nbeta: inverse temperature.
        lr: step.
        localization: gamma.
        batch_size: samples per step; None for all.
        num_burnin_steps: steps before the first draw.
        first_lr: step that each chain's burn-in begins with, adapting it up to lr; None
            if lr is that of all.
        told: what was measured and tried, as outputs of the kind.
        work: gradients over all data that finding it took.
    """

    method: str
    nbeta: float
    lr: float
    localization: float
    batch_size: int | None
    num_burnin_steps: int
    first_lr: float | None = None
    told: Mapping[str, Array] = field(default_factory=dict)
    work: float = 0.0

    @property
    def ritz(self) -> tuple[Tensor, Tensor] | None:
        """Ritz values and weights of the Hessian, (S, K), where it was measured."""
        if "ritz_values" not in self.told:
            return None
        values, weights = self.told["ritz_values"], self.told["ritz_weights"]
        return torch.as_tensor(values), torch.as_tensor(weights)

    @property
    def wavers_by(self) -> str:
        """What the trials varied where it is on no plateau of theirs; else nothing."""
        if "trial_in_plateau" not in self.told:
            return ""
        varied = str(self.told["trial_parameter"][0])
        here = np.abs(self.told["trial_value"] - getattr(self, varied)).argmin()
        return "" if self.told["trial_in_plateau"][here] else varied


def nbeta_of(params: LlcParams, num_samples: int) -> float:
    """Return the inverse temperature that parameters ask for.

    Args:
        params: its number or name.
        num_samples: n.
    """
    if isinstance(params.nbeta, float):
        return params.nbeta
    count = num_samples
    if params.nbeta == "devinterp":
        count = params.batch_size or num_samples
    return count / math.log(count)


def given(member: Member, num_samples: int) -> Setting:
    """Return the setting that parameters give in full."""
    params = params_of(member)
    return Setting(
        params.sampling_method or "",
        nbeta_of(params, num_samples),
        params.lr or 0.0,
        params.localization or 0.0,
        params.batch_size,
        params.num_burnin_steps or 0,
    )


def stored(member: Member, earlier: NodeData, num_samples: int) -> Setting:
    """Return the setting under which a member's earlier draws were made."""
    params, found = params_of(member), int(earlier["batch_size"])
    return Setting(
        str(earlier["sampling_method"].item()),
        float(earlier["nbeta"]),
        float(earlier["lr"]),
        float(earlier["localization"]),
        params.batch_size or (found if found < num_samples else None),
        int(earlier["num_burnin_steps"]),
        told={name: earlier[name] for name in TOLD if name in earlier},
        work=float(earlier["calibration_equivalents"]),
    )
