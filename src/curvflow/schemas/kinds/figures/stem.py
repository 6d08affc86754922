"""Declaration of `figure.stem`."""

from __future__ import annotations

from pydantic import Field, model_validator

from curvflow.schemas.explanations import TRAINED, Explanation
from curvflow.schemas.kind import Input, Kind, Variable
from curvflow.schemas.kinds.shared.figures import (
    PICTURES,
    Comparisons,
    FigureParams,
    asks_for_a_matrix,
)
from curvflow.schemas.kinds.shared.operators import of_all_eigenvalues
from curvflow.schemas.nodes import Figure, Matrix, Ritz


class StemFigureParams(FigureParams):
    """Marks drawn with the Ritz values."""

    label: str | None = Field(None, description="axis whose labels have a panel each")
    compare: Comparisons = Field(
        (),
        description="drawn behind as a histogram, of `matrix`: eigenvalues, all of "
        "them; diagonal, its entries in their place",
    )
    bins: int = Field(60, ge=5, le=500, description="of histograms, over the range")
    log_y: bool = Field(True, description="logarithmic axis of weights")
    floor: float = Field(
        1e-6, gt=0, lt=1, description="least weight on a logarithmic axis"
    )

    @model_validator(mode="after")
    def _one_part_each(self) -> StemFigureParams:
        self.refuse_one_name_twice(label=self.label)
        return self


def _stem(name: str, description: str, units: str = "1") -> Variable:
    return Variable(name, description, ("stem",), units=units, series=True)


KIND = Kind(
    name="figure.stem",
    version=4,
    summary="Ritz values and their weights as stems.",
    params=StemFigureParams,
    returns=Figure,
    outputs=(
        *PICTURES,
        Variable("label", "panel of each stem", ("stem",), dtype="str", series=True),
        Variable(
            "source",
            "ritz, eigenvalues or diagonal",
            ("stem",),
            dtype="str",
            series=True,
        ),
        _stem("eigenvalue", "Ritz value, or middle of a bin", "as eigenvalue"),
        _stem("weight", "share of the spectrum, averaged over runs, or in a bin"),
    ),
    inputs={
        "of": Input(Ritz, many=True, lacking=of_all_eigenvalues("of")),
        "matrix": Input(Matrix, many=True, optional=True, wanted=asks_for_a_matrix),
    },
    reduces=("over", "label"),
    vectorised=False,
)

EXPLANATION = Explanation(
    formula="(θ, τ): Ritz values and their weights, as they are; averaged over runs",
    source="that of probe.spectrum",
    cost=(
        "none: stored Ritz data are drawn; all eigenvalues of a matrix of at most "
        "4000 rows with compare"
    ),
    example=TRAINED
    + """\
  spectrum: {use: probe.spectrum, weights: fit, num_runs: 1, num_steps: 40}
  raw: {use: figure.stem, of: spectrum}
""",
    page="figures.md#spectra",
    units={"floor": "1"},
)
