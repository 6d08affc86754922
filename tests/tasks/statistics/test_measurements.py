import pytest

from curvflow.errors import InputError
from curvflow.tasks.statistics.measurements import (
    find_measurement,
    measurements,
    values_along,
)
from tests.tasks.measured_nodes import node, toy_kinds


@pytest.fixture(autouse=True)
def _toys():
    with toy_kinds():
        yield


def test_a_node_that_arrives_twice_counts_once():
    of = [node({"seed": s}, trace=float(s)) for s in (0, 1, 0, 1)]
    measurement = find_measurement("y", "trace", of)
    assert [n.coords["seed"] for n in measurement.nodes] == [0, 1]


def test_what_diverged_is_kept_apart():
    of = [node({"seed": s}, diverged=s == 1) for s in range(3)]
    measurement = find_measurement("y", "trace", of)
    assert [n.coords["seed"] for n in measurement.ok] == [0, 2]
    assert [n.coords["seed"] for n in measurement.diverged] == [1]


def trained(seed, *, diverged=False, lacks=False):
    """Return a training whose `reached` is optional."""
    run = node({"seed": seed}, stage="fit", kind="train", diverged=diverged)
    if lacks:
        del run.arrays["reached"]
    return run


def test_what_diverged_counts_for_a_variable_that_it_cannot_have():
    of = [trained(0), trained(1, diverged=True), trained(2, lacks=True)]
    measurement = find_measurement("y", "reached", of)
    assert [n.coords["seed"] for n in measurement.ok] == [0]
    assert [n.coords["seed"] for n in measurement.diverged] == [1]


def test_a_variable_requested_is_there_even_if_every_node_diverged():
    of = [trained(s, diverged=True) for s in range(2)]
    assert len(find_measurement("y", "reached", of).diverged) == 2
    assert "reached" not in [
        measurement.variable.name for measurement in measurements(of)
    ]


def test_a_variable_that_no_result_holds_is_not_there():
    of = [trained(0, lacks=True), trained(1, diverged=True)]
    with pytest.raises(InputError, match="expected a measured variable"):
        find_measurement("y", "reached", of)


def test_every_stage_brings_its_own_variables():
    of = [node({}), node({}, stage="second", kind="toy.other")]
    results = [(m.stage, m.variable.name) for m in measurements(of)]
    assert ("probe", "trace") in results
    assert results[-2:] == [("second", "trace"), ("second", "curvature")]


def test_a_variable_is_laid_out_along_axes_and_its_own_dimensions():
    of = [node({"rule": "a"}, rank=[1, 2], eigenvalues=[5.0, 4.0])]
    measurement = find_measurement("y", "eigenvalues", of)
    labels, values = values_along(of[0], measurement.variable, ("rule", "rank"))
    assert (labels, values.tolist()) == ([["a"], [1, 2]], [[5.0, 4.0]])
    labels, values = values_along(of[0], measurement.variable, ("rank", None))
    assert (labels, values.tolist()) == ([[1, 2], [""]], [[5.0], [4.0]])


def test_a_dimension_without_a_coordinate_is_numbered():
    of = [node({}, eigenvalues=[5.0, 4.0])]
    labels, _ = values_along(
        of[0], find_measurement("y", "eigenvalues", of).variable, ["rank"]
    )
    assert labels == [[0, 1]]


def test_a_picture_is_nothing_to_measure():
    with pytest.raises(InputError, match="y: expected a measured variable"):
        find_measurement("y", "picture", [node({})])
