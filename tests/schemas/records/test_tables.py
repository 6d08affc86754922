import math
from textwrap import dedent

import pytest

from curvflow.schemas.records.tables import (
    WIDTH,
    Column,
    cell,
    group_by_fields,
    render,
)

UNITS = {"trace": "loss / parameter^2", "trace_sem": "loss / parameter^2", "n": "1"}


def row(**fields):
    return {"rule": "sgd", "seed": 0, "status": "ok", **fields}


def test_what_all_rows_share_is_said_once_above_aligned_columns():
    rows = [row(seed=s, trace=10.0**s, n=s + 9) for s in range(3)]
    assert render(rows, UNITS) == dedent("""\
        rule = sgd, status = ok
        seed               trace   n
              loss / parameter^2
           0               1.000   9
           1              10.00   10
           2             100.0    11""")


def test_points_of_numbers_stand_one_below_another():
    values = [1.0, 0.25, float("nan"), -12.5, 3.5e-9]
    text = render([{"k": k, "x": x} for k, x in enumerate(values)], {})
    assert [line[3:] for line in text.splitlines()] == [
        "         x",
        "  1.000",
        "  0.2500",
        "nan",
        "-12.50",
        "  3.500e-9",
    ]


def test_quantities_without_units_have_none():
    rows = [{"quantity": q, "units": u, "mean": 1.5} for q, u in ("a1", "bs")]
    lines = render(rows, {}).splitlines()
    assert [line.split() for line in lines[2:]] == [["a"], ["b", "s"]]
    assert render([{**row, "units": "1"} for row in rows], {}).startswith("mean = 1.5")


def test_one_record_is_a_line_per_field():
    assert render([row(trace=2.0, note="two\nlines")], UNITS) == dedent("""\
        rule    sgd
        seed    0
        status  ok
        trace   2.000 loss / parameter^2
        note    two lines""")


def test_a_long_text_goes_on_below_itself():
    lines = render([row(caption="mean of the seeds " * 9)], {}).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert [line[:9].strip() for line in lines] == [
        "rule",
        "seed",
        "status",
        "caption",
        "",
        "",
    ]


def test_records_with_other_fields_form_a_table_of_their_own():
    rows = [row(seed=s) for s in range(2)] + [row(seed=s, n=s) for s in range(2)]
    first, second = render(rows, UNITS).split("\n\n")
    assert "n" not in first.splitlines()[1]
    assert second.splitlines()[1].split() == ["seed", "n"]


@pytest.mark.parametrize(
    ("mean", "sem", "shown"),
    [
        (7.18123, 0.0917, "7.181 0.092"),
        (7.18123, 0.0996, "7.18 0.10"),
        (1234.5678, 3.21, "1234.6 3.2"),
        (97000.0, 3100.0, "9.70e4 3.1e3"),
        (1.23456e-9, 2.2e-11, "1.235e-9 2.2e-11"),
        (0.5, 12.0, "0 12"),
        (3.14159, 0.0, "3.142 0"),
        (30.0, 0.0, "30 0"),
        (3.14159, float("nan"), "3.142 nan"),
        (-1234567.0, float("nan"), "-1.235e6 nan"),
    ],
)
@pytest.mark.parametrize("names", [("mean", "sem"), ("trace", "trace_sem")])
def test_digits_end_at_the_second_of_the_standard_error(mean, sem, shown, names):
    fields = dict(zip(names, (mean, sem), strict=True))
    table = render([{"k": 0, **fields}, {"k": 1, names[0]: 1.0, names[1]: 1.0}], {})
    assert table.splitlines()[1].split() == ["0", *shown.split()]


def test_spread_and_limits_have_the_digits_of_the_mean():
    values = {"mean": 7.181, "sd": 0.2913, "sem": 0.0921, "low": 6.97, "high": 7.391}
    other = dict.fromkeys(values, 1.0)
    table = render([{"k": 0, **values}, {"k": 1, **other}], {})
    assert table.splitlines()[1].split()[1:] == [
        "7.181",
        "0.291",
        "0.092",
        "6.970",
        "7.391",
    ]


