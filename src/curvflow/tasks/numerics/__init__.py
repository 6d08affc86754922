"""Operators and estimators that know no stage; torch and numpy suffice.

Letters of the shape suffixes: M models of a batch, D parameters, N samples, C outputs,
S random vectors or columns, K eigenpairs.
"""

from curvflow.tasks.numerics.eigen import Ritz, block_power
from curvflow.tasks.numerics.fishers import fisher_draws, fisher_roots, fisher_rows
from curvflow.tasks.numerics.hessians import BatchedHessian, dense_hessian
from curvflow.tasks.numerics.losses import sample_losses
from curvflow.tasks.numerics.operators import (
    BatchedDense,
    BatchedOperator,
    Dense,
    Operator,
)
from curvflow.tasks.numerics.paths import (
    balanced,
    dense_gammas,
    group_norm,
    path_norm,
)
from curvflow.tasks.numerics.precision import full_precision
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.numerics.traces import Estimate, estimate, trace_draws
from curvflow.tasks.numerics.woodbury import damped_solve

__all__ = [
    "BatchedDense",
    "BatchedHessian",
    "BatchedOperator",
    "Dense",
    "Estimate",
    "Operator",
    "Ritz",
    "balanced",
    "block_power",
    "damped_solve",
    "dense_gammas",
    "dense_hessian",
    "estimate",
    "fisher_draws",
    "fisher_roots",
    "fisher_rows",
    "full_precision",
    "group_norm",
    "path_norm",
    "sample_losses",
    "stream",
    "trace_draws",
]
