"""Eigenvalues of graphs that are known exactly, and taken out of estimates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from curvflow.schemas.kind import ParamProblem, Variable
from curvflow.schemas.kinds.shared.operators import (
    GRAPH_OPERATORS,
    UNITS,
    Lacking,
    OperatorParams,
    of_all_eigenvalues,
)
from curvflow.schemas.params import Neutral

# Operators of which each component of a graph has an eigenvector that is known.
OF_COMPONENTS = ("normalized_laplacian", "normalized_adjacency", "laplacian")


class DeflatedParams(OperatorParams):
    """An operator, of a graph maybe without eigenvectors that are known."""

    deflate: Annotated[
        tuple[Literal["components", "twins"], ...], Field(strict=False), Neutral(())
    ] = Field(
        (),
        description="eigenpairs of a graph that are known exactly, taken out of random "
        "vectors and reported as atoms: components, one each of normalized_laplacian, "
        "normalized_adjacency and laplacian; twins, nodes of equal neighbours",
    )

    @model_validator(mode="after")
    def _has_atoms(self) -> DeflatedParams:
        if len(set(self.deflate)) < len(self.deflate):
            raise ValueError(
                f"expected each once in deflate, got {list(self.deflate)}. Remove one."
            )
        is_known = self.operator in OF_COMPONENTS
        if (
            "components" in self.deflate
            and self.operator in GRAPH_OPERATORS
            and not is_known
        ):
            raise ValueError(
                f"deflate components cannot be combined with operator {self.operator}, "
                "of which they are no eigenvectors. Take twins alone."
            )
        return self


ATOMS = (
    Variable(
        "atom_values",
        "eigenvalues taken out; only with deflate",
        ("atom",),
        units=UNITS,
        series=True,
        optional=True,
    ),
    Variable(
        "atom_counts",
        "how often each was taken out; only with deflate",
        ("atom",),
        dtype="int64",
        series=True,
        optional=True,
    ),
)


def no_atoms(params: Any, name: str, moments: Any) -> Iterator[ParamProblem]:
    """Yield that eigenvalues are to be kept apart of moments that took none out.

    Args:
        params: with `atoms`.
        name: of the stage that returns the moments.
        moments: its parameters.
    """
    if params.atoms == "apart" and not getattr(moments, "deflate", ("unknown",)):
        message = f"expected within, as '{name}' takes no eigenvalues out, got apart"
        yield ("atoms",), message, f"Set deflate of '{name}', or remove it."


def of_whole_spectrum(field: str) -> Lacking:
    """Return what refuses Ritz data and densities without eigenvalues taken out.

    Args:
        field: the input that takes them.
    """

    def lacking(params: Any, name: str, spectrum: Any) -> Iterator[ParamProblem]:
        yield from of_all_eigenvalues(field)(params, name, spectrum)
        if getattr(spectrum, "atoms", "") == "apart":
            message = (
                f"expected a density of all eigenvalues, got '{name}' with atoms apart"
            )
            yield (field,), message, f"Set atoms of '{name}' to within."

    return lacking
