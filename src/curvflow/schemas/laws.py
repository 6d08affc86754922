"""Spectral laws of random matrices that figures draw beside what was measured."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from curvflow.schemas.params import Params


class Semicircle(Params):
    """Wigner's law, 2 / (pi R^2) sqrt(R^2 - x^2) on [-R, R]."""

    kind: Literal["semicircle"] = "semicircle"
    radius: float = Field(
        gt=0,
        description="R; 2 s sqrt(D) for D x D entries of standard deviation s",
    )


class MarchenkoPastur(Params):
    """The law of X X^T / T, X of D x T independent entries."""

    kind: Literal["marchenko_pastur"] = "marchenko_pastur"
    ratio: float = Field(
        gt=0, description="q = D / T; above 1 a share 1 - 1/q lies at zero"
    )
    variance: float = Field(1.0, gt=0, description="of the entries of X")


Law = Annotated[Semicircle | MarchenkoPastur, Field(discriminator="kind")]
