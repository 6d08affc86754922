"""Traces by vectors of their own for each batch."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from curvflow.errors import InputError
from curvflow.tasks.numerics import batch_traces, fisher, ggn, hessian, traces
from curvflow.tasks.numerics.operators.base import as_batched
from tests.tasks.sample_means import random_means

LAWS = ["rademacher", "gaussian"]
REPETITIONS = 400


def estimates(means, sizes=None, seeds=None, law="rademacher", **given):
    seeds = range(means.models) if seeds is None else seeds
    given = {"batch_size": 4, "num_probes": 8, **given}
    sizes = sizes or [means.shape[1]]
    return batch_traces(means, sizes, list(seeds), distribution=law, **given)


def trace_of(means):
    return means.matrices.mean(0).trace().item()


@pytest.mark.parametrize("case", range(12))
def test_random_means_are_unbiased_and_their_errors_are_what_they_are_told(case):
    rng = np.random.default_rng(case)
    given = {
        "batch_size": int(rng.integers(1, 8)),
        "num_probes": int(rng.integers(12, 60)),
        "law": LAWS[case % 2],
    }
    means = random_means(case, REPETITIONS)
    found = estimates(means, **given)
    exact, error = trace_of(means), torch.stack([f.sem for f in found])
    off = torch.stack([f.draws.mean(1).sum() for f in found]) - exact
    spread = off.square().mean().sqrt()
    assert off.mean().abs() < 4 * spread / REPETITIONS**0.5
    # Told errors scatter, as do those of few draws; their mean square is that of all.
    assert error.square().mean().sqrt() == pytest.approx(spread.item(), rel=0.2)
    assert (off.abs() < 2 * error).double().mean() > 0.88


def test_the_parts_of_the_error_are_those_of_vectors_and_of_batches_not_seen():
    means = random_means(8, 2)
    few, *_ = estimates(means, num_probes=16)
    whole, *_ = estimates(means, num_probes=4 * means.num_samples)
    assert few.sem_batches > 0
    assert whole.sem_batches == 0
    for one in (few, whole):
        parts = one.sem_vectors**2 + one.sem_batches**2
        assert one.sem == pytest.approx(parts.sqrt().item())


def test_signs_see_diagonal_matrices_exactly_once_all_data_were_seen():
    means = random_means(5, 3)
    matrices = torch.diag_embed(means.matrices.diagonal(dim1=1, dim2=2))
    diagonal = type(means)(matrices, 3)
    for found in estimates(diagonal, num_probes=2 * means.num_samples):
        assert found.draws.mean() == pytest.approx(trace_of(diagonal))
        assert found.sem == pytest.approx(0, abs=1e-12)


def test_blocks_add_up_and_each_has_its_error():
    means = random_means(9, REPETITIONS)
    sizes = [1, means.shape[1] - 1]
    found = estimates(means, sizes, num_probes=16)
    diagonal = means.matrices.mean(0).diagonal()
    exact = torch.stack([part.sum() for part in diagonal.split(sizes)])
    off = torch.stack([f.draws.mean(1) for f in found]) - exact
    told = torch.stack([f.layer_sem for f in found])
    assert ((off.abs() < 2 * told).double().mean(0) > 0.88).all()
    assert estimates(means, num_probes=16)[0].draws.mean() == pytest.approx(
        found[0].draws.mean(1).sum().item()
    )


def test_a_pass_is_ended_once_all_data_were_seen_and_then_only_whole_ones_count():
    means = random_means(1, 1)
    per_pass = -(-means.num_samples // 4)
    for probes in range(4, 8 * per_pass, 7):
        (found,) = estimates(means, num_probes=probes)
        wanted = max(3, -(-probes // 2))
        if wanted >= per_pass:
            assert found.num_batches % per_pass == 0
            assert found.num_batches >= wanted
        else:
            assert found.num_batches == wanted
        work = 2 * found.num_batches * 4 / means.num_samples
        assert work - 2 < found.num_matvecs < work + 2


def test_more_batches_go_on_where_fewer_have_ended():
    means = random_means(2, 1)
    (few,), (more,) = (estimates(means, num_probes=n) for n in (8, 12))
    over = means.num_samples % 4 > 0
    torch.testing.assert_close(more.draws[:, : 4 - over], few.draws)


def test_models_stop_by_themselves_and_do_not_depend_on_each_other():
    means = random_means(4, 6)
    asked = {"rel_sem": 0.1, "num_probes": 8, "max_probes": 4096}
    together = estimates(means, **asked)
    counts = {found.num_batches for found in together}
    assert len(counts) > 1
    for seed, found in enumerate(together):
        (alone,) = estimates(means.select([0]), seeds=[seed], **asked)
        torch.testing.assert_close(alone.draws, found.draws)
        assert (alone.num_batches, alone.reached) == (found.num_batches, found.reached)
        assert found.reached
        assert found.sem <= 0.1 * abs(found.draws.mean(1).sum())


@pytest.mark.parametrize("case", [0, 4, 6, 9])
def test_errors_hold_where_a_small_one_ends_the_draws(case):
    means = random_means(case, REPETITIONS)
    asked = {"num_probes": 32, "rel_sem": 0.05, "max_probes": 1 << 12}
    found = estimates(means, batch_size=3, **asked)
    off = torch.stack([f.draws.mean(1).sum() for f in found]) - trace_of(means)
    told = torch.stack([f.sem for f in found])
    assert np.mean([f.reached for f in found]) > 0.95
    assert (off.abs() < 2 * told).double().mean() > 0.88


def test_fewer_samples_than_a_batch_are_one_batch():
    means = random_means(6, 1)
    (found,) = estimates(means, batch_size=1000, num_probes=64)
    assert (found.num_batches, found.num_matvecs) == (32, 64)
    assert abs(found.draws.mean() - trace_of(means)) < 5 * found.sem


def module_and_data(count=22):
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3)
    ).double()
    return net, torch.randn(count, 3).double(), torch.randint(0, 3, (count,))


@pytest.mark.parametrize("operator", [hessian, ggn])
@pytest.mark.parametrize("probes", [10, 44])
def test_modules_agree_with_their_dense_trace(operator, probes):
    net, x, y = module_and_data()
    A = operator(net, "cross_entropy", (x, y))
    exact = (A @ torch.eye(A.shape[0]).double()).trace()
    sizes = list(A.sizes.values())
    found = [
        batch_traces(
            A, sizes, [s], batch_size=5, num_probes=probes, distribution="rademacher"
        )[0]
        for s in range(8)
    ]
    scores = [float((f.draws.mean(1).sum() - exact) / f.sem) for f in found]
    assert np.sqrt(np.mean(np.square(scores))) < 2


def test_one_batch_of_all_data_is_as_good_as_the_whole():
    net, x, y = module_and_data()
    A = hessian(net, "cross_entropy", (x, y))
    given = {"num_probes": 64, "distribution": "rademacher"}
    sizes = list(A.sizes.values())
    (apart,) = batch_traces(A, sizes, [0], batch_size=22, **given)
    (whole,) = traces(A, sizes, [0], method="hutchinson", block=8, **given)
    pairs = whole.draws.unflatten(1, (32, 2)).mean(2)
    torch.testing.assert_close(apart.draws, pairs, rtol=1e-9, atol=1e-12)


def test_batches_that_are_held_are_as_good_as_one():
    net, x, y = module_and_data()
    cut = [(x[:3], y[:3]), (x[3:17], y[3:17]), (x[17:], y[17:])]
    draws = []
    for data in (cut, (x, y)):
        A = hessian(net, "cross_entropy", data)
        (found,) = batch_traces(
            A, [A.shape[0]], [0], batch_size=5, num_probes=14, distribution="gaussian"
        )
        draws.append(found.draws)
    torch.testing.assert_close(*draws, rtol=1e-9, atol=1e-12)


def test_dictionaries_are_taken_apart_too():
    net, x, y = module_and_data()
    given = {"batch_size": 5, "num_probes": 14, "distribution": "gaussian"}
    draws = []
    for data in (
        [{"inputs": x[:9], "targets": y[:9]}, {"inputs": x[9:], "targets": y[9:]}],
        (x, y),
    ):
        A = hessian(net, "cross_entropy", data)
        draws.append(batch_traces(A, [A.shape[0]], [0], **given)[0].draws)
    torch.testing.assert_close(*draws, rtol=1e-9, atol=1e-12)


def weighted(outputs, targets):
    weight = torch.tensor([1.0, 5.0, 0.2]).double()
    return torch.nn.functional.cross_entropy(outputs, targets, weight)


def almost(outputs, targets):
    weight = torch.tensor([1.0, 1.02, 1.01]).double()
    return torch.nn.functional.cross_entropy(outputs, targets, weight)


def summed(outputs, targets):
    return torch.nn.functional.cross_entropy(outputs, targets, reduction="sum")


class Ragged(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1).double())

    def forward(self, x):
        return self.scale * x.sum(1)


def with_norm():
    net, x, y = module_and_data()
    norm = torch.nn.BatchNorm1d(4).double()
    return torch.nn.Sequential(net[0], norm, net[2]), x, y


REFUSED = {
    "got DataLoader": lambda n, x, y: hessian(
        n, "cross_entropy", DataLoader(TensorDataset(x, y), batch_size=10)
    ),
    "or size_of": lambda n, x, y: hessian(
        n, "cross_entropy", (x, y), size_of=lambda batch: 1.0
    ),
    "of their parts": lambda n, x, y: hessian(n, weighted, (x, y)),
    "labels drawn": lambda n, x, y: fisher(n, "cross_entropy", (x, y), kind="mc"),
    "that do not meet": lambda _n, _x, _y: hessian(
        with_norm()[0], "cross_entropy", with_norm()[1:], allow=["batch_norm"]
    ),
    "tensors of one length": lambda n, x, y: hessian(
        n,
        "cross_entropy",
        {"inputs": x, "targets": y, "scale": torch.ones(1)},
    ),
    "four samples or more": lambda n, x, y: hessian(n, "cross_entropy", (x[:3], y[:3])),
    "classes count almost alike": lambda n, x, y: hessian(n, almost, (x, y)),
    "labels of a class come last": lambda n, x, _y: hessian(
        n, weighted, [(x[:11], torch.zeros(11).long()), (x[11:], torch.ones(11).long())]
    ),
    "a sum over samples": lambda n, x, y: hessian(
        n, summed, [(x[i : i + 1], y[i : i + 1]) for i in range(len(x))]
    ),
    "of one shape, type and device": lambda _n, x, _y: hessian(
        Ragged(), "mse", [(x[:9], x[:9, 0]), (x[9:, :2], x[9:, 0])]
    ),
    "got BatchedSum": lambda n, x, y: hessian(n, "cross_entropy", (x, y)) * 2.0,
}


@pytest.mark.parametrize("part", REFUSED)
def test_what_is_no_mean_over_samples_is_refused(part):
    A = REFUSED[part](*module_and_data())
    said = {
        "classes count almost alike": "of their parts",
        "labels of a class come last": "of their parts",
        "a sum over samples": "of their parts",
    }
    with pytest.raises(InputError, match=said.get(part, part)):
        batch_traces(
            as_batched(A),
            [A.shape[0]],
            [0],
            batch_size=4,
            num_probes=8,
            distribution="rademacher",
        )
