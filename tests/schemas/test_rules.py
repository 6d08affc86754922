"""Specifications of learning rules."""

import pytest
from pydantic import TypeAdapter, ValidationError

from curvflow.schemas.kinds.shared.networks import Normal
from curvflow.schemas.rules import RuleSpec, all_rules
from curvflow.tasks.rules import functions_of

ADAPTER = TypeAdapter(RuleSpec)


def test_every_rule_has_its_functions():
    assert {"sgd", "adam", "l2_stopped", "gadam"} <= set(all_rules())
    for name, spec in all_rules().items():
        assert spec.model_fields["rule"].default == name
        functions = functions_of(spec.model_construct(rule=name))
        assert callable(functions.init)
        assert callable(functions.step)


def test_every_hyper_parameter_is_described():
    for spec in all_rules().values():
        for name, field in spec.model_fields.items():
            assert field.description or name == "rule"


def test_hyper_parameters_are_the_numbers_and_flags():
    rule = ADAPTER.validate_python(
        {
            "rule": "sgd",
            "lr": 1,
            "momentum": 0.5,
            "nesterov": True,
            "init": {"normal": 0.1},
        }
    )
    assert rule.init == Normal(normal=0.1)
    assert rule.hyper() == {
        "lr": 1.0,
        "momentum": 0.5,
        "nesterov": 1.0,
        "weight_decay": 0.0,
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"rule": "sdg", "lr": 0.1}, ("union_tag_invalid", ())),
        ({"lr": 0.1}, ("union_tag_not_found", ())),
        ({"rule": "sgd"}, ("missing", ("sgd", "lr"))),
        ({"rule": "sgd", "lr": 0}, ("greater_than", ("sgd", "lr"))),
        ({"rule": "sgd", "lr": "0.1"}, ("float_type", ("sgd", "lr"))),
        ({"rule": "sgd", "lr": float("nan")}, ("finite_number", ("sgd", "lr"))),
        ({"rule": "adam", "momentum": 0.9}, ("extra_forbidden", ("adam", "momentum"))),
        ({"rule": "adam", "beta2": 1}, ("less_than", ("adam", "beta2"))),
    ],
)
def test_what_is_no_rule_gets_one_clean_error(value, expected):
    with pytest.raises(ValidationError) as caught:
        ADAPTER.validate_python(value)
    errors = [(error["type"], error["loc"]) for error in caught.value.errors()]
    assert errors == [expected]
