"""Rules against the optimisers of torch, and by themselves, step by step."""

import torch
from pydantic import TypeAdapter

from curvflow.schemas.models import parse_model
from curvflow.schemas.rules import RuleSpec
from curvflow.tasks.networks.problems import load_samples, pose
from curvflow.tasks.numerics import stream
from curvflow.tasks.training.gradients import Noise, gradients
from curvflow.tasks.training.step_context import Step
from curvflow.tasks.training.updates import Updates
from tests.tasks.toys import blobs

STEPS, STEPS_PER_EPOCH = 20, 4
# Two outputs of three inputs and their biases: eight parameters.
PROBLEM = pose(parse_model({"kind": "linear"}), "auto", blobs(num_classes=2))
SIZE = PROBLEM.network.num_parameters


def rule(**fields):
    return TypeAdapter(RuleSpec).validate_python(fields)


def gradient(weights, step):
    """The gradient of a quartic that changes with the step."""
    return weights**3 - torch.cos(weights + step)


def started(models, size=SIZE):
    generator = stream(0, "t")
    return torch.randn(models, size, generator=generator, dtype=torch.float64)


def step_at(count, models, product=None, batch=None, problem=PROBLEM):
    """Return what tells the models of a group that this is step `count`, from 0."""

    def now(chosen):
        like = torch.zeros(1, dtype=torch.float64)
        noise = Noise(range(models), count, "rule", like).of(chosen)
        dropout = Noise(range(models), count, "dropout", like).of(chosen)
        return Step(
            epoch=count // STEPS_PER_EPOCH,
            count=count,
            begins_epoch=count % STEPS_PER_EPOCH == 0,
            ends_epoch=count % STEPS_PER_EPOCH == STEPS_PER_EPOCH - 1,
            problem=problem,
            batch=batch,
            product=None if product is None else product[chosen],
            draw=noise.uniform(),
            dropout=lambda some: dropout.of(some).uniform(),
        )

    return now


def trained(rules, start, steps=STEPS):
    """Step on the quartic, and return the weights after each step and the rules."""
    weights, updates = start, Updates(rules, start, PROBLEM)
    course = []
    for count in range(steps):
        now = step_at(count, len(rules))
        weights = updates.step(gradient(weights, count), weights, now)
        course.append(weights)
    return course, updates


def assert_steps_equal(rules, optimisers):
    """Train models under rules at once, and one by one under torch's optimisers."""
    start = started(len(rules))
    expected = [torch.nn.Parameter(row.clone()) for row in start]
    torch_steps = [make([p]) for make, p in zip(optimisers, expected, strict=True)]
    course, _ = trained(rules, start)
    for step, weights in enumerate(course):
        for parameter, optimiser in zip(expected, torch_steps, strict=True):
            parameter.grad = gradient(parameter.detach(), step)
            optimiser.step()
        found = torch.stack([p.detach() for p in expected])
        torch.testing.assert_close(weights, found, rtol=1e-12, atol=1e-13)
    assert not torch.allclose(weights, start, rtol=1e-3)


def trained_on(data, model, rules, epochs, loss="auto", start=None):
    """Train on all samples at once, from given or drawn weights, in float64.

    Returns:
        The weights after each step, and the problem.
    """
    problem = pose(parse_model(model), loss, data)
    samples = load_samples([data], "", "cpu", torch.float64)
    weights = started(len(rules), problem.network.num_parameters)
    weights = weights if start is None else start
    updates = Updates(rules, weights, problem)
    course = []
    for count in range(epochs):
        noise = Noise(range(len(rules)), count, "dropout", weights)
        found = gradients(problem, weights, weights[:, :0], samples, noise, without=0)
        batch = samples.models(slice(None))
        now = step_at(count, len(rules), found.product, batch, problem)
        weights = updates.step(found.gradient, weights, now)
        course.append(weights)
    return course, problem
