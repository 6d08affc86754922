"""Blocks by two factors and by eigenpairs, against matrices written out."""

from dataclasses import replace

import pytest
import torch

from curvflow.tasks.numerics.kronecker.blocks import BlockOperator
from curvflow.tasks.numerics.kronecker.forms import (
    FEW_COLUMNS,
    Product,
    decomposed,
)

MODELS, GROUPS, ROWS, COLUMNS = 2, 2, 3, 4
SIZE = GROUPS * ROWS * COLUMNS
PLACES = torch.randperm(SIZE + 2, generator=torch.Generator().manual_seed(0))[:SIZE]
SPLITS = [None, "trace", "frobenius", "spectral", 0.7]
DAMPING = torch.tensor([0.1, 0.3], dtype=torch.float64)


def factors(seed, size):
    generator = torch.Generator().manual_seed(seed)
    shape = MODELS, GROUPS, 2 * size, size
    rows = torch.randn(shape, generator=generator, dtype=torch.float64)
    return rows.mT @ rows / size


def product():
    return Product("w", PLACES, factors(1, ROWS), factors(2, COLUMNS))


def operator(block):
    return BlockOperator([block], SIZE + 2)


def written_out(found):
    eye = torch.eye(SIZE + 2, dtype=torch.float64)
    return found @ eye.expand(MODELS, -1, -1)


def kron(left, right):
    """Return the block of each model among all parameters."""
    whole = torch.zeros(MODELS, SIZE + 2, SIZE + 2, dtype=torch.float64)
    for model in range(MODELS):
        parts = [torch.kron(left[model, g], right[model, g]) for g in range(GROUPS)]
        whole[model][PLACES[:, None], PLACES] = torch.block_diag(*parts)
    return whole


@pytest.mark.parametrize("places", [PLACES[:12], torch.arange(3, 15)])
def test_products_with_few_columns_are_those_of_many(places):
    both = factors(1, ROWS)[:1, :1], factors(2, COLUMNS)[:1, :1]
    for block in (Product("w", places, *both), Product("w", places, *both).eigenpairs):
        K = operator(block)
        columns = torch.randn(1, SIZE + 2, FEW_COLUMNS + 3, dtype=torch.float64)
        together = K @ columns
        for number, apart in enumerate(columns.unbind(2)):
            torch.testing.assert_close(K @ apart, together[..., number])
        kept = torch.ones(SIZE + 2, dtype=torch.bool)
        kept[places] = False
        assert not together[:, kept].any()
        expected = torch.kron(both[0][0, 0], both[1][0, 0]) @ columns[0][places]
        torch.testing.assert_close(together[0][places], expected)


def forms():
    return [product(), product().eigenpairs]


@pytest.mark.parametrize("block", forms(), ids=["factors", "eigenpairs"])
def test_products_trace_and_diagonal_are_those_of_the_matrix(block):
    expected = kron(block.left_factor, block.right_factor)
    K = operator(block)
    torch.testing.assert_close(written_out(K), expected)
    diagonal = expected.diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(K.diagonal, diagonal)
    torch.testing.assert_close(K.trace, diagonal.sum(1))
    vector = torch.ones(MODELS, SIZE + 2, dtype=torch.float64)
    torch.testing.assert_close(K @ vector, expected.sum(2))


@pytest.mark.parametrize("pi", SPLITS)
def test_inverses_of_factors_are_those_of_eigenpairs(pi):
    one, other = (operator(block).inverse(DAMPING, pi=pi) for block in forms())
    torch.testing.assert_close(written_out(one), written_out(other))
    if pi is None:
        block = product()
        eye = torch.eye(SIZE, dtype=torch.float64)
        damped = kron(block.left_factor, block.right_factor)[:, PLACES[:, None], PLACES]
        expected = torch.linalg.inv(damped + DAMPING[:, None, None] * eye)
        found = written_out(one)[:, PLACES[:, None], PLACES]
        torch.testing.assert_close(found, expected)


def test_inverses_are_kept_until_another_damping_is_asked_for():
    K = operator(product())
    first = K.inverse(DAMPING, pi="trace")
    assert K.inverse(DAMPING, pi="trace") is first
    assert K.inverse(DAMPING, pi=None) is not first
    assert K.inverse(2 * DAMPING, pi="trace") is not first


