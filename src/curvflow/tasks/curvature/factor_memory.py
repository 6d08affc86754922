"""Memory that Kronecker factors take, counted on tensors without numbers."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from curvflow.schemas.disk_arrays import is_on_disk
from curvflow.schemas.kinds.probes.kronecker.factors import FactorsParams
from curvflow.schemas.nodes import Member
from curvflow.tasks.curvature.network_factors import (
    DRAWN,
    choices_of,
    chosen_names,
    num_roots,
    recorded_networks,
    rows_per_pass,
)
from curvflow.tasks.curvature.network_operators import problem_of
from curvflow.tasks.networks.problems import (
    PASS_COPIES,
    Problem,
    data_set_bytes,
    is_as_wanted,
    meta_inputs,
    read,
)
from curvflow.tasks.numerics.derivatives.passes import peak_bytes
from curvflow.tasks.numerics.kronecker.blocks import BlockOperator
from curvflow.tasks.numerics.kronecker.factors import factors
from curvflow.tasks.numerics.kronecker.moments import MOST_NUMBERS

# Vectors of all parameters in blocks that are stored beside what blocks hold, or that
# these are made of: sorted eigenvalues, their weights and residuals, and columns.
STORED_VECTORS = 7


def factors_bytes(member: Member, params: FactorsParams) -> int:
    """Return the estimated peak bytes of one member's factors.

    Counted for two models, as products are, on tensors without numbers.

    Args:
        member: with `weights` and `data`.
        params: which factors.
    """
    problem, data = problem_of(member), member.one("data")
    samples = len(data["inputs"])
    rows = rows_per_pass(problem, params, samples)
    params = params.model_copy(update={"seed": 0})
    try:
        # In the second pass the sums of the first are held; others are like it.
        counted = _counted(params, problem.text, rows, min(samples, 2 * rows))
    # A module of the user's own may want numbers, and fail in any way without.
    except Exception:
        counted = _bounded(params, problem, rows)
    draws = 2 * 8 * samples * params.mc_samples * (params.fisher_type in DRAWN)
    # Once as loaded and once as stacked.
    network = problem.network
    item: int = getattr(torch, params.dtype).itemsize
    weights = (8 + item) * (network.num_parameters + network.statistics.size)
    return counted + draws + weights + sampled_bytes(member, params)


def sampled_bytes(member: Member, params: FactorsParams) -> int:
    """Return the bytes of the data, which members with one data set share.

    Args:
        member: with `weights` and `data`.
        params: of the factors, with the precision.
    """
    item: int = getattr(torch, params.dtype).itemsize
    return data_set_bytes(member.one("data"), item) - copied_bytes(member, params)


def copied_bytes(member: Member, params: FactorsParams) -> int:
    """Return the bytes of inputs that are copied for members of several data sets.

    A single data set is read where it lies, if it has the precision and nothing writes
    to it.

    Args:
        member: with `weights` and `data`.
        params: of the factors, with the precision.
    """
    problem, inputs = problem_of(member), member.one("data")["inputs"]
    dtype = torch.int64 if problem.takes_integers else getattr(torch, params.dtype)
    if not problem.network.notes_all or is_on_disk(inputs):
        return 0
    return int(inputs.nbytes) if is_as_wanted(inputs, dtype) else 0


@lru_cache(maxsize=256)
def _counted(params: FactorsParams, text: str, rows: int, samples: int) -> int:
    """Return half the peak bytes of the factors of two models, with the stored ones."""
    problem = read(text)
    given = meta_inputs(problem, rows, samples, getattr(torch, params.dtype))
    of = recorded_networks(problem, [params] * 2, given)
    choices = choices_of(params, chosen_names(params, problem))

    def compute() -> list[Tensor]:
        return _stored(factors(of, choices).operator)

    tensors = [tensor for tensor in given.values() if isinstance(tensor, Tensor)]
    return peak_bytes(compute, given=tensors) // 2


def _stored(operator: BlockOperator) -> list[Tensor]:
    """Return as many numbers as are stored of all models, without the blocks.

    What blocks hold is joined, and then copied for each model.
    """
    pairs = [block.eigenpairs for block in operator.blocks]
    entries = [math.prod(t.shape) for b in pairs for t in (b.values, b.left, b.right)]
    vectors = STORED_VECTORS * sum(math.prod(b.values.shape) for b in pairs)
    size = 2 * sum(entries) + vectors
    return [torch.empty(size, dtype=torch.float64, device=operator.device)]


def _bounded(params: FactorsParams, problem: Problem, rows: int) -> int:
    """Return a bound by the shapes of the parameters and the width of the network."""
    shapes = problem.network.layout.shapes
    blocks = sum(_block_bytes(shape, params.structure) for shape in shapes)
    # Of half the width are outputs of layers, held for each root and once as rows.
    copies = PASS_COPIES + num_roots(problem, params)
    passes = 8 * rows * problem.network.width * copies
    if params.structure != "kron":
        passes += 3 * 8 * MOST_NUMBERS
    return 4 * blocks + passes


def _block_bytes(shape: tuple[int, ...], structure: str) -> int:
    rows, columns = shape[0], math.prod(shape[1:]) + 1
    if structure == "block":
        return 8 * (rows * columns) ** 2
    if structure == "diag":
        return 8 * rows * columns
    return 8 * (rows**2 + columns**2 + rows * columns)
