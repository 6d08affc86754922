"""Rules with a regulariser: one step on given numbers, and the same by a plain loop."""

from itertools import product

import torch

from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.problems import pose
from curvflow.tasks.numerics import stream
from curvflow.tasks.training.updates import Updates
from tests.tasks.rules.checks import STEPS_PER_EPOCH, rule, step_at
from tests.tasks.toys import RELU_NET, blobs

PROBLEM = pose(parse_model(RELU_NET), "auto", blobs())
SIZE = PROBLEM.network.num_parameters
TAU = 3
MASKS = [
    {"maximum": maximum, "at_equality": equality, "mask": mask}
    for maximum, equality, mask in product(
        ("signed", "absolute"),
        ("regularised", "protected"),
        ("insignificant", "inverted"),
    )
]


def numbers(models, of):
    drawn = torch.randn(models, SIZE, generator=stream(0, of), dtype=torch.float64)
    if of == "product":
        # One tensor without any curvature, one all below zero, as of dead units.
        first, second = PROBLEM.network.layout.sizes[:2]
        drawn[:, :first] = 0
        drawn[:, first : first + second] = -drawn[:, first : first + second].abs()
    return drawn


def one_step(rules, epoch=TAU, gradient=None, product=None, weights=None):
    """Step all rules at once from given or drawn numbers."""
    models = len(rules)
    weights = numbers(models, "weights") if weights is None else weights
    gradient = numbers(models, "gradient") if gradient is None else gradient
    product = numbers(models, "product") if product is None else product
    copies = [one.clone() for one in (gradient, product, weights)]
    now = step_at(epoch * STEPS_PER_EPOCH, models, product, problem=PROBLEM)
    stepped = Updates(rules, weights, PROBLEM).step(gradient, weights, now)
    for one, copy in zip((gradient, product, weights), copies, strict=True):
        assert torch.equal(one, copy)
    return stepped


def settings(name):
    """Return settings that differ in every number and in every choice."""
    base = [
        {"lr": 0.1, "rate": 0.02},
        {"lr": 0.03, "rate": 0.4},
        {"lr": 0.2, "rate": 0.0},
    ]
    if name == "metric":
        forms = ("abs_sign", "abs", "raw")
        return [{**one, "form": form} for one in base for form in forms]
    base = [{**one, "decay_factor": c} for one in base for c in (1.0, 2.0)]
    if name == "l2_stopped":
        base = [{**one, "tau": tau} for one in base for tau in (0, TAU, TAU + 1)]
    if name == "l2_stopped_selective":
        own = [(0, 0.3), (TAU, 0.05), (TAU + 1, 0.2)]
        base = [
            {**one, "tau": tau, "selective_rate": rate}
            for one in base
            for tau, rate in own
        ]
    if "selective" in name:
        shares = (0.0, 0.1, 0.7)
        base = [
            {**one, **mask, "omega": omega}
            for one in base
            for mask in MASKS
            for omega in shares
        ]
    return base


def rules_of(name):
    return [rule(rule=name, **one) for one in settings(name)]


def by_hand(rules, epoch=TAU):
    """Return what one step gives, parameter by parameter."""
    models = len(rules)
    g, h, w = (numbers(models, of) for of in ("gradient", "product", "weights"))
    return torch.stack(
        [
            torch.tensor(_stepped(one, epoch, g[m].numpy(), h[m].numpy(), w[m].numpy()))
            for m, one in enumerate(rules)
        ]
    )


def _stepped(one, epoch, g, h, w):
    new, start = [], 0
    for size in PROBLEM.network.layout.sizes:
        tensor = h[start : start + size]
        new += [
            w[i] - one.lr * g[i] - _term(one, epoch, h[i], w[i], tensor)
            for i in range(start, start + size)
        ]
        start += size
    return new


def _term(one, epoch, h, w, tensor):
    if one.rule == "metric":
        sign = (w > 0) * 1.0 - (w < 0) * 1.0
        size = {"abs_sign": abs(h) * sign, "abs": abs(h), "raw": h}[one.form]
        return one.rate * size
    before_tau = epoch < getattr(one, "tau", 10**9)
    decay = one.decay_factor * w
    if one.rule == "l2" or (one.rule != "selective_l2" and before_tau):
        return one.rate * decay
    if one.rule == "l2_stopped":
        return 0.0
    rate = getattr(one, "selective_rate", one.rate)
    return rate * decay * _is_decayed(one, h, tensor)


def _is_decayed(one, h, tensor):
    signed = max(tensor) if one.maximum == "signed" else max(abs(v) for v in tensor)
    bound = one.omega * signed
    if abs(h) == bound:
        return one.at_equality == "regularised"
    return (abs(h) < bound) == (one.mask == "insignificant")
