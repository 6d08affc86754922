"""Optimisers of PyTorch and of others."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from curvflow.errors import InputError
from curvflow.tasks.registry import Machine, find
from curvflow.tasks.rules import torch_optimizer
from curvflow.tasks.training.step_context import Hyper
from curvflow.tasks.training.updates import Updates
from tests.tasks.partials import Steps
from tests.tasks.rules.checks import PROBLEM, gradient, rule, started, step_at
from tests.tasks.toys import blobs, train_member

# For the tests that hold for all rules.
SETTINGS = [
    {"optimizer": "torch.optim:NAdam", "lr": 0.01},
    {"optimizer": "torch.optim.NAdam", "lr": 0.02},
    {
        "optimizer": "torch.optim:Adafactor",
        "lr": 0.05,
        "schedule": {"kind": "step", "at": [2], "factor": 0.5},
    },
    {"optimizer": "torch.optim:SGD", "lr": 0.1, "kwargs": {"momentum": 0.5}},
]

EXACT = {"rtol": 1e-12, "atol": 1e-13}
LAYOUT = PROBLEM.network.layout
STEPS = 20
STACKED: dict[str, list[dict[str, Any]]] = {
    "SGD": [
        {},
        {"momentum": 0.9, "dampening": 0.3},
        {"momentum": 0.9, "nesterov": True},
    ],
    "Adam": [{}, {"betas": [0.5, 0.9], "amsgrad": True, "weight_decay": 0.1}],
    "AdamW": [{}, {"maximize": True}],
    "NAdam": [{}, {"decoupled_weight_decay": True, "weight_decay": 0.1}],
    "RAdam": [{}, {"betas": [0.9, 0.9]}],
    "Adamax": [{}],
    "ASGD": [{}, {"t0": 3.0, "lambd": 0.1}],
    "Adadelta": [{}, {"rho": 0.5}],
    "Rprop": [{}, {"etas": [0.4, 1.3]}],
    "RMSprop": [{}, {"centered": True, "momentum": 0.5}],
    "Adagrad": [{}, {"initial_accumulator_value": 0.5, "lr_decay": 0.1}],
}
# It divides by means over rows and columns.
APART: dict[str, list[dict[str, Any]]] = {"Adafactor": [{}]}
CASES = [
    pytest.param(name, kwargs, id=f"{name}-{number}")
    for name, several in {**STACKED, **APART}.items()
    for number, kwargs in enumerate(several)
]


def optimizer(path, lr=0.02, **fields):
    return rule(rule="torch_optimizer", optimizer=path, lr=lr, **fields)


def line(optimiser):
    """Return what is told of a rule."""
    return torch_optimizer.notice(Hyper([optimiser] * 2, started(2)), PROBLEM)


def stepped(rules, start, first=0, last=STEPS, updates=None, epochs=None):
    updates, course = updates or Updates(rules, start, PROBLEM), []
    weights = start
    for count in range(first, last):
        if epochs:
            updates.begin_epoch(count // 4, epochs)
        now = step_at(count, len(rules))
        weights = updates.step(gradient(weights, count), weights, now)
        course.append(weights)
    return course, updates


def by_torch(make, start, rates):
    """Step a network's own tensors, one model, as everybody does."""
    tensors = [torch.nn.Parameter(t[0].clone()) for t in LAYOUT.unflatten(start[None])]
    plain = make(tensors, lr=rates[0])
    for count, rate in enumerate(rates):
        plain.param_groups[0]["lr"] = rate
        flat = torch.cat([tensor.detach().flatten() for tensor in tensors])
        pieces = LAYOUT.unflatten(gradient(flat, count)[None])
        for tensor, piece in zip(tensors, pieces, strict=True):
            tensor.grad = piece[0].clone()
        plain.step()
        yield torch.cat([tensor.detach().flatten() for tensor in tensors])


def assert_as_torch(rules, make, rates, **how):
    start = started(len(rules))
    course, _ = stepped(rules, start, **how)
    for row, several in enumerate(rates):
        wanted = by_torch(make, start[row], several)
        for actual, expected in zip(course, wanted, strict=True):
            torch.testing.assert_close(actual[row], expected, **EXACT)
    assert not torch.allclose(course[-1], start, rtol=1e-3)


