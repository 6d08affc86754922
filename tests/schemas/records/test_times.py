"""Times of results among their variables."""

import math
from dataclasses import replace

import pytest

from curvflow.schemas.kind import Variable
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.records.records import time_of, time_variables
from curvflow.testing.stores import receipt_of

TRAIN = find_kind("train")


def named(kind, axes=()):
    return [variable.name for variable in time_variables(kind, axes)]


def per_epoch(**changes):
    receipt = replace(
        receipt_of({"loss": [1.0]}, 0), **{"seconds": 6.0, "status": "ok"} | changes
    )
    return time_of(receipt, time_variables(TRAIN)[1])


def test_a_kind_that_can_be_continued_has_a_time_per_epoch():
    assert named(TRAIN) == ["seconds", "seconds_per_epoch"]
    assert [variable.units for variable in time_variables(TRAIN)] == ["s", "s / epoch"]
    assert named(find_kind("probe.norms")) == ["seconds"]


@pytest.mark.parametrize(
    "output", [Variable("seconds", "own"), Variable("heat", "own", ("seconds",))]
)
def test_a_kind_that_uses_the_name_keeps_its_meaning(output):
    kind = find_kind("probe.norms")
    assert named(replace(kind, outputs=(*kind.outputs, output))) == []


def test_an_axis_of_an_earlier_run_keeps_its_name():
    assert named(TRAIN, ["seed", "seconds"]) == ["seconds_per_epoch"]


def test_the_time_per_epoch_is_over_the_epochs_computed():
    assert per_epoch(covered=4) == 1.5


@pytest.mark.parametrize(
    "changes",
    [{}, {"covered": 0}, {"covered": 4, "status": "diverged"}],
    ids=["unknown", "none", "diverged"],
)
def test_the_time_per_epoch_is_nan_where_it_was_not_measured(changes):
    assert math.isnan(per_epoch(**changes))
