"""Rows that decide the claim of a paper judge every form of the rule."""

import pytest

from curvflow.schemas.study.study import load_study
from tests.shipped import STUDIES, profiles

PAPER = STUDIES / "papers" / "saghir-2024"
FORMS = ("rule", "lenet_rule", "after")


def cases(folder):
    for path, names in profiles().items():
        for profile in (None, *names) if path.is_relative_to(folder) else ():
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
