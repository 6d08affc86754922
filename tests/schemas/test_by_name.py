"""Models found by the names that values give."""

from typing import Annotated, Literal

import pytest
from pydantic import Field, TypeAdapter, ValidationError

from curvflow.schemas.by_name import ByName
from curvflow.schemas.params import Params


class Disc(Params):
    """A disc."""

    shape: Literal["disc"] = "disc"
    radius: float = Field(gt=0)


class Box(Params):
    """A box, in a file of another name."""

    shape: Literal["box"] = "box"
    sides: tuple[float, ...] = Field(strict=False)


class Drawing(Params):
    """Holds a shape."""

    shape: Annotated[Params, ByName(lambda value: _find(value), lambda: _union())] = (
        Field(description="what is drawn")
    )


class Whole(Params):
    """Holds any shape, as pydantic has it."""

    shape: Disc | Box = Field(discriminator="shape", description="what is drawn")


UNIONS: list[int] = []


def _find(value):
    return Disc if isinstance(value, dict) and value.get("shape") == "disc" else None


def _union():
    UNIONS.append(1)
    return Annotated[Disc | Box, Field(discriminator="shape")]


def test_a_named_model_is_taken_without_the_union():
    UNIONS.clear()
    drawing = Drawing.model_validate({"shape": {"shape": "disc", "radius": 2.0}})
    assert drawing.shape == Disc(radius=2.0)
    assert drawing.model_dump() == {"shape": {"shape": "disc", "radius": 2.0}}
    assert not UNIONS


def test_what_no_file_is_named_after_is_found_in_the_union():
    drawing = Drawing.model_validate({"shape": {"shape": "box", "sides": [1, 2]}})
    assert drawing.shape == Box(sides=(1.0, 2.0))
    assert Drawing.model_validate(drawing.model_dump()) == drawing
    assert Drawing(shape=drawing.shape).shape is drawing.shape


@pytest.mark.parametrize(
    "value",
    [
        {"shape": "disc"},
        {"shape": "disc", "radius": -1.0},
        {"shape": "disc", "radius": 1.0, "colour": 2},
        {"shape": "box", "sides": ["a"]},
        {"shape": "dics"},
        {"radius": 1.0},
        "disc",
        None,
    ],
    ids=str,
)
def test_a_wrong_value_is_told_of_as_the_union_tells(value):
    assert _errors(Drawing, value) == _errors(Whole, value)


def test_the_json_schema_is_the_unions():
    schemas = [model.model_json_schema() for model in (Drawing, Whole)]
    assert schemas[0]["properties"] == schemas[1]["properties"]
    assert schemas[0]["$defs"] == schemas[1]["$defs"]


def _errors(model, value):
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(model).validate_python({"shape": value})
    return caught.value.errors(include_url=False)
