"""What is refused by name, with the remedy, and how it is let through."""

import math

import pytest
import torch
from torch import nn
from torch.utils.data import (
    DataLoader,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from curvflow.errors import InputError
from curvflow.tasks.numerics import fisher, ggn, hessian
from curvflow.testing import dense_ggn, sample_gradients

X = torch.linspace(-1, 1, 24).double().reshape(8, 3)
Y = torch.arange(8) % 2
SET = TensorDataset(X, Y)


def net(*layers):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), *layers, nn.Linear(4, 2)).double()


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x):
        return self.linear(x + 0.1 * torch.randn_like(x))


class Jittered(TensorDataset):
    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + torch.rand_like(x), y


REFUSED = {
    "shuffle": (net, DataLoader(SET, 4, shuffle=True), "RandomSampler", "shuffle=F"),
    "subset": (
        net,
        DataLoader(SET, 4, sampler=SubsetRandomSampler(range(8))),
        "SubsetRandomSampler",
        "shuffle=False",
    ),
    "augmentation": (
        net,
        DataLoader(Jittered(X, Y), 4),
        "another at the second",
        "random augmentation",
    ),
    "dropout": (lambda: net(nn.Dropout(0.2)), (X, Y), "Dropout at '1'", "eval"),
    "batch_norm": (
        lambda: net(nn.BatchNorm1d(4)),
        (X, Y),
        "BatchNorm1d at '1' with the statistics of each batch",
        "eval",
    ),
    "untracked": (
        lambda: net(nn.BatchNorm1d(4, track_running_stats=False)).eval(),
        (X, Y),
        "BatchNorm1d at '1'",
        "allow 'batch_norm'",
    ),
    "nondeterminism": (
        lambda: Noisy().double(),
        (X, Y),
        "others at the second call",
        "Remove what draws at random",
    ),
}


@pytest.mark.parametrize("cause", REFUSED)
def test_each_cause_is_refused_by_its_name_with_a_remedy(cause):
    make, data, name, remedy = REFUSED[cause]
    with pytest.raises(InputError, match=f"expected .*{name}.*{remedy}") as refused:
        hessian(make(), "cross_entropy", data)
    # The name to allow is the one in brackets.
    named = str(refused.value).split("(")[1].split(")")[0]
    assert str(refused.value).endswith(f"allow '{named}'.")


@pytest.mark.parametrize(
    "layer", [nn.LSTM(3, 4, 2, dropout=0.5), nn.MultiheadAttention(4, 2, dropout=0.1)]
)
def test_dropout_inside_a_layer_is_found(layer):
    module = nn.ModuleDict({"inner": layer.double()})
    name = type(layer).__name__
    with pytest.raises(InputError, match=rf"dropout\).*{name} at 'inner' in training"):
        ggn(module, "mse", (X, X), forward=lambda m, b: b[0])


def test_batches_that_end_after_one_reading_are_refused():
    with pytest.raises(InputError, match=r"data \(generator\).*Pass a list"):
        ggn(net(), "mse", iter([(X, X)]), allow=["changing_data"])


def test_what_is_allowed_must_be_a_cause():
    with pytest.raises(InputError, match=r"allow: expected some of .*got luck"):
        ggn(net(), "mse", (X, X), allow=["luck"])


def test_a_shuffled_loader_that_is_allowed_changes_no_mean():
    shuffled = DataLoader(SET, 3, shuffle=True)
    result = ggn(net(), "cross_entropy", shuffled, allow=["shuffle"])
    v = torch.ones(result.shape[0], dtype=torch.float64)
    torch.testing.assert_close(result @ v, ggn(net(), "cross_entropy", (X, Y)) @ v)


OTHER_SAMPLES = {
    "with replacement": {"sampler": RandomSampler(SET, replacement=True)},
    "a part of them": {"sampler": RandomSampler(SET, num_samples=3)},
    "by weight": {"sampler": WeightedRandomSampler([1.0] * 8, 8)},
    "the last dropped": {"shuffle": True, "drop_last": True},
}


@pytest.mark.parametrize("name", OTHER_SAMPLES)
def test_an_order_that_is_allowed_lets_no_other_samples_through(name):
    loader = DataLoader(SET, 3, **OTHER_SAMPLES[name])
    assert len(SET) % 3
    torch.manual_seed(0)
    with pytest.raises(InputError, match=r"data \(changing_data\)"):
        ggn(net(), "cross_entropy", loader, allow=["shuffle"])


def test_a_shuffled_part_of_the_samples_is_the_same_part():
    part = DataLoader(SET, 2, sampler=SubsetRandomSampler([1, 3, 4]))
    result = ggn(net(), "cross_entropy", part, allow=["shuffle"])
    v = torch.ones(result.shape[0], dtype=torch.float64)
    chosen = ggn(net(), "cross_entropy", (X[[1, 3, 4]], Y[[1, 3, 4]]))
    torch.testing.assert_close(result @ v, chosen @ v)


