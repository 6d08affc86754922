"""Rules around another rule: what they share."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from pydantic import ValidationError

from tests.tasks.rules.checks import gradient, rule, started, trained

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


def test_the_rule_of_two_gradients_of_the_documentation_does_what_it_says(monkeypatch):
    page = Path(__file__).parents[3] / "CONTRIBUTING.md"
    for code in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
        path = code.splitlines()[0].removeprefix("# src/").removesuffix(".py")
        if path.endswith("extragradient"):
            module = ModuleType(path.replace("/", "."))
            monkeypatch.setitem(sys.modules, module.__name__, module)
            exec(compile(code, path, "exec"), vars(module))
    specification = sys.modules["curvflow.schemas.rules.extragradient"].RULE
    specification.model_rebuild()
    rates, start = (0.05, 0.1), started(2)
    course, _ = trained([specification(lr=lr) for lr in rates], start)
    assert specification(lr=0.1).gradients_per_step == 2
    for row, lr in enumerate(rates):
        w = start[row]
        for count, weights in enumerate(course):
            w = w - lr * gradient(w - lr * gradient(w, count), count)
            torch.testing.assert_close(weights[row], w, rtol=1e-12, atol=1e-13)
