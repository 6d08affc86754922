"""Requests that the inputs of a stage cannot fulfil are refused while planning."""

import pytest
from ruamel.yaml import YAML

from curvflow.errors import StudyError
from curvflow.schemas.study.study import load_study

STUDY = """\
study: lacking
axes: {m: [4, 8], order: [3, 9]}
stages:
  xor: {use: data.xor}
  fit: {use: train, data: xor, model: {kind: linear}, rule: {rule: sgd, lr: 0.1},
        epochs: 4}
  wigner: {use: data.random_matrix, ensemble: wigner, size: 9}
  given: {use: data.random_matrix, ensemble: eigenvalues, eigenvalues: [1.0, 2.0]}
  grid: {use: data.sparse_matrix, grid: [2, 3]}
  kernel: {use: data.kernel_matrix, num_points: 5, seed: "${order}"}
  runs: {use: probe.spectrum, matrix: wigner, num_steps: "${m}"}
  exact: {use: probe.dense, matrix: wigner}
  moments: {use: probe.moments, matrix: wigner, num_moments: 6}
  eigen: {use: probe.eigenvalues, weights: fit, k: 2, eigenvectors: true}
  truth: {use: data.known_answer, model: {kind: deep_linear, hidden: [3]}, rank: 2,
          inputs: 4, outputs: 4}
  well: {use: data.known_answer, model: {kind: quadratic_well, eigenvalues: [3.0]}}
"""

# More of them, behind the line that is asked for, so that its place stays.
MORE = """\
  strings: {use: data.xord, pairs: 5, num_train: 8, num_test: 2}
  photos: {use: data.mnist}
  sines: {use: data.sinusoid, num_samples: 10, dim: 2}
  again: {use: data.xor}
  few: {use: train, data: strings, model: {kind: linear}, rule: {rule: sgd, lr: 0.1},
        epochs: 4}
  drawn: {use: probe.llc, weights: fit}
  blocks: {use: probe.factors, weights: fit}
  others: {use: probe.factors, weights: fit, data: again}
  partial: {use: probe.factors, weights: fit, layers: [layer1.weight]}
  elsewhere: {use: probe.factors, weights: few}
  of_fit: {use: probe.spectrum, weights: fit, num_steps: 2}
  of_few: {use: probe.spectrum, weights: few, num_steps: 2}
  of_again: {use: probe.spectrum, weights: fit, data: again, num_steps: 2}
  early: {use: probe.spectrum, weights: fit, at: 4, num_steps: 2}
  of_layer: {use: probe.spectrum, weights: fit, layers: [layer1.weight], num_steps: 2}
"""


