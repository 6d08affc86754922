"""Averages of the weights of spectral gradient descent."""

from __future__ import annotations

from typing import Literal

from curvflow.schemas.rules._averages import Averaging
from curvflow.schemas.rules.spectral_sgd import SpectralSgd


class SpectralSwa(Averaging, SpectralSgd):
    """Spectral gradient descent whose result is the average of its weights."""

    rule: Literal["spectral_swa"] = "spectral_swa"  # type: ignore[assignment] # its own


RULE = SpectralSwa
