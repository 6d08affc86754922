"""Schedules of the learning rate, against those of PyTorch and through training."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from torch.optim import lr_scheduler as torchs

from curvflow.schemas.kinds.train import KIND
from curvflow.schemas.nodes import NodeData
from curvflow.schemas.rules import Position
from curvflow.schemas.rules._base import Schedule
from tests.tasks.rules.checks import rule
from tests.tasks.toys import TANH_NET, blobs, train_all, train_member

EPOCHS, STEPS = 10, 4
EXACT = {"rtol": 1e-12, "atol": 1e-15}


def schedule(**fields):
    return TypeAdapter(Schedule).validate_python(fields)


def multiples(spec, epochs=EPOCHS, steps=STEPS):
    """Return the multiple at every step; by epoch only where none changes within."""
    each = steps if spec.by_step else 1
    return [
        spec.scale(Position(epoch, epochs, step, each))
        for epoch in range(epochs)
        for step in range(each)
    ]


def of_torch(count, *schedulers, milestones=()):
    """Return the rates of PyTorch's schedulers one after another, from a rate of 1."""
    weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimiser = torch.optim.SGD([weight], lr=1.0)
    made = [scheduler(optimiser) for scheduler in schedulers]
    whole = made[0] if len(made) == 1 else None
    whole = whole or torchs.SequentialLR(optimiser, made, list(milestones))
    rates = []
    for _ in range(count):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        whole.step()
    return rates


def cosine(length, final=0.0):
    return partial(torchs.CosineAnnealingLR, T_max=length, eta_min=final)


def straight(length, final):
    return partial(
        torchs.LinearLR, start_factor=1.0, end_factor=final, total_iters=length
    )


def warm(length):
    return partial(torchs.LinearLR, start_factor=1 / (length + 1), total_iters=length)


def one_cycle(length, first=0.04, final=4e-6, **fields):
    return partial(
        torchs.OneCycleLR,
        max_lr=1.0,
        total_steps=length,
        div_factor=1 / first,
        final_div_factor=first / final,
        cycle_momentum=False,
        **fields,
    )


def cyclic(low, up, down=None, mode="triangular"):
    return partial(
        torchs.CyclicLR,
        base_lr=low,
        max_lr=1.0,
        step_size_up=up,
        step_size_down=down,
        mode=mode,
        cycle_momentum=False,
    )