def test_booleans_nothing_and_values_that_are_not_finite_are_words():
    rows = [row(seed=0, a=True, b=None, c=float("inf")), row(seed=1, a=False, b=1, c=0)]
    lines = render(rows, {}).splitlines()
    assert lines[2].split() == ["0", "yes", "inf"]
    assert lines[3].split() == ["1", "no", "1", "0"]


def summary(rule, quantity, value):
    columns = ("mean", "sd", "sem", "low", "high")
    numbers = {name: value * (1 + k / 7) for k, name in enumerate(columns)}
    units = "1" if "0" in quantity else "loss / parameter^2"
    fields = {"quantity": quantity, "units": units, **numbers}
    return {"rule": rule, "status": "ok", **fields, "count": 5}


def test_a_wide_table_is_cut_by_its_first_label_and_stays_within_80_columns():
    names = [f"layer_trace[layers.{k}.weight]" for k in range(5)]
    rows = [
        summary(rule, name, 10.0**k)
        for rule in ("sgd_small", "metric_large")
        for k, name in enumerate(names)
    ]
    text = render(rows, {"quantity": "1", "mean": "as the quantity"})
    assert max(map(len, text.splitlines())) <= WIDTH
    assert text.count("rule = sgd_small") == text.count("rule = metric_large") == 1
    assert "as the quantity" not in text


def test_a_table_too_wide_goes_on_below_with_its_labels_repeated():
    fields = {f"a_rather_long_name_{k}": 1.5 for k in range(6)}
    rows = [{"lr": lr, **{n: v + lr for n, v in fields.items()}} for lr in (0.1, 0.2)]
    text = render(rows, dict.fromkeys(fields, "loss"))
    blocks = text.split("\n\n")
    assert len(blocks) == 2
    assert [block.split()[0] for block in blocks] == ["lr", "lr"]
    assert max(map(len, text.splitlines())) <= WIDTH


def test_without_records_there_is_nothing_to_show():
    assert render([], {}) == ""


def test_counts_of_work_come_behind_what_was_measured():
    work = {"seed": 0, "status": "ok", "iterations": 7, "seconds": 0.5}
    ranks = [{"seed": 0, "status": "ok", "rank": n, "value": 0.5} for n in (1, 2)]
    units = dict.fromkeys(("iterations", "rank", "value", "loss"), "1")
    assert group_by_fields([work, *ranks], units) == [ranks, [work]]
    loss = {"seed": 0, "status": "ok", "loss": 0.25}
    assert group_by_fields([loss, *ranks], units) == [[loss], ranks]


def test_a_label_with_a_fraction_is_no_measurement():
    work = {"rate": 0.1, "status": "ok", "iterations": 7}
    value = {"rate": 0.1, "status": "ok", "value": 0.5}
    units = {"iterations": "1", "value": "1"}
    assert group_by_fields([work, value], units) == [[value], [work]]


def test_an_error_of_rounding_alone_leaves_no_digits_of_its_own():
    assert cell(1 + 2e-16, 7e-17) == "1"
    assert cell(0.1 + 0.2, 5e-17) == "0.3000"
    assert cell(0.3, 5e-13) == "0.30000000000000"


def test_an_infinite_error_leaves_the_digits_of_an_unknown_one():
    assert cell(-1520.1, math.inf) == cell(-1520.1, math.nan) == "-1520"
    assert cell(math.inf, math.inf) == "inf"


def test_labels_are_written_as_the_study_has_them():
    rows = [{"lr": lr, "loss": 0.5} for lr in (0.01, 10.0, 1e-10)]
    heads, *rows_below = [
        line.split() for line in render(rows, {"loss": ""}).splitlines()
    ][1:]
    assert [line[0] for line in [heads, *rows_below]][-3:] == ["0.01", "10", "1e-10"]


class Counted(str):
    """A text that counts how often it is looked for its point."""

    looks = 0

    def partition(self, sep):
        type(self).looks += 1
        return super().partition(sep)


@pytest.mark.parametrize("rows", [10, 1000])
def test_a_column_is_aligned_once_however_long_it_is(rows, monkeypatch):
    monkeypatch.setattr(Counted, "looks", 0)
    column = Column("y", "", [Counted(f"{n}.5") for n in range(rows)], True, False)
    assert len({len(line) for line in column.lines(with_units=False)}) == 1
    assert column.width == len(str(rows - 1)) + 2
    assert Counted.looks == rows
