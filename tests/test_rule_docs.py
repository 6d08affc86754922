"""Every learning rule has its place in the documentation: formula, source, example."""

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from curvflow.schemas.rules import all_rules

PAGE = (Path(__file__).parents[1] / "docs" / "rules.md").read_text(encoding="utf-8")


def section(name: str) -> str:
    found = re.findall(
        rf"^### `{name}`\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE
    )
    assert len(found) == 1, f"docs/rules.md: expected one section for {name}"
    return found[0]


@pytest.mark.parametrize("name", all_rules())
def test_every_rule_is_explained_with_formula_source_and_example(name):
    text = section(name)
    assert re.search(r"w ← |w\(t", text), f"{name}: no formula for w"
    assert re.search(r"^Source: .*\d{4}", text, re.MULTILINE), f"{name}: no source"
    (example,) = re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    rules = YAML(typ="safe").load(example)["axes"]["rule"].values()
    assert name in {one["rule"] for one in rules}


@pytest.mark.parametrize("name", all_rules())
def test_every_hyper_parameter_is_named(name):
    text = section(name)
    for field in all_rules()[name].model_fields:
        if field not in {"rule", "init", "schedule", "lr"}:
            assert f"{field}" in text, f"{name}: nothing of {field}"


def test_every_rule_is_in_the_overview_in_the_order_of_the_sections():
    listed = re.findall(r"^\|.*\| \[`(\w+)`\]\(#(\w+)\) \|", PAGE, re.MULTILINE)
    assert all(name == anchor for name, anchor in listed)
    told = re.findall(r"^### `(\w+)`$", PAGE, re.MULTILINE)
    assert [name for name, _ in listed] == told
    assert sorted(told) == list(all_rules())
