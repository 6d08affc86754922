"""Columns of a table as a data set."""

import csv
import io
import random
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import numpy as np
import pytest
from pydantic import ValidationError

from curvflow.errors import InputError
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.data.table import TableParams
from tests.tasks.toys import assert_declared, compute, member

KIND = "data.table"


def example_files(folder):
    wines = [
        f"{n}.5,{'red' if n % 3 else 'white'},{n % 2},0.{n},{n}" for n in range(20)
    ]
    lines = ["acid,colour,quality,sugar,year", *wines]
    (folder / "wine.csv").write_text("\n".join(lines), encoding="utf-8")


def node(content, **params):
    """Return a member with the bytes of a table, as if read from a file."""
    raw = content if isinstance(content, bytes) else content.encode()
    files = {"path": {"bytes": np.frombuffer(raw, np.uint8)}}
    return replace(member(KIND, {"path": "table.csv", **params}), files=files)


def made(content, **params):
    planned = node(content, **params)
    find_kind(KIND).check(planned.params, planned.files)
    (outcome,) = compute(KIND, [planned])
    assert_declared(KIND, outcome)
    samples = find_kind(KIND).samples_in_files(planned.params, planned.files)
    arrays = outcome.arrays
    assert samples.shape in (None, arrays["inputs"].shape[1:])
    assert samples.targets == ("labels" if "class_names" in arrays else "values")
    assert samples.outputs == (arrays["num_classes"] or 1)
    assert len(arrays["feature"]) == arrays["inputs"].shape[1]
    return arrays


def written(header, rows, delimiter=","):
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerows([header, *rows])
    return text.getvalue()


HEADER = ["row", "size", "town", "code", "day", "flag", "who"]


def random_rows(draw, count):
    """Return rows of HEADER, the first of them its number."""
    towns = ["Bern", "Brig, VS", 'the "old" town', "Olten"]
    return [
        [
            row,
            repr(draw.uniform(-5, 5) * 10 ** draw.randint(-3, 6)),
            draw.choice(towns),
            draw.choice([10, 9, 300]),
            f"2024-0{draw.randint(1, 9)}-1{draw.randint(0, 9)}",
            draw.choice(["yes", "no", "perhaps"]),
            draw.randint(1, 6),
        ]
        for row in range(count)
    ]


def parts(arrays):
    """Return the numbers of the rows in training and test, which are unscaled."""
    at = arrays["feature"].tolist().index("row")
    shift, width = arrays["shift"][at], arrays["width"][at]
    both = (arrays[name][:, at] * width + shift for name in ("inputs", "test_inputs"))
    return [np.rint(part).astype(int).tolist() for part in both]


def expected(rows, train, scaling, name):
    """Return names and values of a column's features, by plain loops over rows."""
    at = HEADER.index(name)
    cells = [str(row[at]) for row in rows]
    if name in ("row", "size"):
        known = [float(cells[row]) for row in train]
        mean = sum(known) / len(known)
        sd = (sum((x - mean) ** 2 for x in known) / len(known)) ** 0.5
        low, high = min(known), max(known)
        shift, width = {
            "none": (0, 1),
            "standard": (mean, sd),
            "minmax": (low, high - low),
        }[scaling]
        return [name], [[(float(cell) - shift) / width] for cell in cells]
    names = sorted({cells[row] for row in train})
    return [f"{name}={n}" for n in names], [
        [float(c == n) for n in names] for c in cells
    ]


@pytest.mark.parametrize("seed", range(30))
def test_random_tables_become_what_plain_loops_make_of_them(seed):
    draw = random.Random(seed)
    rows = random_rows(draw, draw.randint(8, 40))
    inputs = ["row", "size", "town", "code"]
    draw.shuffle(inputs)
    scaling = draw.choice(["none", "standard", "minmax"])
    delimiter = draw.choice([",", ";", "\t"])
    split = draw.choice([{}, {"time": "day"}, {"group": "who"}])
    arrays = made(
        written(HEADER, rows, delimiter),
        target="flag",
        columns=inputs,
        categories=["code"],
        scaling=scaling,
        unknown="zeros",
        delimiter=delimiter,
        test_fraction=draw.choice([0.2, 0.5] if split else [0.0, 0.2, 0.5]),
        seed=seed,
        **split,
    )
    train, test = parts(arrays)
    assert sorted(train + test) == list(range(len(rows)))
    features = [expected(rows, train, scaling, name) for name in inputs]
    assert arrays["feature"].tolist() == [n for names, _ in features for n in names]
    flags = sorted({row[5] for row in rows})
    assert arrays["class_names"].tolist() == flags
    for part, prefix in ((train, ""), (test, "test_")):
        values = [[x for _, block in features for x in block[row]] for row in part]
        labels = [flags.index(rows[row][5]) for row in part]
        width = len(arrays["feature"])
        np.testing.assert_allclose(
            arrays[f"{prefix}inputs"],
            np.array(values).reshape(-1, width),
            rtol=1e-9,
            atol=1e-9,
        )
        assert arrays[f"{prefix}targets"].tolist() == labels


