"""Every learning rule has its place in the documentation: formula, source, example."""

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from curvflow.schemas.rules import all_rules
from docs.generator.sections import filled

WRITTEN = (Path(__file__).parents[1] / "docs" / "rules.md").read_text(encoding="utf-8")


def page() -> str:
    """Return the page with its sections, made when a test first asks for them."""
    return filled(WRITTEN)


def section(name: str) -> str:
    matches = re.findall(
        rf"^### `{name}`\n(.*?)(?=^##|\Z)", page(), re.DOTALL | re.MULTILINE
    )
    assert len(matches) == 1, f"docs/rules.md: expected one section for {name}"
    return matches[0]


@pytest.mark.parametrize("name", all_rules())
def test_every_rule_is_explained_with_formula_source_and_example(name):
    text = section(name)
    assert re.search(r"w ← |w\(t", text), f"{name}: no formula for w"
    assert re.search(r"^Source: .*\d{4}", text, re.MULTILINE), f"{name}: no source"
    (example,) = re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    rules = YAML(typ="safe").load(example)["axes"]["rule"].values()
    assert {rule["rule"] for rule in rules} == {name}


@pytest.mark.parametrize("name", all_rules())
def test_every_hyper_parameter_has_a_row_with_its_meaning(name):
    rows = dict(
        re.findall(r"^\| `(\w+)` \|.*<br>(.+) \|$", section(name), re.MULTILINE)
    )
    assert set(rows) == set(all_rules()[name].model_fields) - {
        "rule",
        "init",
        "schedule",
        "clip_norm",
    }


def test_every_rule_is_in_the_overview_in_the_order_of_the_sections():
    listed = re.findall(r"^\|.*\| \[`(\w+)`\]\(#(\w+)\) \|", page(), re.MULTILINE)
    assert all(name == anchor for name, anchor in listed)
    headings = re.findall(r"^### `(\w+)`$", page(), re.MULTILINE)
    assert [name for name, _ in listed] == headings
    assert sorted(headings) == list(all_rules())


def test_no_section_of_a_rule_is_written_by_hand():
    assert not re.findall(r"^### `", WRITTEN, re.MULTILINE)
    assert "<!-- rules" not in page()


def test_lookahead_names_the_rules_that_it_does_not_take():
    averages = {"lookahead", "ema", "swa", "gadam", "gadam_auto", "gadamx"}
    outside = {name for name, rule in all_rules().items() if rule.not_inside}
    text = section("lookahead")
    assert {n for n in outside - averages if f"`{n}`" not in text} == set()
