"""Directions beside that of Gauss-Newton, against dense solves."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.tasks.curvature.stored_factors import block_operator
from curvflow.tasks.numerics.estimators.intervals import positive_interval
from curvflow.tasks.probes.kronecker.alignment import _mean
from tests.tasks.probes.kronecker.nets import as_factors, probed, trained
from tests.tasks.toys import (
    as_data,
    assert_declared,
    compute,
    matrix_of,
    member,
    train_all,
    train_member,
    weights_of,
)

DAMPING = (0.02, 0.3)
L2 = 0.05
KINDS = ["kron", "block"]


@cache
def factors(structure):
    return as_factors(probed("labels", structure=structure))


@cache
def aligned(**params):
    data, (weights, _) = trained("labels")
    given = {"damping": DAMPING, "l2": L2, "tol": 1e-10, **params}
    stages = [as_stage(factors(structure), structure) for structure in KINDS]
    return outcome_of(given, weights, data, stages)


def outcome_of(params, weights, data, stages=()):
    one = member("probe.alignment", params, weights=weights, data=data)
    one = replace(one, inputs={**one.inputs, "factors": stages})
    return compute("probe.alignment", [one, one])[0]


def as_stage(node, name):
    return type(node)(name, node.kind, node.coords, node.arrays, name)


@cache
def dense():
    """Gradient with l2, and both matrices."""
    data, (weights, _) = trained("labels")

    def matrix(operator):
        given = {"operator": operator}
        return matrix_of(member("probe.trace", given, weights=weights, data=data))

    return gradient_of(weights, data), matrix("ggn"), matrix("hessian")


def gradient_of(weights, data):
    from curvflow.tasks.networks.problems import load_samples, read

    problem = read(str(weights["network"]))
    w = torch.as_tensor(weights["weights"]).double()[None].requires_grad_()
    samples = load_samples(problem, [data], "", "cpu", torch.float64)
    losses = problem.losses(w, samples.inputs, samples.targets)
    (slope,) = torch.autograd.grad(losses.mean(), w)
    return (slope + L2 * w)[0].detach()


def by_blocks(whole):
    kept = torch.zeros_like(whole)
    for block in block_operator([factors("block")]).blocks:
        kept[block.columns[:, None], block.columns] = whole[
            block.columns[:, None], block.columns
        ]
    return kept


def magnitude(matrix):
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.abs()) @ vectors.mT


def dense_directions(damping):
    g, ggn, hessian = dense()
    eye = torch.eye(len(g), dtype=g.dtype)
    kron = block_operator([factors("kron")]) @ eye[None]
    matrices = {
        "kron": kron[0] + L2 * eye,
        "block": by_blocks(ggn) + L2 * eye,
        "blocks": by_blocks(ggn) + L2 * eye,
        "newton": hessian + L2 * eye,
        "absolute": magnitude(hessian + L2 * eye),
        "gauss_newton": ggn + L2 * eye,
    }
    return {
        name: -torch.linalg.solve(matrix + damping * eye, g)
        for name, matrix in matrices.items()
    }


def test_all_numbers_are_those_of_dense_solves():
    outcome = aligned()
    assert_declared("probe.alignment", outcome)
    arrays, (g, ggn, _) = outcome.arrays, dense()
    assert arrays["converged"].all()
    assert arrays["residual"].max() <= 1.1e-10
    layers = {"layer1": slice(0, -15), "layer2": slice(-15, None)}
    assert arrays["layer"].tolist() == list(layers)
    for at, damping in enumerate(DAMPING):
        expected = dense_directions(damping)
        assert arrays["direction"].tolist() == list(expected)
        damped = ggn + (L2 + damping) * torch.eye(len(g), dtype=g.dtype)
        full = expected["gauss_newton"]
        most = -float(full @ g) / 2
        for row, d in enumerate(expected.values()):
            slope, curved = float(d @ g), float(d @ damped @ d)
            decrease = slope**2 / (2 * curved)
            numbers = {
                "cosine": float(torch.cosine_similarity(d, full, dim=0)),
                "step": -slope / curved,
                "decrease": decrease,
                "share": decrease / most,
            }
            for name, number in numbers.items():
                assert arrays[name][row, at] == pytest.approx(number, rel=1e-8)
            for layer, part in enumerate(layers.values()):
                cosine = torch.cosine_similarity(d[part], full[part], dim=0)
                found = arrays["layer_cosine"][layer, row, at]
                assert found == pytest.approx(float(cosine), rel=1e-8)
    # T19: the whole matrix itself takes a step of 1, and nothing is above its decrease.
    np.testing.assert_allclose(arrays["step"][-1], 1, rtol=1e-9)
    assert (arrays["share"] <= 1 + 1e-12).all()
    assert (arrays["share"] >= 0).all()


def test_the_step_is_the_lowest_point_along_a_direction():
    arrays, (g, ggn, _) = aligned().arrays, dense()
    d = dense_directions(DAMPING[0])["kron"]
    damped = ggn + (L2 + DAMPING[0]) * torch.eye(len(g), dtype=g.dtype)

    def model(step):
        return float(step * (g @ d) + step**2 * (d @ damped @ d) / 2)

    best = arrays["step"][0, 0]
    assert model(best) == pytest.approx(-arrays["decrease"][0, 0], rel=1e-9)
    assert model(best) < min(model(0.99 * best), model(1.01 * best))


@pytest.mark.parametrize("pi", ["trace", "spectral", 0.7])
def test_factored_inverses(pi):
    arrays = aligned(inverse="both", pi=pi, references=()).arrays
    assert arrays["direction"].tolist() == [
        "kron", "kron factored", "block", "block factored", "gauss_newton",
    ]  # fmt: skip
    g, ggn, _ = dense()
    operator = block_operator([factors("kron")])
    d = -operator.solve(g[None], L2 + DAMPING[1], pi=pi)[0]
    curved = float(d @ ggn @ d + (L2 + DAMPING[1]) * d @ d)
    assert arrays["step"][1, 1] == pytest.approx(-float(d @ g) / curved, rel=1e-9)
    assert arrays["step"][0, 1] != pytest.approx(arrays["step"][1, 1], rel=1e-3)
    # A block that is no product has one inverse.
    np.testing.assert_array_equal(arrays["share"][2], arrays["share"][3])


def linear_net(layers, width=3, seed=0):
    """A hardly trained product of square matrices, and data that determine it."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(12, width))
    targets = inputs @ rng.normal(size=(width, width))
    data = as_data(dataset(inputs, targets), "linear")
    rule = {"rule": "sgd", "lr": 1e-3}
    model = {"kind": "deep_linear", "hidden": [width] * (layers - 1)}
    trained = train_all([train_member(data, model=model, rule=rule, epochs=1)])
    return data, weights_of(trained[0])


