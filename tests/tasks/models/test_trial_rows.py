"""Modules that take no inputs that are made up, and are tried on rows of the data."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from curvflow.errors import InputError
from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.problems import first_rows, forget, pose, read
from tests.tasks.toys import (
    as_data,
    compute,
    matrix_of,
    member,
    train_all,
    train_member,
    weights_of,
)

TOKENS, END = 5, 3


class Packed(nn.Module):
    """A recurrent layer of series of several lengths, none of them zero."""

    def __init__(self):
        super().__init__()
        self.steps, self.last = nn.LSTM(2, 2, batch_first=True), nn.Linear(2, 3)

    def forward(self, series, lengths):
        packed = pack_padded_sequence(
            series, lengths, batch_first=True, enforce_sorted=False
        )
        return self.last(self.steps(packed)[1][0][-1])


class Ended(nn.Module):
    """What stands at the end of a sentence, of which each must have one."""

    def __init__(self):
        super().__init__()
        self.tokens, self.last = nn.Embedding(5, 2), nn.Linear(2, 3)

    def forward(self, ids):
        seen = torch.tanh(self.tokens(ids)).cumsum(1)
        return self.last(seen[ids == END].view(len(ids), -1))


def series():
    draw = np.random.default_rng(0)
    several = {
        "series": draw.normal(size=(20, TOKENS, 2)),
        "lengths": draw.integers(1, TOKENS + 1, 20),
    }
    return several, draw.integers(0, 3, 20)


def sentences():
    draw = np.random.default_rng(0)
    ids = draw.choice([0, 1, 2, 4], (20, TOKENS))
    ids[np.arange(20), draw.integers(0, TOKENS, 20)] = END
    return ids, draw.integers(0, 3, 20)


def ends():
    """An end at each place, of which a module takes one."""
    return np.full((20, TOKENS), END), np.arange(20) % 3


def data_of(name):
    params = {"factory": f"{__name__}:{name}"}
    (made,) = compute("data.factory", [member("data.factory", params)])
    return as_data(made.arrays, name)


CASES = {"Packed": "series", "Ended": "sentences"}


def module(name):
    return parse_model({"factory": f"{__name__}:{name}"})


@pytest.mark.parametrize("name", CASES)
def test_a_network_is_trained_and_has_the_dense_hessian(name):
    data, model = data_of(CASES[name]), {"factory": f"{__name__}:{name}"}
    fits = train_all([train_member(data, model=model, seed=s) for s in (0, 1)])
    forget()  # as where probes are computed by another process
    probe = member("probe.trace", {}, weights=weights_of(fits[1]), data=data)
    found, problem = matrix_of(probe), pose(module(name), "auto", data)
    x, y = (torch.as_tensor(data[n]) for n in ("inputs", "targets"))
    twin = torch.autograd.functional.hessian(
        lambda w: problem.losses(w[None], x[None], y.long()[None]).mean(),
        torch.as_tensor(fits[1].arrays["weights"][-1]),
    )
    torch.testing.assert_close(found, twin, rtol=1e-7, atol=1e-9)


def test_weights_alone_are_read_without_rows():
    data = data_of("series")
    (fit,) = train_all([train_member(data, model={"factory": f"{__name__}:Packed"})])
    forget()
    (norms,) = compute(
        "probe.norms", [member("probe.norms", {}, weights=weights_of(fit))]
    )
    assert np.isfinite(norms.arrays["norm_l2"])


@pytest.mark.parametrize("name", CASES)
def test_a_problem_is_the_same_however_it_was_tried(name):
    data = data_of(CASES[name])
    posed = pose(module(name), "auto", data)
    forget()
    again = read(posed.text, lambda: first_rows(data))
    assert again.text == posed.text
    # Whoever has the text alone finds it from now on.
    assert read(posed.text) is again


def test_what_fails_on_the_data_is_told_of_them():
    with pytest.raises(InputError, match=r"test_trial_rows.py:\d+: expected a module"):
        pose(module("Ended"), "auto", data_of("ends"))
