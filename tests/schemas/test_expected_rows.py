"""What a study that ships expects of a comparison is a row that it will have.

Labels stand within a quantity's text, which planning does not read.
"""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from curvflow.schemas.study import load_study

ROOT = Path(__file__).parents[2]
PAPER = ROOT / "studies" / "papers" / "saghir-2024"
COMPARE = "aggregate.compare"
FORMS = ("rule", "lenet_rule", "after")


def cases(folder):
    for path in sorted(folder.glob("**/*.yaml")):
        for profile in (None, *YAML(typ="safe").load(path).get("profiles", {})):
            yield pytest.param(path, profile, id=f"{path.stem}-{profile or 'default'}")


def read(path, profile):
    return load_study(path.read_text("utf-8"), file=path.name, profile=profile)


def labels_of(study, stage, axis):
    """Return an axis' labels at a stage, those of `epoch` from its producers' lists."""
    if axis != "epoch":
        return {str(label) for label in study.axes[axis].labels}
    of = [study.stages[name] for name in stage.inputs["of"]]
    return {str(epoch) for one in of for epoch in one.at.epochs}


@pytest.mark.parametrize(("path", "profile"), [*cases(ROOT / "studies")])
def test_every_row_that_is_expected_is_compared(path, profile):
    study = read(path, profile)
    for expected in study.expect:
        stage = study.stages[expected.stage]
        if stage.kind.name != COMPARE:
            continue
        asked = stage.template.plain
        _, _, row = expected.quantity.partition(": ")
        difference, *cell = row.split(", ")
        label, _, baseline = difference.partition(" - ")
        assert label in labels_of(study, stage, asked["along"]), row
        assert baseline == str(asked["baseline"]), row
        places = dict(one.split("=") for one in cell)
        assert list(places) == list(asked.get("within", [])), row
        for axis, place in places.items():
            assert place in labels_of(study, stage, axis), row


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
            for label in labels_of(study, study.stages[name], along) - {"sgd"}:
                wanted = f": {label} - sgd"
                assert any(wanted in one for one in quantities), (name, label)