class Augmented(TensorDataset):
    """Samples with noise of their own at every reading."""

    def __getitem__(self, row):
        x, y = super().__getitem__(row)
        return x + 0.1 * torch.randn_like(x), y


def test_augmented_samples_are_noticed_though_their_order_is_allowed_to_change():
    shuffled = DataLoader(Augmented(X, Y), 3, shuffle=True)
    with pytest.raises(InputError, match=r"data \(changing_data\).*augmentation"):
        ggn(net(), "cross_entropy", shuffled, allow=["shuffle"])


def test_dropout_that_is_allowed_keeps_its_mask():
    module = net(nn.Dropout(0.5))
    state = torch.random.get_rng_state()

    def made(seed, order="forward_over_reverse"):
        allow = ["dropout", "nondeterminism"]
        return hessian(
            module, "cross_entropy", (X, Y), allow=allow, seed=seed, order=order
        )

    v = torch.ones(made(0).shape[0], dtype=torch.float64)
    torch.testing.assert_close(made(0) @ v, made(0, "retained") @ v)
    columns = torch.stack([v, v], dim=1)
    torch.testing.assert_close((made(0) @ columns)[:, 1], made(0) @ v)
    assert not torch.allclose(made(0) @ v, made(1) @ v)
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize("order", ["forward_over_reverse", "retained"])
def test_statistics_of_the_batch_are_derived_through_and_not_moved(order):
    module = net(nn.BatchNorm1d(4), nn.Tanh())
    before = {name: b.clone() for name, b in module.named_buffers()}
    operator = hessian(
        module, "cross_entropy", (X, Y), allow=["batch_norm"], order=order
    )
    result = operator @ torch.eye(operator.shape[0], dtype=torch.float64)
    for name, buffer in module.named_buffers():
        assert torch.equal(buffer, before[name]), name
    loss = nn.functional.cross_entropy(module(X), Y)
    slopes = torch.autograd.grad(loss, list(module.parameters()), create_graph=True)
    rows = [
        torch.cat(
            [
                g.flatten()
                for g in torch.autograd.grad(
                    entry,
                    list(module.parameters()),
                    retain_graph=True,
                    materialize_grads=True,
                )
            ]
        )
        for entry in torch.cat([s.flatten() for s in slopes])
    ]
    torch.testing.assert_close(result, torch.stack(rows), rtol=0, atol=1e-12)
    assert module.training
    assert module[1].track_running_stats


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"params": ["2.*"]}, "params: expected names of parameters.*got 2"),
        ({"loss": nn.MSELoss(reduction="sum")}, "loss: expected the mean over a batch"),
        ({"data": []}, "data: expected batches"),
        ({"data": [("a", "b")]}, "data: expected tensors in a batch"),
        ({"data": X}, r"data: expected batches \(inputs, targets\).*got a tensor"),
        ({"data": [X, Y]}, r"data: expected batches \(inputs, targets\).*got a tensor"),
        ({"data": (X[:, :2], Y)}, "module: expected to take a batch, got RuntimeError"),
        ({"data": (X, Y[:3])}, "loss: expected to take a batch, got RuntimeError"),
        ({"data": (X * torch.nan, Y)}, "loss: expected a finite mean.*got nan"),
        ({"data": {"inputs": X, "y": Y}}, "expected 'targets' .* got inputs, y"),
        ({"loss": "cross_entrop"}, "loss: expected one of cross_entropy, mse.*_entrop"),
        ({"loss": "mse"}, r"data: expected targets of the shape.*got \(\d+,\)"),
        ({"loss": lambda f, y: None}, "loss: expected to take a batch, got Attribute"),
        ({"forward": lambda m, b: (m(b[0]),)}, "tensor of outputs, got tuple"),
    ],
)
def test_other_requests_are_refused(wrong, message):
    take = {"loss": "cross_entropy", "data": (X, Y), **wrong}
    with pytest.raises(InputError, match=message):
        ggn(net(), take.pop("loss"), take.pop("data"), **take)


@pytest.mark.parametrize("num_products", [1, math.inf])
def test_a_loss_that_left_torch_is_refused_when_it_is_derived(num_products):
    def left(outputs, targets):
        return nn.functional.cross_entropy(outputs.detach(), targets)

    operator = hessian(net(), left, (X, Y), num_products=num_products)
    with pytest.raises(InputError, match="loss: expected a function of the weights"):
        operator @ torch.ones(operator.shape[0], dtype=torch.float64)


def test_orders_and_vectors_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match=r"order: expected one of .*got backwards"):
        hessian(net(), "cross_entropy", (X, Y), order="backwards")
    operator = hessian(net(), "cross_entropy", (X, Y))
    for shape in ((operator.shape[0] - 1,), (1, operator.shape[0]), ()):
        with pytest.raises(InputError, match="columns: expected shape"):
            operator @ torch.ones(shape, dtype=torch.float64)


