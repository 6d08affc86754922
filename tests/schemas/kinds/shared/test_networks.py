"""References to functions of the user's own."""

import pytest
from pydantic import ValidationError

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.networks import Factory


def test_the_function_is_called_with_its_arguments():
    reference = Factory(factory="collections:OrderedDict", kwargs={"a": 1})
    assert reference.call() == {"a": 1}


def test_a_function_that_changes_its_arguments_gets_them_anew():
    reference = Factory(factory=f"{__name__}:popped", kwargs={"widths": [64, 16]})
    assert reference.call() == reference.call() == 16


def popped(widths):
    return widths.pop()


@pytest.mark.parametrize("text", ["module", "module.function", "a:b:c", "a/b:c", ":f"])
def test_what_is_no_reference_is_refused(text):
    with pytest.raises(ValidationError, match="string_pattern_mismatch"):
        Factory(factory=text)


def test_a_misspelt_function_gets_the_nearest_name():
    with pytest.raises(InputError, match="Did you mean 'OrderedDict'"):
        Factory(factory="collections:OrderdDict").call()
