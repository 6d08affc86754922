"""Curvature of any module: against dense twins made with plain autograd."""

from functools import partial

import pytest
import torch
from scipy.sparse.linalg import eigsh
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from curvflow.errors import InputError
from curvflow.tasks.numerics import (
    fisher,
    ggn,
    gradient_covariance,
    hessian,
    lanczos,
    residual,
)
from curvflow.tasks.numerics.derivatives.differentiation_modes import ORDERS
from curvflow.testing import (
    assert_operator_is,
    dense,
    dense_ggn,
    dense_hessian,
    sample_gradients,
)
from tests.tasks.toys import Attention, Recurrent


class Skip(nn.Module):
    """Convolutions with batch norm and a skip around them."""

    def __init__(self):
        super().__init__()
        self.conv1, self.norm = nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2)
        self.conv2, self.out = nn.Conv2d(2, 2, 3, padding=1), nn.Linear(8, 3)

    def forward(self, x):
        x = self.conv1(x)
        x = x + self.conv2(torch.tanh(self.norm(x)))
        return self.out(F.avg_pool2d(x, 2).flatten(1))


class Shared(nn.Module):
    """One layer used twice, under two names."""

    def __init__(self):
        super().__init__()
        self.first, self.out = nn.Linear(4, 4), nn.Linear(4, 3)
        self.second = self.first

    def forward(self, x):
        return self.out(torch.tanh(self.second(torch.tanh(self.first(x)))))


def make_transformer():
    layer = nn.TransformerEncoderLayer(4, 2, 4, dropout=0.0, batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(12, 3))


NETS = {
    "conv-norm-skip": (Skip, (1, 4, 4)),
    "shared": (Shared, (4,)),
    "attention": (Attention, (4,)),
    "lstm": (Recurrent, (4,)),
    "transformer": (make_transformer, (3, 4)),
}


def made(name, samples=7, dtype=torch.float64):
    make, shape = NETS[name]
    torch.manual_seed(0)
    module = make().to(dtype)
    x = torch.randn(samples, *shape, dtype=dtype)
    module(x)  # moves running statistics away from their beginning
    return module.eval(), x, torch.arange(samples) % 3


def assert_equal(result, expected, rtol=1e-10):
    near = {"rtol": 0, "atol": rtol * float(expected.abs().max())}
    torch.testing.assert_close(result, expected, **near)


@pytest.mark.parametrize("name", NETS)
def test_every_operator_is_its_dense_twin(name):
    module, x, y = made(name)
    take = (module, nn.CrossEntropyLoss(), (x, y))
    H, G = (
        dense_hessian(module, F.cross_entropy, x, y),
        dense_ggn(module, F.cross_entropy, x, y),
    )
    rows = sample_gradients(module, F.cross_entropy, x, y)
    E, g = rows.T @ rows / len(x), rows.mean(0)
    order = "forward_over_reverse"
    assert_operator_is(hessian(*take, order=order), H)
    assert_operator_is(residual(*take, order=order), H - G)
    assert_operator_is(ggn(*take), G)
    assert_operator_is(fisher(*take, kind="type-2"), G)
    assert_operator_is(fisher(*take, kind="empirical"), E)
    assert_operator_is(gradient_covariance(*take), E - torch.outer(g, g))


