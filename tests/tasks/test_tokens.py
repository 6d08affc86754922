"""Tokens as inputs and as labels, of built-in models and of the user's own."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

from curvflow.errors import InputError, StudyError
from curvflow.flows.graph.open_study import open_study
from curvflow.flows.plan.plan import make_plan
from curvflow.schemas.kinds.shared.datasets import dataset, dataset_of
from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.problems import forget, load_samples, pose, read
from tests.tasks import toys
from tests.tasks.rules.examples import EXAMPLES, SETTINGS
from tests.tasks.toys import (
    as_data,
    assert_declared,
    compute,
    make_decoder,
    matrix_of,
    member,
    train_all,
    train_member,
    weights_of,
)

VOCABULARY, LENGTH = 5, 4
DECODER = {"factory": "tests.tasks.toys:make_decoder", "kwargs": {}}


def text(samples=12, vocabulary=VOCABULARY, seed=0):
    """Return windows of a text in which each token mostly says the next."""
    rng = np.random.default_rng(seed)
    ids = np.zeros((samples + 4, LENGTH + 1), dtype=np.int64)
    ids[:, 0] = rng.integers(0, vocabulary, len(ids))
    for place in range(LENGTH):
        strays = rng.integers(0, vocabulary, len(ids))
        follows = (ids[:, place] + 1) % vocabulary
        ids[:, place + 1] = np.where(rng.random(len(ids)) < 0.1, strays, follows)
    x, y = ids[:, :-1], ids[:, 1:]
    parts = x[:samples], y[:samples], x[samples:], y[samples:]
    return as_data(dataset_of(np.float64, vocabulary, *parts))


def module_at(weights):
    """Return the decoder with these weights, and how it is called with others."""
    net = make_decoder().double()
    nn.utils.vector_to_parameters(torch.as_tensor(weights), net.parameters())
    return net


def mean_loss(net, flat_D, data):
    """Return the mean over all tokens, as a plain loop of PyTorch has it."""
    names, tensors = zip(*net.named_parameters(), strict=True)
    pieces = torch.split(flat_D, [t.numel() for t in tensors])
    named = {n: p.view_as(t) for n, p, t in zip(names, pieces, tensors, strict=True)}
    outputs = functional_call(net, named, (torch.as_tensor(data["inputs"]),))
    labels = torch.as_tensor(data["targets"])
    return nn.functional.cross_entropy(outputs.flatten(0, 1), labels.flatten())


@pytest.fixture(scope="module")
def trained():
    data = text()
    (outcome, _) = train_all(
        [
            train_member(data, model=DECODER, epochs=40, rule=ADAM, seed=seed)
            for seed in (0, 1)
        ]
    )
    return data, outcome


ADAM = {"rule": "adam", "lr": 0.05}


def test_a_language_model_learns_which_token_follows(trained):
    data, outcome = trained
    assert_declared("train", outcome)
    weights = outcome.arrays["weights"][-1]
    net = module_at(weights)
    loss = mean_loss(net, torch.as_tensor(weights), data)
    assert outcome.arrays["final_train_loss"] == pytest.approx(loss.item(), rel=1e-5)
    with torch.no_grad():
        guessed = net(torch.as_tensor(data["inputs"])).argmax(-1).numpy()
    right = (guessed == data["targets"]).mean()
    assert outcome.arrays["final_train_accuracy"] == pytest.approx(right, abs=1e-6)
    assert right > 0.5  # of 0.2 by chance


@pytest.mark.parametrize("operator", ["hessian", "ggn", "fisher_type2"])
def test_matrices_are_those_of_the_mean_over_all_tokens(trained, operator):
    data, outcome = trained
    weights = weights_of(outcome)
    flat_D = torch.as_tensor(weights["weights"]).double()
    net = module_at(flat_D)
    if operator == "hessian":
        exact = torch.autograd.functional.hessian(
            lambda flat_D: mean_loss(net, flat_D, data), flat_D
        )
    else:
        exact = gauss_newton(net, flat_D, data)
    probe = member("probe.trace", {"operator": operator}, weights=weights, data=data)
    torch.testing.assert_close(matrix_of(probe), exact, rtol=1e-8, atol=1e-10)


def gauss_newton(net, flat_D, data):
    names, tensors = zip(*net.named_parameters(), strict=True)

    def outputs(flat_D):
        pieces = torch.split(flat_D, [t.numel() for t in tensors])
        named = {
            n: p.view_as(t) for n, p, t in zip(names, pieces, tensors, strict=True)
        }
        called = functional_call(net, named, (torch.as_tensor(data["inputs"]),))
        return called.flatten(0, 1)

    jacobian_TCD = torch.autograd.functional.jacobian(outputs, flat_D)
    p_TC = outputs(flat_D).softmax(-1).detach()
    middle_TCC = torch.diag_embed(p_TC) - p_TC[:, :, None] * p_TC[:, None, :]
    terms = jacobian_TCD.mT @ middle_TCC @ jacobian_TCD
    return terms.mean(0)


def test_labels_drawn_for_each_token_give_the_fisher_matrix_in_the_mean(trained):
    data, outcome = trained
    weights = weights_of(outcome)
    draws = [
        matrix_of(
            member(
                "probe.trace",
                {"operator": "fisher_mc", "mc_samples": 40, "seed": seed},
                weights=weights,
                data=data,
            )
        )
        for seed in range(24)
    ]
    exact = gauss_newton(
        module_at(weights["weights"]),
        torch.as_tensor(weights["weights"]).double(),
        data,
    )
    found = torch.stack(draws)
    sem = found.std(0) / len(draws) ** 0.5
    z = (found.mean(0) - exact).abs() / (sem + 1e-12)
    assert (z < 6).all()
    assert z.square().mean().sqrt() < 1.4


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("probe.trace", {"num_probes": 8}),
        ("probe.spectrum", {"num_runs": 2, "num_steps": 10}),
        ("probe.norms", {}),
        ("probe.gradient_variance", {}),
        (
            "probe.llc",
            {"num_chains": 2, "num_draws": 20, "num_steps_bw_draws": 2,
             "num_burnin_steps": 20},
        ),
    ],
)  # fmt: skip
def test_probes_take_a_language_model(trained, kind, params):
    data, outcome = trained
    (found,) = compute(
        kind, [member(kind, params, weights=weights_of(outcome), data=data)]
    )
    assert_declared(kind, found)


def test_siblings_are_computed_as_if_alone(trained):
    data, outcome = trained
    (alone,) = train_all(
        [train_member(data, model=DECODER, epochs=40, rule=ADAM, seed=0)]
    )
    np.testing.assert_allclose(
        alone.arrays["weights"], outcome.arrays["weights"], rtol=1e-5, atol=1e-6
    )


def problem_of(data, model):
    return pose(parse_model(model), "auto", data)


def test_a_problem_of_tokens_reads_back_as_it_was():
    problem = problem_of(text(), DECODER)
    assert problem.takes_integers
    assert (problem.tokens, problem.input_shape) == (LENGTH, (LENGTH,))
    again = read(problem.text)
    assert again.text == problem.text
    assert (again.tokens, again.takes_integers) == (LENGTH, True)


def test_whole_numbers_stay_so_only_for_modules_that_take_them():
    rng = np.random.default_rng(0)
    counts = as_data(dataset(rng.integers(0, 9, (10, 3)), np.arange(10) % 2))
    assert counts["inputs"].dtype == np.int64
    linear = {"factory": "tests.tasks.toys:make_linear", "kwargs": {"inputs": 3}}
    for model in ({"kind": "mlp", "hidden": [2]}, linear):
        problem = problem_of(counts, model)
        assert not problem.takes_integers
        loaded = load_samples(problem, [counts], "", "cpu", torch.float32)
        assert loaded.inputs.dtype == torch.float32
    samples = load_samples(
        problem_of(text(), DECODER), [text()], "", "cpu", torch.float32
    )
    assert samples.inputs.dtype == samples.targets.dtype == torch.int64


def test_a_token_that_the_embedding_lacks_is_named():
    data = text()
    beyond = as_data(dataset_of(np.float64, 5, data["inputs"] + 3, data["targets"]))
    with pytest.raises(InputError, match=r"on integers from 3 to 7 with IndexError"):
        problem_of(beyond, DECODER)


def test_outputs_for_the_whole_sample_are_refused_where_tokens_have_labels():
    data = text()
    model = {"factory": "tests.tasks.toys:make_bag", "kwargs": {}}
    with pytest.raises(
        InputError, match=r"of shape \(4, 4, 5\) for 4 samples .* got \(4, 5\)"
    ):
        problem_of(data, model)
    last = as_data(dataset_of(np.float64, 5, data["inputs"], data["targets"][:, -1]))
    assert problem_of(last, model).tokens is None


@pytest.mark.parametrize("low", [-1, 5])
def test_labels_beyond_the_classes_are_refused(low):
    labels = np.array([0, 1, low])
    with pytest.raises(
        InputError, match=rf"labels 0..4, got {low}\. Raise num_classes"
    ):
        dataset_of(np.float64, 5, np.zeros((3, 2)), labels)


def test_labels_with_gaps_are_taken_where_the_classes_are_given():
    labels = np.array([0, 4, 2])
    with pytest.raises(
        InputError, match=r"without gaps, got 0, 2, 4\. Give num_classes"
    ):
        dataset(np.zeros((3, 2)), labels)
    arrays = dataset_of(np.float64, 5, np.zeros((3, 2)), labels)
    assert arrays["num_classes"] == 5


def test_natural_gradients_of_tokens_are_refused():
    rule = {"rule": "ngd", "lr": 0.1}
    with pytest.raises(
        InputError, match="ngd cannot be combined with labels of tokens"
    ):
        train_all([train_member(text(), model=DECODER, epochs=1, rule=rule)] * 2)


STUDY = """\
study: words
stages:
  text: {use: data.array, path: text.npz, num_classes: 5}
  fit: {use: train, data: text, rule: {rule: sgd, lr: 0.1}, epochs: 1,
        model: {kind: mlp, hidden: [3]}}