def loaded(line):
    return load_study(f"{STUDY}  asked: {{use: {line}}}\n{MORE}", file="study.yaml")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "probe.eigenvalues, matrix: wigner, k: 10",
            "18:54: stages.asked.k: expected at most the 9 rows of 'wigner', got 10. "
            "Lower it.",
        ),
        (
            "probe.eigenvalues, matrix: given, k: 3",
            "18:53: stages.asked.k: expected at most the 2 rows of 'given', got 3. "
            "Lower it.",
        ),
        (
            "probe.eigenvalues, matrix: grid, k: 7",
            "18:52: stages.asked.k: expected at most the 6 rows of 'grid', got 7. "
            "Lower it.",
        ),
        (
            "probe.eigenvalues, matrix: kernel, k: 6",
            "18:54: stages.asked.k: expected at most the 5 rows of 'kernel', got 6. "
            "Lower it.",
        ),
        (
            "probe.moments, ritz: runs, num_moments: 8",
            "18:56: stages.asked.num_moments: expected at most the 7 moments that the "
            "4 steps of 'runs' hold, got 8. Lower it, or raise num_steps of 'runs'.",
        ),
        (
            'probe.moments, ritz: runs, num_moments: "${order}"',
            "2:30: axes.order.1: expected at most the 7 moments that the 4 steps of "
            "'runs' hold, got 9. Lower it, or raise num_steps of 'runs'. It is "
            "stages.asked.num_moments at order=9.",
        ),
        (
            "probe.logdet, ritz: runs, method: meme",
            "18:3: stages.asked.num_moments: expected at most the 7 moments that the "
            "4 steps of 'runs' hold, got 100. Lower it, or raise num_steps of 'runs'.",
        ),
        (
            "probe.maxent, moments: moments, num_moments: 7",
            "18:61: stages.asked.num_moments: expected at most the 6 of 'moments', got "
            "7. Lower it, or raise num_moments of 'moments'.",
        ),
        (
            "probe.landscape, weights: fit, directions: stored, eigen: eigen, "
            "num_directions: 3",
            "18:97: stages.asked.num_directions: expected at most the 2 eigenvectors "
            "of 'eigen', got 3. Lower it, or raise k of 'eigen'.",
        ),
        (
            "probe.landscape, weights: fit, directions: trajectory, trajectory: fit",
            "18:83: stages.asked.trajectory: expected a stage with checkpoints, got "
            "'fit' without. Give 'fit' checkpoints: {every: n}.",
        ),
        (
            "probe.eigenvalue_tracking, trajectory: fit",
            "18:55: stages.asked.trajectory: expected a stage with checkpoints, got "
            "'fit' without. Give 'fit' checkpoints: {every: n}.",
        ),
        (
            "probe.spectrum, weights: fit, layers: [layer1.*, layer2.*]",
            "18:65: stages.asked.layers.1: expected parameter tensors of 'fit', got "
            "layer2.*. Did you mean 'layer1.*'?",
        ),
        (
            "probe.llc, weights: fit, layers: ['*bais*']",
            "18:50: stages.asked.layers.0: expected parameter tensors of 'fit', got "
            "*bais*. Did you mean '*bias*'?",
        ),
        (
            "probe.llc, weights: few, batch_size: 9",
            "18:53: stages.asked.batch_size: expected at most the 8 samples of "
            "'strings', got 9. Lower it.",
        ),
        (
            'probe.llc, weights: few, batch_size: "${order}"',
            "2:30: axes.order.1: expected at most the 8 samples of 'strings', got 9. "
            "Lower it. It is stages.asked.batch_size at order=9.",
        ),
        (
            "probe.llc, weights: fit, data: photos, batch_size: 60001",
            "18:67: stages.asked.batch_size: expected at most the 60000 samples of "
            "'photos', got 60001. Lower it.",
        ),
        (
            "probe.llc, weights: fit, data: sines, batch_size: 9",
            "18:66: stages.asked.batch_size: expected at most the 8 samples of "
            "'sines', got 9. Lower it.",
        ),
        (
            "probe.llc_regular, draws: drawn, ritz: of_few",
            "18:55: stages.asked.ritz: expected a stage of the weights 'fit' that "
            "'drawn' is of, got 'of_few' of 'few'. Give 'of_few' weights: fit.",
        ),
        (
            "probe.free_energy, draws: drawn, ritz: of_few",
            "18:55: stages.asked.ritz: expected a stage of the weights 'fit' that "
            "'drawn' is of, got 'of_few' of 'few'. Give 'of_few' weights: fit.",
        ),
        (
            "probe.llc_regular, draws: drawn, ritz: exact",
            "18:55: stages.asked.ritz: expected a stage of the weights 'fit' that "
            "'drawn' is of, got 'exact' of none. Give 'exact' weights: fit.",
        ),
        (
            "probe.llc_regular, draws: drawn, ritz: of_again",
            "18:55: stages.asked.ritz: expected a stage of the data 'xor' that 'drawn' "
            "is of, got 'of_again' of 'again'. Give 'of_again' data: xor.",
        ),
        (
            "probe.llc_regular, draws: drawn, ritz: early",
            "18:55: stages.asked.ritz: expected a stage at the epochs of 'drawn', got "
            "'early' at others. Give both the same 'at'.",
        ),
        (
            "probe.llc_regular, draws: drawn, ritz: of_layer",
            "18:55: stages.asked.ritz: expected a stage with the layers of 'drawn', "
            "null, got 'of_layer' with ['layer1.weight']. Give both the same layers.",
        ),
        (
            "probe.alignment, weights: fit, factors: [blocks, elsewhere]",
            "18:56: stages.asked.factors: expected a stage of the weights 'fit' that "
            "'asked' is of, got 'elsewhere' of 'few'. Give 'elsewhere' weights: fit.",
        ),
        (
            "probe.alignment, weights: fit, factors: others",
            "18:56: stages.asked.factors: expected a stage of the data 'xor' that "
            "'asked' is of, got 'others' of 'again'. Give 'others' data: xor.",
        ),
        (
            "probe.alignment, weights: fit, factors: partial",
            "18:56: stages.asked.factors: expected factors of all parameters, got "
            "'partial' with layers. Remove layers of 'partial'.",
        ),
        (
            "probe.alignment, weights: fit, factors: blocks, at: 4",
            "18:56: stages.asked.factors: expected a stage at the epochs of 'asked', "
            "got 'blocks' at others. Give both the same 'at'.",
        ),
        (
            "probe.alignment, weights: fit, damping: [-1.0]",
            "18:57: stages.asked.damping.0: expected a number of at least 0, got -1.0",
        ),
        (
            "probe.alignment, weights: fit, pi: spectral",
            "18:51: stages.asked.pi: 'spectral' cannot be combined with inverse exact, "
            "which splits no damping. Remove pi, or take inverse factored or both.",
        ),
        (
            "probe.alignment, weights: fit, inverse: both",
            "18:56: stages.asked.inverse: both cannot be combined with factors "
            "none. Give factors, or remove inverse.",
        ),
        (
            "figure.chains, of: drawn, label: chain",
            "18:49: stages.asked.label: expected a dimension of the stages taken, got "
            "'chain'. They have none.",
        ),
        (
            "probe.eigenvalues, ritz: runs, seed: 1",
            "18:53: stages.asked.seed: 'seed' cannot be combined with 'ritz'",
        ),
        (
            "probe.moments, ritz: runs, num_moments: 3, dtype: float32",
            "18:66: stages.asked.dtype: 'dtype' cannot be combined",
        ),
        (
            "probe.logdet, ritz: runs, num_runs: 4",
            "18:52: stages.asked.num_runs: 'num_runs' cannot be combined",
        ),
        (
            "train, weights: fit, model: {kind: linear, bias: false}, epochs: 1, "
            "rule: {rule: sgd, lr: 0.1}",
            "18:44: stages.asked.model: expected the model of 'fit', with bias true, "
            "got bias false. Train it from there with the same model.",
        ),
        (
            "weights.known_answer, data: truth, rank: 1, "
            "model: {kind: deep_linear, hidden: [3]}",
            "18:57: stages.asked.rank: expected the rank 2 of 'truth', got 1. Give "
            "both the same rank.",
        ),
        (
            "weights.known_answer, data: well, "
            "model: {kind: quadratic_well, eigenvalues: [2.0, 1.0]}",
            "18:57: stages.asked.model: expected a quadratic_well or normal_crossing "
            "with outputs: 1, as of 'well', got a quadratic_well or normal_crossing "
            "with outputs: 2. Give both the same model.",
        ),
        (
            "weights.known_answer, data: well, model: {kind: deep_linear, hidden: [1]}",
            "18:57: stages.asked.model: expected a quadratic_well or normal_crossing "
            "with outputs: 1, as of 'well', got a model of kind deep_linear. Give both "
            "the same model.",
        ),
        (
            "weights.known_answer, data: truth, rank: 2, "
            "model: {kind: deep_linear, hidden: [1]}",
            "18:3: stages.asked: expected a rank of at most 1, the least width, got 2. "
            "Lower it, or widen the model.",
        ),
    ],
)
def test_what_cannot_be_had_is_refused_where_it_is_written(line, message):
    with pytest.raises(StudyError) as caught:
        loaded(line)
    assert str(caught.value).startswith(f"study.yaml:{message}")


