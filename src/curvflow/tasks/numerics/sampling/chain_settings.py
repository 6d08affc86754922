"""Settings of a sampler: as requested, and as chains use them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.sampling.posteriors import AtDraws, Steps

# The method that accepts or rejects, and so is exact over all the data.
EXACT = "mala"


@dataclass(frozen=True)
class SamplingOptions:
    """Settings as requested for one target; None leaves them to the calibration.

    Attributes:
        nbeta: inverse temperature; `auto` is n / ln n of n samples, `devinterp` is
            b / ln b of the batch size.
        calibrate: whether what is None is chosen from the measured curvature.
        sampling_method: the sampler.
        lr: step.
        localization: gamma.
        batch_size: samples per step; None for all, or as calibrated.
        num_chains: chains about the target.
        num_draws: draws of each chain.
        num_burnin_steps: steps before the first draw.
        num_steps_bw_draws: steps from draw to draw.
        at_draws: the loss at a draw, see `Steps`.
        friction: of sghmc and sgnht.
        decay: of rmsprop_sgld and adam_sgld.
        damping: of the same.
        keep_draws: whether the weights of draws are kept.
    """

    nbeta: float | Literal["auto", "devinterp"]
    calibrate: Literal["auto", "none"]
    sampling_method: str | None
    lr: float | None
    localization: float | None
    batch_size: int | None
    num_chains: int
    num_draws: int
    num_burnin_steps: int | None
    num_steps_bw_draws: int
    at_draws: AtDraws
    friction: float
    decay: float
    damping: float
    keep_draws: bool

    def nbeta_of(self, num_samples: int) -> float:
        """Return the inverse temperature for n samples."""
        if not isinstance(self.nbeta, str):
            return self.nbeta
        count = num_samples
        if self.nbeta == "devinterp":
            count = self.batch_size or num_samples
        return count / math.log(count)

    def check(self, num_samples: int) -> None:
        """Refuse options that n samples do not allow.

        Args:
            num_samples: n.

        Raises:
            InputError: n / ln n is not defined, or a batch is larger than the data.
        """
        if num_samples < 3 and isinstance(self.nbeta, str):
            raise InputError(
                f"nbeta: expected a number with {num_samples} samples, got "
                f"{self.nbeta}, which is n / ln n of three or more. Give it."
            )
        if self.batch_size is not None and self.batch_size > num_samples:
            raise InputError(
                f"batch_size: expected at most the {num_samples} samples, got "
                f"{self.batch_size}. Lower it."
            )


@dataclass(frozen=True)
class ChainSettings:
    """Settings that the chains about one target use.

    Attributes:
        method: the sampler.
        nbeta: inverse temperature.
        lr: step.
        localization: gamma.
        batch_size: samples per step; None for all.
        num_burnin_steps: steps before the first draw.
        first_lr: step from which each chain's burn-in adapts, up to lr; None if all
            chains use lr.
        calibration: what the calibration measured and tried, by name.
        work: gradients over all data that the calibration took.
    """

    method: str
    nbeta: float
    lr: float
    localization: float
    batch_size: int | None
    num_burnin_steps: int
    first_lr: float | None = None
    calibration: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    work: float = 0.0

    @property
    def ritz(self) -> tuple[Tensor, Tensor] | None:
        """Ritz values and weights of the Hessian, (S, K), where it was measured."""
        if "ritz_values" not in self.calibration:
            return None
        values, weights = (self.calibration[f"ritz_{n}"] for n in ("values", "weights"))
        return torch.as_tensor(values), torch.as_tensor(weights)

    @property
    def off_plateau(self) -> str:
        """The swept setting whose chosen value is off the plateau; "" if none is."""
        if "trial_in_plateau" not in self.calibration:
            return ""
        swept = str(self.calibration["trial_parameter"][0])
        chosen = np.abs(self.calibration["trial_value"] - getattr(self, swept)).argmin()
        return "" if self.calibration["trial_in_plateau"][chosen] else swept


def given(options: SamplingOptions, num_samples: int) -> ChainSettings:
    """Return the settings of options that leave nothing to the calibration."""
    return ChainSettings(
        options.sampling_method or "",
        options.nbeta_of(num_samples),
        options.lr or 0.0,
        options.localization or 0.0,
        options.batch_size,
        options.num_burnin_steps or 0,
    )


def steps_of(
    options: SamplingOptions, settings: ChainSettings, lr_C: Tensor, **others: Any
) -> Steps:
    """Return the steps of chains that share settings.

    Args:
        options: as requested.
        settings: of the first chain.
        lr_C: step of each chain.
        **others: fields of `Steps` that do not follow from these.
    """
    return Steps(
        settings.method,
        lr_C,
        num_burnin_steps=settings.num_burnin_steps,
        num_steps_bw_draws=options.num_steps_bw_draws,
        batch_size=settings.batch_size,
        friction=options.friction,
        decay=options.decay,
        damping=options.damping,
        **others,
    )
