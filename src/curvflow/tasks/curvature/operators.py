"""Operators of the members of a tile: curvature of networks, matrices, graphs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.deflation import DeflatedParams
from curvflow.schemas.kinds.shared.operators import OperatorParams
from curvflow.schemas.nodes import Array, Matrix, Member, NodeData, Outcome
from curvflow.tasks.curvature import network_operators
from curvflow.tasks.curvature.stored_factors import block_operator, factors_key
from curvflow.tasks.networks.problems import Apart, probed_bytes
from curvflow.tasks.numerics.derivatives.variances import batches_per_pass
from curvflow.tasks.numerics.operators.adapters import Single
from curvflow.tasks.numerics.operators.algebra import Copies
from curvflow.tasks.numerics.operators.base import (
    BatchedOperator,
    Dense,
    Operator,
    Repeated,
    as_sample_mean,
    no_sample_mean,
    product,
)
from curvflow.tasks.numerics.operators.deflation import (
    NO_ATOMS,
    Atoms,
    Deflated,
    deflated,
)
from curvflow.tasks.numerics.operators.graphs import (
    CHUNK,
    Adjacency,
    GraphOperator,
    graph_operator,
)
from curvflow.tasks.numerics.operators.matrices import KernelMatrix, Sparse
from curvflow.tasks.registry import Machine

MATRIX, GRAPH, FACTORS = "matrix", "graph", "factors"
# Operators of networks and graphs without negative eigenvalues: of networks, as each
# loss that is named is convex in the outputs; of graphs, as weights are positive.
SEMIDEFINITE = (
    "ggn",
    "fisher_type2",
    "fisher_mc",
    "fisher_empirical",
    "gradient_covariance",
    "normalized_laplacian",
    "laplacian",
    "signless_laplacian",
)

# Graphs of so many nodes or more are computed one by one. Their products take longer
# than the calls around them, so that little is gained by several in one program, and
# one that is alone need not be computed with a copy of itself.
APART_FROM = 2048

# Columns of the identity multiplied in one pass.
DENSE_BLOCK = 64

# Random vectors multiplied in one pass; a constant, so that sums keep their order.
BLOCK = 16

# Bytes that these may take: products hold some eight times as much.
BLOCK_BYTES = 1 << 27

# Those of the vectors of a matrix or graph, of which few blocks are held.
DATA_BLOCK_BYTES = 3 << 27


@dataclass(frozen=True, kw_only=True)
class OperatorNode(Matrix):
    """An operator in memory where a study takes a matrix, to be probed as it is.

    Attributes:
        operator: of one model, (1, D, D).
        sizes: of the consecutive blocks of the dimension D, by name.
    """

    operator: BatchedOperator
    sizes: Mapping[str, int]


@dataclass(frozen=True)
class TileOperator:
    """A batched operator over the members of a tile, with the blocks of its dimension.

    Attributes:
        operator: symmetric maps of all members, (M, D, D); with `deflate` of one, on
            the rest of the dimension.
        names: names of the consecutive blocks of the dimension D: parameter tensors,
            or `matrix`, `graph` or `factors`.
        sizes: sizes of these blocks.
        atoms: eigenvalues that `deflate` has taken out.
    """

    operator: BatchedOperator
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    atoms: Atoms = NO_ATOMS


def _params(member: Member) -> OperatorParams:
    return cast("OperatorParams", member.params)


def as_data(member: Member) -> NodeData | None:
    """Return the matrix, graph or factors that an operator is, or is of, or None."""
    for name in (MATRIX, GRAPH, FACTORS):
        if name in member.inputs:
            return member.one(name)
    return None


def operator_name(member: Member) -> str:
    """Return which operator a member has; a matrix that is data is called hessian."""
    name = _params(member).operator
    if GRAPH in member.inputs and name == "hessian":  # as none is written down
        return "normalized_laplacian"
    return name


def _deflate(member: Member) -> tuple[str, ...]:
    params = member.params
    return params.deflate if isinstance(params, DeflatedParams) else ()


def is_semidefinite(member: Member) -> bool:
    """Return whether a member's operator is known to have no negative eigenvalue."""
    if FACTORS in member.inputs:
        return bool((member.one(FACTORS)["values"] >= 0).all())
    return operator_name(member) in SEMIDEFINITE


def batch_key(member: Member) -> object:
    """Return the key that members of one batched operator share; `Apart` of none."""
    is_large = _is_graph(member) and size_of(member) >= APART_FROM
    if is_large or _deflate(member):  # what is left differs from graph to graph
        return Apart(id(member))
    if FACTORS in member.inputs:
        return factors_key(member.one(FACTORS))
    if as_data(member) is not None:
        return size_of(member)
    return network_operators.problem_key(member)