def test_weights_that_are_not_finite_or_mixed_are_refused():
    broken, mixed = net(), net()
    with torch.no_grad():
        broken[0].bias[0] = torch.nan
    mixed[0].float()
    with pytest.raises(InputError, match="module: expected finite parameters"):
        ggn(broken, "cross_entropy", (X, Y))
    with pytest.raises(InputError, match=r"of one precision on one device, got .*32"):
        ggn(mixed, "cross_entropy", (X, Y))


def test_no_parameters_at_all_are_refused():
    with pytest.raises(InputError, match="params: expected names of parameters, got n"):
        hessian(net(), "cross_entropy", (X, Y), params=[])
    frozen = net().requires_grad_(False)
    for params in (None, [], ["*"]):
        with pytest.raises(InputError, match="module: expected parameters that requir"):
            hessian(frozen, "cross_entropy", (X, Y), params=params)


def test_complex_parameters_are_refused():
    module = nn.Linear(2, 1, bias=False)
    module.weight = nn.Parameter(module.weight.detach() * 1j)
    with pytest.raises(InputError, match="module: expected real parameters"):
        hessian(module, "mse", (torch.ones(3, 2), torch.ones(3, 1)))


def test_a_loss_without_a_known_likelihood_has_no_fisher_matrix_of_its_labels():
    smooth = nn.CrossEntropyLoss(label_smoothing=0.1)
    with pytest.raises(InputError, match="known by name for mc, got CrossEntropyLoss"):
        fisher(net(), smooth, (X, Y), kind="mc")
    with pytest.raises(InputError, match="kind: expected type-2, mc or empirical"):
        fisher(net(), smooth, (X, Y), kind="true")


def test_a_loss_that_is_no_mean_of_its_samples_has_no_second_moment():
    weighted = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0]).double())
    with pytest.raises(InputError, match="loss: expected the mean of the samples'"):
        fisher(net(), weighted, (X[:7], Y[:7]), kind="empirical")


@pytest.mark.parametrize("seed", range(4))
def test_batches_without_labels_that_count_are_refused_or_of_no_weight(seed):
    generator = torch.Generator().manual_seed(seed)
    module = nn.Linear(3, 4).double()
    x = torch.randn(9, 3, generator=generator).double()
    labels = torch.randint(4, (9,), generator=generator)
    labels[torch.rand(9, generator=generator) < 0.3] = -100
    parts = list(zip(x.tensor_split([2, 6]), labels.tensor_split([2, 6]), strict=True))
    parts[seed % 3][1].fill_(-100)
    parts[(seed + 1) % 3][1][0] = 2  # one at least counts
    parts[(seed + 2) % 3][1][0] = 1
    loss = nn.CrossEntropyLoss()
    eye = torch.eye(16).double()
    whole = hessian(module, loss, (x, labels)) @ eye

    def size_of(batch):
        return (batch[1] != -100).sum()

    for make in (hessian, ggn):
        with pytest.raises(InputError, match=r"^data: expected a label that counts"):
            make(module, loss, parts) @ eye
        product = make(module, loss, parts, size_of=size_of) @ eye
        torch.testing.assert_close(product, whole)
    for data in ((x, torch.full((9,), -100)), [(x, torch.full((9,), -100))] * 2):
        with pytest.raises(InputError, match=r"^data: expected "):
            hessian(module, loss, data, size_of=size_of) @ eye


@pytest.mark.parametrize("seed", range(4))
def test_batches_of_weighted_classes_are_weighted_by_size_of(seed):
    generator = torch.Generator().manual_seed(seed)
    module = nn.Linear(3, 4).double()
    x = torch.randn(9, 3, generator=generator).double()
    labels = torch.randint(4, (9,), generator=generator).sort().values
    weight = torch.rand(4, generator=generator).double() + 0.1
    parts = list(zip(x.tensor_split([2, 6]), labels.tensor_split([2, 6]), strict=True))
    loss, eye = nn.CrossEntropyLoss(weight=weight), torch.eye(16).double()
    whole = hessian(module, loss, (x, labels)) @ eye
    apart = hessian(module, loss, parts, size_of=lambda batch: weight[batch[1]].sum())
    torch.testing.assert_close(apart @ eye, whole)


@pytest.mark.parametrize("twin", [dense_ggn, sample_gradients])
def test_twins_by_samples_refuse_a_loss_that_is_no_mean_over_them(twin):
    net = torch.nn.Linear(2, 3)
    x, y = torch.randn(6, 2), torch.arange(6) % 3
    weighted = torch.nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 5.0]))
    with pytest.raises(InputError, match="expected the mean of the samples' losses"):
        twin(net, weighted, x, y)
    twin(net, torch.nn.CrossEntropyLoss(label_smoothing=0.1), x, y)