@pytest.mark.parametrize("layers", [2, 3])
def test_blocks_of_deep_linear_nets_lose_nothing(layers):
    data, weights = linear_net(layers)
    given = {"damping": (0.0,), "tol": 1e-10, "references": ("blocks",)}
    arrays = outcome_of(given, weights, data).arrays
    assert arrays["converged"].all()
    assert arrays["share"][0, 0] == pytest.approx(1, abs=1e-8)
    assert arrays["step"][0, 0] == pytest.approx(1 / layers, rel=1e-8)
    assert arrays["cosine"][0, 0] < 0.999


def test_batches_are_measured_each_by_itself():
    batches = aligned(num_batches=3, seed=2, references=("blocks",))
    assert_declared("probe.alignment", batches)
    arrays = batches.arrays
    share = arrays["batch_share"]
    np.testing.assert_allclose(arrays["share"], share.mean(-1))
    np.testing.assert_allclose(
        arrays["share_sem"], share.std(-1, ddof=1) / 3**0.5, atol=1e-15
    )
    half = 4.302652729911275 * arrays["share_sem"]
    low, high = arrays["share"] - half, arrays["share"] + half
    assert (arrays["share_low"] <= low.clip(0, 1) + 1e-9).all()
    assert (arrays["share_high"] >= high.clip(0, 1) - 1e-9).all()
    # Shares are skewed away from 1, as positive numbers are from 0.
    room, sem = (torch.as_tensor(x) for x in (1 - arrays["share"], arrays["share_sem"]))
    _, most = positive_interval(room, sem, 2)
    assert (arrays["share_low"] <= (1 - most).clip(0, 1).numpy() + 1e-9).all()
    # Batches of one are the data itself, of which there is no error.
    whole = aligned().arrays
    assert np.isnan(whole["share_sem"]).all()
    np.testing.assert_array_equal(whole["share"], whole["batch_share"][..., 0])


