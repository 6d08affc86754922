"""Full precision within a block, and layers called in another way."""

import copy
import itertools

import pytest
import torch
from torch import nn
from torch.func import functional_call, vjp
from torch.nn import functional as F

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.problems import pose
from curvflow.tasks.numerics import full_precision, ggn, hessian, residual
from curvflow.tasks.numerics.derivatives.differentiation_modes import ORDERS
from curvflow.tasks.numerics.derivatives.gauss_newton import BatchedGaussNewton
from curvflow.tasks.numerics.derivatives.hessians import BatchedHessian
from curvflow.tasks.numerics.derivatives.precision import (
    StepByStep,
    derivative_along,
    fuses_steps,
    reroute,
)
from curvflow.tasks.training.fit import Fit
from curvflow.testing import assert_operator_is, dense, dense_ggn, dense_hessian
from tests.tasks.toys import (
    as_data,
    blobs,
    make_padded,
    make_stopped,
    make_strided,
    train_all,
    train_member,
)


def test_reduced_precision_is_off_inside_and_back_outside():
    torch.set_float32_matmul_precision("high")
    try:
        with full_precision():
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_training_is_in_full_precision_and_its_convolutions_have_cudnn(monkeypatch):
    cudnn, seen = torch.backends.cudnn, []
    before = cudnn.enabled, cudnn.deterministic, cudnn.allow_tf32

    def run(*_):
        seen.append((cudnn.enabled, cudnn.deterministic, cudnn.allow_tf32))
        raise InputError("seen")

    monkeypatch.setattr(Fit, "run", run)
    monkeypatch.setattr(cudnn, "allow_tf32", True)
    with pytest.raises(InputError, match="seen"):
        train_all([train_member(blobs())])
    assert seen == [(before[0], True, False)]
    assert (cudnn.enabled, cudnn.deterministic) == before[:2]
    assert cudnn.allow_tf32


NETS = {"make_padded": make_padded, "make_strided": make_strided}


def made(name):
    torch.manual_seed(0)
    module = NETS[name]().double()
    x = torch.randn(6, 4, 2).double() if name == "make_strided" else tokens()
    return module, x, torch.arange(6) % 3


def assert_matrix(operator, expected):
    """Check the matrix of an operator alone, where many settings are compared."""
    near = {"rtol": 0, "atol": 1e-10 * float(expected.abs().max())}
    torch.testing.assert_close(dense(operator), expected, **near)


def assert_matrix_and_sums(operator, expected):
    """Check the matrix of an operator, and a product with one vector after it."""
    assert_matrix(operator, expected)
    room = 1e-10 * float(expected.abs().max()) * len(expected)
    sums = operator @ torch.ones_like(expected[0])
    torch.testing.assert_close(sums, expected.sum(1), rtol=0, atol=room)


def tokens():
    ids = torch.randint(0, 4, (6, 5))
    assert (ids == 1).any()
    return ids


@pytest.mark.parametrize("name", NETS)
def test_operators_of_a_module_are_those_of_its_gradients(name):
    module, x, y = made(name)
    twin = dense_hessian(module, F.cross_entropy, x, y)
    # Batched cotangents of a group norm fail within torch.
    orders = ORDERS if name == "make_padded" else ("forward_over_reverse", "linearised")
    for order in orders:
        assert_operator_is(hessian(module, "cross_entropy", (x, y), order=order), twin)
    twin = dense_ggn(module, F.cross_entropy, x, y)
    assert_operator_is(ggn(module, "cross_entropy", (x, y)), twin)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())


