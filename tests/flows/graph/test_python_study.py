"""Studies built in Python say what study files say."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import curvflow
from curvflow.errors import StudyError
from curvflow.flows.graph import python_study
from curvflow.schemas.study.study import load_study
from tests.flows.toys import CALLS

SHIPPED = sorted((Path(__file__).parents[3] / "studies").rglob("*.yaml"))
STAGES = {
    "data": {"use": "toy.points"},
    "fit": {"use": "toy.fit", "data": "data", "lr": "${rule.lr}", "seed": "${seed}"},
    "last": {"use": "toy.probe", "weights": "fit"},
}
RULES = {"slow": {"lr": 0.25}, "fast": {"lr": 0.75}}
# All that UTF-8 encodes; to list these by the codec takes seconds.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
LABELS = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1) | (
    st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
NOTES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=8,
)
SETTINGS = st.fixed_dictionaries(
    {"lr": st.floats(0, 2, exclude_min=True)}, optional={"note": NOTES}
)
AXES = st.fixed_dictionaries(
    {
        "rule": st.dictionaries(LABELS, SETTINGS, min_size=1, max_size=4),
        "seed": st.integers(1, 9)
        | st.lists(st.integers(0, 99), min_size=1, max_size=4),
    }
)


def build(**changes):
    given = {"study": "toys", "axes": {"seed": 2, "rule": RULES}, "stages": STAGES}
    return curvflow.Study(**(given | changes))


@settings(max_examples=50, deadline=None)
@given(AXES, st.dictionaries(TEXTS.filter(bool), st.just({}), max_size=2))
def test_a_study_reads_back_from_its_yaml_as_it_was(axes, profiles):
    try:
        study = build(axes=axes, profiles=profiles)
    except StudyError:  # labels alike, or text that only looks like a reference
        return
    again = curvflow.Study.from_yaml(study.to_yaml())
    assert again == study
    loaded = load_study(study.to_yaml(), file="study.yaml")
    assert repr(loaded.document) == repr(study.connected().document)
    assert loaded.axes == study.connected().axes


@pytest.mark.parametrize("path", SHIPPED, ids=[path.stem for path in SHIPPED])
def test_a_shipped_study_reads_back_from_its_yaml_as_it_was(path, monkeypatch):
    monkeypatch.syspath_prepend(path.parent)  # for kinds next to the study
    text = path.read_text(encoding="utf-8")
    study = curvflow.Study.from_yaml(text)
    built = curvflow.Study(
        study=study.name,
        axes=study.axes,
        stages=study.stages,
        expect=study.expect,
        profiles=study.profiles,
    )
    # Of a document that equals these, which were checked.
    monkeypatch.setattr(python_study, "connected", lambda _: None)
    assert built == study == curvflow.Study.from_yaml(built.to_yaml())


def test_order_and_type_of_what_is_written_distinguish_studies():
    first = build()
    assert first == build()
    assert hash(first) == hash(build())
    assert first != build(axes={"rule": RULES, "seed": 2})
    assert first != build(axes={"seed": [0, 1], "rule": RULES})
    ones = [{"seed": 2, "rule": {"slow": {"lr": lr}}} for lr in (1, 1.0)]
    assert build(axes=ones[0]) != build(axes=ones[1])
    assert first != "toys"


def test_what_is_done_to_the_parts_of_a_study_does_not_reach_it():
    study = build()
    study.stages["fit"]["lr"] = 5
    assert study == build()
    assert (study.name, list(study.axes)) == ("toys", ["seed", "rule"])
    assert study.expect == []
    assert repr(study) == "<Study toys: axes seed, rule; stages data, fit, last>"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"axes": {"sede": 2, "rule": RULES}}, r"Study: stages.fit.seed: .*'sede'"),
        ({"axes": 3}, "Study: axes: expected a mapping, got 3"),
        ({"study": "a/b"}, "Study: study: expected a name"),
        ({"profiles": {"p": {"stages.fit.lr": "x"}}}, "Study, profile p: stages.fit.l"),
        ({"profiles": {"p": {"axes.seed": 0}}}, "Study, profile p: axes.seed: "),
        ({"profiles": {"p": {"axes.rule": 2}}}, "Study, profile p: .*with profile 'p'"),
        ({"expect": [{"stage": "lst"}]}, "Study: expect.0"),
    ],
)
def test_a_study_is_checked_when_it_is_built(changes, message):
    with pytest.raises(StudyError, match=f"^{message}") as caught:
        build(**changes)
    assert "\n" not in str(caught.value)


def test_text_that_is_no_study_is_reported_by_line_and_column():
    with pytest.raises(StudyError, match=r"^Study:2:1: stage: expected a key"):
        curvflow.Study.from_yaml("study: a\nstage: {}\n")


def test_a_study_without_a_name_is_called_study():
    study = curvflow.Study(stages={"data": {"use": "toy.points"}})
    assert study.name == "study"
    assert study.to_yaml() == "study: study\nstages:\n  data: {use: toy.points}\n"


def test_a_built_study_has_its_results_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = build(profiles={"smoke": {"axes.seed": 1}})
    options = curvflow.RunOptions(workers=1)
    results = curvflow.run(study, options=options)
    assert results["last"]["square"].shape == (2, 2)
    assert (tmp_path / ".curvflow").is_dir()
    assert curvflow.open(study, profile="smoke")["fit"].sizes["seed"] == 1
    CALLS.clear()
    study.save("sub/toys.yaml")
    again = curvflow.run("sub/toys.yaml", store=".curvflow", options=options)
    assert not CALLS
    assert again.run.number == 2
    assert curvflow.Study.from_yaml(Path("sub/toys.yaml").read_text()) == study


def test_overrides_of_a_built_study_are_checked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert curvflow.open(build(), overrides=["axes.seed=3"])["fit"].sizes["seed"] == 3
    with pytest.raises(StudyError, match="expected a profile of the study"):
        curvflow.open(build(), profile="smoke")
