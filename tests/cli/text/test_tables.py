"""Tables for people: of a length that a terminal holds, and saying what is left out."""

import math

import pytest

from curvflow.cli.text.tables import MAX_ROWS, truncated_tables


def row(rule, quantity, count=5):
    mean = 1.5 if count else math.nan
    return {"rule": rule, "quantity": quantity, "units": "1", "mean": mean} | {
        "count": count
    }


def test_a_long_table_has_as_many_rows_under_each_label_and_counts_the_others():
    rows = [row(rule, f"q{n}") for rule in ("sgd", "adam") for n in range(MAX_ROWS)]
    lines = truncated_tables(rows, {}).splitlines()
    assert sum(line.startswith("sgd ") for line in lines) == MAX_ROWS // 2
    assert sum(line.startswith("adam ") for line in lines) == MAX_ROWS // 2
    assert lines[-1] == f"and {MAX_ROWS} more rows; --all prints all"


def test_more_labels_than_rows_leave_the_first_of_them():
    rows = [{"seed": n, "trace": n + 0.5} for n in range(MAX_ROWS + 1)]
    lines = truncated_tables(rows, {}).splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == [
        str(n) for n in range(MAX_ROWS)
    ]
    assert lines[-1] == "and 1 more row; --all prints all"


def test_a_table_that_fits_is_whole():
    rows = [{"seed": n, "trace": n + 0.5} for n in range(MAX_ROWS)]
    assert "more row" not in truncated_tables(rows, {})


def test_quantities_measured_nowhere_are_left_out():
    rows = [row(rule, q, n) for rule in "ab" for q, n in (("x", 5), ("y", 0))]
    text = truncated_tables(rows, {})
    assert text.startswith("quantity = x, ")
    assert text.endswith("\n\nleft out, measured at no node: y; --all prints all")


@pytest.mark.parametrize("went_wrong", ["diverged", "unconverged"])
def test_a_quantity_that_went_wrong_everywhere_is_shown(went_wrong):
    text = truncated_tables([row("sgd", "x"), row("sgd", "y", 0) | {went_wrong: 5}], {})
    assert "left out" not in text
    assert went_wrong in text


def test_what_is_nan_where_nothing_diverged_is_named_among_what_is_left_out():
    absent = [row("sgd", f"final_validation_{n}", 0) | {"nonfinite": 5} for n in "abcd"]
    lines = truncated_tables([row("sgd", "x"), *absent], {}).splitlines()
    said = " ".join(lines[lines.index("") :])
    assert all(name["quantity"] in said for name in absent)
    assert max(map(len, lines)) <= 80


def test_what_one_rule_lacks_stays_where_the_other_has_it():
    rows = [row("sgd", "x"), row("adam", "x", 0), row("sgd", "y"), row("adam", "y")]
    text = truncated_tables(rows, {})
    assert "nan" in text
    assert "left out" not in text


def test_where_nothing_was_measured_that_is_shown():
    text = truncated_tables([row("sgd", "x", 0), row("sgd", "y", 0)], {})
    assert "x" in text
    assert "left out" not in text
