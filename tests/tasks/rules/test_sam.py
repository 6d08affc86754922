"""Sharpness-aware minimisation around another rule."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from curvflow.tasks.rules import functions_of
from curvflow.tasks.training.step_context import Hyper
from tests.tasks.rules.checks import (
    PROBLEM,
    gradient,
    rule,
    started,
    step_at,
    trained_on,
)
from tests.tasks.toys import TANH_NET, blobs, train_all, train_member
from tests.tasks.training.test_convolutional_training import BOTH, images

# For the tests that hold for all rules.
SETTINGS = [
    {"inner": {"rule": "sgd", "lr": 0.1, "momentum": 0.9}},
    {"inner": {"rule": "adamw", "lr": 0.02}, "rho": 0.5, "adaptive": True},
    {"inner": {"rule": "metric", "lr": 0.1, "rate": 0.002}, "rho": 0.1},
    {
        "inner": {"rule": "sgd", "lr": 0.1},
        "schedule": {"kind": "step", "at": [2], "factor": 0.5},
    },
]

EXACT = {"rtol": 1e-11, "atol": 1e-13}
SGD = {"rule": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}
ADAM = {"rule": "adam", "lr": 0.02}
OPTIMISERS = {
    "sgd": partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": partial(torch.optim.Adam, lr=0.02),
}


def looped(start, inner, steps, rho=0.05, adaptive=False, eta=0.01):
    """Train one network by torch's optimiser, tensor by tensor."""
    data = blobs()
    x, y = torch.as_tensor(data["inputs"]), torch.as_tensor(data["targets"]).long()
    model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    nn.utils.vector_to_parameters(start, model.parameters())
    tensors = list(model.parameters())
    optimiser = OPTIMISERS[inner](tensors)
    for _ in range(steps):
        nn.functional.cross_entropy(model(x), y).backward()
        kept = [tensor.detach().clone() for tensor in tensors]
        sizes = [w.abs() + eta if adaptive else torch.ones_like(w) for w in kept]
        pulls = [t * w.grad for t, w in zip(sizes, tensors, strict=True)]
        length = sum(float((pull**2).sum()) for pull in pulls) ** 0.5
        with torch.no_grad():
            for w, t, pull in zip(tensors, sizes, pulls, strict=True):
                w += rho * t * pull / length
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            for w, before in zip(tensors, kept, strict=True):
                w.copy_(before)
        optimiser.step()
        optimiser.zero_grad()
        yield nn.utils.parameters_to_vector(tensors).detach()


def test_every_step_is_that_of_a_plain_loop():
    cases = [
        (SGD, {}),
        (ADAM, {"rho": 0.3}),
        (SGD, {"rho": 0.7, "adaptive": True}),
        (SGD, {"rho": 0.5, "adaptive": True, "eta": 0.2}),
        (ADAM, {"rho": 1.0, "adaptive": True}),
    ]
    rules = [rule(rule="sam", inner=inner, **rest) for inner, rest in cases]
    start = started(len(rules), 45)
    course, _ = trained_on(blobs(), TANH_NET, rules, 8, start=start)
    for row, (inner, rest) in enumerate(cases):
        expected = looped(start[row], inner["rule"], 8, **rest)
        for weights, wanted in zip(course, expected, strict=True):
            torch.testing.assert_close(weights[row], wanted, **EXACT)


def ascents(weights, specs, of=None):
    """Return where the second gradients of a step are taken, less the weights."""
    places = []

    def elsewhere(there):
        places.append(there - weights)
        return torch.zeros_like(there)

    context = replace(step_at(0, len(specs))(slice(None)), gradient_at=elsewhere)
    hyper, functions = Hyper(specs, weights), functions_of(specs[0])
    begun = functions.init(weights, hyper, PROBLEM)
    first = gradient(weights, 0) if of is None else of
    functions.step(first, begun, weights, hyper, context)
    (place,) = places
    return place


