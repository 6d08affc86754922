"""Factors of networks: against operators, draws, and as an operator themselves."""

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.schemas.kinds import all_kinds
from curvflow.tasks.curvature.stored_factors import block_operator
from curvflow.tasks.numerics.kronecker import factors as kronecker_factors
from curvflow.tasks.numerics.kronecker import moments
from tests.tasks.probes.kronecker.nets import (
    LOSSES,
    NETS,
    OPERATORS,
    as_factors,
    probed,
    trained,
)
from tests.tasks.toys import assert_declared, compute, matrix_of, member

every = pytest.mark.parametrize("name", NETS)


def matrix(outcome):
    operator = block_operator([as_factors(outcome)])
    size = operator.shape[1]
    return operator, (operator @ torch.eye(size, dtype=torch.float64)[None])[0]


def of_network(name, **params):
    data, (weights, _) = trained(name)
    return matrix_of(member("probe.trace", params, weights=weights, data=data))


def in_blocks(operator, whole):
    kept = torch.zeros_like(whole)
    for block in operator.blocks:
        rows, columns = block.columns[:, None], block.columns
        kept[rows, columns] = whole[rows, columns]
    return kept


@every
@pytest.mark.parametrize("fisher_type", OPERATORS)
def test_blocks_are_those_of_the_operator(name, fisher_type):
    outcome = probed(name, structure="block", fisher_type=fisher_type, mc_samples=3)
    assert_declared("probe.factors", outcome)
    operator, found = matrix(outcome)
    whole = of_network(name, operator=OPERATORS[fisher_type], mc_samples=3)
    if fisher_type == "mc":  # of other draws
        return
    torch.testing.assert_close(found, in_blocks(operator, whole), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", LOSSES)
def test_blocks_of_any_loss(name):
    _, _, operator_name, psd = LOSSES[name]
    outcome = probed(name, structure="block", psd=psd)
    operator, found = matrix(outcome)
    whole = in_blocks(operator, of_network(name, operator=operator_name))
    torch.testing.assert_close(found, whole, rtol=1e-9, atol=1e-11)


def test_an_indefinite_loss_is_refused_with_what_to_do():
    with pytest.raises(InputError, match=r"^loss: .* for gaussian, got .*Set psd"):
        probed("gaussian")


@every
@pytest.mark.parametrize("fisher_type", ["mc", "projection"])
def test_means_over_draws_approach_all_roots(name, fisher_type):
    draws = 120
    exact = probed(name)
    drawn = probed(name, fisher_type=fisher_type, mc_samples=draws)
    one, other = (block_operator([as_factors(o)]) for o in (drawn, exact))
    errors = drawn.arrays["label_rel_sem"]
    assert np.isnan(exact.arrays["label_rel_sem"]).all()
    found = 0
    for block, true, error in zip(one.blocks, other.blocks, errors, strict=True):
        if block.left_values is None:
            continue
        sides = [(block.left_factor, true.left_factor)]
        if "embedding" in block.name:  # what comes back is its right side
            sides = [(block.right_factor, true.right_factor)]
        for drawn_factor, true_factor in sides:
            off = (drawn_factor - true_factor).norm() / drawn_factor.norm()
            assert off <= 5 * error
        found += off > error / 5
    assert found  # the errors are of the size of what they are of


@every
def test_structures_hold_the_trace(name):
    exact = float(probed(name, structure="block").arrays["trace"])
    for structure in ("ekfac", "diag"):
        outcome = probed(name, structure=structure)
        assert float(outcome.arrays["trace"]) == pytest.approx(exact, rel=1e-10)


@every
def test_corrections_are_the_same_a_few_samples_at_a_time(name, monkeypatch):
    whole = probed(name, structure="ekfac").arrays["ritz_values"]
    monkeypatch.setattr(moments, "MOST_ROWS", 1)
    apart = probed(name, structure="ekfac").arrays["ritz_values"]
    np.testing.assert_allclose(apart, whole, rtol=1e-10, atol=1e-12)


def test_the_best_product_says_whether_it_has_ended(monkeypatch):
    ended = probed("labels", structure="kfoc").arrays
    assert ended["converged"]
    # Of three labels there are two roots, and one sweep finds the first factors.
    sweeps = (ended["num_backward"] - 2) / 2
    monkeypatch.setattr(kronecker_factors, "MOST_ITERATIONS", 1)
    arrays = probed("labels", structure="kfoc").arrays
    assert not arrays["converged"]
    assert arrays["num_backward"] == 2 + 2 * 2
    assert sweeps > 2


def test_siblings_do_not_move_a_best_product_that_has_ended():
    data, (first, second) = trained("labels")
    given = {"structure": "kfoc"}
    one, other = (
        member("probe.factors", given, weights=w, data=data) for w in (first, second)
    )
    alone, _ = compute("probe.factors", [one, one])
    beside, _ = compute("probe.factors", [one, other])
    np.testing.assert_array_equal(alone.arrays["values"], beside.arrays["values"])


def test_reduced_positions_of_a_mean_over_tokens_without_mixing():
    # Where a sample has one position, both are the same.
    plain, reduced = (
        probed("labels", kfac_approx=how).arrays["values"]
        for how in ("expand", "reduce")
    )
    np.testing.assert_allclose(plain, reduced, rtol=1e-12, atol=1e-15)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(
            *(
                probed("tokens", kfac_approx=how).arrays["values"]
                for how in ("expand", "reduce")
            ),
            rtol=1e-3,
        )


def test_a_bias_of_its_own():
    outcome = probed("labels", separate_weight_and_bias=True)
    assert outcome.arrays["block"].tolist() == [
        "layer1.weight", "layer1.bias", "layer2.weight", "layer2.bias",
    ]  # fmt: skip
    operator, found = matrix(outcome)
    whole = of_network("labels", operator="ggn")
    for block in operator.blocks[1::2]:  # without inputs, the block itself
        rows = block.columns
        torch.testing.assert_close(found[rows][:, rows], whole[rows][:, rows])


def test_forward_only_has_the_identity_in_place_of_what_comes_back():
    outcome = probed("labels", fisher_type="forward-only")
    operator, _ = matrix(outcome)
    true = block_operator([as_factors(probed("labels"))])
    for block, other in zip(operator.blocks, true.blocks, strict=True):
        eye = torch.eye(block.left.shape[-1], dtype=torch.float64)
        torch.testing.assert_close(block.left_factor[0, 0], eye)
        torch.testing.assert_close(block.right_factor, other.right_factor)


def test_layers_are_chosen_by_patterns():
    outcome = probed("labels", layers=["layer2.*"], structure="block")
    operator, found = matrix(outcome)
    assert operator.shape[1] == 15
    assert outcome.arrays["block"].tolist() == ["layer2.weight and layer2.bias"]
    whole = of_network("labels", operator="ggn")
    torch.testing.assert_close(found, whole[-15:, -15:])
    with pytest.raises(InputError, match=r"^layers: expected names of .*, got layer9"):
        probed("labels", layers=["layer9"])


def test_siblings_are_computed_as_one_by_one():
    data, both = trained("labels")
    members = [
        member("probe.factors", {"fisher_type": "mc", "seed": s}, weights=w, data=data)
        for s, w in enumerate(both)
    ]
    together = compute("probe.factors", members)
    for one, outcome in zip(members, together, strict=True):
        alone = compute("probe.factors", [one, one])[0]
        for name, array in alone.arrays.items():
            if array.dtype.kind == "f" and "vectors" not in name:
                np.testing.assert_allclose(
                    array, outcome.arrays[name], rtol=1e-9, atol=1e-12
                )


def test_more_draws_begin_with_the_same():
    few, more = (
        probed("labels", fisher_type="mc", mc_samples=n, structure="block")
        for n in (1, 2)
    )
    second = 2 * matrix(more)[1] - matrix(few)[1]
    # What is left is the matrix of one more draw of each sample: it has no part that
    # is negative.
    assert torch.linalg.eigvalsh(second).min() > -1e-10


READERS = {
    "probe.dense": {},
    "probe.diagonal": {"num_probes": 4},
    "probe.effective_dimension": {"prior_precision": [0.1]},
    "probe.eigenvalues": {"k": 2},
    "probe.gershgorin": {},
    "probe.logdet": {"damping": 0.5},
    "probe.moments": {"num_moments": 6},
    "probe.spectrum": {},
    "probe.squared_norm": {"num_probes": 6},
    "probe.trace": {"num_probes": 6},
}


def test_every_probe_of_operators_takes_factors():
    takes = {
        name
        for name, kind in all_kinds().items()
        if "factors" in kind.inputs and kind.inputs["factors"].unless
    }
    assert takes == set(READERS)


@pytest.mark.parametrize("name", READERS)
def test_what_probes_tell_of_factors(name):
    outcome = probed("labels", fisher_type="mc", mc_samples=2)
    values = np.sort(outcome.arrays["values"])
    one = member(name, READERS[name], factors=as_factors(outcome))
    (found, _) = compute(name, [one, one])
    arrays = found.arrays
    exact = {
        "probe.dense": ("trace", values.sum()),
        "probe.effective_dimension": (
            "effective_dimension",
            (values / (values + 0.1)).sum(),
        ),
        "probe.logdet": ("logdet", np.log(values + 0.5).sum()),
        "probe.spectrum": ("largest", values[-1]),
    }
    if name in exact:
        variable, expected = exact[name]
        assert np.ravel(arrays[variable])[0] == pytest.approx(expected, rel=1e-9)
    elif name == "probe.eigenvalues":
        np.testing.assert_allclose(arrays["eigenvalues"], values[::-1][:2], rtol=1e-9)
    elif name == "probe.moments":
        assert arrays["moments"][0] == pytest.approx(1)
    else:
        _, dense = matrix(outcome)
        near = {
            "probe.trace": ("trace", values.sum()),
            "probe.squared_norm": ("squared_norm", (values**2).sum()),
            "probe.diagonal": ("diagonal", dense.diagonal().numpy()),
            "probe.gershgorin": ("upper", None),
        }
        variable, expected = near[name]
        if expected is not None:
            error = np.max(arrays[f"{variable}_sem"])
            assert np.max(np.abs(arrays[variable] - expected)) <= 6 * error


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("structure", ["kron", "ekfac", "kfoc", "block"])
def test_singular_factors_have_no_determinant_whatever_rounding_makes(structure, dtype):
    data, several = trained("labels")
    for weights in several:
        settings = {"structure": structure, "dtype": dtype}
        one = member("probe.factors", settings, weights=weights, data=data)
        node = as_factors(compute("probe.factors", [one])[0], settings)
        # The softmax does not see what all outputs have in common.
        with pytest.raises(InputError, match="positive definite operator"):
            compute("probe.logdet", [member("probe.logdet", factors=node)])
        damped = member("probe.logdet", {"damping": 0.01}, factors=node)
        found = compute("probe.logdet", [damped])[0].arrays["logdet"]
        values = node["ritz_values"][0] + 0.01
        assert found == pytest.approx(np.log(values).sum())
