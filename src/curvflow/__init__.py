"""Curvature studies of neural networks from one declarative file.

    results = curvflow.run("study.yaml")    # or a curvflow.Study(axes=..., stages=...)
    results["trace"]            # an xarray.Dataset over the stage's axes

    H = curvflow.hessian(net, loss, data)   # one model, without a study
    H.trace(rel_sem=0.02)       # a number with its standard error

The numerics of batches of models are in `curvflow.tasks.numerics`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from curvflow.errors import CurvflowError as CurvflowError
    from curvflow.flows.api import open as open
    from curvflow.flows.api import run as run
    from curvflow.flows.graph.python_study import Study as Study
    from curvflow.flows.library import fisher as fisher
    from curvflow.flows.library import from_graph as from_graph
    from curvflow.flows.library import from_matrix as from_matrix
    from curvflow.flows.library import ggn as ggn
    from curvflow.flows.library import gradient_covariance as gradient_covariance
    from curvflow.flows.library import hessian as hessian
    from curvflow.flows.library import kronecker as kronecker
    from curvflow.flows.library_llc import llc as llc
    from curvflow.flows.library_llc import wbic as wbic
    from curvflow.flows.monitor.monitor import Monitor as Monitor
    from curvflow.flows.monitor.monitor import read_monitor as read_monitor
    from curvflow.flows.results.exchange import read_devinterp as read_devinterp
    from curvflow.flows.results.results import Results as Results
    from curvflow.flows.run.settle import Answer as Answer
    from curvflow.schemas.kind import Variable as Variable
    from curvflow.schemas.nodes import Data as Data
    from curvflow.schemas.nodes import Density as Density
    from curvflow.schemas.nodes import Distances as Distances
    from curvflow.schemas.nodes import Distribution as Distribution
    from curvflow.schemas.nodes import DrawnLosses as DrawnLosses
    from curvflow.schemas.nodes import Draws as Draws
    from curvflow.schemas.nodes import Eigenvalues as Eigenvalues
    from curvflow.schemas.nodes import Eigenvectors as Eigenvectors
    from curvflow.schemas.nodes import Entropic as Entropic
    from curvflow.schemas.nodes import Factors as Factors
    from curvflow.schemas.nodes import Figure as Figure
    from curvflow.schemas.nodes import Graph as Graph
    from curvflow.schemas.nodes import Hold as Hold
    from curvflow.schemas.nodes import Landscape as Landscape
    from curvflow.schemas.nodes import Localized as Localized
    from curvflow.schemas.nodes import Matrix as Matrix
    from curvflow.schemas.nodes import Moments as Moments
    from curvflow.schemas.nodes import Numbers as Numbers
    from curvflow.schemas.nodes import Outcome as Outcome
    from curvflow.schemas.nodes import Preconditioned as Preconditioned
    from curvflow.schemas.nodes import Ritz as Ritz
    from curvflow.schemas.nodes import Spectrum as Spectrum
    from curvflow.schemas.nodes import Table as Table
    from curvflow.schemas.nodes import Trajectory as Trajectory
    from curvflow.schemas.nodes import Weights as Weights
    from curvflow.schemas.options import RunOptions as RunOptions
    from curvflow.schemas.params import Params as Params
    from curvflow.tasks.library.operators import SymmetricOperator as SymmetricOperator
    from curvflow.tasks.llc.arviz import to_arviz as to_arviz
    from curvflow.tasks.stage import stage as stage

__version__ = "0.2.0"

_HOMES = {
    # studies
    "run": "curvflow.flows.api",
    "open": "curvflow.flows.api",
    "Study": "curvflow.flows.graph.python_study",
    "Results": "curvflow.flows.results.results",
    "RunOptions": "curvflow.schemas.options",
    "Answer": "curvflow.flows.run.settle",
    # one model, without a study
    "hessian": "curvflow.flows.library",
    "ggn": "curvflow.flows.library",
    "fisher": "curvflow.flows.library",
    "gradient_covariance": "curvflow.flows.library",
    "kronecker": "curvflow.flows.library",
    "from_matrix": "curvflow.flows.library",
    "from_graph": "curvflow.flows.library",
    "SymmetricOperator": "curvflow.tasks.library.operators",
    "llc": "curvflow.flows.library_llc",
    "wbic": "curvflow.flows.library_llc",
    # a training loop of one's own
    "Monitor": "curvflow.flows.monitor.monitor",
    "read_monitor": "curvflow.flows.monitor.monitor",
    # draws of others, and for others
    "read_devinterp": "curvflow.flows.results.exchange",
    "to_arviz": "curvflow.tasks.llc.arviz",
    # kinds of one's own
    "stage": "curvflow.tasks.stage",
    "Params": "curvflow.schemas.params",
    "Variable": "curvflow.schemas.kind",
    "Outcome": "curvflow.schemas.nodes",
    # what such kinds take and return: edges between stages
    "Data": "curvflow.schemas.nodes",
    "Weights": "curvflow.schemas.nodes",
    "Preconditioned": "curvflow.schemas.nodes",
    "Trajectory": "curvflow.schemas.nodes",
    "Matrix": "curvflow.schemas.nodes",
    "Graph": "curvflow.schemas.nodes",
    "Eigenvectors": "curvflow.schemas.nodes",
    "Eigenvalues": "curvflow.schemas.nodes",
    "Spectrum": "curvflow.schemas.nodes",
    "Ritz": "curvflow.schemas.nodes",
    "Factors": "curvflow.schemas.nodes",
    "Moments": "curvflow.schemas.nodes",
    "Entropic": "curvflow.schemas.nodes",
    "Distribution": "curvflow.schemas.nodes",
    "Density": "curvflow.schemas.nodes",
    "Landscape": "curvflow.schemas.nodes",
    "Draws": "curvflow.schemas.nodes",
    "DrawnLosses": "curvflow.schemas.nodes",
    "Localized": "curvflow.schemas.nodes",
    "Hold": "curvflow.schemas.nodes",
    "Table": "curvflow.schemas.nodes",
    "Distances": "curvflow.schemas.nodes",
    "Figure": "curvflow.schemas.nodes",
    "Numbers": "curvflow.schemas.nodes",
    # errors
    "CurvflowError": "curvflow.errors",
}
__all__ = ["__version__", *_HOMES]


def __dir__() -> list[str]:
    """Name the public objects, which completion in a notebook shows."""
    return sorted(__all__)


def __getattr__(name: str) -> object:
    """Load a public name when it is first used, so that the import is cheap."""
    if name not in _HOMES:
        raise AttributeError(f"module 'curvflow' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
