import json
import math

import numpy as np
import pytest

from curvflow.schemas.kind import Variable
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.records.records import records

EIGEN = find_kind("probe.eigenvalues").outputs
SUMMARY = find_kind("aggregate.summary").outputs


def eigen(first):
    return {
        "rank": np.array([1, 2]),
        "eigenvalues": np.array([first, 1.0]),
        "residuals": np.array([1e-9, 2e-9]),
        "converged": np.array([True, False]),
        "iterations": np.array(7),
        "num_matvecs": np.array(77),
    }


def test_single_values_form_one_record_and_elements_one_each():
    rows = records([({"seed": 3}, "ok", eigen(5.0))], EIGEN)
    assert rows == [
        {"seed": 3, "status": "ok", "iterations": 7, "num_matvecs": 77},
        {
            "seed": 3,
            "status": "ok",
            "rank": 1,
            "eigenvalues": 5.0,
            "residuals": 1e-9,
            "converged": True,
        },
        {
            "seed": 3,
            "status": "ok",
            "rank": 2,
            "eigenvalues": 1.0,
            "residuals": 2e-9,
            "converged": False,
        },
    ]


def test_a_summary_gives_one_record_per_node_and_quantity():
    def column(v):
        return np.array(["a", "b"]) if v.dtype == "str" else np.zeros(2, v.dtype)

    arrays = {v.name: column(v) for v in SUMMARY if v.dims == ("quantity",)}
    rows = records([({"rule": r}, "ok", arrays) for r in ("x", "y")], SUMMARY)
    assert [(row["rule"], row["quantity"]) for row in rows] == [
        ("x", "a"),
        ("x", "b"),
        ("y", "a"),
        ("y", "b"),
    ]
    assert list(rows[0]) == ["rule", "status", *arrays]


def test_values_are_plain_python():
    rows = records([({"seed": 0}, "ok", eigen(np.nan))], EIGEN)
    assert math.isnan(rows[1]["eigenvalues"])
    assert json.loads(json.dumps(rows[2])) == rows[2]
    assert type(rows[1]["converged"]) is bool


@pytest.mark.parametrize("status", ["failed", "missing", "diverged"])
def test_a_node_without_results_keeps_a_record_of_its_status(status):
    assert records([({"seed": 1}, status, {})], EIGEN) == [
        {"seed": 1, "status": status}
    ]


def test_a_diverged_node_shows_what_it_has():
    rows = records([({"seed": 1}, "diverged", {"iterations": np.array(2)})], EIGEN)
    assert rows == [{"seed": 1, "status": "diverged", "iterations": 2}]


def test_only_the_variables_named_are_taken():
    rows = records([({}, "ok", eigen(5.0))], EIGEN, variables=["eigenvalues"])
    assert [row["eigenvalues"] for row in rows] == [5.0, 1.0]
    assert list(rows[0]) == ["status", "rank", "eigenvalues"]


CURVES = (
    Variable("epoch", "epochs", ("epoch",), "int64", series=True),
    Variable("loss", "loss", ("epoch",), series=True),
    Variable("final", "last loss"),
    Variable("weights", "parameters", ("parameter",), bulk=True),
    Variable("png", "picture", ("byte",), "uint8", file=".png"),
)
CURVE = {
    "epoch": np.array([0, 5]),
    "loss": np.array([2.0, 1.0]),
    "final": np.array(1.0),
    "weights": np.zeros(3),
    "png": np.zeros(4, np.uint8),
}


def test_series_come_on_request_and_bulk_only_by_name():
    nodes = [({}, "ok", CURVE)]
    assert records(nodes, CURVES) == [{"status": "ok", "final": 1.0}]
    assert records(nodes, CURVES, series=True) == [
        {"status": "ok", "final": 1.0},
        {"status": "ok", "epoch": 0, "loss": 2.0},
        {"status": "ok", "epoch": 5, "loss": 1.0},
    ]
    assert records(nodes, CURVES, variables=["weights"]) == [
        {"status": "ok", "parameter": k, "weights": 0.0} for k in range(3)
    ]


def test_a_coordinate_alone_is_listed_when_named():
    rows = records([({}, "ok", CURVE)], CURVES, variables=["epoch"])
    assert [row["epoch"] for row in rows] == [0, 5]


def test_unnamed_dimensions_are_numbered():
    outputs = (Variable("image", "pixels", ("sample", "...")),)
    rows = records([({}, "ok", {"image": np.arange(4.0).reshape(2, 2)})], outputs)
    assert rows[2] == {"status": "ok", "sample": 1, "dim_1": 0, "image": 2.0}
