"""Muon: steps by orthogonal matrices."""

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from curvflow.errors import InputError
from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.problems import pose
from curvflow.tasks.rules.matrices import orthogonalised
from curvflow.tasks.training.updates import Updates
from tests.tasks.rules.checks import rule, started, step_at
from tests.tasks.toys import blobs
from tests.tasks.training.test_convolutional_training import NORM, images

# For the tests that hold for all rules.
SETTINGS = [
    {"lr": 0.02, "adamw": {"lr": 0.02}},
    {"lr": 0.01, "momentum": 0.8, "nesterov": False, "adamw": {"lr": 0.01}},
    {"lr": 0.1, "adjust_lr": "match_rms_adamw", "adamw_also": ["layer3.*"]},
]

EXACT = {"rtol": 1e-10, "atol": 1e-13}
DEEP = {"kind": "mlp", "hidden": [5, 4], "activation": "tanh"}
MATRICES = [
    {"lr": 0.05},
    {"lr": 0.02, "momentum": 0.5, "nesterov": False, "weight_decay": 0.3},
    {"lr": 0.03, "momentum": 0.0, "eps": 0.5},
]
OTHERS = [{"lr": 0.01}, {"lr": 0.2, "beta1": 0.5, "weight_decay": 0.1}, {}]
SHARED = [{}, {"adjust_lr": "match_rms_adamw", "ns_steps": 3}]


@pytest.fixture
def double(monkeypatch):
    """Let torch's Muon orthogonalise in double precision instead of bfloat16."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)


def slope(weights, step):
    return weights**3 - torch.cos(weights * 2 + step)


def coursed(rules, problem, start, steps=8):
    weights, updates = start, Updates(rules, start, problem)
    course = []
    for count in range(steps):
        now = step_at(count, len(rules), problem=problem)
        weights = updates.step(slope(weights, count), weights, now)
        course.append(weights)
    return course


def of_torch(problem, start, matrices, others, steps=8, by_adamw=()):
    """Step one model tensor by tensor; a convolution's weights as a matrix."""
    layout = problem.network.layout
    tensors = [nn.Parameter(t[0].clone()) for t in layout.unflatten(start[None])]
    flat, rest = [], []
    for name, tensor in zip(layout.names, tensors, strict=True):
        if tensor.ndim > 1 and name not in by_adamw:
            flat.append(nn.Parameter(tensor.detach().flatten(1)))
        else:
            rest.append(tensor)
    rename = {"adjust_lr": "adjust_lr_fn"}
    fields = {"weight_decay": 0.0, **{rename.get(k, k): v for k, v in matrices.items()}}
    betas = others.get("beta1", 0.9), 0.999
    plain = {k: v for k, v in others.items() if k != "beta1"}
    optimisers = [torch.optim.Muon(flat, **fields)]
    optimisers += [torch.optim.AdamW(rest, betas=betas, **plain)] if rest else []
    for count in range(steps):
        for tensor in flat + rest:
            tensor.grad = slope(tensor.detach(), count)
        for optimiser in optimisers:
            optimiser.step()
        left, other = iter(flat), iter(rest)
        yield torch.cat(
            [
                next(left if len(shape) > 1 and name not in by_adamw else other)
                .detach()
                .flatten()
                for name, shape in zip(layout.names, layout.shapes, strict=True)
            ]
        )


@pytest.mark.parametrize("shared", SHARED, ids=["original", "match_rms_adamw"])
@pytest.mark.parametrize(
    ("data", "model"), [(blobs(), DEEP), (images(), NORM)], ids=["mlp", "convolutions"]
)
def test_every_step_is_that_of_torch(double, data, model, shared):
    problem = pose(parse_model(model), "auto", data)
    rules = [
        rule(rule="muon", **fields, **shared, adamw=other)
        for fields, other in zip(MATRICES, OTHERS, strict=True)
    ]
    start = started(len(rules), problem.network.num_parameters)
    course = coursed(rules, problem, start)
    for row, (fields, other) in enumerate(zip(MATRICES, OTHERS, strict=True)):
        expected = of_torch(problem, start[row], {**fields, **shared}, other)
        for weights, wanted in zip(course, expected, strict=True):
            torch.testing.assert_close(weights[row], wanted, **EXACT)


