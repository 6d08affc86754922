"""Kronecker factors, against matrices written out."""

import pytest
import torch

from curvflow.tasks.numerics.kronecker.factors import Choices, factors
from tests.tasks.numerics.kronecker.cases import (
    SMALL,
    case,
    dense,
    exact,
    module_case,
    recorded,
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
def test_modules_of_torch_have_the_same_blocks(name):
    network, weights, inputs = module_case(name)
    found = factors(recorded(network, weights, inputs), Choices("block"))
    expected = within_blocks(found.operator, dense(network, weights, inputs))
    torch.testing.assert_close(written_out(found.operator), expected, **CLOSE)


@every
def test_corrected_and_best_products_are_closer_than_the_plain_one(name):
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
