import io
import sys
import types

import pytest
from ruamel.yaml import YAML

from curvflow.errors import StudyError
from curvflow.schemas.study.study import load_study
from tests.schemas.fakes import FILE, PROBE, fake_kinds, load

DESIGN = """\
study: xor-rules
axes:
  seed: 10                                   # n -> 0 .. n-1; a list or a mapping works
  rule:                                      # a mapping: labels are the coordinate
    sgd_small:  {rule: sgd,  lr: 0.12,   init: {normal: 0.03}}
    adam_large: {rule: adam, lr: 0.0015, beta: 0.8}
stages:
  data:    {use: fake.data, path: xor}
  fit:     {use: fake.train, data: data, model: {kind: mlp, hidden: [12]},
            rule: "${rule}", seed: "${seed}", epochs: 500, every: 50}
  trace:   {use: fake.probe, weights: fit, at: final, num_probes: 64}
  path:    {use: fake.probe, weights: fit, at: {every: 100}}
  table:   {use: fake.summary, of: [fit, trace], over: seed}
expect:
  - {stage: table, where: {rule: sgd_small}, quantity: trace, value: 7.18, sd: 0.29,
     source: "Jarvis 2021, Table 5.1"}
profiles:
  smoke: {axes.seed: 2, stages.fit.every: 5}
"""


@pytest.fixture(autouse=True)
def _fakes():
    with fake_kinds():
        yield


def test_the_dimensions_of_the_design_s_example_are_inferred():
    study = load_study(DESIGN, file=FILE)
    dims = {name: stage.dims for name, stage in study.stages.items()}
    assert dims == {
        "data": (),
        "fit": ("seed", "rule"),
        "trace": ("seed", "rule"),
        "path": ("seed", "rule", "epoch"),
        "table": ("rule",),
    }
    assert study.stages["fit"].own_axes == ("seed", "rule")
    assert study.stages["trace"].own_axes == ()
    assert study.stages["table"].reduced == ("seed",)
    assert study.axes["seed"].labels == tuple(range(10))


def test_dimensions_follow_the_order_of_the_axes_not_of_the_parameters():
    study = load(
        ("  seed: 3\n", ""),
        ("{rule: adam, lr: 0.001}\n", "{rule: adam, lr: 0.001}\n  seed: 3\n"),
    )
    assert study.stages["fit"].dims == ("rule", "seed")


def test_data_of_a_probe_default_to_those_of_its_weights():
    assert load().stages["trace"].inputs == {"weights": ("fit",), "data": ("data",)}


def test_data_of_a_probe_may_be_others_and_bring_their_axes():
    study = load(
        ("  seed: 3\n", "  seed: 3\n  other: [1, 2]\n"),
        ("  fit:\n", '  more: {use: fake.data, path: x, seed: "${other}"}\n  fit:\n'),
        ("weights: fit", "weights: fit, data: more"),
    )
    assert study.stages["trace"].inputs["data"] == ("more",)
    assert study.stages["trace"].dims == ("seed", "other", "rule")


def test_epoch_is_inherited_reduced_and_kept_last():
    study = load(
        ("at: final", "at: all"),
        ("of: fit, y: loss", "of: [fit, trace], y: trace"),
        ("of: [fit, trace], over: seed}\n", "of: trace, over: seed}\n"),
    )
    assert study.stages["trace"].dims == ("seed", "rule", "epoch")
    assert study.stages["table"].dims == ("rule", "epoch")
    assert study.stages["curve"].dims == ()
    assert study.stages["curve"].reduced == ("seed", "rule", "epoch")


def test_an_epoch_within_nodes_is_no_dimension_to_reduce():
    assert load().stages["curve"].reduced == ("seed", "rule")


