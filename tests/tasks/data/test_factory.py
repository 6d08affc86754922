"""Data sets of the user's own functions."""

from pathlib import Path

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from tests.tasks.toys import assert_declared, compute, member


def made(name, **kwargs):
    params = {"factory": f"tests.tasks.toys:{name}", "kwargs": kwargs}
    (outcome,) = compute("data.factory", [member("data.factory", params)])
    assert_declared("data.factory", outcome)
    return outcome.arrays


def test_a_mapping_and_its_arguments_make_a_regression():
    arrays = made("make_data", num_samples=7)
    assert arrays["inputs"].shape == (7, 2)
    assert arrays["targets"].shape == (7, 1)
    assert arrays["num_classes"] == 0


def test_a_tuple_makes_a_classification():
    arrays = made("make_pair")
    assert arrays["targets"].tolist() == [0, 1, 1, 0]
    assert arrays["num_classes"] == 2


@pytest.mark.parametrize(
    ("name", "kwargs", "message"),
    [
        ("make_nonsense", {}, "to return a mapping, or a tuple of 2 or 4 arrays, got"),
        ("make_typo", {}, "got 'input'. Did you mean 'inputs'?"),
        ("make_nothing", {}, "a function of module 'tests.tasks.toys', got"),
        ("make_data", {"samples": 3}, "to take the keyword arguments samples, got"),
    ],
)
def test_functions_that_make_no_data_set_are_refused(name, kwargs, message):
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        made(name, **kwargs)


def test_modules_that_are_not_there_are_refused():
    params = {"factory": "no_such_module:make"}
    with pytest.raises(InputError, match="a module that can be imported, got 'no_such"):
        compute("data.factory", [member("data.factory", params)])


ROWS = np.random.default_rng(0).normal(size=(12, 3))
LABELS = np.arange(12) % 2


def rows_as(form):
    tensor = torch.as_tensor(ROWS)
    rows = {
        "gradient": tensor.clone().requires_grad_(),
        "bfloat16": tensor.bfloat16(),
        "float16": tensor.half(),
        "sparse": tensor.to_sparse(),
        "list": ROWS.tolist(),
        "masked": np.ma.masked_array(ROWS, mask=ROWS > 1),
        "mask of none": np.ma.masked_array(ROWS),
        "ragged": [[1.0], [1.0, 2.0]] * 6,
    }
    return rows[form], torch.as_tensor(LABELS)


def failing(lines=2):
    raise ValueError("\n".join(["no data"] * lines))


def here(name, **kwargs):
    params = {"factory": f"{__name__}:{name}", "kwargs": kwargs}
    (outcome,) = compute("data.factory", [member("data.factory", params)])
    return outcome.arrays


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ("gradient", 0),
        ("bfloat16", 1e-2),
        ("float16", 1e-3),
        ("sparse", 0),
        ("list", 0),
        ("mask of none", 0),
    ],
)
def test_tensors_and_arrays_of_any_form_are_taken(form, error):
    arrays = here("rows_as", form=form)
    np.testing.assert_allclose(arrays["inputs"], ROWS, rtol=error, atol=0)
    assert arrays["inputs"].dtype == np.float64
    assert arrays["targets"].tolist() == LABELS.tolist()


@pytest.mark.parametrize(
    ("name", "kwargs", "message"),
    [
        ("rows_as", {"form": "masked"}, r"inputs: .*, got \d+ masked\. Remove or fill"),
        ("rows_as", {"form": "ragged"}, r"inputs: .* Give all rows one shape\."),
        ("failing", {}, r"factory: test_factory\.py:LINE: .*ValueError: no data\."),
    ],
)
def test_what_a_function_makes_wrongly_is_refused_in_one_line(name, kwargs, message):
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (line,) = [n for n, t in enumerate(lines, 1) if t.startswith("    raise ValueErr")]
    with pytest.raises(InputError, match=message.replace("LINE", str(line))) as caught:
        here(name, **kwargs)
    assert "\n" not in str(caught.value)
