"""Declaration of `data.random_matrix`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Kind
from curvflow.schemas.kinds.shared.datasets import MATRIX_OUTPUTS
from curvflow.schemas.nodes import Matrix
from curvflow.schemas.params import Floats, Params


class RandomMatrixParams(Params):
    """Ensemble and size of the matrix."""

    ensemble: Literal["wigner", "marchenko_pastur", "outliers", "eigenvalues"] = Field(
        "wigner",
        description="wigner: independent N(0, 1) entries over sqrt(D); "
        "marchenko_pastur: X X^T / T of Gaussian X; outliers: of D eigenvalues 47 % on "
        "(0, 15), 2 % on (0, 60), 1 % on (-10, 0) and zeros; eigenvalues: as given",
    )
    size: int = Field(
        500, ge=2, description="rows, D; of given eigenvalues their count"
    )
    q: float = Field(0.5, gt=0, description="D / T, for marchenko_pastur")
    eigenvalues: Floats | None = Field(
        None, min_length=2, description="for the ensemble eigenvalues, turned at random"
    )
    scale: float = Field(1.0, gt=0, description="factor of the whole matrix")
    seed: int = Field(0, ge=0, description="seed of the draw")

    @property
    def rows(self) -> int:
        """Rows of the matrix, D."""
        return self.size if self.eigenvalues is None else len(self.eigenvalues)

    @model_validator(mode="after")
    def _fits(self) -> RandomMatrixParams:
        if (self.ensemble == "eigenvalues") != (self.eigenvalues is not None):
            given, hint = f"{self.eigenvalues}", "Remove eigenvalues."
            if self.eigenvalues is None:
                given, hint = "null", "Give eigenvalues, or take another ensemble."
            raise ValueError(
                f"eigenvalues {given} cannot be combined with ensemble "
                f"{self.ensemble}. {hint}"
            )
        return self


KIND = Kind(
    name="data.random_matrix",
    version=1,
    summary="Random symmetric matrix of an ensemble, or with given eigenvalues.",
    params=RandomMatrixParams,
    returns=Matrix,
    outputs=MATRIX_OUTPUTS,
    varying=("seed",),
)

EXPLANATION = Explanation(
    formula=(
        "wigner: Aᵢⱼ ~ N(0, 1/D), symmetric; marchenko_pastur: A = X Xᵀ / T, T = D "
        "/ q; outliers, eigenvalues: A = Q diag(λ) Qᵀ, Q from Haar's law; all times "
        "scale"
    ),
    source=(
        "Granziol (2020), section 4.5 and Figure 4.6; Wigner (1958), "
        "doi:10.2307/1970008; Marchenko and Pastur (1967), "
        "doi:10.1070/SM1967v001n04ABEH001994"
    ),
    cost="none: D² numbers are drawn and kept",
    example="""\
study: example
axes: {seed: 3}
stages:
  wigner: {use: data.random_matrix, ensemble: wigner, size: 200,
           seed: "${seed}"}
  spectrum: {use: probe.spectrum, matrix: wigner, num_runs: 2, num_steps: 30}
""",
    page="moments.md#matrices-as-data",
    units={"q": "1", "eigenvalues": "as the entries", "scale": "1"},
)