def test_rows_are_held_out_at_random_by_the_seed():
    text = written(HEADER, random_rows(random.Random(0), 50))
    params = {"target": "flag", "columns": ["row"], "test_fraction": 0.3}
    first, again, other = (parts(made(text, **params, seed=s)) for s in (1, 1, 2))
    assert len(first[1]) == 15
    assert first == again
    assert first != other


@pytest.mark.parametrize("seed", range(10))
def test_a_group_is_in_one_part_and_the_share_is_met_to_half_a_group(seed):
    rows = random_rows(random.Random(seed), 60)
    arrays = made(
        written(HEADER, rows),
        target="flag",
        columns=["row"],
        group="who",
        test_fraction=0.4,
        seed=seed,
    )
    train, test = parts(arrays)
    assert not {rows[r][6] for r in train} & {rows[r][6] for r in test}
    largest = max(sum(row[6] == who for row in rows) for who in range(1, 7))
    assert abs(len(test) - 24) <= largest / 2


@pytest.mark.parametrize("fraction", [0.05, 0.3, 0.8])
def test_no_training_row_is_as_late_as_a_test_row(fraction):
    rows = random_rows(random.Random(4), 60)
    arrays = made(
        written(HEADER, rows),
        target="flag",
        columns=["row"],
        time="day",
        test_fraction=fraction,
    )
    train, test = ([rows[r][4] for r in part] for part in parts(arrays))
    assert max(train) < min(test)
    assert train + test == sorted(train + test)
    # No later day could begin the test part.
    assert sum(day > min(test) for day in test) < round(60 * fraction) <= len(test)


def test_times_of_one_iso_form_are_compared_as_texts():
    days = ["2024-01-31T09:00Z", "2023-12-31T23:59Z", "2024-01-31T10:00Z"]
    text = "x,t,y\n" + "".join(f"{n},{day},{n}.5\n" for n, day in enumerate(days))
    arrays = made(text, target="y", time="t", test_fraction=0.3, scaling="none")
    assert arrays["test_inputs"].tolist() == [[2.0]]


@pytest.mark.parametrize(
    "second", ["2024-02", "31.01.2024", "2024-01-31 09:00", "soon"]
)
def test_times_whose_texts_may_not_be_in_order_are_refused(second):
    text = f"x,t,y\n1.5,2024-01-31,0.5\n2.5,{second},1.5\n3.5,2024-02-01,2.5\n"
    planned = node(text, target="y", time="t")
    message = f"time: expected numbers, or dates such as .* got '{second}' in line 3"
    with pytest.raises(InputError, match=message):
        find_kind(KIND).check(planned.params, planned.files)


def test_times_of_two_forms_of_one_length_are_refused():
    days = ["2024-01-31 10:00", "2024-01-31T09:00", "2024-01-31 11:00"]
    text = "x,t,y\n" + "".join(f"{n},{day},{n}.5\n" for n, day in enumerate(days))
    planned = node(text, target="y", time="t")
    with pytest.raises(InputError, match="got '2024-01-31T09:00' in line 3"):
        find_kind(KIND).check(planned.params, planned.files)


def test_times_that_are_numbers_are_compared_as_numbers():
    text = "t,x,y\n9,0.5,a\n10,1.5,b\n8,2.5,a\n11,3.5,b\n"
    arrays = made(text, target="y", time="t", test_fraction=0.5, scaling="none")
    assert arrays["inputs"][:, 0].tolist() == [2.5, 0.5]
    assert arrays["test_inputs"][:, 0].tolist() == [1.5, 3.5]


MEASURED = "x,town,y\n1.0,a,0.5\n,b,1.5\n3.0,a,2.5\n8.0,b,3.5\n"