"""


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
def test_a_model_of_numbers_is_refused_for_labels_of_tokens_while_planning(
    tmp_path, loss
):
    data = text()
    np.savez(tmp_path / "text.npz", inputs=data["inputs"], targets=data["targets"])
    study = STUDY.replace("epochs: 1", f"epochs: 1, loss: {loss}")
    (tmp_path / "words.yaml").write_text(study)
    opened = open_study(tmp_path / "words.yaml", store="memory:")
    with pytest.raises(StudyError, match=r"words.yaml:5:.*4 tokens a sample.*got mlp"):
        make_plan(opened.study, opened.store, opened.files)


def test_a_model_that_takes_any_data_refuses_labels_of_tokens_when_it_runs():
    with pytest.raises(InputError, match=r"the labels of 4 tokens a sample, got mlp"):
        train_all([train_member(text(), epochs=1)] * 2)


def test_integers_are_numbers_for_a_module_that_computes_with_them():
    """Of integers, division makes the default type, whatever the weights have."""
    rng = np.random.default_rng(0)
    counts = as_data(dataset(rng.integers(0, 9, (10, 3)), np.arange(10) % 2))
    divided = {"factory": "tests.tasks.toys:make_divided", "kwargs": {}}
    assert not problem_of(counts, divided).takes_integers
    (outcome, _) = train_all([train_member(counts, model=divided)] * 2)
    probe = member("probe.trace", {}, weights=weights_of(outcome), data=counts)
    assert np.isfinite(compute("probe.trace", [probe])[0].arrays["trace"])


@pytest.mark.parametrize("name", ["make_decoder", "make_divided"])
def test_a_module_is_tried_once_for_the_same_data(name, monkeypatch):
    forget()
    calls, made = [], getattr(toys, name)
    monkeypatch.setattr(toys, name, lambda: calls.append(1) or made())
    rng = np.random.default_rng(0)
    counts = as_data(dataset(rng.integers(0, 9, (10, 3)), np.arange(10) % 2))
    data = text() if name == "make_decoder" else counts
    model = {"factory": f"tests.tasks.toys:{name}", "kwargs": {}}
    first = problem_of(data, model)
    tried = len(calls)
    assert problem_of(data, model) is first
    assert len(calls) == tried
    forget()
    problem_of(data, model)
    assert len(calls) > tried
    forget()


# What has no form for tokens, and what wants a network of the package.
REFUSING = {"ngd", "path_sgd"}


@pytest.mark.parametrize("rule", [name for name in EXAMPLES if name not in REFUSING])
def test_every_rule_trains_a_language_model(rule):
    params = {"rule": rule, **EXAMPLES[rule][0]}
    given = {"model": DECODER, "epochs": 2, "batch_size": 6, **SETTINGS[rule]}
    (outcome, _) = train_all([train_member(text(), rule=params, **given)] * 2)
    assert outcome.status == "ok"
    assert np.isfinite(outcome.arrays["train_loss"]).all()


# The networks of the package that take tokens, small.
BUILT_IN = {
    "transformer": {"kind": "transformer", "layers": 1, "width": 8, "heads": 2,
                    "tied": True},
    "attention_only": {"kind": "attention_only", "layers": 1, "width": 8, "heads": 2},
    "lstm": {"kind": "lstm", "hidden": 8},
    "gru": {"kind": "gru", "hidden": 8},
}  # fmt: skip
built_in = pytest.mark.parametrize("model", BUILT_IN.values(), ids=BUILT_IN)


@built_in
def test_built_in_networks_learn_which_token_follows(model):
    data = text()
    outcomes = train_all(
        [
            train_member(data, model=model, epochs=40, rule=ADAM, seed=seed)
            for seed in (0, 1)
        ]
    )
    (alone,) = train_all([train_member(data, model=model, epochs=40, rule=ADAM)])
    for name in ("weights", "final_train_loss"):
        np.testing.assert_allclose(
            alone.arrays[name], outcomes[0].arrays[name], rtol=1e-4, atol=1e-5
        )
    for outcome in outcomes:
        assert_declared("train", outcome)
        problem = read(problem_of(data, model).text)
        weights = torch.as_tensor(outcome.arrays["weights"][-1])[None]
        ids, labels = (torch.as_tensor(data[n]) for n in ("inputs", "targets"))
        outputs = problem.network.outputs(weights, ids[None])[0]
        loss = nn.functional.cross_entropy(outputs.flatten(0, 1), labels.flatten())
        assert outcome.arrays["final_train_loss"] == pytest.approx(
            loss.item(), rel=1e-4
        )
        assert outcome.arrays["final_train_accuracy"] > 0.6  # of 0.2 by chance


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("probe.trace", {"num_probes": 4, "operator": "ggn"}),
        ("probe.eigenvalues", {"k": 2}),
        ("probe.gradient_variance", {}),
    ],
)
def test_probes_take_a_transformer(kind, params):
    data, model = text(), BUILT_IN["transformer"]
    (outcome, _) = train_all([train_member(data, model=model, epochs=2, rule=ADAM)] * 2)
    (found,) = compute(
        kind, [member(kind, params, weights=weights_of(outcome), data=data)]
    )
    assert_declared(kind, found)


def test_natural_gradients_take_a_transformer_of_one_label():
    data = text()
    last = as_data(dataset_of(np.float64, 5, data["inputs"], data["targets"][:, -1]))
    model = {**BUILT_IN["transformer"], "vocabulary": VOCABULARY}
    rule = {"rule": "ngd", "lr": 0.01, "alpha": 1.0}
    (outcome, _) = train_all([train_member(last, model=model, epochs=8, rule=rule)] * 2)
    losses = outcome.arrays["train_loss"]
    assert losses[-1] < 0.9 * losses[0]


@built_in
def test_the_form_of_inputs_says_whether_a_built_in_network_takes_tokens(model):
    problem = problem_of(text(), model)
    assert problem.takes_integers
    assert (problem.tokens, problem.network.vocabulary) == (LENGTH, VOCABULARY)
    rng = np.random.default_rng(0)
    rows = as_data(dataset(rng.normal(size=(10, LENGTH, 3)), np.arange(10) % 2))
    vectors = problem_of(
        rows, {**model, **({"tied": False} if "tied" in model else {})}
    )
    assert not vectors.takes_integers
    assert (vectors.tokens, vectors.network.vocabulary) == (None, None)
    for posed in (problem, vectors):
        assert read(posed.text).text == posed.text


@pytest.mark.parametrize("wrong", [-1, 5])
def test_a_token_beyond_the_vocabulary_is_refused(wrong):
    data = text()
    ids = data["inputs"].copy()
    ids[2, 1] = wrong
    beyond = as_data(dataset_of(np.float64, 5, ids, data["targets"]))
    problem = problem_of(beyond, BUILT_IN["gru"])
    with pytest.raises(
        InputError, match=rf"expected tokens from 0 to 4, got {wrong}\."
    ):
        load_samples(problem, [beyond], "", "cpu", torch.float32)


@built_in
def test_the_memory_of_products_with_tokens_is_counted(model):
    data = text()
    problem = problem_of(data, model)
    counted = problem.product_bytes(data, 2)

    def fails(*_):
        raise RuntimeError

    estimated = problem.product_bytes(data, 2, fails)
    assert counted != estimated
    assert 0.3 * estimated < counted < 2 * estimated