@pytest.mark.parametrize(
    "measured", [hessian, residual, ggn, fisher, gradient_covariance]
)
def test_no_pass_takes_the_fast_path_of_transformer_layers(measured, monkeypatch):
    def refuse(*_):
        raise AssertionError("the fast path has no derivatives")

    monkeypatch.setattr(torch, "_transformer_encoder_layer_fwd", refuse)
    module, x, y = made("transformer")
    kind = {"kind": "mc"} if measured is fisher else {}
    operator = measured(module, nn.CrossEntropyLoss(), (x, y), **kind)
    assert (operator @ torch.ones(operator.shape[0]).double()).isfinite().all()
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("count", [1, 2])
def test_products_are_written_into_given_memory(order, count):
    module, x, y = made("conv-norm-skip")
    H = dense_hessian(module, F.cross_entropy, x, y)
    batches = list(zip(x.split(7 // count), y.split(7 // count), strict=True))
    operator = hessian(module, "cross_entropy", batches, order=order).batched
    start = torch.randn(1, len(H), 2, dtype=H.dtype)
    room = torch.full((1, 2, len(H)), torch.nan, dtype=H.dtype).mT
    operator.multiply_into(start, room)
    assert_equal(room[0], H @ start[0])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("count", [1, 2])
def test_lanczos_takes_the_products_of_every_order(order, count):
    module, (x, y) = small(hidden=1), batch_of(7)
    H = dense_hessian(module, F.cross_entropy, x, y)
    batches = list(zip(x.split(7 // count), y.split(7 // count), strict=True))
    operator = hessian(module, "cross_entropy", batches, order=order).batched
    start = torch.randn(1, len(H), 2, dtype=H.dtype)
    result = lanczos(operator, start, num_steps=len(H))
    # A run may end before, with what the start has a part in.
    for values in result.values[0]:
        held = values[~values.isnan()]
        assert_equal(held[[0, -1]], torch.linalg.eigvalsh(H)[[0, -1]])


OTHERS = [(n, o) for n in NETS for o in ORDERS if o != "forward_over_reverse"]


@pytest.mark.parametrize(("name", "order"), OTHERS)
def test_every_order_gives_the_same_hessian(name, order):
    module, x, y = made(name)
    v = torch.randn(sum(p.numel() for p in module.parameters()), 2).double()
    result, expected = (
        hessian(module, "cross_entropy", (x, y), order=o) @ v
        for o in (order, "forward_over_reverse")
    )
    assert_equal(result, expected)


@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_single_precision_takes_differentiable_routes_too(name):
    exact = made(name)
    module, x, y = made(name, dtype=torch.float32)
    module.load_state_dict(exact[0].state_dict())
    x = exact[1].float()
    twins = (exact[0], F.cross_entropy, exact[1], y)
    H, G = dense_hessian(*twins), dense_ggn(*twins)
    order = "forward_over_reverse"
    result = dense(hessian(module, F.cross_entropy, (x, y), order=order))
    assert_equal(result.double(), H, rtol=1e-4)
    result = dense(ggn(module, F.cross_entropy, (x, y)))
    assert_equal(result.double(), G, rtol=1e-4)


def small(outputs=3, hidden=5):
    torch.manual_seed(0)
    layers = nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, outputs)
    return nn.Sequential(*layers).double()


def batch_of(samples=20, labels=True):
    x = torch.randn(samples, 4, generator=torch.Generator().manual_seed(1)).double()
    return x, torch.arange(samples) % 3 if labels else x[:, :3].sin()


def operators(module, loss, data, **settings):
    take = (module, loss, data)
    return {
        "hessian": hessian(*take, order="retained", **settings),
        "residual": residual(*take, order="retained", **settings),
        "ggn": ggn(*take, **settings),
        "type-2": fisher(*take, kind="type-2", **settings),
        "mc": fisher(*take, kind="mc", mc_samples=2, seed=3, **settings),
        "empirical": fisher(*take, kind="empirical", **settings),
        "covariance": gradient_covariance(*take, **settings),
    }


@pytest.mark.parametrize("loss", ["cross_entropy", "mse", "sse"])
def test_unequal_batches_are_weighted_by_their_sizes(loss):
    x, y = batch_of(labels=loss == "cross_entropy")
    module = small()
    cut = [(x[rows], y[rows]) for rows in (slice(0, 3), slice(3, 14), slice(14, 20))]
    loader = DataLoader(TensorDataset(x, y), batch_size=7)
    whole = operators(module, loss, (x, y))
    v = torch.randn(whole["ggn"].shape[0], 2).double()
    for data in (cut, loader):
        for name, operator in operators(module, loss, data).items():
            assert_equal(operator @ v, whole[name] @ v)


def test_dictionaries_are_taken_as_batches():
    x, y = batch_of()
    module, v = small(), torch.ones(43).double()
    expected = operators(module, "cross_entropy", (x, y))
    named = {"inputs": x, "targets": y}
    for name, operator in operators(module, "cross_entropy", [named]).items():
        assert_equal(operator @ v, expected[name] @ v)

    def loss(outputs, batch):
        return F.cross_entropy(outputs, batch["label"])

    free = {"text": x, "label": y, "language": "none"}
    take = (module, loss, free)
    forward = {"forward": lambda module, batch: module(batch["text"])}
    result = hessian(*take, order="retained", **forward)
    assert_equal(result @ v, expected["hessian"] @ v)
    result = fisher(*take, kind="empirical", **forward)
    assert_equal(result @ v, expected["empirical"] @ v)
    doubled = ggn(module, loss, [free, free], size_of=lambda batch: 7.0, **forward)
    assert_equal(doubled @ v, expected["ggn"] @ v)


@pytest.mark.parametrize(
    ("loss", "name"),
    [
        (nn.CrossEntropyLoss(), "cross_entropy"),
        (nn.CrossEntropyLoss(reduction="none"), "cross_entropy"),
        (F.cross_entropy, "cross_entropy"),
        (nn.MSELoss(), "mse"),
        (F.mse_loss, "mse"),
    ],
)
def test_torch_s_own_losses_are_known_by_name(loss, name):
    batch = batch_of(labels=name == "cross_entropy")
    module, v = small(), torch.ones(43).double()
    result, expected = operators(module, loss, batch), operators(module, name, batch)
    for kind, operator in result.items():
        assert_equal(operator @ v, expected[kind] @ v)


def test_sampled_labels_are_fair():
    module, batch = small(), batch_of()
    v = torch.ones(43).double()
    exact = v @ (ggn(module, "cross_entropy", batch) @ v)
    drawn = torch.stack(
        [
            v @ (fisher(module, "cross_entropy", batch, kind="mc", seed=seed) @ v)
            for seed in range(60)
        ]
    )
    assert drawn.std() > 0
    assert (drawn.mean() - exact).abs() < 5 * drawn.std() / 60**0.5


def test_some_parameters_give_the_block_of_the_whole():
    module, batch = small(), batch_of()
    whole = hessian(module, "cross_entropy", batch, order="retained")
    assert whole.sizes == {"0.weight": 20, "0.bias": 5, "2.weight": 15, "2.bias": 3}
    H = dense(whole)
    subset = hessian(
        module, "cross_entropy", batch, order="retained", params=["2.*", "0.bias"]
    )
    assert list(subset.sizes) == ["0.bias", "2.weight", "2.bias"]
    assert_equal(dense(subset), H[20:, 20:])
    assert_equal(dense(whole.block("2.*", "0.bias")), H[20:, 20:])
    assert_equal(dense(whole.block("2.*").block("2.bias")), H[40:, 40:])
    with pytest.raises(InputError, match=r"block: expected some of 0.weight, .*got 9"):
        whole.block("9.*")
    module[0].requires_grad_(False)
    frozen = hessian(module, "cross_entropy", batch, order="retained")
    assert_equal(dense(frozen), H[25:, 25:])


def test_operators_serve_scipy_and_arithmetic():
    module, batch = small(), batch_of()
    result = operators(module, "cross_entropy", batch)
    H, G = (dense(result[name]) for name in ("hessian", "ggn"))
    assert_equal(dense(result["hessian"] - result["ggn"]), H - G)
    assert_equal(dense(0.5 * (result["ggn"] * 2).shifted(0.1)), G + 0.05 * eye())
    (top,) = eigsh(result["ggn"].to_scipy(), k=1, which="LA", return_eigenvectors=False)
    assert top == pytest.approx(float(torch.linalg.eigvalsh(G)[-1]), rel=1e-8)
    assert result["hessian"].dtype == torch.float64
    assert result["hessian"].adjoint() is result["hessian"]


def eye(size=43):
    return torch.eye(size, dtype=torch.float64)


def test_the_order_is_tried_once_and_reported():
    reported = []
    module, batch = small(), batch_of()
    operator = hessian(module, "cross_entropy", batch, tell=reported.append)
    expected = hessian(module, "cross_entropy", batch, order="retained")
    for _ in range(2):
        assert_equal(operator @ eye()[:, :4], expected @ eye()[:, :4])
    (trial,) = reported
    assert set(trial.seconds) == set(ORDERS) - {"forward_over_reverse"}


def test_a_trial_serves_all_operators_of_a_module_and_no_other_module():
    reported, module, batch = [], small(), batch_of()
    for one in (module, module, small()):
        _ = hessian(one, "cross_entropy", batch, tell=reported.append) @ eye()[:, :4]
    assert reported[0] is reported[1]
    assert reported[0] is not reported[2]


def test_data_in_several_batches_are_not_recorded():
    reported, batch = [], batch_of()
    _ = hessian(small(), "cross_entropy", [batch, batch], tell=reported.append) @ eye()
    assert set(reported[0].seconds) == set(ORDERS) - {"linearised"}


def test_a_module_is_left_as_it_was():
    module, x, y = made("conv-norm-skip")
    before = {name: t.clone() for name, t in module.state_dict().items()}
    shared, z, labels = made("shared")
    rows_of_model = shared.first.weight
    for one, data in ((module, (x, y)), (shared, (z, labels))):
        operator = ggn(one, "cross_entropy", data)
        operator @ torch.ones(operator.shape[0], dtype=torch.float64)
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert shared.first.weight is rows_of_model
    assert isinstance(shared.second.weight, nn.Parameter)


def test_an_order_that_torch_lacks_for_a_module_is_named():
    torch.manual_seed(2)
    layers = nn.Conv2d(1, 2, 2), nn.GroupNorm(2, 2), nn.Flatten(), nn.Linear(32, 2)
    net, x = nn.Sequential(*layers).double(), torch.randn(3, 1, 5, 5).double()
    of = net, nn.CrossEntropyLoss(), (x, torch.arange(3) % 2)
    found = {}
    for order in (*ORDERS, "auto"):
        operator = hessian(*of, order=order)
        eye = torch.eye(operator.shape[0]).double()
        if order == "retained":
            words = f"order: expected one that torch has .*{order} .RuntimeError: "
            with pytest.raises(InputError, match=words):
                operator @ eye
        else:
            found[order] = operator @ eye
    for matrix in found.values():
        torch.testing.assert_close(matrix, found["auto"])


class Failing(nn.Module):
    """Fails of itself on batches of some size."""

    def __init__(self, fails):
        super().__init__()
        self.inner, self.fails = nn.Linear(4, 3), fails

    def forward(self, x):
        if len(x) == 2:
            self.fails(x)
        return self.inner(x).tanh()


def _raising(text):
    def fails(_):
        raise RuntimeError(text)

    return fails


FAILURES = {
    "own": (_raising("trouble with two samples"), "^trouble with two samples"),
    "shape": (lambda x: x @ x, "shapes cannot be multiplied"),
    "memory": (_raising("DefaultCPUAllocator: can't allocate"), "^DefaultCPUAlloc"),
}


@pytest.mark.parametrize("order", [*ORDERS, "auto"])
@pytest.mark.parametrize("name", FAILURES)
def test_what_a_module_raises_is_put_down_to_no_order(name, order):
    fails, words = FAILURES[name]
    net, x, y = Failing(fails).double(), torch.randn(7, 4).double(), torch.ones(7, 3)
    data = [(x[:5], y[:5]), (x[5:], y[5:])]
    operator = hessian(net, "mse", data, order=order)
    with pytest.raises(RuntimeError, match=words):
        operator @ torch.ones(15, dtype=torch.float64)


WITHIN = {
    "mse": F.mse_loss,
    "mse of each": partial(F.mse_loss, reduction="none"),
    "huber": F.smooth_l1_loss,
    "bce": F.binary_cross_entropy_with_logits,
    "poisson": F.poisson_nll_loss,
    "kl": lambda f, y: F.kl_div(f.log_softmax(1), y.softmax(1), reduction="batchmean"),
    "margin": lambda f, y: F.soft_margin_loss(f, y.sign()),
    "gaussian": lambda f, y: F.gaussian_nll_loss(f, y, f.exp()),
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", WITHIN)
def test_a_function_of_a_loss_of_torch_is_derived_in_every_order_or_refused(name):
    torch.manual_seed(4)
    net, x = nn.Linear(4, 3).double(), torch.randn(6, 4).double()
    y = torch.rand(6, 3).double()

    def loss(f, y):
        return (1 + f.square().mean()) * WITHIN[name](f, y).mean()

    twin, refused = dense_hessian(net, loss, x, y), set()
    for order in ("auto", *ORDERS):
        operator = hessian(net, loss, (x, y), order=order)
        try:
            assert_operator_is(operator, twin)
        except InputError:
            refused.add(order)
    assert not refused & {"auto", "reverse_over_reverse"}
    assert "linearised" not in refused or name == "margin"
