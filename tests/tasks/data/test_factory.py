"""Data sets of the user's own functions."""

import pytest

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
