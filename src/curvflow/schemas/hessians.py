"""Spectra of which matrix can stand for a Hessian."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from curvflow.schemas.kind import Misnomer, Shares

# A Hessian and draws go together if both are of the same point of the same loss.
SAME_LOSS = Shares("draws", inputs=("weights", "data"), params=("layers",))

# What is left of the Hessian, and what is not of its kind.
OTHERS = ("residual", "gradient_covariance")


def no_hessian(params: Any, name: str, ritz: Any) -> Iterator[Misnomer]:
    """Yield that Ritz data are of a matrix that is no Hessian, nor stands for one.

    Args:
        params: not looked at.
        name: of the stage that returns the Ritz data.
        ritz: its parameters.
    """
    operator = getattr(ritz, "operator", "hessian")
    if operator in OTHERS:
        message = f"expected the hessian, ggn or a fisher, got '{name}' of {operator}"
        yield ("ritz",), message, f"Set operator of '{name}' to hessian."
