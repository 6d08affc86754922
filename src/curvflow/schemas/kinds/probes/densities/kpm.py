"""Declaration of `probe.kpm`."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field

from curvflow.schemas.explanations import TRAINED, Explanation
from curvflow.schemas.kind import Input, Kind, Variable
from curvflow.schemas.kinds.probes.densities.maxent import (
    CUMULATIVE,
    INTERVAL,
    NUM_DRAWS,
    fractions_below,
    too_few_moments,
)
from curvflow.schemas.kinds.shared.deflation import ATOMS
from curvflow.schemas.nodes import Density, Moments
from curvflow.schemas.params import Params


class KpmParams(Params):
    """The kernel, and the number of moments that are summed."""

    kernel: Literal["jackson", "none"] = Field(
        "jackson",
        description="factors of the moments: jackson, of which no density is negative "
        "and steps are a width of pi / K of half the support; none, the plain series",
    )
    num_moments: int | None = Field(
        None, ge=1, description="orders used, 1 .. K; null takes all that are given"
    )
    num_points: int = Field(
        1000, ge=50, description="of the grid, denser towards the ends of the support"
    )
    atoms: Literal["within", "apart"] = Field(
        "within",
        description="of moments with deflate: within, the density is of all "
        "eigenvalues; apart, of those that were not taken out, of integral 1",
    )


KIND = Kind(
    name="probe.kpm",
    version=1,
    summary="Spectral density as a sum of Chebyshev moments, with its error.",
    params=KpmParams,
    returns=Density,
    outputs=(
        Variable("grid", "points of the density", ("point",), series=True),
        Variable("density", "of integral 1 over the support", ("point",), series=True),
        Variable(
            "density_sem",
            "its standard error by the random vectors; NaN for one vector",
            ("point",),
            series=True,
        ),
        *INTERVAL,
        Variable(
            "mass", "of each point of the grid, of sum 1", ("point",), series=True
        ),
        *(replace(variable, optional=False) for variable in CUMULATIVE),
        *(
            replace(atom, description=atom.description.replace("deflate", "apart"))
            for atom in ATOMS
        ),
        Variable("support", "interval of the density", ("end",), series=True),
        Variable("size", "dimension of the operator, D", dtype="int64"),
        NUM_DRAWS,
    ),
    inputs={"moments": Input(Moments, lacking=too_few_moments)},
    vectorised=False,
    truth=fractions_below,
)

EXPLANATION = Explanation(
    formula=(
        "q(x) = (g₀ μ₀ + 2 Σ g_k μ_k T_k(t)) / (π h √(1 - t²)), t = (x - c) / h, c "
        "and h centre and half the length of the support, g_k factors of the kernel"
    ),
    source=(
        "Weisse et al. (2006), doi:10.1103/RevModPhys.78.275, Eq. (71) for Jackson's "
        "kernel; Vaaler (1985), doi:10.1090/S0273-0979-1985-15349-2, for the bounds"
    ),
    cost="none: moments are read; num_points sums of num_moments terms",
    example=TRAINED
    + """\
  moments: {use: probe.moments, weights: fit, num_moments: 20, num_probes: 10}
  density: {use: probe.kpm, moments: moments}
""",
    page="moments.md#density-by-kernel-polynomials",
    units={"num_points": "point"},
)
