"""Results that one stage takes of another: epochs, checkpoints, parts."""

from unittest import mock

import pytest

from curvflow.errors import StudyError
from curvflow.flows.graph.graph import Source, expand
from curvflow.schemas import kinds
from curvflow.schemas.kind import Input, Kind, Variable
from curvflow.schemas.nodes import Numbers, Weights
from curvflow.schemas.params import Params
from tests.flows.toys import FIT, STUDY, opened


class NoParams(Params):
    """No parameters."""


BESIDE = Kind(
    name="toy.beside",
    version=1,
    summary="A network beside numbers.",
    params=NoParams,
    returns=Numbers,
    outputs=(Variable("sum", "sum"),),
    inputs={"weights": Input(Weights), "numbers": Input(Numbers)},
)
FOUND = Kind(
    name="toy.found",
    version=1,
    summary="Weights found somewhere, without checkpoints.",
    params=NoParams,
    returns=Weights,
    outputs=(
        Variable("weights", "weights", ("parameter",), bulk=True),
        Variable("network", "network", (), "str"),
    ),
    inputs={"data": FIT.inputs["data"]},
)


@pytest.fixture(autouse=True)
def _more_kinds():
    added = {kind.name: kind for kind in (BESIDE, FOUND)}
    with mock.patch.dict(kinds._added, added):
        yield


def graph_of(store, text, *overrides):
    o = opened(store, *overrides, text=text)
    return expand(o.study, o.files)


def test_final_is_the_last_checkpoint_even_where_numbers_bring_epochs(store):
    line = "  beside: {use: toy.beside, weights: fit, numbers: path}\n"
    nodes = graph_of(store, STUDY + line).nodes["beside"]
    assert {node.point[-1] for node in nodes} == {0, 2, 4}
    assert {node.inputs["weights"][0].parts for node in nodes} == {
        ("weights@4", "network")
    }


@pytest.mark.parametrize(
    ("at", "epochs"),
    [("[0, 4]", {0, 4}), ("[2]", {2}), ("{every: 4}", {0, 4}), ("all", {0, 2, 4})],
)
def test_epochs_that_a_stage_chooses_are_those_it_has(store, at, epochs):
    line = f"  beside: {{use: toy.beside, weights: fit, numbers: path, at: {at}}}\n"
    nodes = graph_of(store, STUDY + line).nodes["beside"]
    assert {node.point[-1] for node in nodes} == epochs


def test_a_listed_epoch_that_an_input_lacks_is_refused(store):
    lines = """\
  few: {use: toy.probe, weights: fit, at: [0, 2]}
  beside: {use: toy.beside, weights: fit, numbers: few, at: [2, 4]}
"""
    message = r"numbers: expected a stage at epoch 4, got one at 0, 2\. Give both the"
    with pytest.raises(StudyError, match=message):
        graph_of(store, STUDY + lines)


def test_inputs_without_a_common_epoch_are_refused(store):
    lines = """\
  few: {use: toy.probe, weights: fit, at: [2]}
  beside: {use: toy.beside, weights: fit, numbers: few, at: {every: 4}}
"""
    message = r"beside: expected inputs with an epoch in common, got 'weights' at 0, 4 "
    with pytest.raises(StudyError, match=message + "and 'numbers' at 2"):
        graph_of(store, STUDY + lines)


def test_weights_without_checkpoints_are_taken_whole(store):
    text = """
study: found
stages:
  data: {use: toy.points}
  found: {use: toy.found, data: data}
  probe: {use: toy.probe, weights: found}
"""
    (node,) = graph_of(store, text).nodes["probe"]
    assert node.inputs["weights"][0].parts == ("weights", "network")


def test_epochs_are_grouped_once_for_all_points(store):
    o = opened(store, text=STUDY + "  again: {use: toy.mean, of: path, over: rule}\n")
    graph = expand(o.study, o.files)
    source = Source(graph, o.study.stages["again"], "of", "path")
    source._groups.clear()  # what is asked for at every point needs no look at these
    assert source.epochs((1,)) == [0, 2, 4]
    assert source.epochs((9,)) == []