@pytest.mark.parametrize(
    "line",
    [
        "probe.eigenvalues, matrix: wigner, k: 9",
        "probe.moments, ritz: runs, num_moments: 7",
        "probe.moments, ritz: exact, num_moments: 40",
        'probe.logdet, ritz: exact, method: meme, num_moments: "${order}"',
        "probe.logdet, ritz: runs",
        "probe.maxent, moments: moments",
        "train, weights: fit, model: {kind: linear, init: null}, epochs: 1, "
        "rule: {rule: sgd, lr: 0.1}",
        "weights.known_answer, data: truth, rank: 2, "
        "model: {kind: deep_linear, hidden: [5]}",
        "weights.known_answer, data: well, "
        "model: {kind: normal_crossing, powers: [[1, 2]]}",
        "probe.llc, weights: few, batch_size: 8",
        "probe.llc_regular, draws: drawn, ritz: of_fit",
        "probe.free_energy, draws: drawn, ritz: of_fit",
    ],
)
def test_what_can_be_had_is_accepted(line):
    assert loaded(line).stages["asked"].kind.name in line


AT = ["all", "[0, 2]", "[2, 0]", "[2]", "{every: 2}", "{every: 1}", "2", "final"]
KEPT = range(5)


def epochs_of(at):
    given = {"all": {"every": 1}, "final": 4}.get(at, YAML(typ="safe").load(at))
    if isinstance(given, dict):
        return {epoch for epoch in KEPT if epoch % given["every"] == 0}
    return set(given) if isinstance(given, list) else given


