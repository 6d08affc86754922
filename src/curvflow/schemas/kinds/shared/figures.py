"""Parameters that figures share, spectral laws among them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from curvflow.schemas.kind import Variable
from curvflow.schemas.kinds.shared.tables import OneOrMoreNames
from curvflow.schemas.params import Neutral, Params

UNITS = "as y"

# What captions say of estimates that have a verdict: the strength of their hold.
HOLD = ("localization",)

MarkUnconverged = Annotated[
    Literal["mark", "show", "exclude"],
    Neutral("mark"),
    Field(
        description="of values that are not converged: mark draws points that hold one "
        "hollow and lets them stretch the axes by no more than the span of the others, "
        "with triangles at the edge for those beyond; show draws them like others; "
        "exclude leaves the values out. The caption counts them"
    ),
]
ShowUnconverged = Annotated[
    Literal["show", "exclude"],
    Neutral("show"),
    Field(
        description="of values that are not converged: show draws them like others, "
        "exclude leaves them out. The caption counts them"
    ),
]


Selection = Annotated[
    dict[str, str | int | float],
    Neutral({}),
    Field(
        default_factory=dict,
        description="dimensions of y to the one label of each that is drawn, such as "
        "{rank: 1} for the first of several eigenvalues",
    ),
]


class FigureParams(Params):
    """Axes that a figure averages over and sets side by side, and its size."""

    label: str | None = Field(None, description="axis whose labels differ in colour")
    over: OneOrMoreNames | None = Field(
        None,
        description="axes averaged over; each point of the others has its own figure",
    )
    title: str | None = Field(None, description="written above; null writes nothing")
    width: float | None = Field(
        None, gt=30, le=500, description="width in mm; null takes what journals print"
    )
    height: float | None = Field(
        None,
        gt=20,
        le=500,
        description="height in mm without title, legend and caption; null fits it",
    )

    def refuse_one_name_twice(self, **roles: str | None) -> None:
        """Refuse an axis that has two parts in one figure.

        Args:
            roles: parameter to the one axis it names.

        Raises:
            ValueError: an axis is named by two of them, or also by `over`.
        """
        seen: dict[str, str] = dict.fromkeys(self.over or (), "over")
        for role, name in roles.items():
            if name in seen:
                raise ValueError(
                    f"expected {role} to differ from {seen[name]}, got '{name}' for "
                    f"both. Name it once."
                )
            if name is not None:
                seen[name] = role

    def refuse_selected(self, select: Selection, **roles: str | None) -> None:
        """Refuse a dimension that is selected and has another part in the figure.

        Args:
            select: the selection.
            roles: parameter to the one axis or dimension it names.

        Raises:
            ValueError: a dimension is named by both.
        """
        taken = {**dict.fromkeys(self.over or (), "over")}
        taken |= {name: role for role, name in roles.items() if name is not None}
        for name in select:
            if name in taken:
                raise ValueError(
                    f"expected select to differ from {taken[name]}, got '{name}' for "
                    "both. Name it once."
                )


PICTURES = (
    Variable(
        "png",
        "the figure, 300 dots per inch",
        ("byte",),
        dtype="uint8",
        bulk=True,
        file=".png",
    ),
    Variable(
        "svg",
        "the figure as vector graphics",
        ("svg_byte",),
        dtype="uint8",
        bulk=True,
        file=".svg",
    ),
    Variable(
        "pdf",
        "the figure as vector graphics for LaTeX",
        ("pdf_byte",),
        dtype="uint8",
        bulk=True,
        file=".pdf",
    ),
    Variable(
        "caption",
        "caption: n, the meaning of band or bars, the number that diverged",
        dtype="str",
    ),
)


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


class KestenMcKay(Params):
    """The law of large random regular graphs, of one of their matrices."""

    kind: Literal["kesten_mckay"] = "kesten_mckay"
    degree: int = Field(ge=3, description="neighbours of each node, d")
    operator: Literal[
        "normalized_laplacian", "normalized_adjacency", "laplacian", "adjacency"
    ] = Field("normalized_laplacian", description="matrix of the graph")


Law = Annotated[Semicircle | MarchenkoPastur | KestenMcKay, Field(discriminator="kind")]


Comparison = Literal["eigenvalues", "diagonal"]

# YAML writes sequences as lists; a frozen model holds them as tuples.
Comparisons = Annotated[tuple[Comparison, ...], Field(strict=False)]


def asks_for_a_matrix(params: Any) -> bool:
    """Return whether a figure compares with a matrix, and so takes one."""
    return bool(params.compare)
