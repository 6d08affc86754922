"""Rows that decide the claim of a paper judge every form of the rule."""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from curvflow.schemas.study.study import load_study

PAPER = Path(__file__).parents[2] / "studies" / "papers" / "saghir-2024"
FORMS = ("rule", "lenet_rule", "after")


def cases(folder):
    for path in sorted(folder.glob("**/*.yaml")):
        for profile in (None, *YAML(typ="safe").load(path).get("profiles", {})):
            yield pytest.param(path, profile, id=f"{path.stem}-{profile or 'default'}")


def read(path, profile):
    return load_study(path.read_text("utf-8"), file=path.name, profile=profile)


@pytest.mark.parametrize(("path", "profile"), [*cases(PAPER)])
def test_what_decides_a_claim_judges_every_form(path, profile):
    study = read(path, profile)
    judged = {}
    for expected in study.expect:
        judged.setdefault(expected.stage, []).append(expected.quantity)
    assert judged or profile == "smoke"
    for name, quantities in judged.items():
        asked = study.stages[name].template.plain
        along = asked.get("along")
        if along in FORMS:
            for label in {*study.axes[along].labels} - {"sgd"}:
                wanted = f": {label} - sgd"
                assert any(wanted in quantity for quantity in quantities), (name, label)