def test_stages_come_after_what_they_take_else_as_written():
    moved = ("  data: {use: fake.data, path: digits.npz}\n", "")
    at_end = (
        "over: seed}\nexpect",
        "over: seed}\n  data: {use: fake.data, path: x}\nexpect",
    )
    assert list(load().stages) == ["data", "fit", "trace", "table", "curve"]
    assert list(load(moved, at_end).stages) == [
        "data",
        "fit",
        "trace",
        "table",
        "curve",
    ]


def test_an_override_comes_after_the_profile_and_the_profiles_are_left_out():
    study = load(profile="smoke", overrides=["axes.seed=4", "stages.fit.every=1"])
    assert study.document["axes"]["seed"] == 4
    assert study.document["stages"]["fit"]["epochs"] == 400
    assert "profiles" not in study.document
    assert load().document["axes"]["seed"] == 3


def test_a_profile_is_checked_as_written_whatever_is_overridden():
    wrong = ("stages.fit.epochs: 400", "stages.fit.epoch: 400")
    with pytest.raises(StudyError, match=r"^study.yaml:27:25: stages.fit.epoch: "):
        load(wrong, overrides=["stages.fit.epochs=700"])


def test_an_override_is_no_part_of_a_profile_that_is_not_chosen():
    study = load(overrides=["axes.rule={small: {rule: adam, lr: 0.5}}"])
    assert study.axes["rule"].labels == ("small",)
    small = ("axes.seed: 2", "axes.rule.large.lr: 0.5")
    assert load(small, overrides=["axes.rule={small: {rule: adam, lr: 0.5}}"])


def test_an_override_may_set_a_new_parameter_an_item_or_a_whole_axis():
    study = load(
        overrides=[
            "stages.fit.note=new",
            "stages.fit.model.hidden.0=64",
            "axes.seed={a: 5, b: 6}",
            "stages.trace.nbeta=1e-2",
        ]
    )
    params = study.stages["fit"].params({"seed": "b", "rule": "small"})
    assert (params.note, params.model.hidden, params.seed) == ("new", (64,), 6)
    assert study.stages["trace"].params({}).nbeta == 0.01


def test_a_resolved_document_is_a_study_that_resolves_to_itself():
    study = load(profile="smoke", overrides=["stages.fit.every=1"])
    stream = io.StringIO()
    YAML(typ="safe", pure=True).dump(study.document, stream)
    again = load_study(stream.getvalue(), file=FILE)
    assert again.document == study.document


def test_expectations_are_read_with_their_tolerance():
    (expected,) = load().expect
    assert expected.where == {"rule": "small"}
    assert (expected.value, expected.sd, expected.limits) == (7.18, 0.29, None)
    (within,) = load(("sd: 0.29", "within: 0.5")).expect
    assert within.limits == pytest.approx((6.68, 7.68))
    (between,) = load(("sd: 0.29", "within: [7, 8]")).expect
    assert between.limits == (7, 8)


def test_a_quantity_of_a_table_may_name_its_stage_and_element():
    (expected,) = load(("quantity: trace", "quantity: 'trace.trace[1]'")).expect
    assert expected.quantity == "trace.trace[1]"


def test_a_kind_of_the_user_s_own_is_found_in_its_module(monkeypatch):
    module = types.ModuleType("my_kinds")
    module.probe = types.SimpleNamespace(kind=PROBE)
    monkeypatch.setitem(sys.modules, "my_kinds", module)
    study = load(("fake.probe", "'my_kinds:probe'"))
    assert study.stages["trace"].kind is PROBE
    with pytest.raises(StudyError, match=r"got 'my_kinds:prob'. Did you mean 'probe'"):
        load(("fake.probe", "'my_kinds:prob'"))


def test_numbers_take_whatever_has_numbers_and_node_data_takes_anything():
    study = load(
        ("of: [fit, trace]", "of: [fit, size]"),
        ("quantity: trace", "quantity: size"),
        ("  table: {", "  size: {use: fake.anything, of: curve}\n  table: {"),
        ("label: rule, over: seed}", "label: null}"),
    )
    assert study.stages["size"].dims == ("seed", "rule")
