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
    copies = [tensor.clone() for tensor in (gradient, product, weights)]
    now = step_at(epoch * STEPS_PER_EPOCH, models, product, problem=PROBLEM)
    stepped = Updates(rules, weights, PROBLEM).step(gradient, weights, now)
    for tensor, copy in zip((gradient, product, weights), copies, strict=True):
        assert torch.equal(tensor, copy)
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
        return [{**settings_of, "form": form} for settings_of in base for form in forms]
    base = [
        {**settings_of, "decay_factor": c} for settings_of in base for c in (1.0, 2.0)
    ]
    if name == "l2_stopped":
        base = [
            {**settings_of, "tau": tau}
            for settings_of in base
            for tau in (0, TAU, TAU + 1)
        ]
    if name == "l2_stopped_selective":
        cases = [(0, 0.3), (TAU, 0.05), (TAU + 1, 0.2)]
        base = [
            {**settings_of, "tau": tau, "selective_rate": rate}
            for settings_of in base
            for tau, rate in cases
        ]
    if "selective" in name:
        shares = (0.0, 0.1, 0.7)
        base = [
            {**settings_of, **mask, "omega": omega}
            for settings_of in base
            for mask in MASKS
            for omega in shares
        ]
    return base


def rules_of(name):
    return [rule(rule=name, **fields) for fields in settings(name)]


def by_hand(rules, epoch=TAU):
    """Return what one step gives, parameter by parameter."""
    models = len(rules)
    g, h, w = (numbers(models, of) for of in ("gradient", "product", "weights"))
    return torch.stack(
        [
            torch.tensor(
                _stepped(spec, epoch, g[m].numpy(), h[m].numpy(), w[m].numpy())
            )
            for m, spec in enumerate(rules)
        ]
    )


def _stepped(rule_of, epoch, g, h, w):
    new, start = [], 0
    for size in PROBLEM.network.layout.sizes:
        tensor = h[start : start + size]
        new += [
            w[i] - rule_of.lr * g[i] - _term(rule_of, epoch, h[i], w[i], tensor)
            for i in range(start, start + size)
        ]
        start += size
    return new


def _term(rule_of, epoch, h, w, tensor):
    if rule_of.rule == "metric":
        sign = (w > 0) * 1.0 - (w < 0) * 1.0
        size = {"abs_sign": abs(h) * sign, "abs": abs(h), "raw": h}[rule_of.form]
        return rule_of.rate * size
    before_tau = epoch < getattr(rule_of, "tau", 10**9)
    decay = rule_of.decay_factor * w
    if rule_of.rule == "l2" or (rule_of.rule != "selective_l2" and before_tau):
        return rule_of.rate * decay
    if rule_of.rule == "l2_stopped":
        return 0.0
    rate = getattr(rule_of, "selective_rate", rule_of.rate)
    return rate * decay * _is_decayed(rule_of, h, tensor)


def _is_decayed(rule_of, h, tensor):
    signed = max(tensor) if rule_of.maximum == "signed" else max(abs(v) for v in tensor)
    bound = rule_of.omega * signed
    if abs(h) == bound:
        return rule_of.at_equality == "regularised"
    return (abs(h) < bound) == (rule_of.mask == "insignificant")
