"""Models found by the names that values give."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, TypeAdapter, ValidationError, create_model

from curvflow.schemas import by_name
from curvflow.schemas.by_name import ByName, Siblings
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


def test_siblings_share_the_model_of_one_object_and_of_no_equal_one():
    siblings = Siblings()
    disc, alike = ({"shape": "disc", "radius": 2.0} for _ in range(2))
    first, again, other = (
        Drawing.model_validate({"shape": value}, context=siblings)
        for value in (disc, disc, alike)
    )
    assert first.shape is again.shape
    assert first == other
    assert other.shape is not first.shape


def test_without_siblings_a_changed_value_is_validated_anew():
    disc = {"shape": "disc", "radius": 2.0}
    assert Drawing.model_validate({"shape": disc}).shape == Disc(radius=2.0)
    disc["radius"] = 3.0
    assert Drawing.model_validate({"shape": disc}).shape == Disc(radius=3.0)


def test_a_model_of_one_union_is_none_of_another():
    marks = [
        ByName(lambda _: Disc, lambda: Disc),
        ByName(lambda _: Box, lambda: Box),
    ]
    both = create_model(
        "Both",
        __base__=Params,
        **{
            name: (Annotated[Any, mark], ...)
            for name, mark in zip("ab", marks, strict=True)
        },
    )
    disc = {"shape": "disc", "radius": 2.0}
    with pytest.raises(ValidationError) as caught:
        both.model_validate({"a": disc, "b": disc}, context=Siblings())
    assert {error["loc"][0] for error in caught.value.errors()} == {"b"}


def test_siblings_keep_no_value_of_a_template_that_makes_another_for_each(monkeypatch):
    monkeypatch.setattr(by_name, "MOST_KEPT", 1)
    siblings = Siblings()
    values = [{"shape": "disc", "radius": float(r)} for r in (1, 2, 3)]
    shapes = []
    for value in (*values, *values):
        drawing = Drawing.model_validate({"shape": value}, context=siblings)
        assert drawing.shape == Disc(radius=value["radius"])
        shapes.append(drawing.shape)
    assert [shapes[n] is shapes[n + 3] for n in range(3)] == [True, False, False]


def test_modules_of_folders_are_found_by_their_names_and_not_loaded(
    tmp_path, monkeypatch
):
    package = tmp_path / "shapes_by_name"
    names = ("plain/disc", "plain/box", "ball", "cube/_edges", "_base/shape", "_hidden")
    for name in (*names, "plain/__init__", "cube/__init__", "_base/__init__"):
        path = package / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("raise AssertionError\n")
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    expected = {name.rpartition("/")[2]: name.replace("/", ".") for name in names[:3]}
    expected["cube"] = "cube"  # a folder of files of its own is one module
    found = by_name.modules_by_name("shapes_by_name")
    assert list(found.items()) == sorted(expected.items())


def test_the_json_schema_is_the_unions():
    schemas = [model.model_json_schema() for model in (Drawing, Whole)]
    assert schemas[0]["properties"] == schemas[1]["properties"]
    assert schemas[0]["$defs"] == schemas[1]["$defs"]


def _errors(model, value):
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(model).validate_python({"shape": value})
    return caught.value.errors(include_url=False)
