"""Kronecker factors, against matrices written out."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch.overrides import TorchFunctionMode

from curvflow.tasks.numerics.kronecker import factors as kronecker_factors
from curvflow.tasks.numerics.kronecker import layers
from curvflow.tasks.numerics.kronecker.factors import Choices, factors
from curvflow.tasks.numerics.kronecker.forms import Product
from curvflow.tasks.numerics.kronecker.moments import Moments
from tests.tasks.numerics.kronecker.cases import (
    SMALL,
    case,
    dense,
    exact,
    module_case,
    recorded,
    roots_like,
)

every = pytest.mark.parametrize("name", SMALL)
CLOSE = {"rtol": 1e-9, "atol": 1e-10}


def written_out(operator):
    models, size, _ = operator.shape
    return operator @ torch.eye(size, dtype=torch.float64).expand(models, -1, -1)


def within_blocks(operator, matrices):
    """Return matrices that are zero outside the blocks."""
    kept = torch.zeros_like(matrices)
    for block in operator.blocks:
        rows, columns = block.columns[:, None], block.columns
        groups = block.eigenpairs.values.shape[1]
        same = torch.arange(len(columns)) // (len(columns) // groups)
        mask = (same[:, None] == same).to(matrices)
        kept[:, rows, columns] = matrices[:, rows, columns] * mask
    return kept


@every
def test_exact_blocks_are_those_of_the_matrix_written_out(name):
    found = factors(case(name), Choices("block"))
    columns = torch.cat([block.columns for block in found.operator.blocks])
    assert columns.sort().values.tolist() == list(range(exact(name).shape[1]))
    expected = within_blocks(found.operator, exact(name))
    torch.testing.assert_close(written_out(found.operator), expected, **CLOSE)


@every
def test_a_sweep_that_goes_on_from_its_first_pass_has_the_same_bits(name):
    of = case(name)
    tried, known = (
        factors(replace(of, notes_all=knows), Choices("kron")).operator
        for knows in (False, True)
    )
    assert torch.equal(written_out(known), written_out(tried))


@every
def test_modules_of_torch_have_the_same_blocks(name):
    network, weights, inputs = module_case(name)
    found = factors(recorded(network, weights, inputs), Choices("block"))
    expected = within_blocks(found.operator, dense(network, weights, inputs))
    torch.testing.assert_close(written_out(found.operator), expected, **CLOSE)


@every
def test_corrected_and_best_products_are_closer_than_the_plain_one(name, monkeypatch):
    # Each iteration is closer than the one before; here no more than a few are asked.
    monkeypatch.setattr(kronecker_factors, "MOST_ITERATIONS", 4)
    errors = {}
    for structure in ("kron", "ekfac", "kfoc"):
        found = factors(case(name), Choices(structure)).operator
        expected = within_blocks(found, exact(name))
        errors[structure] = (written_out(found) - expected).flatten(1).norm(dim=1)
        if structure == "ekfac":
            trace = expected.diagonal(dim1=1, dim2=2).sum(1)
            torch.testing.assert_close(found.trace, trace, **CLOSE)
    for better in ("ekfac", "kfoc"):
        assert (errors[better] <= errors["kron"] * (1 + 1e-9) + 1e-12).all()


def products(found):
    return [block for block in found.operator.blocks if isinstance(block, Product)]


def alone(of, sample):
    """Return the record of one of the samples, with its roots."""
    one = slice(sample, sample + 1)

    def roots(part, outputs):
        return roots_like(replace(part, rows=one), outputs)

    inputs, targets = of.inputs[:, one], of.targets[:, one]
    return replace(of, inputs=inputs, targets=targets, roots=roots)


@cache
def products_alone(name):
    """Return the products of each sample alone."""
    of = case(name)
    return [products(factors(alone(of, n), Choices())) for n in range(of.num_samples)]


class Calls(TorchFunctionMode):
    """Counts calls of torch within a block."""

    count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_of_more_passes_no_more_is_kept_for_errors():
    counts = []
    for rows in (2, 1):
        found = factors(replace(case("mlp"), batch_size=rows), Choices())
        with Calls() as calls:
            assert all(
                spread.left.isfinite().all() for spread in found.spreads.values()
            )
        counts.append(calls.count)
    assert counts[0] == counts[1]


@pytest.mark.parametrize("name", ["mlp", "transformer-tied", "vit-mean"])
def test_rows_that_layers_share_are_multiplied_once_with_the_same_bits(
    name, monkeypatch
):
    of, multiply, multiplied = case(name), Moments._add_moment, []

    def counted(self, *given):
        multiplied.append(self.piece.name)
        return multiply(self, *given)

    monkeypatch.setattr(Moments, "_add_moment", counted)
    once, num_once = factors(of, Choices()), len(multiplied)
    multiplied.clear()
    monkeypatch.setattr(kronecker_factors, "SharedRows", lambda _: None)
    anew = factors(of, Choices())
    for one, other in zip(products(once), products(anew), strict=True):
        assert one.left_factor.equal(other.left_factor)
        assert one.right_factor.equal(other.right_factor)
        for errors in zip(once.spreads[one.name], anew.spreads[one.name], strict=True):
            assert torch.equal(*[error.nan_to_num(-1) for error in errors])
    assert (num_once < len(multiplied)) is (name != "mlp")


@every
@pytest.mark.parametrize("positions", [1, 10**9], ids=["apart", "together"])
def test_errors_are_those_of_means_over_samples(name, positions, monkeypatch):
    of, several = case(name), products_alone(name)
    monkeypatch.setattr(layers, "MANY_POSITIONS", positions)
    found, count = factors(of, Choices()), of.num_samples
    for number, block in enumerate(products(found)):
        spread = found.spreads[block.name]
        for side, error in (
            ("left_factor", spread.left),
            ("right_factor", spread.right),
        ):
            each = torch.stack([getattr(one[number], side) for one in several])
            mean = getattr(block, side)
            torch.testing.assert_close(each.mean(0), mean, **CLOSE)
            off = (each - mean).flatten(2).norm(dim=2).square().mean(0)
            expected = (off / (count - 1)).sqrt() / mean.flatten(1).norm(dim=1)
            close = {"rtol": 1e-6, "atol": 1e-7, "equal_nan": True}
            torch.testing.assert_close(error, expected, **close)
        assert spread.labels.isnan().all()
