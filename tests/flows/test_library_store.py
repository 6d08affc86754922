"""A store keeps the library's results by content, and refuses what it cannot know."""

import copy
import dataclasses
import importlib
from collections import OrderedDict

import numpy as np
import pytest
import scipy
import torch
from torch import nn
from torch.distributions.transforms import AffineTransform
from torch.utils.data import DataLoader, TensorDataset

import curvflow
from curvflow.errors import InputError
from curvflow.flows import library_store
from curvflow.schemas.keys import sha256

CODE = """
import torch
from torch import nn

POWER = {power}


class Net(nn.Module):
    def __init__(self, width=3):
        super().__init__()
        self.inner, self.outer = nn.Linear(4, width), nn.Linear(width, 2)
        self.register_buffer("scale", torch.ones(()))
        self.width = width

    def forward(self, x):
        return self.outer(self.act(self.inner(x))) * self.scale

    def act(self, x):
        return torch.tanh(x) ** POWER


def loss(outputs, targets):
    return (outputs - targets).abs().pow(3).mean()


def called(module, batch):
    return module(batch[0])
"""


@pytest.fixture
def nets(tmp_path, monkeypatch):
    """Return a module of the user's with a network and a loss."""
    (tmp_path / "nets_of_mine.py").write_text(CODE.format(power=1), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "nets_of_mine", raising=False)
    return importlib.import_module("nets_of_mine")


@pytest.fixture
def computed(monkeypatch):
    """Return a list that each probe which is computed adds its kind to."""
    kinds, probe = [], library_store.StoreMemory.__call__

    def counted(self, asked):
        def compute():
            kinds.append(asked.kind.name)
            return asked.compute()

        return probe(self, dataclasses.replace(asked, compute=compute))

    monkeypatch.setattr(library_store.StoreMemory, "__call__", counted)
    return kinds


def made(nets, **changes):
    torch.manual_seed(0)
    net = nets.Net().double()
    x, y = torch.randn(9, 4).double(), torch.rand(9, 2).double()
    return {"module": net, "loss": nets.loss, "data": (x, y), **changes}


def trace(tmp_path, given, **settings):
    H = curvflow.hessian(
        **given, order="retained", store=tmp_path / "store", **settings
    )
    return H.trace(4)


def test_an_equal_problem_is_read_and_not_computed(tmp_path, nets, computed):
    first = trace(tmp_path, made(nets))
    again = trace(tmp_path, made(nets))
    assert computed == ["probe.trace"]
    assert again.draws.tolist() == first.draws.tolist()
    assert again.layers == first.layers
    assert repr(again) == repr(first)


def test_parameters_of_a_method_are_part_of_the_key(tmp_path, nets, computed):
    H = curvflow.ggn(**made(nets), store=tmp_path / "store")
    for seed in (0, 1, 0):
        H.trace(4, seed=seed)
    H.eigenvalues(2)
    curvflow.fisher(**made(nets), kind="empirical", store=tmp_path / "store").trace(4)
    assert computed == [*["probe.trace"] * 2, "probe.eigenvalues", "probe.trace"]


def changed(given, what):
    net, (x, y) = given["module"], given["data"]
    with torch.no_grad():
        if what == "weights":
            net.inner.bias[0] += 1e-9
        if what == "buffer":
            net.scale += 1
    if what == "attribute":
        net.width = 4
    if what == "inputs":
        x[0, 0] += 1e-9
    changes = {
        "loss": {"loss": nn.MSELoss()},
        "named loss": {"loss": "mse"},
        "batches": {"data": [(x[:4], y[:4]), (x[4:], y[4:])]},
        "params": {"params": ["outer.*"]},
    }
    return given | changes.get(what, {})


CHANGES = ["weights", "buffer", "attribute", "inputs", "loss", "named loss", "batches"]


@pytest.mark.parametrize("what", [*CHANGES, "params"])
def test_what_changes_the_result_changes_the_key(what, tmp_path, nets, computed):
    trace(tmp_path, made(nets))
    trace(tmp_path, changed(made(nets), what))
    assert computed == ["probe.trace"] * 2


def test_code_that_a_module_calls_is_part_of_the_key(tmp_path, nets, computed):
    first = trace(tmp_path, made(nets))
    code = CODE.format(power=3)
    (tmp_path / "nets_of_mine.py").write_text(code, encoding="utf-8")
    exec(code, vars(nets))  # what a new process would import
    assert trace(tmp_path, made(nets)).value != first.value
    (tmp_path / "nets_of_mine.py").write_text(
        f"{code}\n\n# a remark\n", encoding="utf-8"
    )
    trace(tmp_path, made(nets))
    assert computed == ["probe.trace"] * 2


