"""Operators and estimators that know no stage; torch and numpy suffice.

Letters of the shape suffixes: M models of a batch, D parameters, N samples, C outputs,
S random vectors or columns, K eigenpairs.
"""

from curvflow.tasks.numerics.eigen import block_power
from curvflow.tasks.numerics.eigenpairs import Ritz
from curvflow.tasks.numerics.fishers import fisher_draws, fisher_roots, fisher_rows
from curvflow.tasks.numerics.foreign import from_scipy
from curvflow.tasks.numerics.gauss_newton import BatchedGaussNewton, BatchedResidual
from curvflow.tasks.numerics.hessians import BatchedHessian, dense_hessian
from curvflow.tasks.numerics.lanczos import RitzData, lanczos
from curvflow.tasks.numerics.lobpcg import lobpcg
from curvflow.tasks.numerics.losses import sample_losses
from curvflow.tasks.numerics.maxent import MaxEnt, maxent
from curvflow.tasks.numerics.modules import (
    fisher,
    ggn,
    gradient_covariance,
    hessian,
    residual,
)
from curvflow.tasks.numerics.moments import moment_draws
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
from curvflow.tasks.numerics.restarted import restarted_lanczos
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.numerics.trace_stopping import TraceDraws, traces
from curvflow.tasks.numerics.traces import Estimate, estimate, trace_draws
from curvflow.tasks.numerics.variances import (
    CurvatureDraws,
    GradientVariance,
    curvature_variances,
    gradient_variance,
)
from curvflow.tasks.numerics.woodbury import damped_solve

__all__ = [
    "BatchedDense",
    "BatchedGaussNewton",
    "BatchedHessian",
    "BatchedOperator",
    "BatchedResidual",
    "CurvatureDraws",
    "Dense",
    "Estimate",
    "GradientVariance",
    "MaxEnt",
    "Operator",
    "Ritz",
    "RitzData",
    "TraceDraws",
    "balanced",
    "block_power",
    "curvature_variances",
    "damped_solve",
    "dense_gammas",
    "dense_hessian",
    "estimate",
    "fisher",
    "fisher_draws",
    "fisher_roots",
    "fisher_rows",
    "from_scipy",
    "full_precision",
    "ggn",
    "gradient_covariance",
    "gradient_variance",
    "group_norm",
    "hessian",
    "lanczos",
    "lobpcg",
    "maxent",
    "moment_draws",
    "path_norm",
    "residual",
    "restarted_lanczos",
    "sample_losses",
    "stream",
    "trace_draws",
    "traces",
]
