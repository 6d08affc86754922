import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from curvflow.schemas.keys import form
from curvflow.schemas.kinds.shared.tables import OneOrMoreNames
from curvflow.schemas.params import Params


class OverParams(Params):
    over: OneOrMoreNames


@pytest.mark.parametrize("written", ["seed", ["seed"], ("seed",)])
def test_one_name_and_a_list_of_it_are_one_value(written):
    assert form(OverParams(over=written)) == {"over": ["seed"]}


@pytest.mark.parametrize("written", [3, [3], None, {"seed": 1}])
def test_what_is_no_name_is_refused(written):
    with pytest.raises(ValidationError):
        OverParams(over=written)
    schema = Draft202012Validator(OverParams.model_json_schema())
    assert not schema.is_valid({"over": written})


@pytest.mark.parametrize("written", ["seed", ["seed", "rule"]])
def test_editors_accept_both_forms(written):
    schema = Draft202012Validator(OverParams.model_json_schema())
    assert schema.is_valid({"over": written})
