"""Curvature of one model without a study: the functions that `import curvflow` offers.

They need torch, numpy, scipy, pydantic and xarray; what a store needs is imported only
where one is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Unpack

from curvflow.schemas.kinds.probes.kronecker.factors import FactorsParams
from curvflow.schemas.kinds.shared.operators import GraphOperatorName
from curvflow.tasks.library import matrices
from curvflow.tasks.library.arguments import FactorsSettings, checked
from curvflow.tasks.library.kronecker import KroneckerFactors, kronecker_factors
from curvflow.tasks.library.operators import (
    Dtype,
    Module,
    SymmetricOperator,
    of_curvature,
)
from curvflow.tasks.numerics.derivatives import modules
from curvflow.tasks.numerics.derivatives.differentiation_modes import Order, Trial
from curvflow.tasks.numerics.derivatives.subjects import Loss, Settings

FISHERS: dict[str, Literal["fisher_type2", "fisher_mc", "fisher_empirical"]] = {
    "type-2": "fisher_type2",
    "mc": "fisher_mc",
    "empirical": "fisher_empirical",
}


def hessian(
    module: Module,
    loss: Loss | str,
    data: Any,
    *,
    order: Order | Literal["auto"] = "auto",
    num_products: float = math.inf,
    tell: Callable[[Trial], None] | None = None,
    store: str | Path | None = None,
    **settings: Unpack[Settings],
) -> SymmetricOperator:
    """Return the Hessian of the mean loss as an operator that can be measured.

    Args:
        module: as it is to be called, in eval or in train mode.
        loss: of outputs and targets: the mean over a batch, or of each sample; or
            `cross_entropy`, `mse`, `sse`, `bce` or `poisson`.
        data: a batch (inputs, targets) or a dictionary, a list of batches, or a loader.
        order: of differentiation; `auto` tries those without a trace on a few samples
            and takes the fastest, named orders give equal bits from run to run.
        num_products: vectors to be multiplied, as far as is known; for a few, `auto`
            takes an order that is soon prepared.
        tell: called with the trial that `auto` has made.
        store: path or address of a store that keeps results by the content of weights,
            data, code and parameters, and returns them; None keeps none. Needs zarr and
            ruamel.yaml.
        **settings: see `Settings`.

    Returns:
        The operator, (D, D).

    Examples:
        >>> import curvflow, torch
        >>> net = torch.nn.Linear(1, 1, bias=False).double()
        >>> x = torch.tensor([[1.0], [2.0]]).double()
        >>> H = curvflow.hessian(net, "sse", (x, x))
        >>> H
        SymmetricOperator(hessian, 1 by 1, float64, cpu)
        >>> H.trace(num_probes=32)  # 2 x^2, its mean
        Trace(5 ± 0, 32 products)
    """
    curvature = modules.hessian(
        module,
        loss,
        data,
        order=order,
        num_products=num_products,
        tell=tell,
        **settings,
    )
    operator = of_curvature(curvature, "hessian")
    return _stored(operator, store, module, loss, data, {**settings, "order": order})


def ggn(
    module: Module,
    loss: Loss | str,
    data: Any,
    *,
    store: str | Path | None = None,
    **settings: Unpack[Settings],
) -> SymmetricOperator:
    """Return the generalised Gauss-Newton matrix as an operator that can be measured.

    Args:
        module: as for `hessian`.
        loss: as for `hessian`; convex in the outputs.
        data: as for `hessian`.
        store: as for `hessian`.
        **settings: see `Settings`.

    Returns:
        The operator, (D, D).

    Examples:
        >>> import curvflow, torch
        >>> net = torch.nn.Linear(2, 1, bias=False).double()
        >>> x = torch.eye(2).double()
        >>> curvflow.ggn(net, "sse", (x, x[:, :1])).eigenvalues(k=2).value.tolist()
        [1.0, 1.0]
    """
    operator = of_curvature(modules.ggn(module, loss, data, **settings), "ggn")
    return _stored(operator, store, module, loss, data, settings)


def fisher(
    module: Module,
    loss: Loss | str,
    data: Any,
    *,
    kind: Literal["type-2", "mc", "empirical"],
    mc_samples: int = 1,
    store: str | Path | None = None,
    **settings: Unpack[Settings],
) -> SymmetricOperator:
    """Return a Fisher matrix as an operator that can be measured.

    Args:
        module: as for `hessian`.
        loss: as for `hessian`; for `type-2` and `mc` one whose likelihood is known.
        data: as for `hessian`.
        kind: labels of the model, all of them (`type-2`, which is the GGN) or some
            drawn (`mc`), or those of the data (`empirical`).
        mc_samples: labels drawn for each sample, for `mc`.
        store: as for `hessian`.
        **settings: see `Settings`.

    Returns:
        The operator, (D, D).

    Examples:
        >>> import curvflow, torch
        >>> net = torch.nn.Linear(2, 1, bias=False).double()
        >>> x = torch.eye(2).double()
        >>> curvflow.fisher(net, "sse", (x, x[:, :1]), kind="type-2").trace(4).value
        2.0
    """
    curvature = modules.fisher(
        module, loss, data, kind=kind, mc_samples=mc_samples, **settings
    )
    operator = of_curvature(curvature, FISHERS[kind])
    settings_of = {**settings, "mc_samples": mc_samples}
    return _stored(operator, store, module, loss, data, settings_of)


def kronecker(
    module: Module, loss: Loss | str, data: Any, **factors: Unpack[FactorsSettings]
) -> KroneckerFactors:
    """Return the curvature of a module by blocks of its layers.

    Args:
        module: as it is to be called; any layers, of which those that are no dense
            layers, convolutions or embeddings have an exact block.
        loss: as for `hessian`, a mean over samples, of outputs (N, C) or (N,); of
            `mse`, `sse`, `bce` and `poisson` of any shape.
        data: batches (inputs, targets) of tensors, as for `hessian`.
        **factors: see `FactorsSettings`, and docs/kronecker.md for what they mean.

    Returns:
        The factors: products, damped solves, determinants, and an operator that can be
        measured.

    Raises:
        InputError: a parameter is not known or out of its range, or the loss or the
            data cannot be taken.

    Examples:
        >>> import curvflow, torch
        >>> net = torch.nn.Linear(2, 1, bias=False).double()
        >>> x = torch.eye(2).double()
        >>> K = curvflow.kronecker(net, "sse", (x, x[:, :1]))
        >>> (K @ torch.ones(2).double()).round(decimals=6)
        tensor([1., 1.], dtype=torch.float64)
        >>> K.solve(torch.ones(2).double(), damping=1.0).round(decimals=6)
        tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    params = checked(FactorsParams, **factors)
    return kronecker_factors(module, loss, data, params)