def test_the_second_gradient_is_taken_at_the_distance_asked_for():
    weights = started(3)
    plain = {"rule": "sam", "inner": SGD}
    specs = [rule(**plain, rho=rho) for rho in (0.1, 2.0)]
    specs.append(rule(**plain, rho=0.4, adaptive=True, eta=0.3))
    e = ascents(weights, specs)
    e[2] /= weights[2].abs() + 0.3
    expected = torch.tensor([0.1, 2.0, 0.4], dtype=torch.float64)
    torch.testing.assert_close(e.norm(dim=1), expected, **EXACT)
    along = (e * gradient(weights, 0)).sum(1)
    assert (along > 0).all()


def test_relative_distances_do_not_see_the_scale_of_weights():
    weights, scales = started(1), torch.tensor([0.01, 0.1, 1.0, 7.0] * 2).double()
    spec = [rule(rule="sam", inner=SGD, rho=0.5, adaptive=True, eta=0.0)]
    of = gradient(weights, 0)
    e = ascents(weights, spec, of)
    scaled = ascents(scales * weights, spec, of / scales)
    torch.testing.assert_close(scaled, scales * e, **EXACT)


def test_without_a_gradient_it_is_taken_in_place():
    weights = started(1)
    spec = [rule(rule="sam", inner=SGD)]
    e = ascents(weights, spec, torch.zeros_like(weights))
    assert torch.equal(e, torch.zeros_like(e))


def fitted(rules, model=BOTH, **settings):
    fixed = {"epochs": 3, "batch_size": 8, **settings}
    return train_all(
        [
            train_member(images(), model=model, rule=spec, seed=number % 2, **fixed)
            for number, spec in enumerate(rules)
        ]
    )


def test_at_no_distance_dropout_and_batch_norm_are_those_of_the_inner_rule():
    inner = {**SGD, "lr": 0.02}
    plain = {"rule": "sam", "inner": inner}
    sam, alone, far = (
        fitted([spec] * 2)
        for spec in ({**plain, "rho": 0.0}, inner, {**plain, "rho": 0.5})
    )
    for first, other, distant in zip(sam, alone, far, strict=True):
        weights = other.arrays["weights"]
        np.testing.assert_allclose(first.arrays["weights"], weights, rtol=1e-12)
        assert not np.allclose(distant.arrays["weights"], weights, rtol=1e-3)


def test_statistics_of_a_batch_norm_move_once_and_at_the_weights():
    inner = {"rule": "sgd", "lr": 1e-200}
    sam = {"rule": "sam", "inner": inner, "rho": 10.0}
    start = fitted([inner] * 2, epochs=1, batch_size=None)
    for first, other, early in zip(
        fitted([sam] * 2), fitted([inner] * 2), start, strict=True
    ):
        weights, fixed = other.arrays["weights"], {"rtol": 1e-12, "atol": 1e-100}
        np.testing.assert_allclose(first.arrays["weights"], weights, **fixed)
        assert not np.allclose(early.arrays["weights"], weights)


def test_a_model_alone_of_its_rule_trains_as_it_does_in_company():
    sam = {"rule": "sam", "inner": {"rule": "sgd", "lr": 0.02}, "rho": 0.2}
    single = fitted([sam, SGD])[0].arrays["weights"]
    paired = fitted([sam, sam])[0].arrays["weights"]
    np.testing.assert_allclose(single, paired, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("spec", "each"),
    [
        (SGD, 1),
        ({"rule": "sam", "inner": SGD}, 2),
        ({"rule": "lookahead", "inner": {"rule": "sam", "inner": SGD}}, 2),
    ],
    ids=["sgd", "sam", "around"],
)
def test_both_gradients_count_as_work(spec, each):
    (done, _) = train_all([train_member(blobs(), rule=spec, epochs=4)] * 2)
    assert done.arrays["num_gradients"] == 4 * each


def test_rules_within_look_at_the_curvature_at_the_weights():
    inner = {"rule": "metric", "lr": 0.1, "rate": 0.01}
    spec = rule(rule="sam", inner=inner, rho=0.0)
    assert spec.product_from() == 0
    start = started(2, 45)
    sam, _ = trained_on(blobs(), TANH_NET, [spec] * 2, 3, start=start)
    alone, _ = trained_on(blobs(), TANH_NET, [rule(**inner)] * 2, 3, start=start)
    torch.testing.assert_close(sam[-1], alone[-1], **EXACT)