def test_a_loader_and_its_batches_are_equal(tmp_path, nets, computed):
    given = made(nets)
    x, y = given["data"]
    loader = DataLoader(TensorDataset(x, y), batch_size=4)
    trace(tmp_path, given | {"data": loader})
    trace(tmp_path, given | {"data": [list(batch) for batch in loader]})
    assert computed == ["probe.trace"]


def test_a_matrix_is_known_by_its_entries(tmp_path, computed):
    A = torch.diag(torch.arange(1.0, 6.0).double())
    for matrix in (A, A.numpy(), A + 1e-12 * torch.eye(5)):
        curvflow.from_matrix(matrix, store=tmp_path / "store").trace(4)
    assert computed == ["probe.trace"] * 2


def test_a_graph_is_known_by_its_rows_and_its_matrix_by_name(tmp_path, computed):
    path = torch.diag(torch.ones(3), 1) + torch.diag(torch.ones(3), -1)

    def trace(adjacency, *settings, **named):
        L = curvflow.from_graph(adjacency, *settings, store=tmp_path, **named)
        return L.trace(4).value

    assert trace(path.numpy()) == trace(scipy.sparse.coo_array(path.numpy()))
    assert len(computed) == 1
    trace(path.numpy(), "laplacian")
    trace(2 * path.numpy(), "laplacian")
    for r in (1.5, 2.5):
        trace(path.numpy(), "bethe_hessian", r=r)
    assert len(computed) == 5


CHAINS = {
    "calibrate": "none",
    "sampling_method": "sgld",
    "lr": 1e-3,
    "localization": 1.0,
    "num_burnin_steps": 0,
    "num_chains": 2,
    "num_draws": 8,
    "num_steps_bw_draws": 1,
}


def chains(tmp_path, nets, function=curvflow.llc, **changes):
    net, loss, data = made(nets).values()
    called = {"loss": loss, "store": tmp_path / "store", **CHAINS, **changes}
    with torch.no_grad():
        net.inner.bias[0] += called.pop("moved", 0)
    return function(net, data=data, **called)


def test_equal_chains_are_read_and_not_drawn(tmp_path, nets, computed):
    first, again = (chains(tmp_path, nets) for _ in range(2))
    assert computed == ["probe.llc"]
    assert again.to_xarray().identical(first.to_xarray())
    assert repr(again) == repr(first)
    assert again.to_xarray().identical(chains(tmp_path, nets, store=None).to_xarray())


def test_what_changes_chains_changes_their_key(tmp_path, nets, computed):
    given = made(nets)
    factors = curvflow.kronecker(given["module"], "mse", given["data"])
    for changes in (
        {},
        {"moved": 1e-9},
        {"seed": 1},
        {"loss": "mse"},
        {"dtype": "float32"},
        {"layers": ["inner.*"]},
        {"forward": nets.called},
        {"loss": "mse", "preconditioner": factors},
    ):
        before = len(computed)
        chains(tmp_path, nets, **changes)
        assert len(computed) == before + 1, changes


def test_a_criterion_and_a_coefficient_share_their_draws(tmp_path, nets, computed):
    criterion = chains(tmp_path, nets, curvflow.wbic)
    fit = chains(tmp_path, nets)
    assert computed == ["probe.llc"]
    assert criterion.llc.to_xarray().identical(fit.to_xarray())


def test_chains_of_what_cannot_be_known_are_refused(tmp_path, nets):
    with pytest.raises(InputError, match=r"<lambda>.* as forward"):
        chains(tmp_path, nets, forward=lambda module, batch: module(batch[0]))
    assert not (tmp_path / "store").exists()


def test_a_damaged_result_is_computed_again(tmp_path, nets, computed):
    H = curvflow.hessian(**made(nets), order="retained", store=tmp_path / "store")
    first = H.trace(4)
    (receipt,) = H._memory.store.index().receipts.values()
    for file in (tmp_path / "store").rglob("*"):
        if file.is_file() and receipt.payload in str(file):
            file.write_bytes(b"")
    again = curvflow.hessian(**made(nets), order="retained", store=tmp_path / "store")
    assert again.trace(4).draws.tolist() == first.draws.tolist()
    assert computed == ["probe.trace"] * 2