def test_the_mean_of_the_training_part_fills_what_is_missing():
    arrays = made(
        MEASURED, target="y", missing="mean", scaling="none", test_fraction=0.0
    )
    values = dict(zip(arrays["targets"][:, 0], arrays["inputs"][:, 0], strict=True))
    assert values == {0.5: 1.0, 1.5: 4.0, 2.5: 3.0, 3.5: 8.0}
    text = "x,t,y\n1.0,1,0.5\n,2,1.5\n3.0,3,2.5\n8.0,4,3.5\n"
    params = {"missing": "mean", "scaling": "none", "test_fraction": 0.25}
    held_out = made(text, target="y", time="t", **params)
    assert held_out["inputs"][:, 0].tolist() == [1.0, 2.0, 3.0]


def test_rows_with_missing_values_are_dropped():
    arrays = made(MEASURED, target="y", missing="drop", test_fraction=0.0)
    assert sorted(arrays["targets"][:, 0]) == [0.5, 2.5, 3.5]


def test_a_column_that_is_not_used_may_have_gaps():
    arrays = made(MEASURED, target="y", columns=["town"], test_fraction=0.0)
    assert arrays["feature"].tolist() == ["town=a", "town=b"]


def test_a_constant_column_is_shifted_alone():
    text = "x,y\n" + "".join(f"7.5,{n}.5\n" for n in range(5))
    arrays = made(text, target="y")
    assert (arrays["inputs"] == 0).all()
    assert arrays["shift"].tolist() == [7.5]
    assert arrays["width"].tolist() == [1]


@pytest.mark.parametrize("value", ["0.1", "0.7", "9.87", "1e-5", "123.456"])
def test_rounding_of_a_mean_is_no_width(value):
    rows = [[value, f"{n}.5"] for n in range(53)]
    for count in range(2, 54):
        arrays = made(
            written(["x", "y"], rows[:count]), target="y", columns=["x"],
            test_fraction=0,
        )  # fmt: skip
        assert [arrays["shift"], arrays["width"]] == [float(value), 1], count
        assert not arrays["inputs"].any()


@pytest.mark.parametrize("scaling", ["standard", "minmax", "none"])
def test_numbers_whose_squares_overflow_are_refused(scaling):
    text = written(["x", "y"], [[f"{n}e307", f"{n}.5"] for n in range(10)])
    with pytest.raises(InputError, match=r"numbers below 1e.150 in column 'x'"):
        made(text, target="y", scaling=scaling)


def test_whole_numbers_are_labels_or_values_as_asked():
    text = "x,y\n" + "".join(f"{n}.5,{(3, 7, 10)[n % 3]}\n" for n in range(12))
    with pytest.raises(InputError, match="whole numbers, 3 to 10, in column 'y'"):
        made(text, target="y")
    labels = made(text, target="y", targets_as="labels", test_fraction=0.0)
    assert labels["class_names"].tolist() == ["3", "7", "10"]
    assert labels["num_classes"] == 3
    values = made(text, target="y", targets_as="values", test_fraction=0.0)
    assert set(values["targets"].ravel()) == {3.0, 7.0, 10.0}
    assert values["num_classes"] == 0


def test_zeros_and_ones_are_labels():
    text = "x,y\n" + "".join(f"{n}.5,{n % 2}\n" for n in range(12))
    assert made(text, target="y")["class_names"].tolist() == ["0", "1"]


def test_a_category_that_training_lacks_is_refused_or_zero():
    text = "x,t,y\na,1,0.5\nb,2,1.5\na,3,2.5\nc,4,3.5\n"
    params = {"target": "y", "time": "t", "test_fraction": 0.25}
    with pytest.raises(InputError, match="got 'c' in line 5"):
        made(text, **params)
    arrays = made(text, **params, unknown="zeros")
    assert arrays["feature"].tolist() == ["x=a", "x=b"]
    assert arrays["test_inputs"].tolist() == [[0.0, 0.0]]


def test_a_parquet_file_holds_the_same_table():
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = random_rows(random.Random(5), 30)
    columns = [list(column) for column in zip(*rows, strict=True)]
    columns[1] = [float(x) for x in columns[1]]
    columns[1][3] = None
    days = pyarrow.array(columns[4]).cast(pyarrow.timestamp("ns"))
    arrays = [*columns[:4], days, pyarrow.array(columns[5]).dictionary_encode()]
    file = io.BytesIO()
    table = pyarrow.table(dict(zip(HEADER, [*arrays, columns[6]], strict=True)))
    parquet.write_table(table, file)
    rows[3][1] = ""
    params = {
        "target": "flag",
        "time": "day",
        "categories": ["code"],
        "columns": ["row", "size", "town", "code"],
        "missing": "mean",
        "unknown": "zeros",
    }
    text, binary = (
        made(written(HEADER, rows), **params),
        made(file.getvalue(), **params),
    )
    assert text.keys() == binary.keys()
    for name in text:
        np.testing.assert_array_equal(text[name], binary[name])