STEPWISE = EPOCHS * STEPS
CASES = {
    "step": (
        {"kind": "step", "at": [3, 7]},
        [partial(torchs.MultiStepLR, milestones=[3, 7])],
    ),
    "cosine": ({"kind": "cosine", "final": 0.1}, [cosine(10, 0.1)]),
    "cosine by step": ({"kind": "cosine", "per": "step"}, [cosine(STEPWISE)]),
    "linear": (
        {"kind": "linear", "start": 0.0, "end": 1.0, "final": 0.2},
        [straight(10, 0.2)],
    ),
    "linear by step": (
        {"kind": "linear", "start": 0.0, "end": 0.5, "final": 0.1, "per": "step"},
        [straight(20, 0.1)],
    ),
    "one cycle": ({"kind": "one_cycle"}, [one_cycle(STEPWISE)]),
    "one cycle by epoch": (
        {"kind": "one_cycle", "per": "epoch", "peak": 0.4, "shape": "linear"},
        [one_cycle(10, pct_start=0.4, anneal_strategy="linear")],
    ),
    "three phases": (
        {"kind": "one_cycle", "three_phase": True, "first": 0.1, "final": 0.01},
        [one_cycle(STEPWISE, first=0.1, final=0.01, three_phase=True)],
    ),
    "cyclic": (
        {"kind": "cyclic", "low": 0.2, "up": 1.5, "down": 0.75},
        [cyclic(0.2, 6, 3)],
    ),
    "cyclic by epoch, halved": (
        {"kind": "cyclic", "up": 2, "halved": True, "per": "epoch"},
        [cyclic(0.1, 2, mode="triangular2")],
    ),
    "warm-up alone": (
        {"kind": "constant", "warmup_epochs": 4},
        [warm(4), partial(torchs.ConstantLR, factor=1.0)],
    ),
    "warm-up by step": (
        {"kind": "constant", "warmup_epochs": 2, "per": "step"},
        [warm(8), partial(torchs.ConstantLR, factor=1.0)],
    ),
    "warm-up, cosine": (
        {"kind": "cosine", "final": 0.05, "warmup_epochs": 3},
        [warm(3), cosine(7, 0.05)],
    ),
    "warm-up, cosine by step": (
        {"kind": "cosine", "per": "step", "warmup_steps": 5},
        [warm(5), cosine(STEPWISE - 5)],
    ),
    "warm-up, linear by step": (
        {
            "kind": "linear",
            "start": 0,
            "end": 1,
            "final": 0.5,
            "per": "step",
            "warmup_steps": 8,
        },
        [warm(8), straight(STEPWISE - 8, 0.5)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_rate_is_that_of_torch(name):
    fields, expected = CASES[name]
    actual = multiples(schedule(**fields))
    first = expected[0].keywords.get("total_iters")
    wanted = of_torch(len(actual), *expected, milestones=[first])
    np.testing.assert_allclose(actual, wanted, **EXACT)
    assert len(set(wanted)) > 2


@pytest.mark.parametrize("name", [n for n in CASES if n.startswith("one")])
def test_a_cycle_of_random_form_is_that_of_torch(name):
    draws = np.random.default_rng(0)
    for _ in range(30):
        length, peak = int(draws.integers(2, 40)), float(draws.uniform(0.05, 0.45))
        first, final = float(draws.uniform(0.01, 1)), float(draws.uniform(1e-6, 0.9))
        shape = str(draws.choice(["cosine", "linear"]))
        phases = bool(draws.integers(2))
        spec = schedule(
            kind="one_cycle",
            per="epoch",
            peak=peak,
            first=first,
            final=final,
            shape=shape,
            three_phase=phases,
        )
        wanted = of_torch(
            length,
            one_cycle(
                length,
                first,
                final,
                pct_start=peak,
                three_phase=phases,
                anneal_strategy="cos" if shape == "cosine" else "linear",
            ),
        )
        np.testing.assert_allclose(multiples(spec, epochs=length), wanted, rtol=1e-9)


def test_steps_of_a_warm_up_count_though_the_rest_goes_by_epoch():
    spec = schedule(kind="cosine", warmup_steps=6)
    assert spec.by_step
    actual = np.array(multiples(spec)).reshape(EPOCHS, STEPS)
    rest = (1 + np.cos(np.pi * (np.arange(2, EPOCHS) - 1.5) / (EPOCHS - 1.5))) / 2
    np.testing.assert_allclose(actual[0], np.arange(1, 5) / 7, **EXACT)
    np.testing.assert_allclose(actual[1], [5 / 7, 6 / 7, 1, 1], **EXACT)
    np.testing.assert_allclose(actual[2:], np.tile(rest[:, None], STEPS), **EXACT)


def test_a_warm_up_longer_than_training_is_all_there_is():
    spec = schedule(kind="cosine", warmup_epochs=20)
    np.testing.assert_allclose(multiples(spec), np.arange(1, 11) / 21, **EXACT)


def test_after_its_end_a_schedule_keeps_its_last_value():
    for fields in ({"kind": "cosine", "final": 0.3}, {"kind": "one_cycle"}):
        spec = schedule(**fields, epochs=6)
        last = multiples(spec)[-3 * STEPS :] if spec.by_step else multiples(spec)[-3:]
        np.testing.assert_allclose(last, fields.get("final", 4e-6), rtol=1e-9)
    many = schedule(kind="cyclic", up=0.5, per="epoch", halved=True)
    assert many.scale(Position(5000, 9000)) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("fields", "is_extendable"),
    [
        ({"kind": "constant", "warmup_steps": 3}, True),
        ({"kind": "cyclic", "up": 2}, True),
        ({"kind": "one_cycle"}, False),
        ({"kind": "one_cycle", "epochs": 7}, True),
        ({"kind": "cosine", "warmup_epochs": 1}, False),
    ],
)
def test_only_what_does_not_know_the_length_goes_on(fields, is_extendable):
    spec = rule(rule="sgd", lr=0.1, schedule=fields)
    assert spec.is_extendable is is_extendable


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"kind": "cosine", "warmup_epochs": 1, "warmup_steps": 3}, "Remove one"),
        ({"kind": "cosine", "epochs": 3, "warmup_epochs": 3}, "below the 3 epochs"),
        ({"kind": "one_cycle", "warmup_epochs": 1}, "which rises itself"),
        ({"kind": "one_cycle", "three_phase": True, "peak": 0.5}, "peak below 0.5"),
    ],
)
def test_settings_that_clash_are_refused(fields, reason):
    with pytest.raises(ValidationError, match=reason):
        schedule(**fields)


