"""Arguments of any sort are taken, or refused on one line that names them."""

import inspect

import numpy as np
import pytest
import torch

import curvflow
from curvflow.errors import CurvflowError
from curvflow.tasks.library.arguments import FactorsSettings
from curvflow.tasks.numerics.derivatives.subjects import Settings

OF_ANY_SORT = [
    *("a", b"x", -1, 0, 1.5, 7, float("nan"), float("inf"), None, True, object()),
    *([], [1, 2], {}, (), {"a"}, np.array([]), torch.zeros(3), lambda *_: 1),
]
A = torch.diag(torch.linspace(0.5, 3.0, 6).double())
G = curvflow.from_matrix(A)
RUNS = G.spectrum(num_runs=6, num_steps=3)
STEPS = {"num_steps": 4}
NET = torch.nn.Linear(2, 2).double()
OF_NET = {"net": NET, "loss": "cross_entropy"}
OF_NET["data"] = (torch.ones(4, 2).double(), torch.tensor([0, 1, 0, 1]))
OF_MODULE = {"module": NET} | {name: OF_NET[name] for name in ("loss", "data")}
FEW = {"num_chains": 4, "num_draws": 8, "num_burnin_steps": 2, "calibrate": "none"}
FEW |= {"lr": 1e-3, "localization": 1.0, "sampling_method": "mala"}
# With what else they are called; the methods that follow read stored runs.
CALLED = {
    G.trace: {},
    G.squared_norm: {},
    G.diagonal: {},
    G.eigenvalues: {"k": 1},
    G.spectrum: STEPS,
    G.density: STEPS,
    G.moments: {"num_moments": 2},
    G.functional: {"f": torch.exp} | STEPS,
    G.effective_dimension: {"prior_precision": 1.0} | STEPS,
    G.logdet: {"damping": 1.0} | STEPS,
    G.solve: {"b": torch.ones(6).double()},
    G.shifted: {"shift": 0.1},
    RUNS.density: {},
    RUNS.functional: {"f": torch.exp},
    RUNS.mass: {},
    RUNS.moments: {"num_moments": 2},
    RUNS.logdet: {"damping": 1.0},
    RUNS.effective_dimension: {"prior_precision": 1.0},
    RUNS.eigenvalues: {"k": 1},
    curvflow.hessian: OF_MODULE,
    curvflow.ggn: OF_MODULE,
    curvflow.fisher: OF_MODULE | {"kind": "mc"},
    curvflow.gradient_covariance: OF_MODULE,
    curvflow.kronecker: OF_MODULE,
    curvflow.llc: OF_NET | FEW,
    curvflow.from_matrix: {"matrix": A},
    curvflow.from_graph: {"adjacency": torch.ones(3, 3) - torch.eye(3)},
}


# Names that functions of modules take by a further `**name`.
FURTHER = {
    "settings": tuple(Settings.__annotations__),
    "factors": tuple(FactorsSettings.__annotations__),
}


def names_of(function):
    given = list(inspect.signature(function).parameters)
    last = FURTHER.get(given[-1], ()) if "module" in given else ()
    return [name for name in given if name not in FURTHER] + list(last)


def fault(function, arguments):
    """Return what is wrong with how arguments are refused, if anything is."""
    try:
        function(**arguments)
    except CurvflowError as error:
        return f"several lines: {error}" if "\n" in str(error) else None
    except Exception as error:  # what no argument may end in
        return repr(error)
    return None


@pytest.mark.parametrize("function", CALLED, ids=lambda f: f.__qualname__)
def test_an_argument_of_any_sort_is_taken_or_refused_on_one_line(
    function, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)  # a store may be named by any text
    faults = [
        f"{name}={value!r}: {wrong}"
        for name in names_of(function)
        for value in OF_ANY_SORT
        if (wrong := fault(function, CALLED[function] | {name: value}))
    ]
    assert not faults, "\n".join(faults)