def test_columns_of_other_types_are_refused():
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    file = io.BytesIO()
    lists = pyarrow.array([[1.0], [2.0]])
    parquet.write_table(pyarrow.table({"x": lists, "y": [0.5, 1.5]}), file)
    with pytest.raises(
        InputError, match="column 'x': expected numbers, texts or times"
    ):
        made(file.getvalue(), target="y")
    # Broken off, and with pages that are none.
    whole = file.getvalue()
    for broken in (whole[:60], whole[:4] + bytes(20) + whole[24:]):
        with pytest.raises(InputError, match="expected a Parquet file, got one that"):
            made(broken, target="y")


@pytest.mark.parametrize(
    ("text", "params", "message"),
    [
        ("x,y\n1.5,a\n", {"target": "z"}, "target: expected a column .* got 'z'"),
        (
            "size,y\n1.5,a\n",
            {"target": "y", "columns": ["siez"]},
            "columns: .* Did you mean 'size'?",
        ),
        ("x,y\n1.5,a\n", {"target": "y", "group": "w"}, "group: expected a column"),
        (
            "x,y\n1.5,a\n",
            {"target": "y", "categories": ["y"]},
            "categories: expected columns of the inputs, got 'y'",
        ),
        (
            "x,y\n1.5,a\n\n,b\n",
            {"target": "y"},
            "expected a value in column 'x', got none in line 4. Set missing: mean or",
        ),
        (
            "x,y\na,1.5\nNA,2.5\n",
            {"target": "y", "missing": "mean"},
            "column 'x', got none in line 3. A mean has numbers alone",
        ),
        (
            "x,y\n1.5,a\n2.5,\n",
            {"target": "y", "missing": "mean"},
            "column 'y', got none in line 3",
        ),
        (
            'x,y\n1.5,"a\nb"\n"2,5",b\n4.5,a\n3.5,a\n',
            {"target": "y"},
            "expected numbers in column 'x', got '2,5' in line 4. Mend it",
        ),
        (
            "x,y\n1.5,3.5\n2.5,4.5.1\n",
            {"target": "y", "targets_as": "values"},
            "expected numbers as values, got '4.5.1' in line 3",
        ),
        (
            "x,y\n1.5,a\ninf,b\n",
            {"target": "y"},
            "expected finite numbers in column 'x', got infinity in line 3",
        ),
        (
            "x,y\n1.5,a\nNAN,b\n",
            {"target": "y", "missing": "mean"},
            "expected finite numbers in column 'x', got NaN in line 3",
        ),
        (
            "x,y\n1.5,2.5\n2.5,-nan\n",
            {"target": "y"},
            "expected finite numbers in column 'y', got NaN in line 3",
        ),
        (
            "x,t,y\n1.5,1,0.5\n2.5,+NaN,1.5\n",
            {"target": "y", "time": "t"},
            "expected finite numbers in column 't', got NaN in line 3",
        ),
        ("x,y\n1.5\n", {"target": "y"}, "expected 2 cells in line 2, .* got 1"),
        (",y\n0,1.5\n", {"target": "y"}, "got none for column 1"),
        ("x,x,y\n0,1,1.5\n", {"target": "y"}, "got 'x' twice"),
        (
            "x;y\n1;2\n",
            {"target": "y"},
            "at least 2 columns, got 1 with delimiter: ','",
        ),
        ('x,y\n"1"2,a\n', {"target": "y"}, "expected a CSV file, got line 2"),
        (b"x,y\n\xe9,a\n", {"target": "y"}, "expected text in UTF-8"),
        ("x,y\n1.5,a\n2.5,a\n", {"target": "y"}, "at least 2 classes .* got 1"),
        ("x,y\n", {"target": "y"}, "at least 2 rows left for training, got 0 of 0"),
        (
            "x,y\n1.5,a\n2.5,b\n3.5,a\n",
            {"target": "y", "test_fraction": 0.5},
            "at least 2 rows left for training, got 1 of 3",
        ),
        (
            "x,t,y\n1.5,1,a\n2.5,2,b\n3.5,2,a\n",
            {"target": "y", "time": "t", "test_fraction": 0.3},
            "at least 2 rows left for training, got 1 of 3",
        ),
        (
            "x,g,y\n1.5,1,a\n2.5,1,b\n3.5,1,a\n",
            {"target": "y", "group": "g"},
            "at least 2 groups to split, got 1",
        ),
        (
            "x,y\na,1.5\nb,2.5\nc,3.5\n",
            {"target": "y", "max_categories": 2},
            "at most 2 categories in column 'x', got 3",
        ),
        ("y,g\n1.5,1\n2.5,2\n", {"target": "y", "group": "g"}, "got none"),
    ],
)
def test_tables_that_will_not_do_are_refused_while_planning(text, params, message):
    planned = node(text, **params)
    with pytest.raises(InputError, match=message):
        find_kind(KIND).check(planned.params, planned.files)