@pytest.mark.parametrize("name", NETS)
def test_products_of_a_study_are_those_of_the_gradients_of_its_modules(name):
    module, x, y = made(name)
    model = parse_model({"factory": f"tests.tasks.toys:{name}"})
    problem = pose(model, "auto", as_data(dataset(x.numpy(), y.numpy())))
    assert problem.network.note == ""
    weights_MD = torch.randn(2, problem.network.num_parameters).double()
    columns = torch.eye(weights_MD.shape[1]).double().expand(2, -1, -1)
    found = BatchedHessian(problem.losses, weights_MD, x[None], y[None]) @ columns
    for H_DD, weights_D in zip(found, weights_MD, strict=True):

        def loss(w_D):
            named = problem.network.layout.named(w_D[None])
            tensors = {name: stacked[0] for name, stacked in named.items()}
            return F.cross_entropy(functional_call(module, tensors, (x,)), y)

        twin = torch.autograd.functional.hessian(loss, weights_D)
        torch.testing.assert_close(H_DD, twin, rtol=1e-10, atol=1e-12)


def test_a_tied_head_is_derived_by_where_the_padding_is_not():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(4, 2, padding_idx=1)
            self.head = nn.Linear(2, 4, bias=False)
            self.head.weight = self.tokens.weight

        def forward(self, ids):
            return self.head(self.tokens(ids).tanh().mean(1))

    _, x, y = made("make_padded")
    module = Tied().double()
    twin = dense_hessian(module, F.cross_entropy, x, y)
    assert twin[2:4].abs().max() > 0
    order = "forward_over_reverse"
    assert_operator_is(hessian(module, "cross_entropy", (x, y), order=order), twin)


class Normed(nn.Module):
    """A norm of images whose places are the tokens of what follows."""

    def __init__(self, norm, sides, *, by_name=False):
        super().__init__()
        self.first = nn.Linear(1, 2)
        self.norm, self.last = norm, nn.Linear(12, 3)
        self.by_name, self.sides = by_name, sides

    def forward(self, x):
        images = self.first(x).mT.contiguous().unflatten(2, self.sides)
        images = self.norm(input=images) if self.by_name else self.norm(images)
        assert images.shape[2:] == self.sides
        return self.last(images.flatten(2).mT.flatten(1).tanh())


class OfFourSides(nn.BatchNorm2d):
    """A norm of the user's that counts the sides of its inputs."""

    def forward(self, x):
        _, _, _, _ = x.shape
        return super().forward(x)


def normed(norm, sides=(2, 3), **how):
    torch.manual_seed(0)
    module = Normed(norm, sides, **how).double()
    module(torch.randn(5, 6, 1).double())
    return module.eval(), torch.randn(1, 6, 1).double(), torch.tensor([1])


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("norm", [nn.BatchNorm2d, nn.BatchNorm3d])
def test_norms_of_the_images_of_one_sample_are_derived(norm, by_name):
    sides = (2, 3) if norm is nn.BatchNorm2d else (1, 2, 3)
    module, x, y = normed(norm(2), sides, by_name=by_name)
    # Of the sample twice, which has the same mean, torch has them right.
    twin = dense_hessian(module, F.cross_entropy, x.repeat(2, 1, 1), y.repeat(2))
    for order in ORDERS:
        of = module, "cross_entropy", (x, y)
        assert_operator_is(hessian(*of, order=order), twin)
    assert not {"forward", "_check_input_dim"} & vars(module.norm).keys()


def test_a_norm_with_a_call_of_its_own_sees_images():
    torch.manual_seed(0)
    norm = OfFourSides(2)
    net = nn.Sequential(nn.Conv2d(1, 2, 1), norm, nn.Flatten(), nn.Linear(8, 3))
    x, y = torch.randn(1, 1, 2, 2).double(), torch.tensor([1])
    module = net.double().eval()
    twin = dense_hessian(module, F.cross_entropy, x, y)
    assert_operator_is(hessian(module, "cross_entropy", (x, y)), twin)


def test_hooks_of_a_norm_see_images():
    module, x, y = normed(nn.BatchNorm2d(2))
    seen = []
    module.norm.register_forward_pre_hook(lambda _, args: seen.append(args[0].shape))
    module.norm.register_forward_hook(
        lambda _, args, outputs: seen.extend([args[0].shape, outputs.shape])
    )
    of = hessian(module, "cross_entropy", (x, y))
    of @ torch.ones(of.shape[0]).double()
    assert set(seen) == {(1, 2, 2, 3)}


