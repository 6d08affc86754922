"""Operators and estimators that know no stage; torch, numpy and scipy suffice.

Letters of the shape suffixes: M models of a batch, D parameters, N samples, C outputs,
S random vectors or columns, K eigenpairs.
"""

from curvflow.tasks.numerics.derivatives.fishers import (
    fisher_draws,
    fisher_roots,
    fisher_rows,
    ggn_roots,
)
from curvflow.tasks.numerics.derivatives.gauss_newton import (
    BatchedGaussNewton,
    BatchedResidual,
)
from curvflow.tasks.numerics.derivatives.hessians import BatchedHessian, dense_hessian
from curvflow.tasks.numerics.derivatives.modules import (
    fisher,
    ggn,
    gradient_covariance,
    hessian,
    residual,
)
from curvflow.tasks.numerics.derivatives.output_laws import sample_losses
from curvflow.tasks.numerics.derivatives.precision import full_precision
from curvflow.tasks.numerics.derivatives.row_factors import damped_solve
from curvflow.tasks.numerics.derivatives.variances import (
    CurvatureDraws,
    GradientVariance,
    curvature_variances,
    gradient_variance,
)
from curvflow.tasks.numerics.entropy.maxent import MaxEnt, maxent
from curvflow.tasks.numerics.estimators.batch_traces import BatchTrace, batch_traces
from curvflow.tasks.numerics.estimators.diagonals import (
    Diagonal,
    batch_diagonals,
    diagonals,
)
from curvflow.tasks.numerics.estimators.intervals import (
    positive_interval,
    student_interval,
    wider_interval,
)
from curvflow.tasks.numerics.estimators.moments import moment_draws
from curvflow.tasks.numerics.estimators.path_norms import (
    balanced,
    dense_gammas,
    group_norm,
    path_norm,
)
from curvflow.tasks.numerics.estimators.piloted_traces import piloted_traces
from curvflow.tasks.numerics.estimators.sketched_traces import TraceDraws, traces
from curvflow.tasks.numerics.estimators.squared_norms import (
    batch_squared_norms,
    squared_norms,
)
from curvflow.tasks.numerics.estimators.traces import (
    Estimate,
    estimate,
    random_vectors,
)
from curvflow.tasks.numerics.graphs.structure import components
from curvflow.tasks.numerics.krylov.densities import density
from curvflow.tasks.numerics.krylov.eigenpairs import Ritz
from curvflow.tasks.numerics.krylov.functionals import (
    Bernstein,
    Bounded,
    bounded,
    effective_dimension,
)
from curvflow.tasks.numerics.krylov.lanczos import RitzData, lanczos
from curvflow.tasks.numerics.krylov.linear_solvers import (
    Solution,
    conjugate_gradients,
    minres,
)
from curvflow.tasks.numerics.krylov.lobpcg import lobpcg
from curvflow.tasks.numerics.krylov.power_iteration import block_power
from curvflow.tasks.numerics.krylov.quadrature import functional
from curvflow.tasks.numerics.krylov.restarted_lanczos import restarted_lanczos
from curvflow.tasks.numerics.operators.adapters import from_scipy
from curvflow.tasks.numerics.operators.algebra import added, scaled, shifted
from curvflow.tasks.numerics.operators.base import (
    BatchedDense,
    BatchedOperator,
    Dense,
    Operator,
    as_batched,
)
from curvflow.tasks.numerics.streams import stream

__all__ = [
    "BatchTrace",
    "BatchedDense",
    "BatchedGaussNewton",
    "BatchedHessian",
    "BatchedOperator",
    "BatchedResidual",
    "Bernstein",
    "Bounded",
    "CurvatureDraws",
    "Dense",
    "Diagonal",
    "Estimate",
    "GradientVariance",
    "MaxEnt",
    "Operator",
    "Ritz",
    "RitzData",
    "Solution",
    "TraceDraws",
    "added",
    "as_batched",
    "balanced",
    "batch_diagonals",
    "batch_squared_norms",
    "batch_traces",
    "block_power",
    "bounded",
    "components",
    "conjugate_gradients",
    "curvature_variances",
    "damped_solve",
    "dense_gammas",
    "dense_hessian",
    "density",
    "diagonals",
    "effective_dimension",
    "estimate",
    "fisher",
    "fisher_draws",
    "fisher_roots",
    "fisher_rows",
    "from_scipy",
    "full_precision",
    "functional",
    "ggn",
    "ggn_roots",
    "gradient_covariance",
    "gradient_variance",
    "group_norm",
    "hessian",
    "lanczos",
    "lobpcg",
    "maxent",
    "minres",
    "moment_draws",
    "path_norm",
    "piloted_traces",
    "positive_interval",
    "random_vectors",
    "residual",
    "restarted_lanczos",
    "sample_losses",
    "scaled",
    "shifted",
    "squared_norms",
    "stream",
    "student_interval",
    "traces",
    "wider_interval",
]
