"""Presets of rules on the command line."""

import json

import pytest

STUDY = """\
study: presets
axes:
  rule:
    small: {rule: sgd, lr: 0.1}
    metric: {RULE}
stages:
  data: {use: data.xor}
  fit: {use: train, data: data, model: {kind: mlp, hidden: [12]}, rule: "${rule}",
        epochs: 2}
"""
NAME = "jarvis-2021/xor-tanh/metric-small"
PLACE = "study.yaml:5:"


@pytest.fixture
def planned(curvflow, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def plan(rule, *arguments):
        (tmp_path / "study.yaml").write_text(STUDY.replace("RULE", rule))
        return curvflow("plan", "study.yaml", *arguments)

    return plan


def test_a_result_of_a_preset_is_that_of_the_rule_written_out(planned, curvflow):
    assert planned(f"preset: {NAME}, variant: printed, lr: 0.2").code == 0
    assert curvflow("run", "study.yaml").code == 0
    said = planned("rule: metric, lr: 0.2, rate: 0.008, init: {normal: 0.03}", "--json")
    plan = json.loads(said.out)
    assert (plan["total"], plan["cached"]) == (3, 3)
    other = json.loads(planned(f"preset: {NAME}, lr: 0.2", "--json").out)
    assert (other["total"], other["cached"]) == (3, 2)


@pytest.mark.parametrize(
    ("rule", "place", "message"),
    [
        (
            f"preset: {NAME}l",
            "axes.rule.metric",
            f"expected the name of a preset, got '{NAME}l'. Did you mean '{NAME}'? It",
        ),
        (
            "preset: small",
            "axes.rule.metric",
            "expected the name of a preset, got 'small'. They have names such as",
        ),
        (
            f"preset: {NAME}, variant: exact",
            "axes.rule.metric",
            f"expected variant fitted or printed of {NAME}, got 'exact'.",
        ),
        (
            f"preset: {NAME}, rule: sgd",
            "axes.rule.metric",
            "rule 'sgd' cannot be combined with preset",
        ),
        (
            f"preset: {NAME}, lr: -1",
            "axes.rule.metric.lr",
            "expected a number above 0, got -1.",
        ),
        (
            f"preset: {NAME}, ratee: 1",
            "axes.rule.metric.ratee",
            "expected a key that is known here, got 'ratee'. Did you mean 'rate'?",
        ),
    ],
)
def test_a_wrong_preset_is_one_line_with_its_place(planned, rule, place, message):
    said = planned(rule)
    assert said.code == 2
    assert said.err.count("\n") == 1
    assert PLACE in said.err
    assert f" {place}: {message}" in said.err


def test_kinds_says_that_a_rule_may_be_a_preset(curvflow):
    said = " ".join(curvflow("kinds", "train").out.split())
    assert "the learning rule, or a preset of one by its name" in said
    assert "preset: Published settings by name" in said
