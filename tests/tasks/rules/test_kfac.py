"""K-FAC against dense matrices, the blocks of `kronecker`, and closed forms."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.nodes import Member, NodeData
from curvflow.tasks.numerics import fisher_roots
from curvflow.tasks.numerics.kronecker.moments import Moments, gram
from curvflow.tasks.rules import kfac
from curvflow.tasks.rules.shared.kfac_blocks import batch_blocks
from curvflow.tasks.rules.shared.kfac_control import squares
from curvflow.tasks.rules.shared.kfac_networks import Labels, Networks
from curvflow.tasks.rules.shared.kfac_parts import parts_of
from curvflow.tasks.training.gradients import Noise, gradients
from curvflow.tasks.training.state import leaves
from curvflow.tasks.training.step_context import Hyper
from tests.tasks.rules.checks import rule, started, trained_on
from tests.tasks.rules.posed import DECODER, FORMS, NET, Posed, images, tokens
from tests.tasks.toys import as_data, blobs, train_all, train_member, waves

# For the tests that hold for all rules.
SETTINGS = [
    {"damping": 0.1, "momentum": "quadratic", "factor_decay": 0.9, "l2": 0.01},
    {
        "fisher_type": "type-2",
        "inverse": "exact",
        "preconditioner_damping": 1.0,
        "preconditioner_adaptation_interval": 3,
        "damping_adaptation_interval": 2,
        "inv_update_steps": 2,
    },
    {"step": "lr", "lr": 0.2, "momentum": 0.5, "reject": True, "kl_clip": 0.5},
    {"structure": "ekfac", "inverse": "exact", "factor_decay": 0.5},
]

EXACT = {"fisher_type": "type-2", "inverse": "exact"}
UNDAMPED = {**EXACT, "damping": 0.0, "damping_adaptation_interval": None}


@pytest.fixture(scope="module")
def posed():
    return Posed(blobs())


def best_rate(curvature, gradient, direction):
    image = (curvature @ direction.unsqueeze(2)).squeeze(2)
    return -(gradient * direction).sum(1) / (direction * image).sum(1)


@pytest.mark.parametrize("loss", ["cross_entropy", "mse", "sse"])
@pytest.mark.parametrize("fisher_type", FORMS)
def test_a_step_is_the_best_along_what_the_factors_give(fisher_type, loss):
    posed = Posed(blobs() if loss == "cross_entropy" else waves(), loss=loss)
    operator = posed.factors(fisher_type, 2)
    curvature = posed.curvature()
    for inverse, pi in (("exact", None), ("factored", "trace")):
        change, state, _ = posed.stepped(
            {
                "fisher_type": fisher_type,
                "mc_samples": 2,
                "inverse": inverse,
                "damping": 0.2,
                "preconditioner_damping": 0.1,
                "l2": 0.05,
            }
        )
        gradient = posed.gradient + 0.05 * posed.weights
        direction = -operator.solve(gradient, 0.15, pi=pi)
        damped = curvature + 0.25 * torch.eye(len(curvature[0]), dtype=torch.float64)
        rate = best_rate(damped, gradient, direction)
        torch.testing.assert_close(state.control.rate[:, 0], rate, rtol=1e-8, atol=0)
        torch.testing.assert_close(change, rate[:, None] * direction, rtol=1e-8, atol=0)
        # T19: what is predicted is -lin^2 / (2 quad).
        image = (damped @ direction.unsqueeze(2)).squeeze(2)
        slope = (gradient * direction).sum(1)
        expected = -slope.square() / (direction * image).sum(1) / 2
        torch.testing.assert_close(
            state.control.predicted[:, 0], expected, rtol=1e-8, atol=0
        )


@pytest.mark.parametrize("pi", ["trace", "frobenius", "spectral", 0.3])
def test_the_factored_inverse_splits_its_damping_as_the_operator_does(posed, pi):
    fields = {"step": "lr", "lr": 1.0, "damping_adaptation_interval": None}
    for separate in (False, True):
        change, _, _ = posed.stepped(
            {
                **fields,
                "pi": pi,
                "fisher_type": "type-2",
                "separate_weight_and_bias": separate,
            }
        )
        operator = posed.factors(separate_weight_and_bias=separate)
        expected = -operator.solve(posed.gradient, 1.0, pi=pi)
        torch.testing.assert_close(change, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("approximation", ["expand", "reduce"])
@pytest.mark.parametrize(
    ("data", "model"),
    [
        (images(side=16), {"kind": "lenet5"}),
        (
            tokens(),
            {**DECODER, "positions": "sinusoidal"},
        ),
    ],
    ids=["convolutions", "transformer"],
)
def test_convolutions_attention_and_embeddings_step_alike(data, model, approximation):
    posed = Posed(data, model, scale=0.3)
    change, _, _ = posed.stepped(
        {
            **EXACT,
            "step": "lr",
            "lr": 1.0,
            "damping_adaptation_interval": None,
            "kfac_approx": approximation,
        }
    )
    operator = posed.factors(kfac_approx=approximation)
    expected = -operator.solve(posed.gradient, 1.0)
    torch.testing.assert_close(change, expected, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("fisher_type", ["mc", "type-2"])
def test_corrected_eigenvalues_are_those_of_the_operator(posed, fisher_type):
    fields = {
        "fisher_type": fisher_type,
        "mc_samples": 2,
        "structure": "ekfac",
        "inverse": "exact",
        "step": "lr",
        "damping_adaptation_interval": None,
        "inv_update_steps": 2,
        "factor_decay": 0.9,
    }
    change, state, _ = posed.stepped(fields)
    operator = posed.factors(fisher_type, 2, structure="ekfac")
    expected = -operator.solve(posed.gradient, 1.0)
    torch.testing.assert_close(change, expected, rtol=1e-8, atol=1e-12)
    # Of the next batch the mean of both, along the same eigenvectors.
    _, later, _ = posed.stepped(fields, count=1, state=state)
    if fisher_type == "type-2":
        torch.testing.assert_close(later.factors.corrections, state.factors.corrections)
    else:
        assert not torch.equal(
            later.factors.corrections[0], state.factors.corrections[0]
        )
    for both in zip(later.factors.inverses, state.factors.inverses, strict=True):
        assert all(map(torch.equal, *both))


def batch_of(posed, count=0, draw=None, **fields):
    """Return the blocks of the batch, by parts of the network, and the parts."""
    hyper = Hyper([rule(rule="kfac", **fields)] * len(posed.weights), posed.weights)
    parts = parts_of(posed.problem.text, "expand", separate=False)
    context = posed.context(count)
    context = context if draw is None else replace(context, draw=draw)
    networks = Networks(context, posed.weights)
    return batch_blocks(networks, posed.weights, parts, hyper), parts


def test_what_is_in_no_layer_has_the_mean_of_its_diagonal():
    posed = Posed(tokens(2), {**DECODER, "positions": "learned"}, scale=0.5)
    found = []
    for first in (0.0, 1.0):
        for second in (0.0, 1.0):
            signs = torch.tensor([[first], [second]], dtype=torch.float64)
            draw = lambda shape, signs=signs: signs.expand(2, *shape)  # noqa: E731
            blocks, parts = batch_of(posed, draw=draw, fisher_type="empirical")
            assert len(parts.rest) == 1
            found.append(blocks[-1][0])
    # Over all signs the mean is exact.
    diagonal = posed.factors("empirical", structure="diag", other="diag")
    names = posed.network.layout.named(diagonal @ torch.ones_like(posed.weights))
    (expected,) = [t for name, t in names.items() if name.startswith("position")]
    expected = expected.flatten(1).mean(1, keepdim=True)
    torch.testing.assert_close(torch.stack(found).mean(0), expected, rtol=1e-9, atol=0)


def test_a_batch_norm_holds_the_statistics_of_the_batch():
    model = {"kind": "preresnet", "depth": 8, "width": 0.1, "batch_norm": True}
    posed = Posed(images(4), model, scale=0.5)
    # In evaluation with the moments of the batch, each layer's behind those before.
    fixed = posed.statistics.clone()
    layout, start = posed.network.statistics, 0
    for name, size in zip(layout.names, layout.sizes, strict=True):
        _, after = posed.network.training_outputs(
            posed.weights, posed.statistics, posed.samples.inputs, posed.context().draw
        )
        moved = (after - 0.9 * posed.statistics) / 0.1
        span = slice(start, start + size)
        fixed[:, span] = moved[:, span]
        start += size
        assert "running" in name
    uses = []
    posed.network.held_outputs(
        posed.weights, fixed, posed.samples.inputs, posed.context().draw, uses
    )
    counts = [
        use.inputs[0, :, 0].numel() for use in uses if use.weight.endswith(".scale")
    ]
    norms = [name for name in layout.names if name.endswith("running_var")]
    assert len(counts) == len(norms)
    # The running variance is the unbiased one, the batch is divided by the biased.
    for name, count in zip(norms, counts, strict=True):
        where = sum(layout.sizes[: layout.names.index(name)])
        size = layout.sizes[layout.names.index(name)]
        fixed[:, where : where + size] *= (count - 1) / count
    operator = posed.factors(fixed=fixed)
    change, _, _ = posed.stepped(
        {**EXACT, "step": "lr", "damping_adaptation_interval": None}
    )
    expected = -operator.solve(posed.gradient, 1.0)
    torch.testing.assert_close(change, expected, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("loss", ["mse", "sse"])
def test_without_damping_one_step_solves_a_linear_regression(loss):
    data = waves()
    rules = [rule(rule="kfac", **UNDAMPED)] * 2
    (end,), problem = trained_on(data, {"kind": "linear"}, rules, 1, loss=loss)
    x = np.c_[data["inputs"], np.ones(len(data["inputs"]))]
    best = np.linalg.lstsq(x, data["targets"], rcond=None)[0]
    tensors = problem.network.layout.named(end)
    solution = torch.cat(
        [tensors["layer1.weight"].mT, tensors["layer1.bias"][:, None]], 1
    )
    for weights_of in solution:
        np.testing.assert_allclose(weights_of, best, rtol=1e-8, atol=1e-10)


def test_on_a_quadratic_with_its_own_matrix_rate_and_ratio_are_one():
    posed = Posed(waves(), {"kind": "linear"})
    fields = {**EXACT, "damping": 0.0, "damping_adaptation_interval": 1}
    _, state, hyper = posed.stepped({**fields, "l2": 0.1})
    ones = torch.ones(2, 1, dtype=torch.float64)
    torch.testing.assert_close(state.control.rate, ones, rtol=1e-8, atol=0)
    torch.testing.assert_close(state.control.ratio, ones, rtol=1e-8, atol=0)
    recorded = kfac.recorded(state, hyper)
    assert torch.equal(recorded["reduction_ratio"], state.control.ratio)
    # With damping the model promises less than what comes.
    _, state, _ = posed.stepped({**fields, "damping": 0.5})
    assert (state.control.ratio > 1).all()


@pytest.mark.parametrize("depth", [2, 3])
def test_on_deep_linear_networks_the_rate_is_one_over_their_depth(depth):
    # T14 of Botev (2020), lemma 4.1, which holds without damping and biases.
    data = waves()
    square = as_data(
        dataset(data["inputs"], np.c_[data["targets"], data["targets"][:, :1]]),
        "square",
    )
    model = {
        "kind": "mlp",
        "hidden": [3] * (depth - 1),
        "activation": "identity",
        "bias": False,
    }
    posed = Posed(square, model)
    change, state, _ = posed.stepped(UNDAMPED)
    expected = torch.full((2, 1), 1 / depth, dtype=torch.float64)
    torch.testing.assert_close(state.control.rate, expected, rtol=1e-7, atol=0)
    # All of the decrease that the whole matrix gives.
    best = -(torch.linalg.pinv(posed.curvature()) @ posed.gradient.unsqueeze(2))
    decrease = (posed.gradient * best.squeeze(2)).sum(1, keepdim=True) / 2
    torch.testing.assert_close(state.control.predicted, decrease, rtol=1e-7, atol=0)
    assert torch.isfinite(change).all()


def predicted(posed, change, damping):
    damped = posed.curvature()
    damped = damped + damping * torch.eye(damped.shape[1], dtype=torch.float64)
    image = (damped @ change.unsqueeze(2)).squeeze(2)
    return (change * (posed.gradient + image / 2)).sum(1)


@pytest.mark.parametrize(
    ("step", "momentum"),
    [("quadratic", "quadratic"), ("quadratic", 0.5), ("lr", "quadratic"), ("lr", 0.5)],
)
def test_rate_and_momentum_are_the_best_where_they_are_not_given(posed, step, momentum):
    fields = {**EXACT, "damping": 0.2, "step": step, "lr": 0.3, "momentum": momentum}
    _, before, _ = posed.stepped(fields)
    assert before.control.velocity.abs().max() > 0
    change, state, _ = posed.stepped(fields, count=1, state=before)
    direction = -posed.factors().solve(posed.gradient, 0.2)
    found = (
        state.control.rate * direction
        + state.control.momentum * before.control.velocity
    )
    torch.testing.assert_close(change, found, rtol=1e-9, atol=1e-12)
    lowest = predicted(posed, change, 0.2)
    torch.testing.assert_close(state.control.predicted[:, 0], lowest, rtol=1e-9, atol=0)
    for along, is_free in (
        (direction, step == "quadratic"),
        (before.control.velocity, momentum == "quadratic"),
    ):
        sides = [predicted(posed, change + e * along, 0.2) for e in (-0.01, 0.01)]
        if is_free:
            assert (sides[0] > lowest).all()
            assert (sides[1] > lowest).all()
            # At the minimum both sides are as high.
            torch.testing.assert_close(sides[0], sides[1], rtol=1e-9, atol=1e-12)
        else:
            given = state.control.rate if along is direction else state.control.momentum
            assert given.unique().item() == pytest.approx(
                0.3 if along is direction else 0.5
            )


def halves():
    return blobs(num_classes=2)


INDEFINITE = ["mixture_bernoulli", "gaussian"]


def definite(posed, psd):
    """Return the curvature of each sample by its outputs, (M, N, C, C), mended."""
    criterion, targets = posed.problem.criterion, posed.samples.targets
    outputs = posed.network.outputs(
        torch.cat([posed.weights, posed.statistics], 1), posed.samples.inputs
    ).detach()

    def loss(one, target):
        return criterion.of_samples(one[None, None], target[None, None]).sum()

    if psd == "fisher":
        rows = fisher_roots("exact", criterion.law, outputs, targets)
        return outputs, rows.mT @ rows
    found = torch.stack(
        [
            torch.stack(
                [
                    torch.autograd.functional.hessian(
                        lambda f, y=y: loss(f, y), one.clone()
                    )
                    for one, y in zip(of_model, targets[0], strict=True)
                ]
            )
            for of_model in outputs
        ]
    )
    values, vectors = torch.linalg.eigh(found)
    assert (values[..., 0] < -1e-3).any()
    values = values.abs() if psd == "abs" else values.clamp(min=0)
    return outputs, vectors @ torch.diag_embed(values) @ vectors.mT


@pytest.mark.parametrize("psd", ["clip", "abs", "fisher"])
@pytest.mark.parametrize("kind", INDEFINITE)
def test_indefinite_losses_are_made_definite_as_in_a_dense_twin(kind, psd):
    data = waves() if kind == "gaussian" else halves()
    posed = Posed(data, loss=kind)
    _, B_MNCC = definite(posed, psd)
    values, vectors = torch.linalg.eigh(B_MNCC)
    roots = values.clamp(min=0).sqrt().unsqueeze(-1) * vectors.mT
    operator = posed.factors(given=roots)

    def outputs(weights, statistics):
        full = torch.cat([weights, statistics])[None]
        return posed.network.outputs(full, posed.samples.inputs)[0]

    jacobians = torch.stack(
        [
            torch.autograd.functional.jacobian(lambda w, s=s: outputs(w, s), w)
            for w, s in zip(posed.weights, posed.statistics, strict=True)
        ]
    )
    dense = (jacobians.mT @ B_MNCC @ jacobians).mean(1)
    networks = Networks(posed.context(), posed.weights, psd)
    columns = started(4, posed.weights.shape[1]).view(2, 2, -1)
    image = networks.multiply(posed.weights, 2)(columns.mT)
    torch.testing.assert_close(image, dense @ columns.mT, rtol=1e-8, atol=1e-10)
    fields = {**EXACT, "psd": psd, "damping": 0.2}
    change, state, _ = posed.stepped(fields)
    direction = -operator.solve(posed.gradient, 0.2)
    eye = torch.eye(dense.shape[1], dtype=torch.float64)
    rate = best_rate(dense + 0.2 * eye, posed.gradient, direction)
    torch.testing.assert_close(state.control.rate[:, 0], rate, rtol=1e-8, atol=0)
    torch.testing.assert_close(change, rate[:, None] * direction, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize(
    "loss", ["mse", "sse", "bce", '{"kind": "bce", "reduction": "sum"}', "poisson"]
)
def test_a_recursion_begins_with_the_mean_matrix_of_a_loss_by_its_outputs(loss):
    x = np.random.default_rng(0).normal(size=(8, 3))
    data = as_data(dataset(x, (x[:, :2] > 0).astype(float)), "halves of values")
    posed = Posed(data, loss=loss)
    law, scale = posed.problem.criterion.law, 1
    if posed.problem.criterion.is_sum:
        scale = posed.samples.count
    outputs = posed.network.outputs(posed.weights, posed.samples.inputs)
    roots = law.roots("exact", outputs, posed.samples.targets, None)
    _, state, _ = posed.stepped({"fisher_type": "recursive"})
    last = state.factors.blocks[1][0].squeeze(1)
    expected = scale * (roots.mT @ roots).mean(1)
    torch.testing.assert_close(last, expected, rtol=1e-12, atol=1e-14)


def test_a_recursion_takes_the_mean_of_what_is_made_definite():
    posed = Posed(halves(), loss="mixture_bernoulli")
    _, B_MNCC = definite(posed, "abs")
    _, state, _ = posed.stepped({"fisher_type": "recursive", "psd": "abs"})
    last = state.factors.blocks[1][0].squeeze(1)
    torch.testing.assert_close(last, B_MNCC.mean(1), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["kfac", "gauss_newton"])
def test_losses_that_may_be_indefinite_need_psd(name):
    mixture = Posed(halves(), loss="mixture_bernoulli")
    fields = {"preconditioner": "kron"} if name == "gauss_newton" else {}
    with pytest.raises(InputError, match=r"psd: refuse cannot .* mixture_bernoulli"):
        mixture.stepped(fields, name=name)
    mixture.stepped({**fields, "psd": "clip"}, name=name)
    many = as_data(dataset(blobs()["inputs"], np.ones((30, 6))), "values")
    wide = Posed(many, loss="mixture_bernoulli")
    with pytest.raises(InputError, match="Take labels drawn from the model"):
        wide.stepped({**fields, "psd": "fisher"}, name=name)


def test_a_definite_matrix_of_gauss_newton_needs_a_likelihood():
    huber = Posed(waves(), loss="huber")
    huber.stepped({}, name="gauss_newton")
    with pytest.raises(InputError, match="psd: clip cannot be combined with a loss"):
        huber.stepped({"psd": "clip"}, name="gauss_newton")


def test_factors_are_averages_in_which_the_first_batches_weigh_alike(posed):
    fields = {"fisher_type": "mc", "factor_decay": 0.6, "factor_update_steps": 2}
    batches, state = [], None
    for count in range(7):
        if count % 2 == 0:
            batches.append(batch_of(posed, count, **fields)[0][0][0])
        _, state, _ = posed.stepped(fields, count=count, state=state)
        if count == 3:
            mean = (batches[0] + batches[1]) / 2
            torch.testing.assert_close(
                state.factors.blocks[0][0], mean, rtol=1e-10, atol=0
            )
    # 1 - 1/3 is above 0.6, so that the third and the fourth weigh 0.4.
    expected = 0.6 * (0.6 * mean + 0.4 * batches[2]) + 0.4 * batches[3]
    torch.testing.assert_close(state.factors.blocks[0][0], expected, rtol=1e-10, atol=0)


def test_dampings_change_at_their_intervals_alone(posed):
    fields = {
        **EXACT,
        "damping": 1.0,
        "damping_adaptation_interval": 2,
        "damping_adaptation_decay": 0.9,
        "damping_upper_threshold": 0.75,
        "damping_lower_threshold": 0.75,
        "preconditioner_damping": 0.5,
        "preconditioner_adaptation_interval": 3,
        "preconditioner_adaptation_decay": 0.8,
    }
    state, course = None, []
    for count in range(6):
        before = state
        _, state, _ = posed.stepped(fields, count=count, state=before)
        course.append(
            (
                state.control.damping.clone(),
                state.control.preconditioner_damping.clone(),
            )
        )
    taus, zetas = (torch.cat(part, dim=1) for part in zip(*course, strict=True))
    assert torch.equal(
        taus[:, [0, 2, 4]], torch.cat([taus[:, :1] * 0 + 1, taus[:, [1, 3]]], 1)
    )
    factors_of = taus[:, [1, 3, 5]] / taus[:, [0, 2, 4]]
    good = torch.isclose(factors_of, torch.tensor(0.9).double())
    bad = torch.isclose(factors_of, torch.tensor(1 / 0.9).double())
    assert (good | bad).all()
    assert torch.equal(zetas[:, :2], torch.full((2, 2), 0.5, dtype=torch.float64))
    assert torch.equal(zetas[:, 3], zetas[:, 2])
    # The lowest q of the three, each with the best rate.
    operator = posed.factors()
    values = []
    for zeta in (0.4, 0.5, 0.625):
        direction = -operator.solve(posed.gradient, zeta)
        damped = posed.curvature()
        damped += taus[:, 1, None, None] * torch.eye(
            damped.shape[1], dtype=torch.float64
        )
        rate = best_rate(damped, posed.gradient, direction)
        image = (damped @ direction.unsqueeze(2)).squeeze(2)
        slope = (posed.gradient * direction).sum(1)
        values.append(rate * slope + rate**2 * (direction * image).sum(1) / 2)
    chosen = torch.tensor([0.4, 0.5, 0.625])[torch.stack(values).argmin(0)].double()
    torch.testing.assert_close(zetas[:, 2], chosen, rtol=1e-6, atol=0)


@pytest.mark.parametrize(("factor", "decay"), [(0.5, 1 / 0.9), (3.0, 0.9)])
def test_the_ratio_of_the_loss_decides_on_the_damping(factor, decay):
    """Steps of a rate that is too long or short are less or more than predicted."""
    posed = Posed(blobs())
    fields = {
        **EXACT,
        "damping": 0.5,
        "damping_adaptation_interval": 1,
        "damping_adaptation_decay": 0.9,
        "damping_lower_threshold": 1e3 if decay > 1 else -1e6,
        "damping_upper_threshold": 1e3 if decay > 1 else -1e6,
    }
    _, state, _ = posed.stepped({**fields, "lr": factor, "step": "lr"})
    expected = torch.full_like(state.control.damping, 0.5 * decay)
    torch.testing.assert_close(state.control.damping, expected, rtol=1e-10, atol=0)


def test_steps_that_raise_the_loss_are_taken_back():
    posed = Posed(blobs())
    fields = {"step": "lr", "damping": 0.5, "momentum": 0.5, "reject": True, **EXACT}
    change, state, hyper = posed.stepped({**fields, "lr": 1e4})
    assert not change.any()
    assert not state.control.velocity.any()
    torch.testing.assert_close(
        state.control.damping, torch.full_like(state.control.damping, 0.5 / 0.95)
    )
    assert (kfac.recorded(state, hyper)["rejected_share"] == 1).all()
    _, state, hyper = posed.stepped({**fields, "lr": 0.1}, count=1, state=state)
    assert (kfac.recorded(state, hyper)["rejected_share"] == 0.5).all()


def test_steps_may_be_bounded_by_the_divergence_of_labels(posed):
    fields = {**EXACT, "damping": 0.01}
    free, _, _ = posed.stepped(fields)
    change, _, _ = posed.stepped({**fields, "kl_clip": 1e-3})
    half = (change * (posed.curvature() @ change.unsqueeze(2)).squeeze(2)).sum(1) / 2
    bound = torch.full_like(half, 1e-3)
    torch.testing.assert_close(half, bound, rtol=1e-8, atol=0)
    cosine = torch.cosine_similarity(free, change)
    torch.testing.assert_close(cosine, torch.ones_like(cosine))


@pytest.mark.parametrize("inverse", ["factored", "exact"])
@pytest.mark.parametrize("number", [torch.nan, torch.inf, 1e300])
@pytest.mark.parametrize("fisher_type", FORMS)
def test_a_diverged_model_leaves_its_siblings_bit_for_bit(fisher_type, number, inverse):
    posed = Posed(blobs(), models=3)
    fields = {
        "fisher_type": fisher_type,
        "inverse": inverse,
        "damping": 0.1,
        "pi": "spectral",
        "reject": True,
    }
    whole, _, _ = posed.stepped(fields)
    posed.weights = posed.weights.clone()
    posed.gradient = posed.gradient.clone()
    posed.weights[1, 0] = posed.gradient[1] = number
    change, _, _ = posed.stepped(fields)
    assert torch.equal(change[[0, 2]], whole[[0, 2]])


def test_singular_factors_without_damping_end_in_a_verdict():
    data = blobs()
    twice = {n: np.c_[data[n], data[n][:, :1]] for n in ("inputs", "test_inputs")}
    flat = as_data({**data.arrays, **twice}, "flat")
    fields = {"damping": 0.0, "damping_adaptation_interval": None}
    members = [
        train_member(flat, model={"kind": "logistic"}, rule={"rule": "kfac", **one})
        for one in (fields, {**fields, "l2": 0.1})
    ]
    singular, damped = train_all(members)
    assert singular.status == "diverged"
    assert damped.status == "ok"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("how", ["factored", "exact", "ekfac"])
@pytest.mark.parametrize("fisher_type", FORMS)
def test_what_is_singular_up_to_rounding_ends_in_a_verdict_too(fisher_type, how, dtype):
    if how == "ekfac" and fisher_type == "recursive":
        pytest.skip("it has no gradients of samples")
    fields = {
        "rule": "kfac",
        "fisher_type": fisher_type,
        "damping": 0.0,
        "damping_adaptation_interval": None,
        "inverse": "factored" if how == "factored" else "exact",
        "structure": "ekfac" if how == "ekfac" else "kron",
    }
    # The softmax does not see what all outputs have in common.
    members = [
        train_member(blobs(), rule={**fields, "step": step}, dtype=dtype, seed=seed)
        for seed in range(4)
        for step in ("lr", "quadratic")
    ]
    statuses = {outcome.status for outcome in train_all(members)}
    assert statuses == {"diverged"}


def test_resumed_training_is_the_same_bit_for_bit():
    def nodes(epochs):
        return [
            train_member(
                blobs(),
                model=NET,
                rule={"rule": "kfac", **fields},
                epochs=epochs,
                batch_size=8,
            )
            for fields in SETTINGS
        ]

    whole, short = train_all(nodes(4)), train_all(nodes(2))
    longer = [
        Member(
            node.params,
            node.inputs,
            earlier=NodeData("fit", "train", {}, done.arrays, "e", done.status),
        )
        for node, done in zip(nodes(4), short, strict=True)
    ]
    for result, other in zip(train_all(longer), whole, strict=True):
        names = "weights", "rule_state", "train_loss", "damping", "rejected_share"
        for name in names:
            np.testing.assert_array_equal(result.arrays[name], other.arrays[name])


def test_curves_tell_the_dampings_of_this_rule_alone():
    rules = [
        {"rule": "kfac", "damping_adaptation_interval": 1},
        {"rule": "sgd", "lr": 0.1},
    ]
    recorded, plain = train_all(
        [train_member(blobs(), model=NET, rule=one, epochs=3) for one in rules]
    )
    assert recorded.arrays["damping"].tolist() == pytest.approx(
        [1, 0.95, 0.95**2, 0.95**3]
    )
    assert recorded.arrays["preconditioner_damping"].shape == (4,)
    assert np.isnan(recorded.arrays["reduction_ratio"][0])
    assert (recorded.arrays["predicted_change"][1:] < 0).all()
    assert "damping" not in plain.arrays


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"preconditioner_adaptation_interval": 5}, "preconditioner_damping null"),
        ({"schedule": {"kind": "cosine"}}, "schedule"),
        ({"damping_lower_threshold": 0.9}, "damping_lower_threshold"),
        ({"min_damping": 2.0, "max_damping": 1.0}, "min_damping"),
        ({"structure": "ekfac"}, "ekfac cannot be combined with inverse factored"),
        ({"structure": "ekfac", "fisher_type": "recursive"}, "fisher_type recursive"),
        ({"damping": -1.0}, "greater than or equal to 0"),
    ],
)
def test_settings_that_do_not_fit_are_refused(fields, word):
    with pytest.raises(ValueError, match=word):
        rule(rule="kfac", **fields)


def test_recursive_factors_are_of_dense_layers_alone():
    with pytest.raises(InputError, match=r"^fisher_type: expected dense layers"):
        Posed(images(side=16), {"kind": "lenet5"}).stepped({"fisher_type": "recursive"})


def test_what_kfac_cannot_see_is_refused_by_name(monkeypatch):
    with pytest.raises(InputError, match="a loss other than"):
        Posed(waves(), loss="huber").stepped({})
    monkeypatch.setattr("curvflow.tasks.rules.shared.kfac_parts.MOST_REST", 5)
    parts_of.cache_clear()
    with pytest.raises(InputError, match=r"'position.*of 12 entries"):
        Posed(tokens(), {**DECODER, "positions": "learned"}).stepped({})
    parts_of.cache_clear()
    batch_norm = {"factory": "tests.tasks.toys:make_batch_norm"}
    with pytest.raises(InputError, match="factory"):
        Posed(blobs(), batch_norm).stepped({})


@pytest.mark.parametrize("structure", ["kron", "ekfac"])
def test_modules_with_tokens_first_step_as_with_samples_first(structure):
    changes = []
    for first in (False, True):
        model = {"factory": "tests.tasks.toys:make_tokens", "kwargs": {"first": first}}
        posed = Posed(blobs(), model)
        kinds = parts_of(posed.problem.text, "expand", separate=False)
        assert [len(kinds.pieces), len(kinds.rest)] == [3, 0]
        fields = {**EXACT, "structure": structure, "damping": 0.1}
        changes.append(posed.stepped(fields)[0])
    torch.testing.assert_close(*changes)


def test_parameters_beside_frozen_ones_are_stepped():
    posed = Posed(blobs(), {"factory": "tests.tasks.toys:make_frozen_first"})
    change, *_ = posed.stepped({"damping": 0.1})
    assert change.isfinite().all()
    assert (change * posed.gradient).sum() < 0


def test_a_model_alone_steps_as_among_others():
    posed = Posed(blobs())
    fields = {"damping": 0.1, "momentum": 0.5, "mc_samples": 2}
    change, state, _ = posed.stepped(fields)
    alone = Posed(blobs())
    alone.weights, alone.gradient = alone.weights[:1], alone.gradient[:1]
    alone.statistics = alone.statistics[:1]
    of_one, state_of_one, _ = alone.stepped(fields)
    assert torch.equal(of_one, change[:1])
    for one, both in zip(leaves(state_of_one), leaves(state), strict=True):
        assert torch.equal(one, both[:1])


def test_curvature_and_losses_see_the_dropout_of_the_gradient():
    posed = Posed(blobs(), {**NET, "dropout": 0.5})
    noise = Noise(range(2), 0, "dropout", posed.weights)
    given = posed.problem, posed.weights, posed.statistics, posed.samples, noise
    expected = gradients(*given, without=2).losses
    networks = Networks(posed.context(), posed.weights)
    torch.testing.assert_close(networks.losses(posed.weights), expected)
    losses, products = networks.along(posed.weights, [posed.gradient])
    torch.testing.assert_close(losses, expected)
    # Without it the matrix is another.
    curvature = Posed(blobs()).curvature()
    image = (curvature @ posed.gradient.unsqueeze(2)).squeeze(2)
    plain = (posed.gradient * image).sum(1)
    assert not torch.allclose(products[:, 0, 0], plain, rtol=1e-3)


@pytest.mark.parametrize("fisher_type", ["mc", "empirical"])
def test_labels_of_tokens_have_roots_of_the_loss_that_is_minimised(fisher_type):
    x = np.random.default_rng(0).integers(0, 4, size=(5, 3))
    data = as_data(dataset(x, x[:, ::-1].copy()), "sequences")
    posed = Posed(data, DECODER, scale=0.7)
    networks = Networks(posed.context(), posed.weights)
    direction = started(2, posed.weights.shape[1])
    labels = Labels(fisher_type, 400)
    parts = parts_of(posed.problem.text, "expand", separate=False)
    (swept,) = networks.swept(posed.weights, labels, parts, is_signed=False)
    layer = next(one for one in parts.pieces if one.weight is not None)
    sides = [side for _, side in layer.piece.sides(swept.pass_)]
    # The gradients of a layer's weight by the roots, along a direction in it.
    V = torch.stack([(s.left.mT @ s.right) for s in sides]).sum(0)
    inside = torch.zeros_like(direction)
    layer.put(layer.taken(direction), inside)
    along = (V * layer.taken(direction)[:, None, None]).sum((3, 4, 5))
    if fisher_type == "empirical":
        mean = along.sum(2).mean(1)
        expected = (posed.gradient * inside).sum(1)
        torch.testing.assert_close(mean, expected, rtol=1e-9, atol=1e-12)
        return
    squares = 400 * along.square().mean(1)
    error = squares.std(1) / 20
    _, products = networks.along(posed.weights, [inside])
    assert ((squares.mean(1) - products[:, 0, 0]).abs() < 5 * error).all()


def test_many_columns_have_the_same_moments_by_their_triangle():
    rows = started(2, 3 * 530).view(2, 3, 530)
    found = gram(rows)
    assert torch.equal(found, found.mT)
    torch.testing.assert_close(found, rows.mT @ rows, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("is_joined", [True, False])
@pytest.mark.parametrize("model", [NET, {"kind": "lenet5"}])
def test_factors_are_the_same_where_no_errors_of_them_are_asked_for(model, is_joined):
    posed = Posed(blobs() if model is NET else images(side=28), model)
    networks = Networks(posed.context(), posed.weights)
    labels = Labels("type-2", 1)
    parts = parts_of(posed.problem.text, "expand", separate=False)
    (swept,) = networks.swept(posed.weights, labels, parts, is_signed=False)
    for one in parts.pieces:
        plain, bare = (
            Moments(one.piece, "expand", 6, has_spread=h, is_joined=is_joined)
            for h in (True, False)
        )
        for moments in (plain, bare):
            moments.add(swept.pass_)
        given = bare.matrices()
        for left, right in zip(plain.matrices(), given, strict=True):
            assert torch.equal(left, right)
        kept = [one.clone() for one in given]
        bare.add(swept.pass_)  # begins anew, and leaves alone what was handed over
        for left, right in zip(kept, bare.matrices(), strict=True):
            assert torch.equal(left, right)
        assert all(map(torch.equal, kept, given))
        with pytest.raises(AssertionError, match="no samples"):
            bare.matrices()


def test_a_penalty_of_nothing_on_weights_that_are_no_numbers_rejects_the_step():
    weights = torch.ones(3, 4)
    weights[1, 2], weights[2, 0] = torch.inf, torch.nan
    nothing = torch.zeros(3, 1)
    change = nothing.double() * squares(weights, nothing)
    assert change[:, 0].isnan().tolist() == [False, True, True]
    torch.testing.assert_close(
        squares(weights[:1], nothing[:1] + 0.1), torch.tensor([[4.0]]).double()
    )


BESIDES = {
    "exact": {"rule": "kfac", "inverse": "exact"},
    "factored": {"rule": "kfac"},
    "tried": {
        "rule": "kfac",
        "preconditioner_damping": 0.2,
        "preconditioner_adaptation_interval": 5,
    },
    "solved": {"rule": "gauss_newton", "preconditioner": "kron", "cg_steps": 2},
}


@pytest.mark.parametrize("steps", [(3, 2), (2, 3), (4, 3), (3, 5), (2, 4)])
@pytest.mark.parametrize("name", BESIDES)
def test_factors_that_are_left_out_are_those_that_no_inverse_is_of(name, steps):
    fields = {
        "fisher_type": "type-2",
        "damping": 0.1,
        "factor_update_steps": steps[0],
        "inv_update_steps": steps[1],
        **BESIDES[name],
    }
    # With the least memory of former ones none is left out, and numbers are the same.
    members = [
        train_member(
            blobs(), rule={**fields, "factor_decay": decay}, batch_size=10, epochs=3
        )
        for decay in (0.0, 1e-300)
    ]
    first, second = (train_all([one])[0].arrays["weights"] for one in members)
    np.testing.assert_allclose(first, second, rtol=1e-9, atol=1e-12)
