"""Every model and every initial law has its place in the documentation."""

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from curvflow.schemas.kinds.shared.networks import LAWS
from curvflow.schemas.models import all_models, model_name
from docs.generator.sections import filled

WRITTEN = (Path(__file__).parents[1] / "docs" / "models.md").read_text("utf-8")
FLAGS = re.DOTALL | re.MULTILINE
# What everybody knows, and what is the user's.
WITHOUT_SOURCE = {"linear", "factory"}


def page() -> str:
    """Return the page with its sections, made when a test first asks for them."""
    return filled(WRITTEN)


def sections(heading: str) -> list[str]:
    return re.findall(rf"^{heading}\n(.*?)(?=^##|\Z)", page(), FLAGS)


def section(name: str) -> str:
    matches = sections(f"### `{name}`")
    assert len(matches) == 1, f"docs/models.md: expected one section for {name}"
    return matches[0]


def studies(text: str):
    for example in re.findall(r"^```yaml\n(.*?)^```", text, FLAGS):
        yield YAML(typ="safe").load(example)


@pytest.mark.parametrize("name", all_models())
def test_every_model_is_explained_with_formula_source_and_example(name):
    text = section(name)
    assert "f(x)" in text, f"{name}: no formula for f(x)"
    if name not in WITHOUT_SOURCE:
        assert re.search(r"^Source: .*\d{4}", text, FLAGS), f"{name}: no source"
    used = [
        stage["model"]
        for study in studies(text)
        for stage in study["stages"].values()
        if "model" in stage
    ]
    assert used, f"{name}: no example"
    assert {model_name(model) for model in used} == {name}


@pytest.mark.parametrize("name", all_models())
def test_every_parameter_of_a_model_has_a_row_with_its_meaning(name):
    row = r"^\| `(\w+)` \|.*<br>(.+) \|$"
    rows = dict(re.findall(row, section(name), re.MULTILINE))
    fields = {f.alias or n for n, f in all_models()[name].model_fields.items()}
    assert set(rows) == fields - {"kind", "init"}


def test_every_model_is_in_the_overview_in_the_order_of_the_sections():
    listed = re.findall(
        r"^\|.*\| \[`(\w+)`\]\(#(\w+)\) \| .*[a-z]", page(), re.MULTILINE
    )
    assert all(name == anchor for name, anchor in listed)
    headings = re.findall(r"^### `(\w+)`$", page(), re.MULTILINE)
    assert [name for name, _ in listed] == headings
    assert sorted(headings) == list(all_models())


def test_no_section_of_a_model_is_written_by_hand():
    assert not re.findall(r"^### `", WRITTEN, re.MULTILINE)
    assert "<!-- models" not in page()


def test_every_initial_law_is_explained_and_shown():
    (text,) = sections("## Initial weights")
    (study,) = studies(text)
    assert {next(iter(law)) for law in study["axes"]["init"].values()} == set(LAWS)
    for law in LAWS:
        assert f"| `{{{law}: " in text, f"no row for {law}"
