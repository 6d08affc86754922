"""Modules that vmap cannot hold, computed one network after another."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.problems import pose
from tests.tasks import toys
from tests.tasks.toys import (
    blobs,
    compute,
    member,
    train_all,
    train_member,
    weights_of,
)

RECURRENT = ["LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell"]
# Of the cells PyTorch makes do without a rule for batches, slowly, but for this one.
WITHOUT_RULE = ["LSTM", "GRU", "RNN", "LSTMCell"]
MODELS = [("make_recurrent", {"layer": name}) for name in RECURRENT]
MODELS.append(("make_branching", {}))
# PyTorch's own kernels, which have the derivatives that others lack.
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")


@pytest.fixture(
    scope="module", params=MODELS, ids=lambda m: m[1].get("layer", "branching")
)
def model(request):
    name, kwargs = request.param
    return {"factory": f"tests.tasks.toys:{name}", "kwargs": kwargs}


def module_of(model):
    name = model["factory"].partition(":")[2]
    return getattr(toys, name)(**model["kwargs"]).double()


def fits(model, seeds=(0, 1), **params):
    given = {"model": model, "epochs": 3, "rule": {"rule": "sgd", "lr": 0.2}, **params}
    return train_all([train_member(blobs(), seed=seed, **given) for seed in seeds])


def test_it_trains_as_a_plain_loop_does(model):
    first, _ = fits(model, checkpoints={"every": 3})
    start, end = first.arrays["weights"]
    net, data = module_of(model), blobs()
    nn.utils.vector_to_parameters(torch.as_tensor(start), net.parameters())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.2)
    x, y = torch.as_tensor(data["inputs"]), torch.as_tensor(data["targets"]).long()
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    found = nn.utils.parameters_to_vector(net.parameters()).detach().numpy()
    np.testing.assert_allclose(end, found, rtol=1e-8, atol=1e-10)


def test_siblings_have_the_results_of_one_alone(model):
    first, _ = fits(model)
    (alone,) = fits(model, seeds=[0])
    np.testing.assert_allclose(
        alone.arrays["weights"], first.arrays["weights"], rtol=1e-10, atol=1e-12
    )


@pytest.fixture(scope="module")
def dense(model):
    """Return two fits, each with the largest eigenvalues of its dense Hessian."""
    data, net = blobs(), module_of(model)
    x, y = torch.as_tensor(data["inputs"]), torch.as_tensor(data["targets"]).long()
    names, tensors = zip(*net.named_parameters(), strict=True)

    def loss(flat_D):
        pieces = torch.split(flat_D, [t.numel() for t in tensors])
        named = {
            n: p.view_as(t) for n, p, t in zip(names, pieces, tensors, strict=True)
        }
        return nn.functional.cross_entropy(functional_call(net, named, (x,)), y)

    def largest(fit):
        flat_D = torch.as_tensor(fit.arrays["weights"][-1])
        every = torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, flat_D))
        return every[every.abs().argsort(descending=True)][:3].numpy()

    return [(fit, largest(fit)) for fit in fits(model)]


@pytest.mark.parametrize(
    "order",
    ["forward_over_reverse", "reverse_over_reverse", "retained", "linearised"],
)
def test_eigenvalues_are_those_of_the_dense_hessian_of_the_module(dense, order):
    params = {"k": 3, "order": order, "method": "lanczos"}
    probes = [
        member("probe.eigenvalues", params, weights=weights_of(fit), data=blobs())
        for fit, _ in dense
    ]
    found = compute("probe.eigenvalues", probes)
    for (_, largest), result in zip(dense, found, strict=True):
        np.testing.assert_allclose(
            result.arrays["eigenvalues"], largest, rtol=1e-6, atol=1e-9
        )


def test_it_says_that_networks_are_computed_one_after_another(model):
    note = pose(parse_model(model), "auto", blobs()).network.note
    without_rule = model["kwargs"].get("layer", "LSTM") in WITHOUT_RULE
    assert without_rule == ("computed one after another, for vmap" in note)


def test_a_branch_may_differ_between_siblings():
    model = {"factory": "tests.tasks.toys:make_branching", "kwargs": {}}
    network = pose(parse_model(model), "auto", blobs()).network
    net, x = module_of(model), torch.randn(1, 5, 3).double()
    outputs = []
    weights_D = nn.utils.parameters_to_vector(net.parameters()).detach()
    both = torch.stack([weights_D, -weights_D])
    for flat_D in both:
        nn.utils.vector_to_parameters(flat_D, net.parameters())
        outputs.append(net(x[0]))
    torch.testing.assert_close(network.outputs(both, x), torch.stack(outputs))


def test_kernels_are_as_they_were_afterwards():
    before = torch.backends.mkldnn.enabled, torch.backends.cudnn.enabled
    model = {"factory": "tests.tasks.toys:make_recurrent", "kwargs": {"layer": "LSTM"}}
    pose(parse_model(model), "auto", blobs(seed=5))
    assert (torch.backends.mkldnn.enabled, torch.backends.cudnn.enabled) == before


class Shared(nn.Module):
    """A weight that is a buffer of another layer, too."""

    def __init__(self):
        super().__init__()
        self.layer, self.other = nn.Linear(3, 3), nn.Module()
        self.other.register_buffer("weight", self.layer.weight)

    def forward(self, x):
        return self.layer(x)


def test_a_parameter_that_is_a_buffer_too_is_trained_alone_as_among_others():
    model = {"factory": f"{__name__}:Shared"}
    (alone,) = fits(model, seeds=[0], checkpoints={"every": 3})
    together, _ = fits(model, checkpoints={"every": 3})
    start, end = alone.arrays["weights"]
    np.testing.assert_allclose(end, together.arrays["weights"][-1], rtol=1e-12)
    assert (end != start)[:12].all()  # behind them is the buffer
