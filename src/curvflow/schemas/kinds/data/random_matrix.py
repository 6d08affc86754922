"""Declaration of `data.random_matrix`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from curvflow.schemas.kind import Kind
from curvflow.schemas.matrices import OUTPUTS
from curvflow.schemas.nodes import Matrix
from curvflow.schemas.params import Floats, Params


class RandomMatrixParams(Params):
    """Which ensemble, and its size."""

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
            raise ValueError(
                "expected eigenvalues with the ensemble eigenvalues and with no other, "
                f"got ensemble {self.ensemble}"
            )
        return self


KIND = Kind(
    name="data.random_matrix",
    version=1,
    summary="Random symmetric matrix of an ensemble, or with given eigenvalues.",
    params=RandomMatrixParams,
    returns=Matrix,
    outputs=OUTPUTS,
    varying=("seed",),
)