@pytest.mark.parametrize(("name", "kwargs"), CASES)
def test_every_step_is_that_of_torch(name, kwargs):
    def make(tensors, lr):
        return getattr(torch.optim, name)(tensors, lr=lr, **kwargs)

    rates = [0.02, 0.02, 0.05]
    rules = [optimizer(f"torch.optim:{name}", lr, kwargs=kwargs) for lr in rates]
    assert_as_torch(rules, make, [[lr] * STEPS for lr in rates])
    assert (line(rules[0]) == "") == (name in STACKED)


def test_schedules_that_differ_are_each_heeded():
    fallen = {"schedule": {"kind": "step", "at": [2], "factor": 0.1}}
    rules = [
        optimizer("torch.optim.Adam"),
        optimizer("torch.optim.Adam", **fallen),
        optimizer("torch.optim.Adam"),
    ]
    kept, falls = [0.02] * STEPS, [0.02] * 8 + [0.002] * (STEPS - 8)
    assert_as_torch(rules, torch.optim.Adam, [kept, falls, kept], epochs=5)


@pytest.mark.parametrize(("name", "kwargs"), CASES)
def test_training_goes_on_from_what_is_kept(name, kwargs):
    rules = [optimizer(f"torch.optim:{name}", kwargs=kwargs)] * 2
    start = started(2)
    whole, _ = stepped(rules, start)
    half, updates = stepped(rules, start, last=10)
    anew = Updates(rules, torch.zeros_like(start), PROBLEM)
    weights = anew.take(updates.vectors(half[-1]), half[-1])
    course, _ = stepped(rules, weights, first=10, updates=anew)
    torch.testing.assert_close(course[-1], whole[-1], rtol=0, atol=0)


@pytest.mark.parametrize("name", ["Adam", "Adafactor"])
def test_a_step_changes_nothing_that_it_is_given(name):
    hyper = Hyper([optimizer(f"torch.optim:{name}")] * 2, started(2))
    weights = started(2)
    state = torch_optimizer.init(weights, hyper, PROBLEM)
    for count in (0, 1, 2):
        now, slope = step_at(count, 2)(slice(0, 2)), gradient(weights, count)
        given = [weights, slope, *(leaf for leaf in state if leaf is not None)]
        before = [tensor.clone() for tensor in given]
        weights, state = torch_optimizer.step(slope, state, weights, hyper, now)
        for tensor, copy in zip(given, before, strict=True):
            assert torch.equal(tensor, copy)


OWN = """
import torch
from torch.optim import Optimizer


class Base(Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr, "taken": 0, "total": 0.0})

    def parts(self):
        group = self.param_groups[0]
        return group, [(p, self.state[p]) for p in group["params"]]


class Counting(Base):
    '''Keeps numbers, and none of them as a tensor.'''

    def step(self, closure=None):
        group, parts = self.parts()
        group["taken"] += 1
        for p, state in parts:
            state["count"] = state.get("count", 0) + 1
            state["rate"] = state.get("rate", 1.0) * 0.9
            state["is_odd"] = state["count"] % 2 == 1
            rate = group["lr"] * state["rate"] / group["taken"] ** 0.5
            p.data.sub_(p.grad, alpha=rate * (2 if state["is_odd"] else 1))


class Clipped(Base):
    '''Divides by the norm of all gradients.'''

    def step(self, closure=None):
        group, parts = self.parts()
        norm = sum(p.grad.square().sum() for p, _ in parts).sqrt().item()
        group["total"] += norm
        for p, _ in parts:
            p.data.sub_(p.grad, alpha=group["lr"] / group["total"])


class Secretive(Base):
    '''Keeps its velocity where nobody finds it.'''

    hidden = None

    def step(self, closure=None):
        group, parts = self.parts()
        before = self.hidden or [torch.zeros_like(p) for p, _ in parts]
        self.hidden = [p.grad + v for (p, _), v in zip(parts, before)]
        for (p, _), v in zip(parts, self.hidden):
            p.data.sub_(v, alpha=group["lr"])


class Random(Base):
    def step(self, closure=None):
        group, parts = self.parts()
        for p, _ in parts:
            p.data.sub_(p.grad + torch.randn_like(p), alpha=group["lr"])


class Falling(Base):
    def step(self, closure=None):
        group, parts = self.parts()
        group["lr"] *= 0.5
        for p, _ in parts:
            p.data.sub_(p.grad, alpha=group["lr"])


class Searching(Base):
    def step(self, closure):
        closure()


class Listing(Base):
    def step(self, closure=None):
        for _, state in self.parts()[1]:
            state["past"] = []


class Slow(Base):
    '''Keeps one thing more from the third step on.'''

    def step(self, closure=None):
        group, parts = self.parts()
        for p, state in parts:
            state["count"] = state.get("count", 0) + 1
            if state["count"] > 2:
                state["late"] = 1
            p.data.sub_(p.grad, alpha=group["lr"])


def no_class(params, lr):
    return Base(params, lr)
"""