@pytest.mark.parametrize("of_factors", AT)
@pytest.mark.parametrize("of_stage", AT)
def test_factors_have_all_epochs_that_a_stage_lists(of_stage, of_factors):
    text = f"""\
study: epochs
stages:
  xor: {{use: data.xor}}
  fit: {{use: train, data: xor, model: {{kind: linear}}, rule: {{rule: sgd, lr: 0.1}},
        epochs: 4, checkpoints: {{every: 1}}}}
  factors: {{use: probe.factors, weights: fit, at: {of_factors}}}
  asked: {{use: probe.alignment, weights: fit, factors: factors, at: {of_stage}}}
"""
    own, given = epochs_of(of_stage), epochs_of(of_factors)
    if isinstance(own, int) or isinstance(given, int):
        fits = of_stage == of_factors
    else:
        fits = of_stage == "all" or own <= given
    if not fits:
        with pytest.raises(StudyError, match=r"factors: expected a stage at the epoch"):
            load_study(text, file="study.yaml")
    else:
        dims = load_study(text, file="study.yaml").stages["asked"].dims
        assert ("epoch" in dims) is not isinstance(own, int)


def test_a_table_without_standard_errors_is_not_held_to_them():
    text = f"""{STUDY}
  estimates: {{use: probe.trace, matrix: kernel}}
  full: {{use: probe.dense, matrix: kernel}}
  asked: {{use: aggregate.coverage, of: estimates, truth: full, repetitions: order,
          quantities: trace}}
expect:
  - {{stage: asked, quantity: trace, value: 0.95, within: 0.1, within_sems: 2}}
"""
    with pytest.raises(StudyError, match=r"aggregate\.coverage has no sem"):
        load_study(text, file="study.yaml")


def test_what_has_no_error_has_no_coverage():
    text = f"""{STUDY}
  estimates: {{use: probe.trace, matrix: kernel}}
  asked: {{use: aggregate.coverage, of: estimates, truth: estimates,
          repetitions: order, quantities: num_draws}}
"""
    with pytest.raises(StudyError, match=r"have an error, got 'num_draws'"):
        load_study(text, file="study.yaml")


def test_points_of_an_axis_that_both_name_are_taken_together():
    line = 'probe.moments, ritz: runs, num_moments: "${m}"'
    assert loaded(line).stages["asked"].dims == ("m",)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            "keep_preconditioner: true",
            "6:40: stages.fit.keep_preconditioner: expected a rule with a known "
            "preconditioner, got lookahead. Remove it, or take another rule.",
        ),
        (
            "epochs: 4",
            "6:17: stages.fit.epochs: expected at least the 5 after which swa begins "
            "to average, got 4. Raise it, or lower start of the rule.",
        ),
    ],
)
def test_training_refuses_what_its_rule_cannot_do_where_it_is_requested(edit, message):
    rule = "{rule: lookahead, inner: {rule: sgd, lr: 0.1}}"
    rest = f"epochs: 4, {edit}"
    if edit == "epochs: 4":
        rule, rest = "{rule: swa, lr: 0.1, start: 5}", edit
    text = STUDY.replace("{rule: sgd, lr: 0.1}", rule).replace("epochs: 4", rest)
    with pytest.raises(StudyError) as caught:
        load_study(text, file="study.yaml")
    assert str(caught.value).endswith(message.partition(": ")[2])
    assert str(caught.value).startswith("study.yaml:6:")