def gradient_covariance(
    module: Module,
    loss: Loss | str,
    data: Any,
    *,
    store: str | Path | None = None,
    **settings: Unpack[Settings],
) -> SymmetricOperator:
    """Return the covariance of the samples' gradients as an operator to be measured.

    Args:
        module: as for `hessian`.
        loss: as for `hessian`; the mean of the losses of the samples.
        data: as for `hessian`.
        store: as for `hessian`.
        **settings: see `Settings`.

    Returns:
        The operator, (D, D).

    Examples:
        >>> import curvflow, torch
        >>> net = torch.nn.Linear(1, 1, bias=False).double()
        >>> _ = torch.nn.init.zeros_(net.weight)
        >>> x, y = torch.ones(2, 1).double(), torch.tensor([[1.0], [-1.0]]).double()
        >>> curvflow.gradient_covariance(net, "sse", (x, y)).trace(4).value
        4.0
    """
    curvature = modules.gradient_covariance(module, loss, data, **settings)
    operator = of_curvature(curvature, "gradient_covariance")
    return _stored(operator, store, module, loss, data, settings)


def from_matrix(
    matrix: Any, *, dtype: Dtype | None = None, store: str | Path | None = None
) -> SymmetricOperator:
    """Return a symmetric matrix, or a map known by its products, as an operator.

    A map is multiplied with two random vectors, by which its symmetry is checked.

    Args:
        matrix: a tensor, a NumPy array, a SciPy sparse matrix or `LinearOperator`, or
            an operator of the numerics; real and symmetric.
        dtype: of the products; None takes that of the matrix, float64 if it holds
            integers or half precision.
        store: as for `hessian`, of a matrix with entries.

    Returns:
        The operator.

    Raises:
        InputError: the matrix is not square, not symmetric, not real or not finite.

    Examples:
        >>> import curvflow, torch
        >>> A = curvflow.from_matrix(torch.tensor([[2.0, 1.0], [1.0, 2.0]]).double())
        >>> A
        SymmetricOperator(hessian, 2 by 2, float64, cpu)
        >>> A.eigenvalues(k=1).value.round(9).tolist()
        [3.0]
    """
    operator = matrices.from_matrix(matrix, dtype=dtype)
    if store is None:
        return operator
    # Here, for zarr and others are needed only where a store is given.
    from curvflow.flows.library_store import matrix_memory

    entries = None if operator.entries is None else operator.entries.arrays
    return operator.remembered(matrix_memory(store, entries))