BY_STEP = [
    {"kind": "constant", "warmup_steps": 5},
    {"kind": "cyclic", "up": 0.75},
    {"kind": "one_cycle", "epochs": 6},
    {"kind": "step", "at": [2], "warmup_epochs": 1, "per": "step"},
]


def members(epochs, inner=False, **settings):
    rules = [{"rule": "adam", "lr": 0.02, "schedule": spec} for spec in BY_STEP]
    if inner:
        within = {"rule": "adam", "lr": 0.02}
        rules = [
            {
                "rule": "lookahead",
                "inner": within,
                "k": 1,
                "alpha": 1.0,
                "schedule": spec,
            }
            for spec in BY_STEP
        ]
    fixed = {"model": TANH_NET, "batch_size": 8, "epochs": epochs, **settings}
    return [train_member(blobs(), rule=spec, **fixed) for spec in rules]


@pytest.fixture(scope="module")
def trained():
    return train_all(members(5, batch_size=None))


def test_training_steps_at_the_rates_of_torch(trained):
    data = blobs()
    x, y = torch.as_tensor(data["inputs"]), torch.as_tensor(data["targets"]).long()
    weights = train_all(members(1, batch_size=None, checkpoints={"every": 1}))
    start = torch.tensor(weights[0].arrays["weights"][0])
    for spec, outcome in zip(BY_STEP, trained, strict=True):
        model = torch.nn.Sequential(
            torch.nn.Linear(3, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3)
        ).double()
        torch.nn.utils.vector_to_parameters(start.clone(), model.parameters())
        optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
        multiple = [schedule(**spec).scale(Position(t, 5)) for t in range(6)]
        scale = torchs.LambdaLR(optimiser, multiple.__getitem__)
        for _ in range(5):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimiser.step()
            scale.step()
        reached = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
        np.testing.assert_allclose(
            outcome.arrays["weights"][-1], reached, rtol=1e-9, atol=1e-12
        )


def test_the_rate_recorded_is_that_of_the_last_step_of_an_epoch():
    steps = 4  # 30 samples in batches of 8
    for spec, outcome in zip(BY_STEP, train_all(members(5)), strict=True):
        ends = [
            Position(max(0, n - 1), 5, steps - 1 if n else 0, steps) for n in range(6)
        ]
        expected = [0.02 * schedule(**spec).scale(end) for end in ends]
        np.testing.assert_allclose(outcome.arrays["lr"], expected, rtol=1e-12)


def test_the_rate_of_a_rule_within_changes_by_step_too():
    alone, within = train_all(members(3)), train_all(members(3, inner=True))
    for first, other in zip(alone, within, strict=True):
        np.testing.assert_allclose(
            first.arrays["weights"], other.arrays["weights"], rtol=1e-10
        )


def test_longer_training_goes_on_in_the_middle_of_a_schedule():
    assert KIND.continues is not None
    whole, short = train_all(members(5)), train_all(members(2))
    longer = [
        replace(m, earlier=NodeData("fit", "train", {}, s.arrays, "d", s.status))
        for m, s in zip(members(5), short, strict=True)
    ]
    for first, other in zip(train_all(longer), whole, strict=True):
        for name in ("weights", "train_loss", "lr", "rule_state"):
            np.testing.assert_allclose(
                first.arrays[name], other.arrays[name], rtol=1e-10
            )


def test_rates_within_an_epoch_differ_from_those_of_the_epoch():
    stepped = train_all(members(3))[1].arrays["weights"]
    spec = {**BY_STEP[1], "per": "epoch"}
    settings = {"model": TANH_NET, "batch_size": 8, "epochs": 3}
    one = train_member(
        blobs(), rule={"rule": "adam", "lr": 0.02, "schedule": spec}, **settings
    )
    assert not np.allclose(train_all([one] * 2)[0].arrays["weights"], stepped)
