"""Logistic regression with a reference class."""

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.problems import pose, read
from curvflow.tasks.numerics import dense_hessian
from tests.tasks.models.examples import build
from tests.tasks.toys import blobs, train_all, train_member, waves

LOGISTIC = {"kind": "logistic"}


def test_it_has_one_class_less_than_softmax_regression():
    assert build(LOGISTIC, (3,), 4).num_parameters == 3 * (3 + 1)
    assert build({**LOGISTIC, "bias": False}, (3,), 4).num_parameters == 3 * 3


def test_its_likelihood_is_regular_where_that_of_softmax_regression_is_not():
    data = blobs()
    x, y = torch.as_tensor(data["inputs"]), torch.as_tensor(data["targets"]).long()
    rank = {}
    for kind in ("logistic", "linear"):
        problem = pose(parse_model({"kind": kind}), "auto", data)
        H_DD = dense_hessian(
            problem.losses, torch.zeros(problem.network.num_parameters).double(), x, y
        )
        rank[kind] = (int(torch.linalg.matrix_rank(H_DD)), len(H_DD))
    assert rank == {"logistic": (8, 8), "linear": (8, 12)}


def test_training_from_zero_finds_the_one_maximum_of_the_likelihood():
    data = blobs(40)
    members = [
        train_member(
            data,
            model={**LOGISTIC, "init": init},
            rule={"rule": "sgd", "lr": 0.5, "momentum": 0.9},
            epochs=1500,
            record_every=1500,
        )
        for init in (None, {"normal": 1.0})
    ]
    actual = [outcome.arrays["weights"][-1] for outcome in train_all(members)]
    np.testing.assert_allclose(actual[0], actual[1], rtol=1e-6, atol=1e-8)


def test_zeros_give_every_class_the_same_chance():
    outcome = train_all([train_member(blobs(), model={**LOGISTIC, "init": None})] * 2)[
        0
    ]
    problem = read(str(outcome.arrays["network"]))
    zeros = torch.zeros(1, problem.network.num_parameters)
    assert (problem.network.outputs(zeros, torch.ones(1, 2, 3)) == 0).all()


def test_regression_is_refused():
    with pytest.raises(InputError) as caught:
        pose(parse_model(LOGISTIC), "auto", waves())
    assert str(caught.value) == (
        "model: expected targets that are labels for logistic, got values. Take data "
        "with labels, or model linear."
    )


def test_a_single_class_is_refused():
    with pytest.raises(InputError, match="expected two classes or more for logistic"):
        build(LOGISTIC, (3,), 1)