def from_graph(
    adjacency: Any,
    operator: GraphOperatorName = "normalized_laplacian",
    *,
    isolated: Literal["zero", "one", "drop"] = "zero",
    r: float | Literal["auto"] = "auto",
    dtype: Dtype | None = None,
    store: str | Path | None = None,
) -> SymmetricOperator:
    """Return a matrix of an undirected graph as an operator.

    Only the rows of the graph are stored: the matrix is multiplied by them and the
    degrees.

    Args:
        adjacency: its weights, a SciPy sparse matrix or an array, (D, D); not negative.
        operator: `normalized_laplacian`, `laplacian`, `adjacency`,
            `normalized_adjacency`, `signless_laplacian`, `modularity` or
            `bethe_hessian`.
        isolated: eigenvalue of nodes without edges in the normalized ones; drop leaves
            these nodes out.
        r: of the Bethe Hessian; auto takes the root of <d^2> / <d> - 1.
        dtype: of the products; None takes float64.
        store: as for `hessian`.

    Returns:
        The operator.

    Raises:
        InputError: the adjacency is not square, symmetric, real, finite and without
            negative weights, has no edge, or has no such operator; or the settings
            do not fit the operator.

    Examples:
        >>> import curvflow, numpy
        >>> triangle = 1 - numpy.eye(3)
        >>> L = curvflow.from_graph(triangle)
        >>> L
        SymmetricOperator(normalized_laplacian, 3 by 3, float64, cpu)
        >>> L.eigenvalues(k=2).value.round(9).tolist()
        [1.5, 1.5]
    """
    made = matrices.from_graph(adjacency, operator, isolated=isolated, r=r, dtype=dtype)
    if store is None:
        return made
    # Here, for zarr and others are needed only where a store is given.
    from curvflow.flows.library_store import matrix_memory

    rows = matrices.graph_rows(adjacency)
    settings = {"operator": operator, "isolated": isolated, "r": r}
    return made.remembered(matrix_memory(store, rows, **settings))


def _stored(
    operator: SymmetricOperator,
    store: str | Path | None,
    module: Module,
    loss: Loss | str,
    data: Any,
    settings: Mapping[str, Any],
) -> SymmetricOperator:
    if store is None:
        return operator
    # Here, for zarr and others are needed only where a store is given.
    from curvflow.flows.library_store import memory

    called = {"module": module, "loss": loss}
    content = {**settings, "dtype": str(operator.dtype)}
    return operator.remembered(
        memory(store, operator.name, called=called, settings=content, data=data)
    )


__all__ = [
    "fisher",
    "from_graph",
    "from_matrix",
    "ggn",
    "gradient_covariance",
    "hessian",
    "kronecker",
]
