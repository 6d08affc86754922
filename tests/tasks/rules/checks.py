"""Rules against the optimisers of torch, step by step."""

import torch
from pydantic import TypeAdapter

from curvflow.schemas.rules import RuleSpec
from curvflow.tasks.numerics import stream
from curvflow.tasks.training.updates import Updates

STEPS, MODELS, SIZE = 20, 3, 7


def rule(**fields):
    return TypeAdapter(RuleSpec).validate_python(fields)


def gradient(weights, step):
    """The gradient of a quartic that changes with the step."""
    return weights**3 - torch.cos(weights + step)


def assert_steps_equal(rules, optimisers):
    """Train models under rules at once, and one by one under torch's optimisers."""
    start = torch.randn(len(rules), SIZE, generator=stream(0, "t"), dtype=torch.float64)
    weights, updates = start, Updates(rules, start)
    expected = [torch.nn.Parameter(row.clone()) for row in start]
    torch_steps = [make([p]) for make, p in zip(optimisers, expected, strict=True)]
    for step in range(STEPS):
        weights = updates.step(gradient(weights, step), weights)
        for parameter, optimiser in zip(expected, torch_steps, strict=True):
            parameter.grad = gradient(parameter.detach(), step)
            optimiser.step()
        found = torch.stack([p.detach() for p in expected])
        torch.testing.assert_close(weights, found, rtol=1e-12, atol=1e-13)
    assert not torch.allclose(weights, start, rtol=1e-3)
