"""What all kinds of figures have in common."""

from __future__ import annotations

from pydantic import Field

from curvflow.schemas.names import OneOrMoreNames
from curvflow.schemas.params import Params
from curvflow.schemas.variables import Variable

UNITS = "as y"


class FigureParams(Params):
    """What a figure averages, what it sets side by side, and its size."""

    label: str | None = Field(
        None, description="axis whose labels are told apart by colour"
    )
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
        "what is shown: n, what band or bars mean, how many diverged",
        dtype="str",
    ),
)
