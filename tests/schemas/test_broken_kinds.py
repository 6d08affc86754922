"""Messages about the parameters of built-in kinds, whose unions are deeper."""

import pytest

from curvflow.errors import StudyError
from curvflow.schemas.models import all_models
from curvflow.schemas.rules import all_rules
from curvflow.schemas.study.study import load_study

TEXT = """\
study: xor-rules
axes:
  seed: 10
  rule:
    sgd_small:  {rule: sgd,  lr: 0.12,   init: {normal: 0.03}}
    adam_large: {rule: adam, lr: 0.0015, init: {normal: 2.3}}
stages:
  data: {use: data.xor}
  fit:
    use: train
    data: data
    model: {kind: mlp, hidden: [12], activation: tanh}
    rule: "${rule}"
    seed: "${seed}"
    epochs: 500
    checkpoints: {every: 50}
  trace: {use: probe.hessian_trace, weights: fit, at: final, num_probes: 64}
  eigen: {use: probe.eigenvalues, weights: fit, at: final, k: 3}
  table: {use: aggregate.summary, of: [fit, trace, eigen], over: seed}
expect:
  - {stage: table, where: {rule: sgd_small}, quantity: norm_tensor_sum, value: 7.18,
     sd: 0.29, source: "Jarvis 2021, Table 5.1"}
"""
MODEL = "{kind: mlp, hidden: [12], activation: tanh}"


def test_the_example_of_the_design_is_in_order():
    study = load_study(TEXT, file="study.yaml")
    assert study.stages["table"].dims == ("rule",)
    assert study.stages["eigen"].inputs["data"] == ("data",)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "init: {normal: 0.03}",
            "init: {norm: 0.03}",
            "study.yaml:5:49: axes.rule.sgd_small.init.norm: expected one of 'normal', "
            "'uniform', 'uniform_positive', 'glorot', 'variance_scaling', 'fan_in', "
            "got 'norm'. Did you mean 'normal'? It is "
            "stages.fit.rule.init.norm at rule='sgd_small'.",
        ),
        (
            "rule: adam",
            "rule: adom",
            "study.yaml:6:24: axes.rule.adam_large.rule: expected one of "
            + ", ".join(repr(name) for name in all_rules())
            + ", got 'adom'. Did you mean 'adam'? It is stages.fit.rule.rule at "
            "rule='adam_large'.",
        ),
        (
            MODEL,
            "{factory: 'my.nets:make', kwrgs: {width: 3}}",
            "study.yaml:12:38: stages.fit.model.kwrgs: expected a key that is known "
            "here, got 'kwrgs'. Did you mean 'kwargs'?",
        ),
        (
            MODEL,
            "{factory: 'my.nets:make', kwargs: {1: 3}}",
            "study.yaml:12:47: stages.fit.model.kwargs.1: expected text, got 1. Write "
            "such a value.",
        ),
        (
            MODEL,
            "{hidden: [12]}",
            "study.yaml:12:12: stages.fit.model: expected one of the forms "
            + ", ".join(repr(name) for name in all_models())
            + ", got {hidden: [12]}. Take one of them.",
        ),
        (
            "{every: 50}",
            "50",
            "study.yaml:16:18: stages.fit.checkpoints: expected a mapping, got 50. "
            "Write lines of the form 'key: value'.",
        ),
        (
            "    epochs: 500\n",
            "",
            "study.yaml:9:3: stages.fit.epochs: expected a value, got none. "
            "Add 'epochs: ...' (passes over the training data).",
        ),
        (
            "quantity: norm_tensor_sum",
            "quantity: norm_tensor_sun",
            "study.yaml:21:56: expect.0.quantity: expected a quantity of 'table', got "
            "'norm_tensor_sun'. Did you mean 'norm_tensor_sum'?",
        ),
        (
            "sd: 0.29,",
            "sd: 0.29, column: medan,",
            "study.yaml:22:24: expect.0.column: expected a column of 'table', got "
            "'medan'. Did you mean 'median'?",
        ),
        (
            "table, where: {rule: sgd_small}, quantity: norm_tensor_sum,",
            "fit, quantity: norm_tensor_sum, column: mean,",
            "study.yaml:21:53: expect.0.column: cannot be combined with train, "
            "which is no table. Remove it.",
        ),
        (
            "sd: 0.29,",
            "within: 0.2, within_sems: 2, column: median,",
            "study.yaml:21:5: expect.0: 'within_sems' cannot be combined with "
            "'column', which has no standard error. Remove one of them.",
        ),
    ],
)
def test_a_wrong_parameter_of_a_built_in_kind_is_named_where_it_is_written(
    old, new, message
):
    assert TEXT.count(old) == 1
    with pytest.raises(StudyError) as caught:
        load_study(TEXT.replace(old, new), file="study.yaml")
    assert str(caught.value) == message
