"""Settings that others leave without effect are refused where they are written."""

import pytest

from curvflow.errors import StudyError
from curvflow.schemas.idle_settings import idle_settings
from curvflow.schemas.kinds.probes.kronecker.factors import FactorsParams
from curvflow.schemas.params import Params
from curvflow.schemas.presets import all_presets
from curvflow.schemas.rules import all_rules
from curvflow.schemas.study.study import load_study

STUDY = """\
study: idle
axes:
  kind: [type-2, mc]
  draws: [1, 4]
  split: [exact, factored]
  form: [none, kron]
stages:
  xor: {use: data.xor}
  fit: {use: train, data: xor, model: {kind: linear}, rule: {rule: sgd, lr: 0.1},
        epochs: 4}
  asked: {use: %s}
  given: {use: probe.factors, weights: fit}
  kinds: {use: probe.factors, weights: fit, fisher_type: "${kind}"}
  draws: {use: probe.factors, weights: fit, fisher_type: mc, mc_samples: "${draws}"}
  splits: {use: probe.alignment, weights: fit, factors: given, inverse: "${split}"}
  forms: {use: train, data: xor, model: {kind: linear}, epochs: 4,
          rule: {rule: gauss_newton, preconditioner: "${form}"}}
"""
TRAIN = "train, data: xor, model: {kind: linear}, epochs: 4, rule: "


def loaded(line):
    return load_study(STUDY % line, file="study.yaml")


def refused(line):
    with pytest.raises(StudyError) as caught:
        loaded(line)
    return str(caught.value)


@pytest.mark.parametrize(
    ("settings", "name", "cause"),
    [
        ("mc_samples: 4", "mc_samples", "fisher_type type-2"),
        ("fisher_type: empirical, mc_samples: 4", "mc_samples", "empirical"),
        ("curvature: hessian, mc_samples: 4", "mc_samples", "type-2"),
        ("fisher_type: mc, distribution: gaussian", "distribution", "mc"),
        ("fisher_type: forward-only, psd: clip", "psd", "forward-only"),
        ("structure: block, kfac_approx: reduce", "kfac_approx", "structure block"),
        ('mc_samples: "${draws}"', "mc_samples", "fisher_type type-2"),
        (
            'fisher_type: "${kind}", distribution: gaussian',
            "distribution",
            "fisher_type type-2",
        ),
    ],
)
def test_factors_refuse_what_has_no_effect_at_any_label(settings, name, cause):
    said = refused(f"probe.factors, weights: fit, {settings}")
    assert f"stages.asked.{name}" in said
    assert " cannot be combined with " in said
    assert cause in said


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ("fisher_type: type-2, mc_samples: 3", "mc_samples"),
        ("inverse: exact, pi: spectral", "pi"),
        ("damping_adaptation_interval: 0, min_damping: 0.1", "min_damping"),
        (
            "damping_adaptation_interval: null, damping_upper_threshold: 0.9",
            "damping_upper_threshold",
        ),
        (
            "damping_adaptation_interval: null, damping_adaptation_decay: 0.9",
            "damping_adaptation_decay",
        ),
        ("preconditioner_adaptation_decay: 0.9", "preconditioner_adaptation_decay"),
        (
            "preconditioner_damping: 0.3, preconditioner_adaptation_decay: 0.9",
            "preconditioner_adaptation_decay",
        ),
        (
            "preconditioner_damping: 0.3, step: lr, damping: 0.3, "
            "damping_adaptation_interval: null",
            "damping",
        ),
    ],
)
def test_kfac_refuses_what_has_no_effect_where_it_is_written(fields, name):
    said = refused(f"{TRAIN}{{rule: kfac, {fields}}}")
    column = STUDY.splitlines()[10].index("%s") + len(TRAIN) + 1
    assert said.startswith("study.yaml:11:")
    assert int(said.split(":")[2]) > column
    assert f": stages.asked.rule.{name}: " in said
    assert " cannot be combined with " in said


@pytest.mark.parametrize(
    "fields",
    ["mc_samples: 2", "pi: spectral", "factor_decay: 0.9", "inv_update_steps: 3"],
)
def test_gauss_newton_without_factors_refuses_their_settings(fields):
    name = fields.partition(":")[0]
    said = refused(f"{TRAIN}{{rule: gauss_newton, {fields}}}")
    assert f": stages.asked.rule.{name}: " in said
    assert " cannot be combined with preconditioner none" in said
    loaded(f"{TRAIN}{{rule: gauss_newton, preconditioner: kron, {fields}}}")


def test_a_setting_within_an_axis_is_refused_there():
    rules = """\
axes:
  rule:
    kflr: {rule: kfac, fisher_type: type-2, mc_samples: 3}
    kfac: {rule: kfac, mc_samples: 3}
"""
    text = (STUDY % f'{TRAIN}"${{rule}}"').replace("axes:\n", rules)
    with pytest.raises(StudyError) as caught:
        load_study(text, file="study.yaml")
    assert str(caught.value) == (
        "study.yaml:4:57: axes.rule.kflr.mc_samples: 3 cannot be combined with "
        "fisher_type type-2, which draws nothing. Remove mc_samples, or take "
        "fisher_type mc. It is stages.asked.rule.mc_samples at rule='kflr'."
    )


@pytest.mark.parametrize(
    "line",
    [
        'probe.factors, weights: fit, fisher_type: "${kind}", mc_samples: 4',
        'probe.factors, weights: fit, fisher_type: "${kind}", mc_samples: "${draws}"',
        "probe.factors, weights: fit, mc_samples: 1",
        "probe.factors, weights: fit, psd: clip, seed: 3",
        'probe.alignment, weights: fit, factors: given, inverse: "${split}", pi: 0.5',
        f'{TRAIN}{{rule: kfac, inverse: "${{split}}", pi: spectral}}',
        f'{TRAIN}{{rule: gauss_newton, preconditioner: "${{form}}", mc_samples: 4, '
        'fisher_type: "${kind}"}',
        f"{TRAIN}{{rule: kfac, damping_adaptation_interval: null, reject: true, "
        "damping_adaptation_decay: 0.9, min_damping: 0.1}",
        f"{TRAIN}{{preset: martens-2015/kfac, damping_adaptation_interval: null}}",
        f"{TRAIN}{{rule: kfac, lr: 0.3, psd: clip, kl_clip: 0.1}}",
    ],
)
def test_what_has_an_effect_at_some_label_is_taken(line):
    assert loaded(line).stages["asked"].kind.name in line


def test_no_preset_has_a_setting_without_effect_of_its_own():
    for name, variants in all_presets().items():
        for fields in variants.values():
            rule = all_rules()[fields["rule"]].model_validate(fields)
            idle = [each.path for each in idle_settings(rule) if not each.is_default]
            assert idle == [], name


def test_idle_settings_are_fields_of_their_parameters():
    rules = all_rules()
    for params in (FactorsParams(), rules["kfac"](), rules["gauss_newton"]()):
        names = {idle.path[0] for idle in idle_settings(params)}
        assert names
        assert names <= set(type(params).model_fields)


def test_parameters_tell_of_those_within_them():
    class Outer(Params):
        inner: FactorsParams = FactorsParams(fisher_type="mc", distribution="gaussian")

    (idle,) = [
        each for each in idle_settings(Outer()) if each.path[-1] == "distribution"
    ]
    assert idle.path == ("inner", "distribution")
    assert not idle.is_default