def test_a_column_without_a_training_value_has_no_mean():
    text = "x,t,y\n,1,0.5\n,2,1.5\n3.5,3,2.5\n"
    with pytest.raises(InputError, match="column 'x' of the training part, got none"):
        made(text, target="y", time="t", missing="mean", test_fraction=0.3)


def test_parquet_without_pyarrow_is_refused_while_planning(monkeypatch):
    monkeypatch.setattr(
        "curvflow.schemas.kinds.shared.columns.find_spec", lambda name: None
    )
    with pytest.raises(InputError, match="Run pip install pyarrow"):
        made(b"PAR1", target="y")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"group": "a", "time": "b"}, "group cannot be combined with time"),
        (
            {"group": "a", "test_fraction": 0},
            "group cannot be combined with test_fraction 0",
        ),
        ({"columns": ["y"]}, "target that is no input"),
        ({"columns": ["x", "x"]}, "got 'x' twice"),
        ({"delimiter": '"'}, "expected a delimiter"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(params, message):
    with pytest.raises(ValidationError, match=message):
        TableParams(path="table.csv", target="y", **params)


@pytest.mark.parametrize("seed", range(10))
def test_decimals_behind_commas_are_those_behind_points(seed):
    draw = random.Random(seed)
    rows = [
        [
            repr(round(draw.uniform(-50, 50), draw.randint(1, 2))),
            draw.choice(["a,b", "c"]),
        ]
        for _ in range(draw.randint(6, 20))
    ]
    rows = [[row[0], row[1], repr(n + 0.5)] for n, row in enumerate(rows)]
    commas = [[x.replace(".", ","), name, y.replace(".", ",")] for x, name, y in rows]
    header, params = ["x", "name", "y"], {"target": "y", "seed": seed}
    plain = made(written(header, rows), unknown="zeros", **params)
    european = written(header, commas, ";")
    arrays = made(european, unknown="zeros", delimiter=";", decimal=",", **params)
    assert arrays.keys() == plain.keys()
    for name, array in arrays.items():
        assert np.array_equal(array, plain[name])
    for asked in ({"columns": ["x"]}, {"columns": ["name"]}):
        with pytest.raises(InputError, match="Set decimal: ',', add it to missing"):
            made(european, delimiter=";", **asked, **params)


@pytest.mark.parametrize(
    "form",
    [
        *("{:,}", "{} %", "${}", "{}€", "-${:,}.25"),
        *("'{}", "\u2212{}", "{:_}", "{},5e3", "{}.5 kg", "{}.25m", "'{}.5'"),
    ],
)
@pytest.mark.parametrize("of", ["x", "y"])
def test_numbers_in_another_way_of_writing_are_no_names(form, of):
    draw = random.Random(form)
    cells = [form.format(draw.randint(1000, 99999)) for _ in range(9)]
    header = ["x", "y"] if of == "x" else ["y", "x"]
    text = written(header, [[cell, f"{n}.5"] for n, cell in enumerate(cells)])
    with pytest.raises(InputError, match=r"expected numbers in column .* Mend it"):
        made(text, target="y")
    answer = {"categories": ["x"]} if of == "x" else {"targets_as": "labels"}
    arrays = made(text, target="y", test_fraction=0, **answer)
    names = arrays["class_names"] if of == "y" else arrays["feature"]
    assert {name.removeprefix("x=") for name in names} == set(cells)


WORDS = ["N/A", "n/a", "#N/A", "NULL", "null", "None", "none", "<NA>", "?", "-", "--"]


@pytest.mark.parametrize("of", ["x", "y"])
@pytest.mark.parametrize("seed", range(12))
def test_words_for_nothing_are_no_names_unless_somebody_says_so(seed, of):
    draw = random.Random(seed)
    word = draw.choice(WORDS)
    cells = [draw.choice(["red", "NIL-4", "a?", "nonesuch"]) for _ in range(20)]
    for row in draw.sample(range(1, 20), k=draw.randint(1, 4)):
        cells[row] = word
    cells[0] = "white"
    header = ["x", "y"] if of == "x" else ["y", "x"]
    text = written(header, [[cell, f"{n}.5"] for n, cell in enumerate(cells)])
    place = f"got '{re.escape(word)}' in line {cells.index(word) + 2}. Add it to miss"
    with pytest.raises(InputError, match=f"expected names of .*{place}"):
        made(text, target="y")
    answer = {"categories": ["x"]} if of == "x" else {"targets_as": "labels"}
    whole = made(text, target="y", test_fraction=0, **answer)
    dropped = made(
        text, target="y", test_fraction=0, missing="drop", missing_values=[word]
    )
    for arrays, known in ((whole, {*cells}), (dropped, {*cells} - {word})):
        names = arrays["class_names"] if of == "y" else arrays["feature"]
        assert {name.removeprefix("x=") for name in names} == known
    assert len(dropped["inputs"]) == 20 - cells.count(word)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("of", ["x", "y"])
def test_whole_numbers_that_floats_confuse_are_no_measurements(seed, of):
    draw = random.Random(seed)
    least = 2 ** draw.choice([40, 52, 53, 54, 60])
    cells = [least + n for n in draw.sample(range(64), k=12)]
    header = ["x", "y"] if of == "x" else ["y", "x"]
    text = written(header, [[cell, f"{n}.5"] for n, cell in enumerate(cells)])
    asked = {"target": "y", "test_fraction": 0}
    asked |= {"targets_as": "values"} if of == "y" else {"scaling": "none"}
    if len({float(cell) for cell in cells}) < len(cells):
        with pytest.raises(InputError, match=f"floats distinguish in column '{of}'"):
            made(text, **asked)
        return
    arrays = made(text, **asked)
    got = arrays["inputs" if of == "x" else "targets"]
    assert sorted(got.ravel()) == sorted(map(float, cells))


@pytest.mark.parametrize("exponent", [-140, -160, -200, -320])
def test_numbers_whose_squares_underflow_are_refused(exponent):
    text = written(["x", "y"], [[f"{n}e{exponent}", f"{n}.5"] for n in range(10)])
    params = {"target": "y", "test_fraction": 0}
    if exponent > -150:
        numbers = made(text, **params)["inputs"]
        assert numbers.std() == pytest.approx(1)
        return
    with pytest.raises(InputError, match="'x' that are equal, or differ by 1e-150"):
        made(text, **params)
    assert made(text, scaling="minmax", **params)["inputs"].max() == 1


def test_texts_of_numbers_in_parquet_are_asked_about():
    rows = range(6)
    content = as_parquet(x=[f"{n}.5" for n in rows], y=[n + 0.5 for n in rows])
    with pytest.raises(InputError, match=r"column 'x', got texts of numbers .* '0.5'"):
        made(content, target="y")
    arrays = made(content, target="y", categories=["x"], test_fraction=0)
    assert arrays["feature"].tolist() == [f"x={n}.5" for n in rows]
    with pytest.raises(InputError, match="labels or values, got texts of numbers"):
        made(content, target="x", columns=["y"])
    whole = as_parquet(x=[n + 0.5 for n in rows], y=[str(n % 2) for n in rows])
    assert made(whole, target="y")["class_names"].tolist() == ["0", "1"]


def test_a_slip_among_values_makes_no_labels_of_them():
    text = "x,y\n1,0.5\n2,1.5\n3,oops\n4,2.5\n"
    with pytest.raises(InputError, match="numbers in column 'y', got 'oops' in line 4"):
        made(text, target="y")
    dropped = made(
        text, target="y", missing="drop", missing_values=["oops"], test_fraction=0
    )
    assert sorted(dropped["targets"].ravel()) == [0.5, 1.5, 2.5]


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("seed", range(5))
def test_identifiers_that_floats_confuse_stay_apart(form, seed):
    draw = random.Random(seed)
    some = [2**53 + n for n in range(5)] + [3, 2**60, 2**60 + 1]
    ids = [*some, *(draw.choice(some) for _ in range(20))]
    draw.shuffle(ids)
    rows = [[n, i, n + 0.5] for n, i in enumerate(ids)]
    content = written(["row", "id", "y"], rows)
    if form == "parquet":
        content = as_parquet(row=range(len(ids)), id=ids, y=[row[2] for row in rows])
    names = [str(i) for i in sorted(set(ids))]
    labels = made(content, target="id", targets_as="labels", test_fraction=0)
    assert labels["class_names"].tolist() == names
    (order, _), given = parts(labels), labels["targets"].astype(int)
    assert [names[n] for n in given] == [str(ids[row]) for row in order]
    named = made(content, target="y", categories=["id"], test_fraction=0)
    assert {f"id={name}" for name in names} == set(named["feature"]) - {"row"}
    params = {"target": "y", "columns": ["row"], "test_fraction": 0.3, "seed": seed}
    train, test = parts(made(content, **params, group="id"))
    assert not {ids[n] for n in train} & {ids[n] for n in test}
    train, test = parts(made(content, **params, time="id"))
    assert max(ids[n] for n in train) < min(ids[n] for n in test)


def as_parquet(**columns):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    content = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table(columns), content)
    return content.getvalue().to_pybytes()


