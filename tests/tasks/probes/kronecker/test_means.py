"""Losses that are the mean over samples, or not, whatever the batches hold."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import curvflow
from curvflow.errors import InputError
from curvflow.tasks.numerics.derivatives import batches

TAKING = {
    "kronecker": lambda *given: curvflow.kronecker(*given, psd="clip").operator,
    "empirical": lambda *given: curvflow.fisher(*given, kind="empirical"),
    "covariance": curvflow.gradient_covariance,
}
# Factors take tensors alone.
MOMENTS = {name: TAKING[name] for name in ("empirical", "covariance")}


class Counted:
    """Batches that count how often one of them is read."""

    def __init__(self, *batches):
        self.batches, self.num_reads = batches, 0

    def __iter__(self):
        for batch in self.batches:
            self.num_reads += 1
            yield batch


def inputs_of(samples, seed=0, features=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(samples, features, generator=generator).double()


def net_of(outputs, features=3):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Linear(features, outputs).double()


def refused(net, loss, data, match=r"^loss: expected the mean of", taking=TAKING):
    for take in taking.values():
        with pytest.raises(InputError, match=match):
            take(net, loss, data)


def weighted_bce(f, y):
    weight = 1 + 8 * y
    losses = F.binary_cross_entropy_with_logits(f, y, reduction="none")
    return (weight * losses).sum() / weight.sum()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bool, torch.bfloat16])
def test_labels_that_are_real_numbers_are_mixed_as_others(dtype):
    x, y = inputs_of(24), (torch.arange(24) == 14).to(dtype).unsqueeze(1)

    def loss(f, y):
        return weighted_bce(f, y.to(f))

    parts = list(zip(x.split(6), y.split(6), strict=True))  # the first of one class
    refused(net_of(1), loss, parts)


@pytest.mark.parametrize("form", ["dictionary", "list"])
def test_labels_in_any_structure_are_mixed(form):
    x, y = inputs_of(24), torch.arange(24) % 3
    y[14] = -100

    def loss(f, targets):
        labels = targets["labels"] if form == "dictionary" else targets[0]
        return F.cross_entropy(f, labels)

    parts = [
        (x, {"labels": y} if form == "dictionary" else [y])
        for x, y in zip(x.split(6), y.split(6), strict=True)
    ]
    refused(net_of(3), loss, parts, r"^data: expected samples that have a", MOMENTS)


def test_inputs_without_targets_have_labels_beside_other_tensors():
    x, y = inputs_of(24), torch.arange(24) % 3
    y[14] = -100
    parts = [{"x": x, "labels": y} for x, y in zip(x.split(6), y.split(6), strict=True)]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = net_of(3)

        def forward(self, x, labels):
            return self.linear(x)

    refused(
        Net(),
        lambda f, batch: F.cross_entropy(f, batch["labels"]),
        parts,
        r"^data: expected samples that have a",
        MOMENTS,
    )


@pytest.mark.parametrize("heavy", [399, range(256, 400), range(1, 400)])
def test_each_of_many_labels_is_compared(heavy):
    weight = torch.ones(400).double()
    weight[heavy] = 5.0
    x, y = inputs_of(800), torch.arange(800) // 2
    data = list(zip(x.split(40), y.split(40), strict=True))
    net = net_of(400)
    refused(net, lambda f, y: F.cross_entropy(f, y, weight=weight), data)

    def each(f, y):
        return weight[y] * F.cross_entropy(f, y, reduction="none")

    TAKING["empirical"](net, each, data)


@pytest.mark.parametrize("samples", [2, 3, 5])
def test_labels_of_large_outputs_are_compared_a_few_at_a_time(monkeypatch, samples):
    monkeypatch.setattr(batches, "MOST_NUMBERS", samples * 6)
    x, y = inputs_of(90), torch.zeros(90, 2, dtype=torch.long)
    y[50, 1] = 1
    weight = torch.tensor([1.0, 5.0, 1.0]).double()

    def loss(f, y):
        return F.cross_entropy(f.unflatten(1, (3, 2)), y, weight=weight)

    data = list(zip(x.split(9), y.split(9), strict=True))
    refused(net_of(6), loss, data)


@pytest.mark.parametrize("place", [1, 5])
def test_a_small_weight_of_a_label_within_a_later_batch_is_found(place):
    x, y = inputs_of(32), torch.zeros(32, dtype=torch.long)
    y[16 + place] = 1
    net = net_of(2)
    weight = torch.tensor([1.0, 1.03]).double()

    def loss(f, y):
        return F.cross_entropy(f, y, weight=weight)

    # By so much the mean of a batch and the mean over its samples differ.
    chosen = [0, 7, 8, 15, 16, 16 + place, 23, 24, 31]
    f, labels = net(x[: len(chosen)]).detach(), y[chosen]
    losses = F.cross_entropy(f, labels, reduction="none")
    apart = abs(float(loss(f, labels) - losses.mean()) / float(losses.mean()))
    assert 3e-4 < apart < 3e-3
    data = list(zip(x.split(8), y.split(8), strict=True))
    refused(net, loss, data)


def values_of(f, y):
    return (f - y).square().mean()


LOSSES = {
    "mse": ("mse", 2),
    "cross_entropy": ("cross_entropy", 2),
    "MSELoss": (nn.MSELoss(), 2),
    "BCEWithLogitsLoss": (nn.BCEWithLogitsLoss(), 2),
    "PoissonNLLLoss": (nn.PoissonNLLLoss(), 2),
    "mse_loss": (F.mse_loss, 2),
    # Of 8 values a batch, 256 of which are not those of labels.
    "function": (values_of, 2 + 32),
}


@pytest.mark.parametrize("name", LOSSES)
def test_no_more_batches_are_read_than_are_taken_from(name):
    loss, most = LOSSES[name]
    x, y = inputs_of(800), torch.rand(800, 1).double()
    if name == "cross_entropy":
        y = torch.arange(800) % 3
    data = Counted(*zip(x.split(8), y.split(8), strict=True))
    net = net_of(3 if name == "cross_entropy" else 1)
    curvflow.ggn(net, loss, data)
    least, data.num_reads = data.num_reads, 0
    TAKING["empirical"](net, loss, data)
    assert data.num_reads <= least + most


def test_a_class_derived_from_one_of_torch_is_not_taken_for_it():
    class Weighted(nn.BCEWithLogitsLoss):
        def forward(self, f, y):
            return weighted_bce(f, y)

    x, y = inputs_of(24), (torch.arange(24) % 12 == 6).double().unsqueeze(1)
    refused(net_of(1), Weighted(), list(zip(x.split(6), y.split(6), strict=True)))


HALVES = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("dtype", HALVES)
def test_the_mean_is_taken_in_half_precision(dtype, seed):
    x, y = inputs_of(64, seed).to(dtype), torch.arange(64) % 3
    targets = inputs_of(64, seed + 100).to(dtype)
    net = net_of(3).to(dtype)
    constant = nn.CrossEntropyLoss(weight=torch.ones(3, dtype=dtype))
    for loss, of in (
        (nn.CrossEntropyLoss(), y),
        (lambda f, y: F.cross_entropy(f, y), y),
        (constant, y),
        (nn.MSELoss(), targets),
        (values_of, targets),
        (nn.BCEWithLogitsLoss(), targets.sigmoid()),
    ):
        for data in ((x, of), list(zip(x.split(16), of.split(16), strict=True))):
            curvflow.fisher(net, loss, data, kind="empirical")
            curvflow.gradient_covariance(net, loss, data)


@pytest.mark.parametrize("held", [torch.float32, None], ids=["single", "half"])
@pytest.mark.parametrize("dtype", HALVES)
def test_weights_of_classes_are_found_in_half_precision(dtype, held):
    weight = torch.tensor([1.0, 1.0, 2.5]).to(held or dtype)

    def loss(f, y):
        return F.cross_entropy(f.to(weight), y, weight=weight)

    x, y = inputs_of(12).to(dtype), torch.arange(12) % 3
    refused(net_of(3).to(dtype), loss, (x, y))


@pytest.mark.parametrize("weight", [1.0, 2.5])
def test_equal_weights_of_classes_are_those_of_none(weight):
    x, y = inputs_of(24), torch.arange(24) % 3
    net, eye = net_of(3), torch.eye(12).double()
    loss = nn.CrossEntropyLoss(weight=torch.full((3,), weight).double())
    for take in TAKING.values():
        expected = take(net, nn.CrossEntropyLoss(), (x, y)) @ eye
        torch.testing.assert_close(take(net, loss, (x, y)) @ eye, expected)
    logs, nll = nn.Sequential(net, nn.LogSoftmax(1)), nn.NLLLoss(weight=loss.weight)
    found = curvflow.gradient_covariance(logs, nll, (x, y)) @ eye
    expected = curvflow.gradient_covariance(net, loss, (x, y)) @ eye
    torch.testing.assert_close(found, expected)


MODES = {
    "type-2": {},
    "projection": {"fisher_type": "projection", "mc_samples": 4_000},
    "mc": {"fisher_type": "mc", "mc_samples": 4_000},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("spread", [0.0, 3.0])
def test_probabilities_of_any_sum_weigh_their_sample(mode, spread):
    x, generator = inputs_of(12), torch.Generator().manual_seed(1)
    q = torch.rand(12, 3, generator=generator).double()
    q /= q.sum(1, keepdim=True)
    if spread:
        q *= 1 + spread * torch.rand(12, 1, generator=generator).double()
        q[3] = 0
    net = nn.Sequential(net_of(2), nn.Tanh(), net_of(3, features=2))
    eye = torch.eye(17).double()
    G = curvflow.ggn(net, nn.CrossEntropyLoss(), (x, q)) @ eye
    given = {"structure": "block", **MODES[mode]}
    K = curvflow.kronecker(net, nn.CrossEntropyLoss(), (x, q), **given)
    room = 1e-12 if mode == "type-2" else 0.05
    for rows in (slice(0, 8), slice(8, 17)):
        apart = (K @ eye - G)[rows, rows].norm() / G[rows, rows].norm()
        assert apart < room


def test_probabilities_of_no_sum_are_refused():
    x, q = inputs_of(12), torch.full((12, 3), 0.3).double()
    q[4, 1] = -2.0
    with pytest.raises(InputError, match=r"^data: expected sums .* got -1.4\. "):
        curvflow.kronecker(net_of(3), nn.CrossEntropyLoss(), (x, q))
