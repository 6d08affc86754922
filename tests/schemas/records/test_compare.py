"""Numbers before and after."""

import math

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from curvflow.schemas.records.compare import (
    compare_arrays,
    compare_rows,
    elementwise_differences,
)
from curvflow.schemas.words import duration

NUMBERS = st.floats(allow_nan=True, allow_infinity=True)


@given(NUMBERS, NUMBERS)
@example(0.0, 5e-324)
@example(-1.7e308, 1.7e308)
def test_distances_are_symmetric_and_zero_for_equals_alone(left, right):
    there, back = (
        elementwise_differences(np.array(left), np.array(right)),
        elementwise_differences(np.array(right), left),
    )
    assert [float(x) for x in there] == [float(x) for x in back]
    is_equal = left == right or (math.isnan(left) and math.isnan(right))
    assert (float(there[1]) == 0) == is_equal
    assert not math.isnan(float(there[0]))


def test_another_shape_or_a_missing_variable_is_infinitely_far():
    differences = list(
        compare_arrays({}, {"a": np.ones(2), "b": np.ones(1)}, {"a": np.ones(3)})
    )
    assert [(row.variable, row.absolute) for row in differences] == [
        ("a", math.inf),
        ("b", math.inf),
    ]


def test_means_are_also_given_in_standard_errors_of_their_difference():
    def row(mean, sem):
        return {
            "rule": "sgd",
            "status": "ok",
            "quantity": "q",
            "mean": mean,
            "sem": sem,
        }

    (first, second) = compare_rows([row(1.0, 3.0)], [row(11.0, 4.0)])
    assert (first["statistic"], first["standard_errors"]) == ("mean", 2.0)
    assert first["labels"] == {"rule": "sgd", "quantity": "q"}
    assert (second["statistic"], second["difference"]) == ("sem", 1.0)
    assert compare_rows([row(1.0, 3.0)], [row(1.0, 3.0)]) == []


def test_a_row_that_is_new_has_no_old_value():
    new = {"status": "ok", "quantity": "q", "count": 3}
    (row,) = compare_rows([], [new])
    assert (row["old"], row["new"], row["difference"]) == (None, 3, None)


def test_durations_have_the_two_units_that_matter():
    said = [duration(s) for s in (0.2, 40, 600, 11400, 255600)]
    assert said == ["under 1 s", "40 s", "10 min", "3 h 10 min", "71 h"]
