"""Rules around another rule: what they share."""

import pytest
from pydantic import ValidationError

from tests.tasks.rules.checks import rule

SGD = {"rule": "sgd", "lr": 0.1}
around = pytest.mark.parametrize("outer", ["ema", "lookahead", "sam"])


@around
@pytest.mark.parametrize(
    ("inner", "reason"),
    [
        ({**SGD, "schedule": {"kind": "cosine"}}, "schedule .* Move it to "),
        ({**SGD, "init": {"normal": 1.0}}, "init cannot be combined with inner"),
        ({"rule": "lookahead", "inner": SGD}, "tag 'lookahead'"),
        ({"rule": "ema", "inner": SGD}, "tag 'ema'"),
        ({"rule": "swa", "lr": 0.1, "start": 1}, "tag 'swa'"),
    ],
    ids=["schedule", "init", "lookahead", "ema", "swa"],
)
def test_what_cannot_be_within_is_refused(outer, inner, reason):
    with pytest.raises(ValidationError, match=reason):
        rule(rule=outer, inner=inner)


def test_sam_is_not_within_itself():
    with pytest.raises(ValidationError, match="tag 'sam'"):
        rule(rule="sam", inner={"rule": "sam", "inner": SGD})


@around
def test_rate_and_needs_are_those_of_the_rule_within(outer):
    inner = {"rule": "metric", "lr": 0.3, "rate": 0.1}
    spec = rule(rule=outer, inner=inner)
    assert spec.base_lr == 0.3
    assert spec.product_from() == 0
    assert spec.is_extendable
    assert not rule(rule=outer, inner=inner, schedule={"kind": "cosine"}).is_extendable
