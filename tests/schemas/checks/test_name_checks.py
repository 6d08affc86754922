"""Names that parameters hold are looked for while planning."""

import pytest

from curvflow.errors import StudyError
from curvflow.schemas.study.study import load_study

STUDY = """\
study: named
axes: {seed: 2}
stages:
  xor: {use: data.xor}
  fit: {use: train, data: xor, model: {kind: linear}, rule: {rule: sgd, lr: 0.1},
        epochs: 4, seed: "${seed}"}
  trace: {use: probe.trace, weights: fit}
  exact: {use: probe.dense, weights: fit}
"""
CHECK = "of: [trace, exact]"
COVER = "of: trace, truth: exact, repetitions: seed"


def loaded(kind, line):
    return load_study(f"{STUDY}  last: {{use: {kind}, {line}}}\n", file="study.yaml")


@pytest.mark.parametrize(
    ("line", "place", "message"),
    [
        ("quantity: trce", "9:63", "quantity: expected a single number of trace"),
        (
            "quantity: layer_trace",
            "9:63",
            "a single number of trace, got 'layer_trace'",
        ),
        ("variables: {exact: tr}", "9:72", "a single number of exact, got 'tr'"),
        (
            "variables: {other: trace}",
            "9:72",
            "variables.other: expected a stage taken",
        ),
        ("draws: {other: 9}", "9:68", "draws.other: expected a stage taken"),
        ("draws: {exact: 1}", "9:68", "draws.exact: expected an integer of at least 2"),
        ("sums: {a: [trace, exat]}", "9:71", "got 'exat'. Did you mean 'exact'?"),
        ("stated: {trace: {value: 1}}", "9:69", "another name than that of a route"),
        ("sums: {exact: [trace]}", "9:67", "another name than that of a route"),
    ],
)
def test_a_crosscheck_names_what_is_not_there(line, place, message):
    with pytest.raises(StudyError) as caught:
        loaded("probe.crosscheck", f"{CHECK}, {line}")
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"study.yaml:{place}: ")


@pytest.mark.parametrize(
    ("name", "meant"), [("trase", "trace"), ("trace_draws", "trace_sem")]
)
def test_coverage_of_what_is_not_reported_is_refused(name, meant):
    message = rf"got '{name}'\. Did you mean '{meant}'"
    with pytest.raises(StudyError, match=message):
        loaded("aggregate.coverage", f"{COVER}, quantities: {name}")


def test_names_that_are_there_are_taken():
    line = "variables: {exact: least}, draws: {exact: 2}, sums: {both: [trace, exact]}"
    loaded("probe.crosscheck", f"{CHECK}, {line}, stated: {{known: {{value: 1}}}}")
    loaded("aggregate.coverage", f"{COVER}, quantities: [trace, layer_trace]")