def _is_graph(member: Member) -> bool:
    """Return whether a member's operator is of a graph, in a study or in memory."""
    if GRAPH in member.inputs:
        return True
    given = member.one(MATRIX) if MATRIX in member.inputs else None
    return isinstance(given, OperatorNode) and set(given.sizes) == {GRAPH}


def block_sizes(member: Member) -> dict[str, int]:
    """Return the sizes of the selected parameter tensors, or of a matrix or graph.

    Args:
        member: with `weights` and `data`, with `matrix` or with `graph`.

    Returns:
        Sizes by name, in the order of the dimension D.

    Raises:
        InputError: `layers` names no tensor, or is combined with a matrix.
    """
    params = _params(member)
    if GRAPH in member.inputs:
        return {GRAPH: _nodes_of(member.one(GRAPH), params)}
    if FACTORS in member.inputs:
        return {FACTORS: int(member.one(FACTORS)["size"])}
    if MATRIX in member.inputs:
        matrix = member.one(MATRIX)
        if isinstance(matrix, OperatorNode):
            return dict(matrix.sizes)
        if params.operator != "hessian" or params.layers:
            raise InputError(
                f"operator: {params.operator} with layers {params.layers} cannot be "
                "combined with a matrix. Remove them."
            )
        return {MATRIX: int(matrix["size"])}
    return _tensor_sizes(member, params)


def _tensor_sizes(member: Member, params: OperatorParams) -> dict[str, int]:
    """Return the sizes of the parameter tensors of a network that are looked at.

    Raises:
        InputError: `layers` names no tensor.
    """
    layout = network_operators.problem_of(member).network.layout
    sizes = dict(zip(layout.names, layout.sizes, strict=True))
    return {name: sizes[name] for name in layout.matching(params.layers)}


def _nodes_of(graph: NodeData, params: OperatorParams) -> int:
    if params.isolated == "drop":
        return int(np.count_nonzero(np.diff(graph["indptr"])))
    return int(graph["size"])


def size_of(member: Member) -> int:
    """Return the dimension D of a member's operator."""
    return sum(block_sizes(member).values())


