"""Declaration of `figure.density`."""

from __future__ import annotations

from pydantic import Field, model_validator

from curvflow.schemas.explanations import TRAINED, Explanation
from curvflow.schemas.kind import Input, Kind, Variable
from curvflow.schemas.kinds.shared.figures import (
    PICTURES,
    Comparisons,
    FigureParams,
    Law,
    asks_for_a_matrix,
)
from curvflow.schemas.nodes import Density, Figure, Matrix, Ritz
from curvflow.schemas.params import Floats


class DensityFigureParams(FigureParams):
    """Smoothing of Ritz values, and marks drawn with the density."""

    kappa: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="width of the Gaussian kernel over the range of the Ritz values; "
        "null takes 0.01 if sigma is not given",
    )
    sigma: float | None = Field(
        None, gt=0, description="width of the kernel in units of the eigenvalues"
    )
    overlay: Law | None = Field(
        None,
        description="known density drawn over it: semicircle with radius, "
        "marchenko_pastur with ratio and variance, or kesten_mckay with degree and "
        "operator",
    )
    compare: Comparisons = Field(
        (),
        description="smoothed by the same kernel, of `matrix`: eigenvalues, all of "
        "them; diagonal, its entries in their place",
    )
    limits: Floats | None = Field(
        None,
        min_length=2,
        max_length=2,
        description="least and greatest eigenvalue shown; null shows all",
    )
    log_y: bool = Field(True, description="logarithmic axis of the density")
    floor: float = Field(
        1e-5, gt=0, lt=1, description="least density on it, over the greatest"
    )

    @model_validator(mode="after")
    def _one_width(self) -> DensityFigureParams:
        self.refuse_one_name_twice(label=self.label)
        if self.kappa is not None and self.sigma is not None:
            raise ValueError("kappa cannot be combined with sigma. Remove one of them.")
        if self.limits and self.limits[0] >= self.limits[1]:
            raise ValueError(
                f"expected limits that ascend, got {list(self.limits)}. Swap them."
            )
        return self


def _drawn(name: str, description: str, units: str) -> Variable:
    return Variable(name, description, ("curve", "point"), units=units, series=True)


KIND = Kind(
    name="figure.density",
    version=4,
    summary="Spectral densities from Ritz values, with known laws.",
    params=DensityFigureParams,
    returns=Figure,
    outputs=(
        *PICTURES,
        Variable("curve", "label of each curve", ("curve",), dtype="str"),
        Variable(
            "source",
            "ritz, density, eigenvalues, diagonal, atoms or law",
            ("curve",),
            dtype="str",
        ),
        Variable(
            "width", "of the kernel; 0 without one", ("curve",), units="as eigenvalue"
        ),
        _drawn(
            "eigenvalue", "where it has points; NaN behind the last", "as eigenvalue"
        ),
        _drawn(
            "density",
            "its integral over the eigenvalues is 1, less the share of the atoms; of "
            "atoms how high the kernel would make them",
            "1 / eigenvalue",
        ),
        Variable(
            "quadrature",
            "most that the quadrature may be off, relative to the greatest density; "
            "NaN of curves that are no Ritz values",
            ("curve",),
        ),
    ),
    inputs={
        "of": Input(Ritz, many=True),
        "density": Input(Density, many=True, optional=True),
        "matrix": Input(Matrix, many=True, optional=True, wanted=asks_for_a_matrix),
    },
    reduces=("over", "label"),
    vectorised=False,
)

EXPLANATION = Explanation(
    formula=(
        "ρ(x) = Σ τ N(x; θ, σ²) over Ritz values θ and weights τ, averaged over "
        "runs; σ = kappa · range"
    ),
    source=(
        "Lin, Saad and Yang (2016), doi:10.1137/130934283, section 3.2.3; Wigner "
        "(1958), doi:10.2307/1970008, Marchenko and Pastur (1967), "
        "doi:10.1070/SM1967v001n04ABEH001994, and McKay (1981), "
        "doi:10.1016/0024-3795(81)90150-6, for the laws"
    ),
    cost=(
        "none: stored Ritz data are smoothed; all eigenvalues of a matrix of at "
        "most 4000 rows with compare"
    ),
    example=TRAINED
    + """\
  spectrum: {use: probe.spectrum, weights: fit, num_runs: 5, num_steps: 40}
  smooth: {use: figure.density, of: spectrum, kappa: 0.02}
""",
    page="figures.md#spectra",
    units={
        "kappa": "1",
        "sigma": "as the eigenvalues",
        "overlay.radius": "as the eigenvalues",
        "overlay.ratio": "1",
        "overlay.variance": "as the eigenvalues",
        "overlay.degree": "neighbour",
        "limits": "as the eigenvalues",
        "floor": "1",
    },
)