def test_times_of_parquet_with_some_fractions_of_a_second_are_in_order():
    day = datetime(2024, 1, 1, tzinfo=UTC)
    times = [day + timedelta(milliseconds=250 * n) for n in (5, 0, 4, 8, 1, 2)]
    content = as_parquet(row=range(6), at=times, y=[0.5] * 6)
    params = {"columns": ["row"], "time": "at", "test_fraction": 0.3}
    assert parts(made(content, target="y", **params)) == [[1, 4, 5, 2], [0, 3]]


@pytest.mark.parametrize("cells", [[["a"]] * 6, [{"a": "b"}] * 6])
def test_nested_texts_in_parquet_are_no_names(cells):
    with pytest.raises(InputError, match="expected numbers, texts or times, got"):
        made(as_parquet(x=cells, y=[0.5] * 6), target="y")


def test_numbers_of_rows_and_decimals_in_parquet():
    cells = [Decimal(n) / 4 for n in range(6)]
    content = as_parquet(x=cells, y=[0.5] * 6, __index_level_0__=range(6))
    arrays = made(content, target="y", scaling="none", test_fraction=0)
    assert arrays["feature"].tolist() == ["x"]
    assert sorted(arrays["inputs"].ravel()) == [float(cell) for cell in cells]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_spaces_around_quoted_cells_do_not_count(seed, delimiter):
    draw = random.Random(seed)
    towns = ["Aix", "Bad Ems, Lahn", 'the "Hague"']
    rows = [[n + 0.5, draw.choice(towns), f"c{n % 2}"] for n in range(20)]

    def spaced(cell):
        quoted = '"' + str(cell).replace('"', '""') + '"'
        is_plain = not set(str(cell)) & set('",')
        text = str(cell) if is_plain and draw.random() < 0.5 else quoted
        return " " * draw.randint(0, 2) + text

    lines = [["size", "town", "class"], *rows]
    content = "\n".join(delimiter.join(map(spaced, line)) for line in lines)
    plain = made(written(*lines[:1], rows), target="class")
    arrays = made(content, target="class", delimiter=delimiter)
    for name, array in plain.items():
        np.testing.assert_array_equal(arrays[name], array)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("form", ["csv", "german", "float64", "float32", "int16"])