def test_torch_in_16_bits_steps_nearly_the_same_way():
    problem = pose(parse_model(DEEP), "auto", blobs())
    start = started(2, problem.network.num_parameters)
    (course,) = coursed([rule(rule="muon", lr=0.05)] * 2, problem, start, steps=1)
    (expected,) = of_torch(problem, start[0], {"lr": 0.05}, {}, steps=1)
    taken, wanted = course[0] - start[0], expected - start[0]
    assert (taken - wanted).norm() < 0.05 * wanted.norm()


def test_named_matrices_are_stepped_by_adamw(double):
    problem = pose(parse_model(DEEP), "auto", blobs())
    start = started(2, problem.network.num_parameters)
    spec = rule(rule="muon", lr=0.05, adamw={"lr": 0.02}, adamw_also=["*3.w*"])
    course = coursed([spec] * 2, problem, start)
    expected = of_torch(
        problem, start[1], {"lr": 0.05}, {"lr": 0.02}, by_adamw=["layer3.weight"]
    )
    for weights, wanted in zip(course, expected, strict=True):
        torch.testing.assert_close(weights[1], wanted, **EXACT)


@pytest.mark.parametrize("shape", [(7, 3), (3, 7), (4, 4), (1, 6), (6, 1)])
def test_singular_vectors_stay_and_singular_values_come_close_to_1(shape):
    drawn = torch.Generator().manual_seed(1)
    G = torch.randn(5, *shape, generator=drawn, dtype=torch.float64)
    eps = torch.full((5, 1, 1), 1e-7, dtype=torch.float64)
    U, _, Vh = torch.linalg.svd(G, full_matrices=False)
    diagonal = U.mT @ orthogonalised(G, 5, eps) @ Vh.mT
    values = diagonal.diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(diagonal, torch.diag_embed(values), rtol=0, atol=1e-12)
    assert values.min() > 0.5
    assert values.max() < 1.25
    assert torch.equal(orthogonalised(0 * G, 5, eps), 0 * G)


def test_a_schedule_scales_both_rates():
    problem = pose(parse_model(DEEP), "auto", blobs())
    start = started(2, problem.network.num_parameters)
    schedule = {"kind": "step", "at": [1], "factor": 0.5}
    specs = [
        rule(rule="muon", lr=0.04, adamw={"lr": 0.02}, schedule=schedule),
        rule(rule="muon", lr=0.02, adamw={"lr": 0.01}),
    ]
    updates = Updates(specs, start, problem)
    updates.begin_epoch(1, 5)
    first = start[[0, 0]]
    second = updates.step(slope(first, 0), first, step_at(0, 2, problem=problem))
    torch.testing.assert_close(second[0], second[1], **EXACT)


def test_a_model_whose_gradient_is_not_finite_diverges_alone():
    problem = pose(parse_model(DEEP), "auto", blobs())
    start = started(2, problem.network.num_parameters)
    gradient = slope(start, 0)
    gradient[0] = torch.inf
    specs = [rule(rule="muon")] * 2
    new = Updates(specs, start, problem).step(
        gradient, start, step_at(0, 2, problem=problem)
    )
    assert not new[0].isfinite().any()
    assert new[1].isfinite().all()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"adamw_also": ["layer9.*"]}, "names of parameters, such as layer1.weight"),
        ({"adamw_also": ["*"]}, "matrices of weights, got mlp without any left"),
    ],
)
def test_what_leaves_nothing_to_step_is_refused(fields, reason):
    problem = pose(parse_model(DEEP), "auto", blobs())
    start = started(2, problem.network.num_parameters)
    with pytest.raises(InputError, match=reason):
        Updates([rule(rule="muon", **fields)] * 2, start, problem)


def test_the_rule_of_the_rest_has_no_schedule_of_its_own():
    with pytest.raises(ValidationError, match="Move it to muon itself"):
        rule(rule="muon", adamw={"schedule": {"kind": "cosine"}})