def test_a_norm_that_refuses_a_call_is_left_as_it_was():
    norm = nn.BatchNorm2d(2)
    before = set(vars(norm))
    (handle,) = reroute(norm)
    assert not reroute(norm)  # which has one
    for refused in (
        torch.ones(1, 3, 2, 2),
        torch.ones(1, 2, 2),
        torch.ones(1, 2, 2, 2, 2),
    ):
        with pytest.raises((RuntimeError, ValueError), match=r"expected|running"):
            norm(refused)
        assert set(vars(norm)) == before | {"forward"}
    handle.remove()
    assert set(vars(norm)) == before


def test_a_copy_of_a_norm_is_called_by_its_own_statistics():
    norm, x = nn.BatchNorm2d(2).eval(), torch.randn(1, 2, 2, 3)
    reroute(norm)
    copied = copy.deepcopy(norm)
    copied.running_mean += 1
    assert not torch.allclose(copied(x), norm(x))
    torch.testing.assert_close(copied(x), nn.BatchNorm2d.forward(copied, x))


STOPS = ["no_grad", "decorated", "set", "flag", "data", "within", "detach"]


@pytest.mark.parametrize("stopped", [[0], [1], [2], [0, 2], [0, 1]])
@pytest.mark.parametrize("how", STOPS)
def test_what_is_called_without_gradients_has_no_derivatives_forward_either(
    how, stopped
):
    torch.manual_seed(len(stopped))
    module = make_stopped(stopped, how).double()
    x, y = torch.randn(6, 3).double(), torch.arange(6) % 3
    H = dense_hessian(module, F.cross_entropy, x, y)
    G = dense_ggn(module, F.cross_entropy, x, y)
    # A caller may have them switched off as well, whichever layers are stopped.
    for is_enabled in (True, False) if stopped == [0, 2] else (True,):
        with torch.set_grad_enabled(is_enabled):
            for order in ORDERS:
                of = module, "cross_entropy", (x, y)
                assert_matrix(hessian(*of, order=order), H)
                assert_matrix(residual(*of, order=order), H - G)
            assert_matrix(ggn(module, nn.CrossEntropyLoss(), (x, y)), G)
        assert torch._C._is_fwd_grad_enabled()


MODES = ["in training", "in evaluation"]
# Odd batches are stopped whatever the mode, and by the mode all batches or none are.
CALLS = [("in odd batches", "in evaluation", is_first) for is_first in (True, False)]
CALLS += [(when, mode, False) for when, mode in itertools.product(MODES, MODES)]


@pytest.mark.parametrize(("when", "mode", "is_first"), CALLS)
@pytest.mark.parametrize("how", ["no_grad", "flag"])
def test_each_call_of_a_module_tells_for_itself_what_it_stops(
    how, when, mode, is_first
):
    torch.manual_seed(0)
    module = make_stopped([0, 2], how, when).double().train(mode == "in training")
    x, y = torch.randn(8, 3).double(), torch.arange(8) % 3
    odd, even = (x[:3], y[:3]), (x[3:7], y[3:7])
    batches = [odd, even, odd] if is_first else [even, odd]
    count = sum(len(few) for few, _ in batches)

    def mean_of(twin):
        each = [twin(module, F.cross_entropy, *few) * len(few[0]) for few in batches]
        return sum(each) / count

    H, G = mean_of(dense_hessian), mean_of(dense_ggn)
    gauss_newton = ggn(module, "cross_entropy", batches)
    # Again, and in the other mode between: no call is to change another.
    for _ in range(2):
        assert_matrix_and_sums(gauss_newton, G)
        module.train(not module.training)
        ggn(module, "cross_entropy", batches) @ torch.ones(len(G)).double()
        module.train(not module.training)
    for order in ORDERS:
        of = module, "cross_entropy", batches
        assert_matrix_and_sums(hessian(*of, order=order), H)
        assert_matrix(residual(*of, order=order), H - G)