def block_of(member: Member, most: int) -> int:
    """Return how many random vectors are multiplied at once.

    Args:
        member: with `weights` and `data`, with `matrix` or with `graph`.
        most: vectors that there are.

    Returns:
        At most `BLOCK`, and fewer where a network has many parameters, or a graph
        many nodes: of these two or more, of which pairs can be made.
    """
    if as_data(member) is not None:
        fitting = DATA_BLOCK_BYTES // (8 * size_of(member))
        return min(BLOCK, most, max(2, fitting))
    size = network_operators.problem_of(member).network.num_parameters
    return max(1, min(BLOCK, most, BLOCK_BYTES // (8 * size)))


def product_bytes(member: Member, columns: int) -> int:
    """Return the estimated peak bytes of one member's products with columns."""
    if as_data(member) is not None:
        blocks = 7 if _deflate(member) else 4
        return _data_bytes(member) + blocks * 8 * size_of(member) * columns
    names = tuple(block_sizes(member))
    return network_operators.product_bytes(member, _params(member), columns, names)


def shared_bytes(member: Member) -> int:
    """Return the part of `product_bytes` that members with the same data share."""
    return probed_bytes(member) if as_data(member) is None else _data_bytes(member)


def _data_bytes(member: Member) -> int:
    """Return the estimated bytes of a matrix or graph, and of what multiplies by it."""
    if GRAPH in member.inputs:
        graph = member.one(GRAPH)
        entries, nodes = len(graph["indices"]), len(graph["indptr"])
        # Twins and components are found by hashes of all entries.
        extra = 40 * entries + 200 * nodes if _deflate(member) else 0
        if operator_name(member) in ON_DIAGONAL:  # rows once more, with a diagonal
            extra += 16 * (entries + nodes)
        return adjacency_bytes(graph) + extra
    given = as_data(member)
    return 0 if given is None else 2 * _stored_bytes(given)


# Operators of a graph whose diagonal is held with the entries.
ON_DIAGONAL = ("laplacian", "signless_laplacian", "bethe_hessian")


def adjacency_bytes(graph: NodeData) -> int:
    """Return the estimated bytes of a graph, and of what multiplies by its adjacency.

    Neighbours are used as they are stored.
    """
    entries, nodes = len(graph["indices"]), len(graph["indptr"])
    return _stored_bytes(graph) + 8 * entries + 40 * nodes + 8 * min(entries, CHUNK)


def is_plain_graph(member: Member) -> bool:
    """Return whether products are made in place, of a graph as it is."""
    is_double = _params(member).dtype == "float64"
    return GRAPH in member.inputs and is_double and not _deflate(member)


def _stored_bytes(given: NodeData) -> int:
    return sum(array.nbytes for array in given.arrays.values())


def tile_operator(
    members: Sequence[Member], machine: Machine, *, columns: int
) -> TileOperator:
    """Build the operators of all members as one batched operator.

    Args:
        members: members with equal `batch_key`; parameters that vary within a tile may
            differ.
        machine: the device to compute on.
        columns: vectors that will be multiplied at once.

    Returns:
        The operator and the blocks of its dimension.

    Raises:
        InputError: a weight is NaN or infinite, `layers` names no tensor, or what is
            to be deflated is no graph.
    """
    sizes = block_sizes(members[0])
    operator: BatchedOperator
    if _deflate(members[0]):
        rest = _deflated(members[0], machine)
        left = Repeated([rest], [0] * len(members))
        return TileOperator(left, tuple(sizes), tuple(sizes.values()), rest.atoms)
    if as_data(members[0]) is not None:
        operator = _of_data(members, machine)
    else:
        operator = network_operators.batched_operator(
            members,
            machine,
            [_params(member) for member in members],
            names=tuple(sizes),
            columns=columns,
        )
    return TileOperator(operator, tuple(sizes), tuple(sizes.values()))


def sample_means(members: Sequence[Member], machine: Machine) -> TileOperator:
    """Build the operators of all members as means over samples to be taken apart.

    Args:
        members: as for `tile_operator`; those of one operator in memory are one model.
        machine: the device to compute on.

    Returns:
        The operator, with `of_samples`, and the blocks of its dimension.

    Raises:
        InputError: as for `tile_operator`, or entries of a matrix are no mean over
            samples.
    """
    sizes, matrix = block_sizes(members[0]), as_data(members[0])
    if matrix is None:
        return tile_operator(members, machine, columns=1)
    if not isinstance(matrix, OperatorNode):
        raise InputError(no_sample_mean("entries of a matrix"))
    as_sample_mean(matrix.operator)
    return TileOperator(matrix.operator, tuple(sizes), tuple(sizes.values()))


def for_all(members: Sequence[Member], outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return an outcome for each member; those of one operator in memory are alike."""
    return list(outcomes) * (len(members) // len(outcomes))


def batches_at_once(member: Member) -> int:
    """Return how many batches are multiplied at once, each with a copy of the weights.

    Args:
        member: as for `sample_means`.
    """
    if as_data(member) is not None:
        return batches_per_pass(size_of(member))
    problem = network_operators.problem_of(member)
    return batches_per_pass(problem.network.num_parameters)


def sample_means_bytes(
    member: Member, batch_size: int, *, columns: int, passes: bool = False
) -> int:
    """Return the estimated peak bytes of one member's products batch by batch.

    Args:
        member: as for `sample_means`.
        batch_size: samples per batch.
        columns: vectors of each batch.
        passes: whether batches multiplied at once are of one pass over the data.
    """
    if as_data(member) is not None:
        return _data_bytes(member)
    network = network_operators.problem_of(member).network
    count = len(member.one("data")["inputs"])
    rows = min(batch_size, count)
    batches = batches_at_once(member)
    if passes:
        batches = min(batches, -(-count // rows))
    each = 8 * network.num_parameters + 6 * rows * network.width
    return 8 * batches * (1 + columns) * each + probed_bytes(member)


def dense_matrices(operator: BatchedOperator) -> Tensor:
    """Form matrices from the products with the identity.

    Args:
        operator: symmetric maps of M models.

    Returns:
        The matrices, (M, D, D), symmetric up to rounding.

    Raises:
        InputError: products hold NaN or infinity.
    """
    models, size, _ = operator.shape
    identity = torch.eye(size, dtype=torch.float64, device=operator.device)
    columns = torch.split(identity, DENSE_BLOCK, dim=1)
    blocks = [product(operator, block.expand(models, -1, -1)) for block in columns]
    return torch.cat(blocks, dim=2)


def _of_data(members: Sequence[Member], machine: Machine) -> BatchedOperator:
    if FACTORS in members[0].inputs:
        nodes = [member.one(FACTORS) for member in members]
        dtype = getattr(torch, _params(members[0]).dtype)
        return block_operator(nodes, machine.device, dtype)
    given = [as_data(member) for member in members]
    if isinstance(given[0], OperatorNode):
        return Copies(given[0].operator, len(members))
    digests = [node.digest for node in given if node is not None]
    distinct = dict(zip(digests, members, strict=True))
    number = {digest: count for count, digest in enumerate(distinct)}
    return Repeated(
        [data_operator(member, machine) for member in distinct.values()],
        [number[digest] for digest in digests],
    )


def _deflated(member: Member, machine: Machine) -> Deflated:
    """Return the operator of a graph without eigenvectors that are known.

    Raises:
        InputError: there is no graph.
    """
    what = _deflate(member)
    if GRAPH not in member.inputs:
        raise InputError(
            f"deflate: expected a graph to take {' and '.join(what)} out of, got a "
            "matrix or weights. Remove deflate."
        )
    whole = data_operator(member, machine)
    assert isinstance(whole, GraphOperator)
    return deflated(whole, operator_name(member), what)


def atom_arrays(atoms: Atoms) -> dict[str, Array]:
    """Return the variables that record which eigenvalues have been taken out."""
    return {"atom_values": atoms.values, "atom_counts": atoms.counts}


def atoms_of(node: NodeData) -> Atoms:
    """Return the eigenvalues that a result says have been taken out; none if not."""
    if "atom_values" not in node:
        return NO_ATOMS
    return Atoms(node["atom_values"], node["atom_counts"])


def data_operator(
    member: Member, machine: Machine, dtype: torch.dtype | None = None
) -> Operator:
    """Return the operator of a member that takes a matrix or a graph.

    Args:
        member: with `matrix` or with `graph`.
        machine: the device to compute on.
        dtype: precision of the products; None takes that of the parameters.

    Returns:
        The operator, shape (D, D).

    Raises:
        InputError: the form of a matrix is unknown, or the graph has no such operator.
    """
    params = _params(member)
    dtype = dtype or getattr(torch, params.dtype)
    if MATRIX in member.inputs:
        return matrix_operator(member.one(MATRIX), machine, dtype)
    adjacency = adjacency_of(
        member.one(GRAPH),
        dtype,
        device=machine.device,
        drop_isolated=params.isolated == "drop",
    )
    return graph_operator(
        adjacency,
        operator_name(member),
        isolated=params.isolated,
        r=None if params.r == "auto" else params.r,
    )


def adjacency_of(
    graph: NodeData,
    dtype: torch.dtype = torch.float64,
    *,
    device: torch.device | str = "cpu",
    drop_isolated: bool = False,
) -> Adjacency:
    """Return the adjacency of a graph.

    Args:
        graph: result of the edge type Graph.
        dtype: of the products.
        device: to compute on.
        drop_isolated: leaves out nodes without an entry.

    Returns:
        The adjacency, with degrees and loops.
    """
    indptr, indices, weights = (
        torch.as_tensor(graph[name]).to(device)
        for name in ("indptr", "indices", "weights")
    )
    return Adjacency.of(
        indptr,
        indices,
        weights if len(weights) else None,
        dtype=dtype,
        drop_isolated=drop_isolated,
    )


def matrix_operator(matrix: NodeData, machine: Machine, dtype: torch.dtype) -> Operator:
    """Return the operator of a dense, sparse or kernel matrix.

    Args:
        matrix: result of the edge type Matrix.
        machine: the device to compute on.
        dtype: precision of the products.

    Returns:
        The operator, shape (D, D); entries of a kernel are computed as needed.

    Raises:
        InputError: the form is unknown.
    """
    if isinstance(matrix, OperatorNode):
        return Single(matrix.operator)
    form = str(matrix["form"].item())
    if form == "dense":
        return Dense(torch.as_tensor(matrix["dense"], dtype=dtype).to(machine.device))
    if form == "kernel":
        points = torch.as_tensor(matrix["points"], dtype=dtype).to(machine.device)
        return KernelMatrix(points, **json.loads(str(matrix["kernel"].item())))
    if form == "sparse":
        rows = [torch.as_tensor(matrix[name]) for name in ("indptr", "indices")]
        values = torch.as_tensor(matrix["values"], dtype=dtype)
        return Sparse(*(part.to(machine.device) for part in (*rows, values)))
    raise InputError(
        f"matrix: expected the form dense, sparse or kernel, got {form}. Take another "
        "kind of matrix data."
    )
