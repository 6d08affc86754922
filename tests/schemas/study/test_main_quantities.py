"""`quantities: main`: what kinds declare to be their result, without bookkeeping."""

import pytest

from curvflow.errors import StudyError
from curvflow.schemas.kinds import all_kinds
from curvflow.schemas.study.study import load_study

STUDY = """
study: main
axes: {seed: 2, rule: {slow: {rule: sgd, lr: 0.1}, fast: {rule: sgd, lr: 0.2}}}
stages:
  xor: {use: data.xor}
  fit: {use: train, data: xor, model: {kind: mlp, hidden: [3]}, rule: "${rule}",
        seed: "${seed}", epochs: 2}
  trace: {use: probe.hessian_trace, weights: fit}
  llc: {use: probe.llc, weights: fit}
  table: {use: aggregate.summary, of: [trace, llc], over: seed, quantities: QUANTITIES}
"""
TRACKED = "tracked: {use: probe.eigenvalue_tracking, trajectory: fit, k: 2}"


def params(quantities, text=STUDY):
    text = text.replace("QUANTITIES", quantities)
    stage = load_study(text, file="main.yaml").stages["table"]
    return stage.params({"rule": "slow"})


def test_main_stands_for_the_main_variables_of_the_stages_taken():
    named = params("[trace, trace_sem, llc_mean, llc_sem]")
    assert params("main") == params("[main]") == named


@pytest.mark.parametrize(
    "table",
    [
        "{use: aggregate.compare, of: trace, along: rule, baseline: slow, over: seed,",
        "{use: aggregate.join, of: [trace], rows: [seed, rule],",
        "{use: aggregate.select, of: [trace], rows: [seed, rule],",
    ],
)
def test_all_tables_of_quantities_take_it(table):
    text = (
        STUDY[: STUDY.index("  table:")] + f"  table: {table} quantities: QUANTITIES}}"
    )
    study = load_study(text.replace("QUANTITIES", "main"), file="main.yaml")
    assert study.stages["table"].params({}).quantities == ("trace", "trace_sem")


def test_without_it_tables_are_as_they_were():
    assert params("null").quantities is None


def test_kinds_that_declare_none_give_all_their_numbers():
    text = STUDY
    for old, new in (
        ("of: [trace, llc]", "of: [tracked, trace]"),
        ("llc: {use: probe.llc, weights: fit}", TRACKED),
        ("epochs: 2}", "epochs: 2, checkpoints: {every: 1}}"),
    ):
        text = text.replace(old, new)
    assert params("main", text).quantities == (
        "trace",
        "trace_sem",
        "num_matvecs",
        "all_converged",
    )


def test_main_among_other_names_is_the_name_of_a_variable():
    with pytest.raises(StudyError, match="expected a variable of the stages taken"):
        params("[trace, main]")


def test_what_kinds_declare_is_there_at_every_node_as_a_number_of_tables():
    declared = [(kind, name) for kind in all_kinds().values() for name in kind.main]
    assert len(declared) > 40
    for kind, name in declared:
        variable = kind.output(name)
        assert variable is not None, (kind.name, name)
        facts = variable.tabular, variable.optional, variable.dtype == "str"
        assert facts == (True, False, False), (kind.name, name)
