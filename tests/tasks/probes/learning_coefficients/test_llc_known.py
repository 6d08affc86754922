"""Coefficients of known posteriors at the localization of draws."""

from functools import cache

import numpy as np
import pytest

from curvflow.errors import InputError
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.nodes import Draws
from curvflow.tasks.numerics.sampling.known_coefficients import (
    crossing_coefficient,
)
from tests.tasks.known import at_truth
from tests.tasks.toys import assert_declared, compute, member

KIND = "probe.llc_known"
SHORT = {"num_draws": 150, "nbeta": 1000.0, "num_steps_bw_draws": 5}
CASES = {
    "crossing": ({"kind": "normal_crossing", "powers": [[1, 2], [2]]}, {}),
    "well": ({"kind": "quadratic_well", "eigenvalues": [10.0, 1.0, 1e-3]}, {}),
    "product": (
        {"kind": "deep_linear", "hidden": [2]},
        {"inputs": 3, "outputs": 2, "rank": 1},
    ),
}


@cache
def drawn(case):
    """Return a case's data and draws about its truth, made once."""
    model, sizes = CASES[case]
    data, weights = at_truth(model, **sizes)
    (outcome,) = compute(
        "probe.llc", [member("probe.llc", SHORT, weights=weights, data=data)]
    )
    taken = {
        name: outcome.arrays[name] for name in Draws.takes if name in outcome.arrays
    }
    return data, Draws("llc", "probe.llc", {}, taken, "d")


@cache
def of_product(seed):
    """Return the coefficient of the product at its draws, once for each seed."""
    return known(*CASES["product"], *drawn("product"), seed=seed)


def known(model, sizes, data, draws, **others):
    params = {"model": model, "rank": sizes.get("rank", 0)} | others
    (outcome,) = compute(KIND, [member(KIND, params, draws=draws, data=data)])
    assert_declared(KIND, outcome)
    return outcome.arrays


@pytest.mark.parametrize("case", CASES)
def test_it_is_what_chains_find(case):
    data, draws = drawn(case)
    is_product = case == "product"
    arrays = of_product(0) if is_product else known(*CASES[case], data, draws)
    found = draws
    for name in ("nbeta", "localization"):
        assert arrays[name] == found[name]
    error = np.hypot(found["llc_sem"], arrays["llc_known_sem"])
    assert abs(found["llc_mean"] - arrays["llc_known"]) < 4 * error
    assert (arrays["llc_known_sem"] > 0) == is_product


def test_it_is_the_sum_over_the_outputs_of_a_crossing():
    model, sizes = CASES["crossing"]
    data, draws = drawn("crossing")
    gamma = float(draws["localization"])
    each = [crossing_coefficient(k, 1000.0, gamma) for k in model["powers"]]
    assert known(model, sizes, data, draws)["llc_known"] == sum(each)


def test_another_seed_draws_anew():
    first, second = map(of_product, (0, 1))
    apart = abs(first["llc_known"] - second["llc_known"])
    assert 0 < apart < 6 * first["llc_known_sem"]


def test_noise_on_a_truth_of_zero_is_refused():
    model, sizes = CASES["well"]
    data, _ = at_truth(model, **sizes, num_samples=20, noise=0.3)
    _, draws = drawn("well")
    with pytest.raises(InputError, match=r"targets 0.*others\. Set noise to 0"):
        known(model, sizes, data, draws)


def test_tanh_units_are_refused_while_planning():
    model = {"kind": "mlp", "hidden": [1], "activation": "tanh", "bias": False}
    with pytest.raises(ValueError, match=r"got mlp\. Take weights"):
        find_kind(KIND).params.model_validate({"model": model})
