"""Draws of which temperature and localisation a kind can use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from curvflow.schemas.kind import Misnomer
from curvflow.schemas.variables import Variable

NBETA = Variable("nbeta", "inverse temperature", units="1 / loss")
LOCALIZATION = Variable("localization", "gamma", units="1 / parameter^2")


def not_at_wbic(params: Any, name: str, draws: Any) -> Iterator[Misnomer]:
    """Yield that draws are not known to be at nbeta = n / ln n.

    Args:
        params: not looked at.
        name: of the stage that returns the draws.
        draws: its parameters.
    """
    nbeta = getattr(draws, "nbeta", "auto")
    if nbeta != "auto":
        message = f"expected draws at nbeta auto, which is n / ln n, got '{name}' at "
        yield ("draws",), f"{message}{nbeta}", f"Set nbeta of '{name}' to auto."


def not_localised(params: Any, name: str, draws: Any) -> Iterator[Misnomer]:
    """Yield that draws are held by nothing, so that no prior goes with them.

    Args:
        params: whose `prior_precision`, if it has one, may be given instead.
        name: of the stage that returns the draws.
        draws: its parameters.
    """
    given = getattr(params, "prior_precision", None)
    if given is None and getattr(draws, "localization", None) == 0:
        message = f"expected a localization above 0, got '{name}' with 0"
        yield ("draws",), message, f"Raise localization of '{name}', or leave it null."