class Holder(nn.Linear):
    """A layer with a further attribute."""

    def __init__(self, held):
        super().__init__(4, 2)
        self.held = held


class Steps:
    """Items that can be iterated, and more that they do not show."""

    def __init__(self, power):
        self.power = power

    def __iter__(self):
        return iter([1, 2])


def identity(module):
    return sha256(library_store._identity("module", module))


def layers():
    torch.manual_seed(0)
    return nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3), nn.Tanh()


def tied(first, second):
    first, other, last, act = layers()
    last.weight = (first, other)[second].weight
    return nn.Sequential(first, act, other, act, last)


def chain(*numbers):
    of = layers()
    return nn.Sequential(*(of[number] for number in numbers))


def named(*names):
    first, *_, act = layers()
    of = {"linear": first, "act": act}
    return nn.Sequential(OrderedDict((name, of[name]) for name in names))


@pytest.mark.parametrize(
    "several",
    [
        lambda: [chain(0, 3, 1), chain(0, 3, 1, 3)],
        lambda: [named("linear", "act"), named("act", "linear")],
        lambda: [tied(0, second) for second in (0, 1)],
        lambda: [chain(0).train(mode) for mode in (True, False)],
        lambda: [chain(0).requires_grad_(mode) for mode in (True, False)],
        lambda: [chain(0).to(dtype) for dtype in (torch.float32, torch.float64)],
    ],
)
def test_modules_that_compute_differently_have_different_keys(several):
    assert len({identity(module) for module in several()}) == 2
    assert identity(several()[0]) == identity(several()[0])


def test_attributes_that_differ_make_different_keys():
    held = [{1: 2}, {"1": 2}, [("1", 2)], ["1"], float("inf"), float("-inf"), "inf"]
    held += [torch.ones(2, dtype=dtype) for dtype in (torch.bfloat16, torch.float32)]
    held += [nn.ReLU, nn.Tanh, torch.float32, torch.float64, torch.device("cpu")]
    keys = set()
    for each in held:
        torch.manual_seed(0)
        keys.add(identity(Holder(each)))
    assert len(keys) == len(held)


def test_a_recurrent_layer_has_a_key():
    torch.manual_seed(0)
    layer = nn.LSTM(2, 2)
    assert identity(layer) == identity(copy.deepcopy(layer))


@pytest.mark.parametrize(
    "held",
    [
        AffineTransform(0.0, 2.0),
        Steps(1),
        nn.functional.max_pool1d,
        torch.eye(3).to_sparse(),
        np.array([object()]),
        nn.CrossEntropyLoss(label_smoothing=0.1).forward,
    ],
)
def test_an_attribute_that_hides_values_is_refused(held):
    with pytest.raises(InputError, match=r"module\.held"):
        identity(Holder(held))


def test_a_module_that_holds_itself_is_refused(tmp_path, nets):
    given = made(nets)
    given["module"].width = [given["module"]]
    with pytest.raises(InputError, match="holds itself"):
        trace(tmp_path, given)


def test_what_has_changed_since_is_not_kept_under_its_old_key(tmp_path, nets):
    given = made(nets)
    H = curvflow.hessian(**given, order="retained", store=tmp_path / "store")
    H.trace(4)
    given["module"].scale += 1
    with pytest.raises(InputError, match="changed since"):
        H.trace(4, seed=1)


def hooked(net):
    net.inner.register_forward_hook(lambda *_: None)
    return net


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda of: {"loss": lambda f, y: (f - y).mean() ** 2}, r"<lambda>.* as loss"),
        (lambda of: {"module": Holder(object()).double()}, r"object as module\.held"),
        (lambda of: {"module": hooked(copy.deepcopy(of["module"]))}, r"module\.inner"),
        (lambda of: {"forward": lambda m, b: m(b[0])}, r"<lambda>.* as forward"),
    ],
)
def test_what_cannot_be_known_is_refused_by_name(change, named, tmp_path, nets):
    given = made(nets)
    with pytest.raises(InputError, match=f"store cannot be combined with .*{named}"):
        trace(tmp_path, given | change(given))
    assert not (tmp_path / "store").exists()


def test_a_map_known_by_its_products_is_refused(tmp_path):
    kernel = curvflow.from_matrix(torch.eye(3)).to_scipy()
    with pytest.raises(InputError, match="known by its products"):
        curvflow.from_matrix(kernel, store=tmp_path)