def test_members_do_not_depend_on_their_siblings():
    data, both = trained("labels")
    given = {"num_batches": 2, "damping": (0.5,)}
    members = [
        member("probe.alignment", {**given, "seed": s}, weights=w, data=data)
        for s, w in enumerate(both)
    ]
    together = compute("probe.alignment", members)
    for one, outcome in zip(members, together, strict=True):
        alone = compute("probe.alignment", [one, one])[0]
        for name, array in alone.arrays.items():
            if array.dtype.kind == "f":
                np.testing.assert_allclose(
                    array, outcome.arrays[name], rtol=1e-7, atol=1e-7
                )


def test_too_few_iterations_and_singular_factors_end_in_a_verdict():
    few = aligned(max_iterations=2).arrays
    assert not few["converged"].any()  # all are compared with gauss_newton
    singular = aligned(damping=(0.0,), l2=0.0, references=()).arrays
    assert np.isnan(singular["share"][0]).all()
    assert not singular["converged"][0].any()


def test_single_precision_reaches_less():
    found = aligned(dtype="float32", tol=1e-4).arrays
    assert found["converged"].all()
    np.testing.assert_allclose(found["share"], aligned().arrays["share"], atol=1e-3)


def test_what_cannot_be_is_refused():
    with pytest.raises(InputError, match=r"^num_batches: expected .* got 500 of 1\."):
        aligned(num_batches=500)
    data, (weights, _) = trained("labels")
    part = as_factors(probed("labels", layers=["layer2.*"]))
    with pytest.raises(InputError, match=r"^factors: expected those of all .* of 15\."):
        outcome_of({}, weights, data, [part])


def test_intervals_hold_the_mean_over_batches():
    """Of the share of exact blocks of random batches, whose truth is a long mean."""
    data, (weights, _) = trained("labels")
    given = {"damping": (0.1,), "references": ("blocks",), "batch_size": 4}
    members = [
        member(
            "probe.alignment",
            {**given, "num_batches": 5, "seed": s},
            weights=weights,
            data=data,
        )
        for s in range(60)
    ]
    outcomes = compute("probe.alignment", members)
    each = np.array([outcome.arrays["share"][0, 0] for outcome in outcomes])
    truth = each.mean()
    holds = [
        o.arrays["share_low"][0, 0] <= truth <= o.arrays["share_high"][0, 0]
        for o in outcomes
    ]
    assert np.mean(holds) >= 0.85
    # Nor are they wider than means of batches spread.
    errors = [outcome.arrays["share_sem"][0, 0] for outcome in outcomes]
    assert 0.7 <= np.mean(errors) / each.std(ddof=1) <= 1.5


def test_cosines_that_are_one_up_to_rounding_have_an_interval_of_rounding():
    values = torch.tensor([1.0, 1 - 4e-16, 1 - 1e-16], dtype=torch.float64)
    found = _mean("cosine", values[:, None], (-1.0, 1.0))
    assert found["cosine_low"][0] > 1 - 1e-14