def test_a_number_that_stands_for_nothing_does_however_it_is_written(seed, form):
    draw = random.Random(seed)
    nothing = draw.choice([-999, 0, 7, -1])
    cells = [draw.choice([nothing, n + 10]) for n in range(30)]
    cells[0] = nothing
    known = [n for n in cells if n != nothing]
    params = {"target": "y", "missing": "mean", "missing_values": [str(nothing)]}
    if form in ("csv", "german"):
        point = "," if form == "german" else "."
        ways = [str, "{}.0".format, "{}.000".format, "{}e0".format]
        rows = [
            [draw.choice(ways)(n).replace(".", point), f"{row}{point}5"]
            for row, n in enumerate(cells)
        ]
        content = written(["x", "y"], rows, ";")
        params |= {"delimiter": ";", "decimal": point}
    else:
        pyarrow = pytest.importorskip("pyarrow")
        typed = pyarrow.array(cells).cast(pyarrow.type_for_alias(form))
        content = as_parquet(x=typed, y=[row + 0.5 for row in range(30)])
    arrays = made(content, scaling="none", test_fraction=0, **params)
    mean = sum(known) / len(known)
    filled = [mean if n == nothing else n for n in cells]
    order = np.argsort(arrays["targets"].ravel())
    np.testing.assert_allclose(arrays["inputs"].ravel()[order], filled, rtol=1e-12)


