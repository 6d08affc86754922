"""Which order of differentiation a trial takes, and blocks of columns."""

import math

import pytest
import torch
from torch import nn

from curvflow.tasks.numerics import hessian
from curvflow.tasks.numerics.derivatives import (
    differentiation_modes,
    modules,
    over_batches,
)
from curvflow.tasks.numerics.derivatives.differentiation_modes import (
    fastest,
    hessian_product,
)


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves only when a function says so."""
    now = [0.0]
    monkeypatch.setattr(differentiation_modes.time, "thread_time", lambda: now[0])
    monkeypatch.setattr(differentiation_modes.time, "perf_counter", lambda: now[0])
    return now


def taking(clock, once, each):
    """What prepares a product: so long for the first, so long for every one."""

    def prepare():
        clock[0] += once

        def product(columns):
            clock[0] += each
            return columns

        return product

    return prepare


@pytest.mark.parametrize(
    ("blocks", "order"), [(math.inf, "record"), (11, "record"), (9, "graph")]
)
def test_preparation_counts_where_few_blocks_are_multiplied(clock, blocks, order):
    prepared = {"graph": taking(clock, 0, 2), "record": taking(clock, 10, 1)}
    trial = fastest(prepared, torch.ones(3, 1), keeps=True, blocks=blocks)
    assert trial.order == order


def test_what_is_prepared_for_every_block_counts_whole(clock):
    prepared = {"graph": taking(clock, 0, 2), "record": taking(clock, 10, 1)}
    trial = fastest(prepared, torch.ones(3, 1), keeps=False)
    assert trial.seconds == {"graph": 2, "record": 11}


@pytest.mark.parametrize("num_products", [3, 17, math.inf])
@pytest.mark.parametrize("most", [1, 2, 5])
def test_columns_go_in_parts_that_fit_the_cache(monkeypatch, most, num_products):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    batch = torch.randn(6, 3, dtype=torch.float64), torch.randint(2, (6,))
    whole = hessian(net, "cross_entropy", batch, order="forward_over_reverse")
    columns = torch.randn(whole.shape[0], 5, dtype=torch.float64)
    expected = whole @ columns
    monkeypatch.setattr(over_batches, "CACHED_BYTES", most * 8 * len(columns))
    parts = hessian(net, "cross_entropy", batch, num_products=num_products)
    torch.testing.assert_close(parts @ columns, expected, rtol=1e-10, atol=1e-12)


def test_few_products_need_no_trial():
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    batch = torch.randn(6, 3, dtype=torch.float64), torch.randint(2, (6,))
    trials = []
    for num_products in (modules.FEW_PRODUCTS, modules.FEW_PRODUCTS + 1):
        operator = hessian(
            net, "cross_entropy", batch, num_products=num_products, tell=trials.append
        )
        _ = operator @ torch.ones(operator.shape[0], dtype=torch.float64)
    assert len(trials) == 1


@pytest.mark.parametrize("order", ["reverse_over_reverse", "retained"])
def test_a_graph_of_pieces_is_that_of_the_whole(order):
    torch.manual_seed(1)
    w, columns = torch.randn(7).double(), torch.randn(7, 3).double()

    def loss(weights):
        whole = weights if isinstance(weights, torch.Tensor) else torch.cat(weights)
        # The last piece does not enter, and the middle one only as a linear term.
        return whole[:2].prod() * whole[:2].sum() + whole[2:5].sum()

    whole = hessian_product(order, loss, w)(columns)
    pieces = hessian_product(order, loss, w, [(2,), (3,), (2,)])(columns)
    torch.testing.assert_close(pieces, whole, rtol=0, atol=0)
    assert whole[:2].abs().min() > 0
    assert not whole[2:].any()
