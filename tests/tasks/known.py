"""Models of known answer, and what their data and weights are made with."""

from curvflow.schemas.nodes import Weights
from tests.tasks.toys import as_data, compute, member

PRODUCT = {"kind": "deep_linear", "hidden": [3]}
DEEP = {"kind": "deep_linear", "hidden": [4, 3]}
WELL = {"kind": "quadratic_well", "eigenvalues": [4.0, 1.0]}
CROSSING = {"kind": "normal_crossing", "powers": [[1, 2], [1]]}
TANH = {"kind": "mlp", "hidden": [2], "activation": "tanh", "bias": False}


def data_arrays(model, **params):
    settings = {"model": model, **params}
    (outcome,) = compute("data.known_answer", [member("data.known_answer", settings)])
    return outcome.arrays


def weights_outcome(model, arrays, rank=0):
    settings = {"model": model, "rank": rank}
    asked = member("weights.known_answer", settings, data=as_data(arrays))
    return compute("weights.known_answer", [asked])[0]


def at_truth(model, rank=0, **params):
    """Return the data of a model, and its weights as a probe takes them."""
    arrays = data_arrays(model, rank=rank, **params)
    result = weights_outcome(model, arrays, rank).arrays
    taken = {name: result[name] for name in ("weights", "network")}
    weights = Weights("truth", "weights.known_answer", {}, taken, "w")
    return as_data(arrays), weights