@pytest.mark.parametrize("lost", [0.0, torch.nan])
def test_a_model_without_an_inverse_leaves_its_sibling_as_it_is(lost):
    block = product()
    left = block.left_factor.clone()
    left[1] = lost
    both = replace(block, left_factor=left)
    found, plain = (
        written_out(operator(b).inverse(0.0, pi="trace")) for b in (both, block)
    )
    torch.testing.assert_close(found[0], plain[0], rtol=0, atol=0)
    inside = found[1][PLACES[:, None], PLACES]
    assert not torch.isfinite(inside).all()


def test_models_are_selected_before_and_after_eigenpairs_are_found():
    block, one = product(), torch.tensor([1])
    before = block.select(one)
    torch.testing.assert_close(before.left_factor, block.left_factor[1:])
    known = block.eigenpairs
    after = block.select(one)
    torch.testing.assert_close(after.eigenpairs.values, known.values[1:])
    torch.testing.assert_close(before.eigenpairs.values, known.values[1:])


def test_single_precision_that_does_not_converge_falls_back_for_that_matrix(
    monkeypatch,
):
    torch.manual_seed(0)
    roots = torch.randn(3, 4, 4)
    matrices = roots @ roots.mT
    plain, eigh = decomposed(matrices), torch.linalg.eigh
    second = (matrices[1] + matrices[1].mT) / 2

    def failing(given):
        each = given.reshape(-1, 4, 4)
        if given.dtype == torch.float32 and any(torch.equal(m, second) for m in each):
            raise torch.linalg.LinAlgError("no convergence")
        return eigh(given)

    monkeypatch.setattr(torch.linalg, "eigh", failing)
    values, vectors = decomposed(matrices)
    for found, before in zip((values, vectors), plain, strict=True):
        assert torch.equal(found[[0, 2]], before[[0, 2]])
        assert found.dtype == torch.float32
    again = vectors[1] * values[1] @ vectors[1].mT
    torch.testing.assert_close(again, second, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("pi", [None, "trace"])
@pytest.mark.parametrize("seed", range(20))
def test_roundings_of_eigenvalues_that_are_zero_are_no_numbers_to_divide_by(seed, pi):
    draw = torch.Generator().manual_seed(seed)
    rank, size = 3, 5

    def factor(columns):
        root = torch.randn(1, 1, size, columns, generator=draw, dtype=torch.float64)
        return root @ root.mT

    damping = torch.zeros(1, dtype=torch.float64)
    at = "w", torch.arange(size * size)
    whole = Product(*at, factor(size), factor(size))
    singular = Product(*at, factor(rank), factor(size))
    ones = torch.ones(1, size * size, 1, dtype=torch.float64)
    there = whole.inverse(damping, pi).times(whole.times(ones))
    torch.testing.assert_close(there, ones, rtol=0, atol=1e-4)
    assert not torch.isfinite(singular.inverse(damping, pi).times(ones)).all()
    damped = singular.inverse(damping + 1e-3, pi).times(ones)
    assert torch.isfinite(damped).all()


@pytest.mark.parametrize("seed", range(5))
def test_the_determinant_of_what_is_singular_up_to_rounding_is_zero(seed):
    rows = torch.randn(
        MODELS, GROUPS, 2, ROWS, generator=torch.Generator().manual_seed(seed)
    ).double()
    low, full = rows.mT @ rows, factors(seed, COLUMNS)
    block = Product("w", torch.arange(SIZE), low, full)
    for each in (block, block.eigenpairs):
        K = BlockOperator([each], SIZE)
        assert (K.logdet() == -torch.inf).all()
        dense = written_out(BlockOperator([each], SIZE + 2))[:, :SIZE, :SIZE]
        damped = dense + DAMPING[:, None, None] * torch.eye(SIZE).double()
        torch.testing.assert_close(K.logdet(DAMPING), torch.logdet(damped))
    whole = BlockOperator(
        [Product("w", torch.arange(SIZE), factors(seed, ROWS), full)], SIZE
    )
    dense = written_out(
        BlockOperator([replace(whole.blocks[0])], SIZE + 2),
    )[:, :SIZE, :SIZE]
    torch.testing.assert_close(whole.logdet(), torch.logdet(dense))
    turned = replace(block.eigenpairs, values=-block.eigenpairs.values)
    assert BlockOperator([turned], SIZE).logdet().isnan().all()