@pytest.mark.parametrize("when", ["in odd batches", *MODES])
@pytest.mark.parametrize("how", ["no_grad", "flag"])
def test_each_call_of_a_study_tells_for_itself_what_is_stopped(how, when):
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)).double()
    kwargs = {"stopped": [0, 2], "how": how, "when": when}
    factory = {"factory": "tests.tasks.toys:make_stopped", "kwargs": kwargs}
    data = as_data(dataset(x.numpy(), (torch.arange(6) % 3).numpy()))
    network = pose(parse_model(factory), "auto", data).network
    assert network.derivatives == "all"
    weights_MD = torch.randn(2, network.num_parameters).double()
    none_MS = weights_MD.new_zeros(2, 0)
    for _, count, is_trained in itertools.product(range(2), (6, 5), (True, False)):
        few = x[None, :count]

        def outputs(w_MD, few=few, is_trained=is_trained):
            if not is_trained:
                return network.outputs(w_MD, few)
            return network.training_outputs(w_MD, none_MS, few, torch.rand)[0]

        values, pull = vjp(outputs, weights_MD)
        cotangent, column = torch.randn_like(values), torch.randn_like(weights_MD)
        tangent = derivative_along(outputs, weights_MD, column)[1]
        back = pull(cotangent)[0]
        torch.testing.assert_close((cotangent * tangent).sum(), (back * column).sum())


@pytest.mark.parametrize("how", STOPS[:5])
def test_networks_of_studies_have_none_forward_either(how):
    x, y = torch.randn(6, 3).double(), torch.arange(6) % 3
    data = as_data(dataset(x.numpy(), y.numpy()))
    found = []
    for name in (how, "detach"):
        kwargs = {"stopped": [0, 2], "how": name}
        factory = "tests.tasks.toys:make_stopped"
        problem = pose(
            parse_model({"factory": factory, "kwargs": kwargs}), "auto", data
        )
        assert problem.network.derivatives == "all"
        torch.manual_seed(0)
        weights_MD = torch.randn(2, problem.network.num_parameters).double()
        columns = torch.eye(weights_MD.shape[1]).double().expand(2, -1, -1)
        of = weights_MD, x[None], y[None]
        take = problem.network.outputs, problem.criterion.of_samples
        found.append(BatchedHessian(problem.losses, *of) @ columns)
        found.append(BatchedGaussNewton(*take, *of) @ columns)
    for one, other in zip(found[:2], found[2:], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


RECURRENT = {
    "lstm": lambda **how: nn.LSTM(3, 4, 2, **how),
    "lstm-both-ways": lambda **how: nn.LSTM(3, 4, bidirectional=True, **how),
    "lstm-projected": lambda **how: nn.LSTM(3, 4, proj_size=2, **how),
    "gru": lambda **how: nn.GRU(3, 4, 2, **how),
    "rnn": lambda **how: nn.RNN(3, 4, **how),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers_step_by_step_are_the_same(name, bias):
    layer = RECURRENT[name](bias=bias, batch_first=True).double()
    x = torch.randn(5, 6, 3).double()
    expected = layer(x)
    with StepByStep():
        torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_recurrent_cells_step_by_step_are_the_same(cell, bias):
    made, x = cell(3, 4, bias=bias).double(), torch.randn(5, 3).double()
    state = made(x)
    expected = made(x, state)
    with StepByStep():
        torch.testing.assert_close(made(x, state), expected)


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU])
def test_packed_sequences_stay_as_they_are(layer):
    made, x = layer(3, 4, batch_first=True), torch.randn(2, 5, 3)
    packed = nn.utils.rnn.pack_padded_sequence(x, [5, 2], batch_first=True)
    expected = made(packed)[0].data
    with StepByStep():
        torch.testing.assert_close(made(packed)[0].data, expected)


def test_steps_are_fused_on_a_gpu_alone():
    net = nn.Sequential(nn.Linear(3, 3), nn.GRUCell(3, 4))
    assert fuses_steps(net, torch.device("cuda:0"))
    assert not fuses_steps(net, torch.device("cpu"))
    assert not fuses_steps(net[0], torch.device("cuda:0"))