@pytest.fixture
def module_of_ones_own(tmp_path, monkeypatch):
    name = f"own_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(OWN, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


@pytest.mark.parametrize("name", ["Counting", "Clipped"])
def test_an_optimiser_of_ones_own_steps_as_by_itself(module_of_ones_own, name):
    kind = getattr(__import__(module_of_ones_own), name)
    rules = [optimizer(f"{module_of_ones_own}:{name}")] * 3
    assert_as_torch(rules, kind, [[0.02] * STEPS] * 3)
    assert (name in line(rules[0])) == (name == "Clipped")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "Secretive",
            "expected .*Secretive to step by its state and the gradient alone",
        ),
        ("Falling", "got steps that depend on more, .* or a rate of its own"),
        ("Random", "got steps that depend on more, such as random numbers"),
        (
            "Searching",
            "on a dense gradient alone, got TypeError: .*'closure'.*sam for two",
        ),
        ("Listing", "to keep tensors and numbers in its state, got list 'past'"),
        ("Slow", "to keep the same quantities after each step"),
        ("no_class", "expected a torch.optim.Optimizer of module .*, got 'no_class'"),
        ("Countin", "Did you mean 'Counting'"),
    ],
)
def test_what_cannot_be_stepped_by_state_and_gradient_is_refused(
    module_of_ones_own, name, reason
):
    with pytest.raises(InputError, match=reason) as caught:
        Updates([optimizer(f"{module_of_ones_own}:{name}")] * 2, started(2), PROBLEM)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "fields", "reason"),
    [
        ("torch.optim:Adam", {"kwargs": {"beta": 1}}, "unexpected keyword argument"),
        ("torch.optim:Muon", {}, "Muon only supports 2D parameters"),
        ("torch.optimal:Adam", {}, "expected a module that can be imported"),
    ],
)
def test_what_cannot_be_made_is_refused(path, fields, reason):
    with pytest.raises(InputError, match=reason):
        Updates([optimizer(path, **fields)] * 2, started(2), PROBLEM)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"path": "torch.optim:LBFGS"}, "got LBFGS, which evaluates the loss"),
        ({"path": "torch.optim.SparseAdam"}, "got SparseAdam, which takes sparse"),
        ({"path": "torch.optim.lbfgs.LBFGS"}, "got LBFGS, which evaluates the loss"),
        ({"path": "Adam"}, "string_pattern_mismatch"),
        (
            {"path": "torch.optim:Adam", "kwargs": {"lr": 1}},
            "lr cannot be combined with the rule",
        ),
    ],
)
def test_what_is_known_not_to_fit_is_refused_while_planning(fields, reason):
    with pytest.raises(ValidationError, match=reason):
        optimizer(**fields)


def test_both_spellings_of_a_class_are_one():
    assert optimizer("torch.optim.Adam") == optimizer("torch.optim:Adam")


@pytest.mark.parametrize("name", ["Adafactor", "NAdam"])
def test_a_watched_run_reports_optimisers_for_each_model(name):
    chosen = {"rule": "torch_optimizer", "optimizer": f"torch.optim:{name}", "lr": 0.1}
    members = [train_member(blobs(), rule=chosen, seed=seed) for seed in range(3)]
    watched = Steps()
    find("train").compute(members, Machine(partial=watched))
    expected = f"torch.optim:{name} steps stacked models otherwise than each alone"
    assert len(watched.told) == (name == "Adafactor")
    assert all(line.startswith(expected) for line in watched.told)
