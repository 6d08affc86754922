"""What is equal in a key is equal in the call: text composed, and no negative zero."""

import math
import unicodedata

import pytest

from curvflow.errors import StudyError
from curvflow.flows.graph.graph import expand, key_of
from curvflow.flows.graph.source_files import SourceFiles
from curvflow.flows.results.node_results import View
from curvflow.schemas.keys import canonical, normalised
from curvflow.schemas.study.python_source import plain_document
from curvflow.schemas.study.study import connected, load_study

COMPOSED, APART = "\N{LATIN SMALL LETTER E WITH ACUTE}", "e\N{COMBINING ACUTE ACCENT}"
STUDY = """\
study: small
axes:
  tag: {AXIS}
stages:
  data: {use: data.factory, factory: 'json:loads', kwargs: {name: "LETTER",
         "kLETTER": ZERO, deep: [{x: [ZERO, "LETTER"]}], tag: "${tag}"}}
"""
EXPECT = """\
expect:
  - {stage: data, where: {tag: "LETTER"}, quantity: num_classes, value: 1, within: 1}
"""


def written(letter, zero, axis='["LETTER", "b"]', more=""):
    text = STUDY.replace("AXIS", axis) + more
    return (
        text.replace("{[", "[")
        .replace("]}\nst", "]\nst")
        .replace("LETTER", letter)
        .replace("ZERO", zero)
    )


AXES = ['["LETTER", "b"]', '"LETTER": "LETTER", "b": ZERO']


@pytest.mark.parametrize("axis", AXES, ids=["list", "mapping"])
@pytest.mark.parametrize("python", [False, True], ids=["file", "Python"])
def test_the_function_is_given_the_value_that_the_key_stands_for(
    tmp_path, axis, python
):
    keys, kwargs = [], []
    for letter, zero in ((COMPOSED, "0.0"), (APART, "-0.0")):
        study = load_study(written(letter, zero, axis), file="study.yaml")
        if python:
            study = connected(plain_document(study.document, "Study"))
        graph = expand(study, SourceFiles(tmp_path))
        keys.append([key_of(node) for node in graph])
        kwargs.append([node.params.kwargs for node in graph])
        assert next(node.coords for node in graph) == {"tag": COMPOSED}
    assert keys[0] == keys[1]
    assert repr(kwargs[0]) == repr(kwargs[1])
    assert repr(-0.0) not in repr(kwargs)
    assert unicodedata.is_normalized("NFC", repr(kwargs))


def test_the_name_of_a_file_is_left_as_it_is_written():
    text = (
        f'study: s\naxes: {{file: ["{APART}.npy", "b.npy"]}}\nstages:\n'
        f'  a: {{use: data.array, path: "{APART}.npy", targets_path: "${{file}}"}}\n'
    )
    stage = load_study(text, file="study.yaml").stages["a"]
    (label, _) = list(stage.template.samples())
    params = stage.params(label)
    assert label == {"file": f"{COMPOSED}.npy"}
    assert params.path == f"{APART}.npy"
    assert params.targets_path == f"{APART}.npy"


def test_two_ways_of_writing_one_key_are_one_key():
    text = written(COMPOSED, "1.0").replace("deep:", f'"k{APART}":')
    with pytest.raises(StudyError, match="each key once"):
        load_study(text, file="study.yaml")
    with pytest.raises(StudyError, match="each label once"):
        load_study(written(COMPOSED, "1.0").replace('"b"]', f'"{APART}"]'), file="s")
    data = {"study": "s", "axes": {COMPOSED: 1, APART: 2}}
    with pytest.raises(StudyError, match="each key once"):
        plain_document(data, "Study")


def test_an_expectation_and_an_override_find_a_label_however_it_is_written():
    study = load_study(
        written(APART, "0.0", more=EXPECT.replace("LETTER", COMPOSED)),
        file="study.yaml",
    )
    (expectation,) = study.expect
    assert expectation.where == {"tag": COMPOSED}
    study = load_study(
        written(COMPOSED, "0.0"),
        file="study.yaml",
        overrides=[f"stages.data.kwargs.k{APART}=5"],
    )
    node = study.stages["data"].params({"tag": "b"})
    assert node.kwargs[f"k{COMPOSED}"] == 5


def test_a_label_is_chosen_however_it_is_written():
    view = View("data", "data.xor", ("tag",), [(COMPOSED,), ("b",)], [None, None])
    assert view.where({"tag": APART}).points == [(COMPOSED,)]


@pytest.mark.parametrize(
    "value",
    [APART, -0.0, [APART, {APART: -0.0}], {"a": 1}, 1, True, None, "a"],
    ids=ascii,
)
def test_the_normal_value_has_the_key_of_the_written_one(value):
    assert canonical(normalised(value)) == canonical(value)
    assert math.copysign(1, normalised(-0.0)) == 1
