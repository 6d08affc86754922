"""Variance of the gradients of networks."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.schemas.kinds import find_kind
from curvflow.tasks.networks.problems import read
from curvflow.tasks.probes.variances.gradient_variance import member_bytes
from tests.tasks.probes.checks import DATA, probes
from tests.tasks.toys import assert_declared, compute

KIND = "probe.gradient_variance"


def sample_gradients(probed):
    weights, data = probed.one("weights"), probed.one("data")
    problem = read(str(weights["network"]))
    kind = torch.int64 if data["targets"].ndim == 1 else torch.float64
    inputs = torch.as_tensor(data["inputs"])[None]
    targets = torch.as_tensor(data["targets"], dtype=kind)[None]

    def each(w_D):
        return problem.losses(w_D[None], inputs, targets)[0]

    at = torch.as_tensor(weights["weights"])
    return torch.autograd.functional.jacobian(each, at).numpy()


@pytest.mark.parametrize("case", DATA)
def test_the_variance_is_that_of_the_samples_gradients(case):
    members = probes(KIND, case, 2, batch_size=2)
    for member, outcome in zip(members, compute(KIND, members), strict=True):
        assert_declared(KIND, outcome)
        g_ND, arrays = sample_gradients(member), outcome.arrays
        each, count = g_ND.var(axis=0, ddof=1), len(g_ND)
        total = each.sum()
        assert arrays["gradient_variance"] == pytest.approx(total, rel=1e-10)
        assert arrays["gradient_variance_sem"] == 0
        assert arrays["layer_gradient_variance"].sum() == pytest.approx(total)
        norm = (g_ND.mean(axis=0) ** 2).sum()
        assert arrays["gradient_squared_norm"] == pytest.approx(norm, rel=1e-9)
        assert arrays["noise_scale"] == pytest.approx(total / norm, rel=1e-8)
        of_population = g_ND.var(axis=0).sum()
        law = of_population * (count - 2) / (2 * (count - 1))
        assert arrays["batch_gradient_variance"] == pytest.approx(law, rel=1e-10)
        assert arrays["num_samples_used"] == count


def test_some_samples_estimate_all_of_them_with_an_error_reported():
    members = probes(KIND, "tanh-ce", 1, num_samples=15)
    (whole,) = compute(KIND, probes(KIND, "tanh-ce", 1))
    truth = whole.arrays["gradient_variance"]
    seeded = [
        replace(m, params=m.params.model_copy(update={"seed": seed}))
        for m in members
        for seed in range(60)
    ]
    results = [outcome.arrays for outcome in compute(KIND, seeded)]
    errors = np.array([result["gradient_variance"] - truth for result in results])
    sems = np.array([result["gradient_variance_sem"] for result in results])
    assert (sems > 0).all()
    assert abs(errors.mean()) < 4 * errors.std() / 60**0.5
    assert np.sqrt((sems**2).mean()) == pytest.approx(errors.std(), rel=0.35)
    ends = np.array(
        [[r[f"gradient_variance_{end}"] for end in ("low", "high")] for r in results]
    )
    assert 0.85 < ((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean() < 1
    assert (whole.arrays["gradient_variance_low"] == truth).all()


@pytest.mark.parametrize("count", [2, 3, 6])
def test_intervals_of_very_few_samples_hold_the_variance_of_all(count):
    (whole,) = compute(KIND, probes(KIND, "tanh-ce", 1))
    truth = whole.arrays["gradient_variance"]
    (member,) = probes(KIND, "tanh-ce", 1, num_samples=count)
    seeded = [
        replace(member, params=member.params.model_copy(update={"seed": seed}))
        for seed in range(200)
    ]
    held = [
        outcome.arrays["gradient_variance_low"]
        <= truth
        <= outcome.arrays["gradient_variance_high"]
        for outcome in compute(KIND, seeded)
    ]
    assert np.mean(held) > 0.92


@pytest.mark.parametrize(("count", "is_enough"), [(9, False), (25, True), (None, True)])
def test_few_samples_are_not_called_enough(count, is_enough):
    found = compute(KIND, probes(KIND, "tanh-ce", 2, num_samples=count))
    assert {bool(one.arrays["enough_samples"]) for one in found} == {is_enough}


@pytest.mark.parametrize(("size", "is_enough"), [(4, False), (1, True)])
def test_batches_of_all_samples_in_training_are_judged_by_their_number(size, is_enough):
    """Of 30 samples: 7 batches, which could be others, and 30."""
    given = {"mode": "train", "batch_size": size}
    for one in compute(KIND, probes(KIND, "tanh-ce", 2, **given)):
        assert bool(one.arrays["enough_samples"]) == is_enough
        assert one.arrays["gradient_variance_sem"] > 0


def test_all_that_is_made_of_the_variance_is_judged_with_it():
    judged = {
        variable.name
        for variable in find_kind(KIND).outputs
        if variable.judged_by == "enough_samples"
    }
    assert judged == {
        "gradient_variance",
        "batch_gradient_variance",
        "layer_gradient_variance",
        "noise_scale",
    }


def test_results_do_not_depend_on_the_width_of_the_tile():
    reference = compute(KIND, probes(KIND, "relu-ce", 5))
    for result, expected in zip(
        compute(KIND, probes(KIND, "relu-ce", 2)), reference, strict=False
    ):
        for name in ("gradient_variance", "layer_gradient_variance", "noise_scale"):
            np.testing.assert_allclose(
                result.arrays[name], expected.arrays[name], rtol=1e-9
            )


@pytest.mark.parametrize("field", ["batch_size", "num_samples"])
def test_more_samples_than_there_are_are_refused(field):
    with pytest.raises(InputError, match=f"{field}: expected at most the 30 samples"):
        compute(KIND, probes(KIND, "tanh-ce", 2, **{"batch_size": 1, field: 31}))


def test_memory_is_estimated_above_the_gradients_alone():
    (probed,) = probes(KIND, "tanh-ce", 1)
    assert 30 * 45 * 8 < member_bytes(probed) < 10**7