def test_codes_that_stand_for_nothing_are_compared_as_they_are_written():
    text = "x,y\n" + "".join(f"{['0', '00', '1'][n % 3]},{n}.5\n" for n in range(12))
    params = {"target": "y", "categories": ["x"], "missing_values": ["0"]}
    arrays = made(text, missing="drop", test_fraction=0, **params)
    assert arrays["feature"].tolist() == ["x=00", "x=1"]
    codes = as_parquet(x=[n % 3 for n in range(12)], y=[n + 0.5 for n in range(12)])
    arrays = made(codes, missing="drop", test_fraction=0, **params)
    assert arrays["feature"].tolist() == ["x=1", "x=2"]


def test_a_large_code_in_parquet_may_stand_for_nothing():
    codes = [2**60 + n % 3 for n in range(12)]
    params = {"target": "y", "categories": ["x"], "missing_values": [str(2**60)]}
    content = as_parquet(x=codes, y=[n + 0.5 for n in range(12)])
    arrays = made(content, missing="drop", test_fraction=0, **params)
    assert arrays["feature"].tolist() == [f"x={2**60 + n}" for n in (1, 2)]


def test_infinity_in_parquet_is_missing_where_it_is_said_to_be():
    content = as_parquet(x=[float("inf"), 1.0, 2.0, 3.0], y=[0.5] * 4)
    with pytest.raises(InputError, match="infinity in row 1"):
        made(content, target="y")
    arrays = made(content, target="y", missing="drop", missing_values=["inf"])
    assert len(arrays["inputs"]) + len(arrays["test_inputs"]) == 3


@pytest.mark.parametrize("seed", range(6))
def test_identifiers_of_decimals_stay_apart_in_parquet(seed):
    draw = random.Random(seed)
    first = draw.randint(10**17, 10**20)
    ids = [Decimal(first + n % 4) for n in range(24)]
    if seed % 2:
        ids = [one.quantize(Decimal("0.01")) for one in ids]
    columns = {"id": ids, "row": list(range(24)), "y": [n + 0.5 for n in range(24)]}
    content = as_parquet(**columns)
    with pytest.raises(InputError, match="numbers that floats distinguish"):
        made(content, target="y")
    arrays = made(content, target="y", categories=["id"], test_fraction=0)
    names = [f"id={first + n}" for n in range(4)]
    assert arrays["feature"].tolist() == [*names, "row"]
    train, test = parts(made(content, target="y", columns=["row"], group="id"))
    assert not {n % 4 for n in train} & {n % 4 for n in test}
    # One that is missing hides none of the others.
    columns["id"] = [None, *ids[1:]]
    with pytest.raises(InputError, match="numbers that floats distinguish"):
        made(as_parquet(**columns), target="y", missing="mean")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("step", [1, 7, 1000])
def test_times_of_any_unit_in_parquet_are_in_order(unit, step):
    pyarrow = pytest.importorskip("pyarrow")
    draw = random.Random(step)
    places = draw.sample(range(40), 40)
    start = np.datetime64("2024-02-28T23:59:59", unit).astype(int)
    times = [int(start) + step * place for place in places]
    at = pyarrow.array(times, pyarrow.timestamp(unit, tz="Europe/Zurich"))
    content = as_parquet(row=range(40), at=at, y=[0.5] * 40)
    train, test = parts(made(content, target="y", columns=["row"], time="at"))
    assert [places[row] for row in [*train, *test]] == list(range(40))
    assert len(test) == 8


def test_dates_in_parquet_that_are_no_dates_of_python_are_refused_in_a_line():
    pyarrow = pytest.importorskip("pyarrow")
    at = pyarrow.array([10**8 + n for n in range(6)], pyarrow.date32())
    content = as_parquet(at=at, row=range(6), y=[0.5] * 6)
    with pytest.raises(InputError, match="dates such as 2024-01-31 of one form"):
        made(content, target="y", columns=["row"], time="at")


def test_spaces_around_cells_do_not_count_in_parquet():
    colours = ["red", " red", "blue ", "blue", "red ", "blue"]
    arrays = made(as_parquet(x=colours, y=[0.5] * 6), target="y", test_fraction=0)
    assert arrays["feature"].tolist() == ["x=blue", "x=red"]
