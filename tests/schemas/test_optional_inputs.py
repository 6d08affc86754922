"""Inputs that may be left out, and those that parameters ask for."""

import pytest

from curvflow.errors import StudyError
from curvflow.flows.graph.graph import expand
from curvflow.flows.graph.source_files import SourceFiles
from curvflow.schemas.study.study import load_study

STUDY = """\
study: slices
stages:
  xor: {use: data.xor}
  fit:
    use: train
    data: xor
    model: {kind: linear}
    rule: {rule: sgd, lr: 0.1}
    epochs: 4
    checkpoints: {every: 2}
"""


def loaded(line):
    stage = f"  slices: {{use: probe.landscape, weights: fit{line}}}\n"
    axes = "axes: {way: [trajectory, random]}\n" if "way" in line else ""
    return load_study(STUDY + stage + axes, file="study.yaml")


def test_a_stage_takes_all_checkpoints_of_a_trajectory_and_one_as_weights(tmp_path):
    line = ', trajectory: fit, directions: "${way}", at: all'
    nodes = expand(loaded(line), SourceFiles(tmp_path)).nodes["slices"]
    assert [node.point for node in nodes[:3]] == [
        ("trajectory", 0),
        ("trajectory", 2),
        ("trajectory", 4),
    ]
    taken = nodes[1].inputs
    assert taken["weights"][0].parts == ("weights@2", "network")
    assert taken["trajectory"][0].parts == ("checkpoint", "weights", "network")


def test_what_is_optional_may_be_left_out(tmp_path):
    study = loaded(", directions: random")
    (node,) = expand(study, SourceFiles(tmp_path)).nodes["slices"]
    assert set(node.inputs) == {"weights", "data"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            ', directions: "${way}"',
            "study.yaml:11:3: stages.slices.trajectory: expected a stage that returns "
            "Trajectory, got none. Add 'trajectory: ...', or change the parameters "
            "that need it.",
        ),
        (
            ", trajectory: fit",
            "study.yaml:11:60: stages.slices.trajectory: 'fit' cannot be "
            "combined with the other parameters. Remove it, or set the parameters that "
            "need it.",
        ),
        (
            ", trajectory: xor, directions: trajectory",
            "study.yaml:11:60: stages.slices.trajectory: expected a stage that returns "
            "Trajectory, got 'xor', whose kind data.xor returns Data. Of these there "
            "are: 'fit'.",
        ),
    ],
)
def test_what_parameters_ask_for_is_needed_and_what_they_do_not_is_refused(
    line, message
):
    with pytest.raises(StudyError) as caught:
        loaded(line)
    assert str(caught.value) == message
