"""Rules whose result is an average, and what their tests share."""

from curvflow.tasks.training.updates import Updates
from tests.tasks.rules.checks import PROBLEM, gradient, rule, step_at

EXACT = {"rtol": 1e-12, "atol": 1e-13}
BASES = {
    "swa": {"lr": 0.05, "momentum": 0.5},
    "gadam": {"lr": 0.02, "weight_decay": 0.1},
    "gadamx": {"lr": 0.02, "p": 0.125, "amsgrad": False, "weight_decay": 0.1},
}


def averaged(name, **fields):
    return rule(rule=name, **BASES[name], **fields)


def results(rules, start, steps):
    """Return the weights and the result after each step."""
    weights, updates = start, Updates(rules, start, PROBLEM)
    course = []
    for count in range(steps):
        now = step_at(count, len(rules))
        weights = updates.step(gradient(weights, count), weights, now)
        course.append((weights, updates.evaluated(weights)))
    return course
