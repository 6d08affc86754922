import pytest

from curvflow.errors import StudyError
from tests.schemas.fakes import fake_kinds, load


@pytest.fixture(autouse=True)
def _fakes():
    with fake_kinds():
        yield


def message(call, *args):
    with pytest.raises(StudyError) as caught:
        call(*args)
    return str(caught.value)


def test_parameters_have_the_values_of_their_labels():
    fit = load().stages["fit"]
    params = fit.params({"seed": 2, "rule": "large", "unrelated": 9})
    assert (params.seed, params.rule.rule, params.rule.lr) == (2, "adam", 0.001)
    assert fit.params({"seed": 2, "rule": "small"}).rule.init.normal == 0.03


def test_parameters_are_made_once_per_combination_of_own_labels():
    fit = load().stages["fit"]
    point = {"seed": 2, "rule": "large"}
    assert fit.params(point) is fit.params({**point, "other": 1})
    assert fit.params(point) is not fit.params({**point, "seed": 1})


def test_a_reference_may_stand_deep_and_name_a_field():
    study = load(
        ("hidden: [12]", 'hidden: [4, "${rule.width}"]'),
        (
            'rule: "${rule}"\n    seed',
            'rule: {rule: sgd, lr: "${rule.by.lr}"}\n    seed',
        ),
        ("{rule: sgd, lr: 0.1, init: {normal: 0.03}}", "{width: 7, by: {lr: 0.5}}"),
        ("{rule: adam, lr: 0.001}", "{width: 8, by: {lr: 0.25}}"),
    )
    params = study.stages["fit"].params({"seed": 0, "rule": "large"})
    assert params.model.hidden == (4, 8)
    assert params.rule.lr == 0.25
    assert study.document["stages"]["fit"]["model"]["hidden"] == [4, "${rule.width}"]


def test_a_combination_that_no_label_alone_breaks_is_refused():
    study = load(
        ("  seed: 3", "  seed: 3\n  every: [10, 400]\n  epochs: [500, 100]"),
        ("epochs: 500\n  trace", 'epochs: "${epochs}"\n    every: "${every}"\n  trace'),
        (", stages.fit.epochs: 400", ""),
    )
    fit = study.stages["fit"]
    good = {"seed": 0, "rule": "small", "every": 400, "epochs": 500}
    assert fit.params(good).every == 400
    assert message(fit.params, {**good, "epochs": 100}) == (
        "study.yaml:11:3: stages.fit: expected every of at most epochs, got 400. "
        "Lower it."
    )


@pytest.mark.parametrize(
    ("at", "chosen"),
    [
        ("final", (500,)),
        ("all", (0, 100, 200, 300, 400, 500)),
        ("{every: 200}", (0, 200, 400)),
        ("[500, 0]", (0, 500)),
        ("200", (200,)),
    ],
)
def test_at_chooses_among_the_checkpoints(at, chosen):
    trace = load(("at: final", f"at: {at}")).stages["trace"]
    assert trace.epochs(range(0, 501, 100)) == chosen
    assert ("epoch" in trace.dims) == (at not in ("final", "200"))


def test_an_epoch_that_has_no_checkpoint_is_refused_where_it_is_written():
    trace = load(("at: final", "at: [0, 50]")).stages["trace"]
    assert message(trace.epochs, (0, 100, 200)) == (
        "study.yaml:16:50: stages.trace.at.1: expected one of the epochs 0, 100, 200, "
        "got 50. Take these, or let the training keep more by `checkpoints`."
    )


def test_a_single_epoch_without_a_checkpoint_is_refused():
    trace = load(("at: final", "at: 50")).stages["trace"]
    assert message(trace.epochs, (0, 100)) == (
        "study.yaml:16:46: stages.trace.at: expected one of the epochs 0, 100, got 50. "
        "Take these, or let the training keep more by `checkpoints`."
    )


def test_steps_that_meet_no_checkpoint_are_refused():
    trace = load(("at: final", "at: {every: 7}")).stages["trace"]
    assert message(trace.epochs, range(1, 100, 7)) == (
        "study.yaml:16:46: stages.trace.at: expected a step to some of the epochs 1, "
        "8, 15, 22, 29, 36, 43, 50, 57, 64, ..., 99, got {every: 7}. Take these, or "
        "let the training keep more by `checkpoints`."
    )


def test_a_stage_complains_at_the_parameter_as_written():
    data = load().stages["data"]
    error = data.error(("path",), "expected a file, got digits.npz", "Make it.")
    assert str(error) == (
        "study.yaml:8:32: stages.data.path: expected a file, got digits.npz. Make it."
    )
    assert str(data.error((), "expected x, got y.")).startswith("study.yaml:8:3: ")


def test_a_stage_complains_at_the_axis_that_brought_the_value():
    study = load(
        ("  seed: 3\n", "  seed: 3\n  set: {a: a.npz, b: b.npz}\n"),
        ("path: digits.npz", 'path: "${set}"'),
    )
    data = study.stages["data"]
    error = data.error(("path",), "expected a file, got b.npz", labels={"set": "b"})
    assert str(error) == (
        "study.yaml:4:22: axes.set.b: expected a file, got b.npz. "
        "It is stages.data.path at set='b'."
    )
