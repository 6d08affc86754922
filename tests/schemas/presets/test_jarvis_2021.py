"""The settings of Jarvis (2021) against a second copy of Table 4.2."""

import math

import pytest

from curvflow.schemas.presets import all_presets
from curvflow.schemas.presets.jarvis_2021 import PRESETS
from tests.loops import for_each

COLUMNS = [
    f"{data}-{activation}"
    for data in ("xor", "xord", "mnist", "synthetic", "cifar10")
    for activation in ("tanh", "relu")
]
ROWS = {
    "sgd-small": "sgd",
    "sgd-large": "sgd",
    "metric-small": "metric",
    "metric-large": "metric",
    "l2-large": "l2",
    "selective-l2-large": "selective_l2",
    "l2-stopped-large": "l2_stopped",
    "l2-stopped-selective-large": "l2_stopped_selective",
}
TABLE = """
lr small   | 0.12 | 0.12 | 0.02 | 0.05 | 0.001 | 0.001 | 2e-4 | 2e-4 | 0.005 | 0.005
lr large   | 0.0015 | 0.002 | 0.02 | 0.002 | 0.001 | 0.001 | 1e-4 | 6e-5 | 0.005 | 0.005
metric     | 0.008 | 1e-4 | 1e-4 | 0.001 | 1e-4 | 1e-4 | 5e-4 | 2e-6 | 1e-5 | 1e-5
l2         | 0.001 | 0.001 | 1e-5 | 1e-4 | 1e-5 | 1e-5 | 1e-4 | 1e-5 | 1e-5 | 1e-5
selective  | 0.1 | 0.1 | 0.001 | 0.001 | 0.001 | 1e-5 | 0.1 | 0.001 | 5e-5 | 5e-5
tau        | 280 | 280 | 500 | 500 | 280 | 280 | 600 | 600 | 490 | 490
omega      | 0.1 | 0.05 | 0.01 | 0.1 | 0.001 | 0.01 | 5e-4 | 0.005 | 0.02 | 0.02
init small | 0.03 | 0.03 | 0.4 | 0.2 | 0.1 | 0.1 | 0.05 | 0.02 | 0.2 | 0.2
init large | 2.3 | 1.7 | 4.0 | 2.0 | 2.0 | 2.0 | 0.5 | 0.2 | 5.0 | 5.0
"""


def printed_table():
    for line in TABLE.strip().splitlines():
        name, *cells = (cell.strip() for cell in line.split("|"))
        for column, cell in zip(COLUMNS, cells, strict=True):
            yield pytest.param(column, name, float(cell), id=f"{column}-{name}")


def holders(name):
    """Return which presets of a column hold a number of the table, and as which field.

    The decay of l2_stopped_selective is `rate` before tau, `selective_rate` after it.
    """
    where, _, regime = name.partition(" ")
    if regime:
        return {row: where for row in ROWS if row.endswith(regime)}
    after = "l2-stopped-selective-large"
    return {
        "metric": {"metric-small": "rate", "metric-large": "rate"},
        "l2": {"l2-large": "rate", "l2-stopped-large": "rate", after: "rate"},
        "selective": {"selective-l2-large": "rate", after: "selective_rate"},
        "tau": {"l2-stopped-large": "tau", after: "tau"},
        "omega": {"selective-l2-large": "omega", after: "omega"},
    }[name]


def test_there_are_eight_presets_for_each_of_ten_columns():
    assert len(PRESETS) == 80
    expected = {f"{column}/{row}" for column in COLUMNS for row in ROWS}
    assert set(PRESETS) == expected
    assert {f"jarvis-2021/{name}" for name in expected} <= set(all_presets())
    for column in COLUMNS:
        for row, rule in ROWS.items():
            for variant in PRESETS[f"{column}/{row}"].values():
                assert variant["rule"] == rule


@for_each("column, name, value", [*printed_table()])
def test_every_printed_number_is_where_it_belongs(column, name, value):
    for row, field in holders(name).items():
        found = PRESETS[f"{column}/{row}"]["printed"][field]
        if field == "init":
            law = "variance_scaling" if "cifar10" in column else "normal"
            assert found == {law: value}
        else:
            assert found == value


def test_a_preset_holds_no_more_than_the_table_and_the_factor_of_the_decay():
    for column in COLUMNS:
        held = {row: {"rule", "lr", "init"} for row in ROWS}
        for number in ("metric", "l2", "selective", "tau", "omega"):
            for row, field in holders(number).items():
                held[row].add(field)
        for row in ROWS:
            if "l2" in row:
                held[row].add("decay_factor")
                factor = PRESETS[f"{column}/{row}"]["printed"]["decay_factor"]
                assert factor == (1 if column.startswith("xor") else 2)
            for variant in PRESETS[f"{column}/{row}"].values():
                assert set(variant) == held[row]


def test_what_is_fitted_is_the_default_where_the_results_were_reproduced():
    for name, variants in PRESETS.items():
        is_fitted = not name.startswith(("mnist", "cifar10"))
        assert next(iter(variants)) == ("fitted" if is_fitted else "printed")
        assert set(variants) == {"fitted", "printed"}


def test_what_is_fitted_differs_from_what_is_printed_in_these_fields_only():
    differing = {
        (name, field): variants["fitted"][field]
        for name, variants in PRESETS.items()
        for field, value in variants["printed"].items()
        if variants["fitted"][field] != value
    }
    inits = {key: differing.pop(key) for key in list(differing) if key[1] == "init"}
    assert differing == {
        ("xor-tanh/metric-large", "rate"): 4e-4,
        ("xor-tanh/selective-l2-large", "omega"): 0.05,
        ("xor-tanh/l2-stopped-selective-large", "omega"): 0.05,
        ("synthetic-tanh/sgd-large", "lr"): 2e-4,
    }
    assert set(inits) == {
        (f"xor-{activation}/{row}", "init")
        for activation in ("tanh", "relu")
        for row in ROWS
    }


@pytest.mark.parametrize(
    ("row", "sigma", "bias"),
    [
        ("xor-tanh/sgd-small", 0.1, 0.1),
        ("xor-tanh/l2-large", 8, 2.5),
        ("xor-relu/metric-small", 0.1, 0.1),
        ("xor-relu/metric-large", 6, 2.5),
    ],
)
def test_the_table_rounds_the_fitted_deviations_of_twelve_units(row, sigma, bias):
    fitted, printed = PRESETS[row]["fitted"], PRESETS[row]["printed"]
    assert fitted["init"] == {"normal": sigma / math.sqrt(12), "bias": bias}
    assert abs(fitted["init"]["normal"] - printed["init"]["normal"]) < 0.05
