"""Siblings of a module of the user's own, of which few fit into a pass."""

import numpy as np
import pytest
import torch

from curvflow.schemas.models import parse_model
from curvflow.tasks.curvature import network_operators
from curvflow.tasks.curvature.network_operators import batched_operator, problem_of
from curvflow.tasks.networks import problems
from curvflow.tasks.networks.problems import load_samples, pose
from curvflow.tasks.numerics import BatchedHessian, stream
from curvflow.tasks.registry import Machine
from curvflow.tasks.training import cache_blocks
from tests.tasks.toys import (
    blobs,
    member,
    train_all,
    train_member,
    weights_of,
)

MODULE = {"factory": "tests.tasks.toys:make_transformer", "kwargs": {}}


def fits(seeds, **params):
    given = {"model": MODULE, "epochs": 3, "batch_size": 10, **params}
    return train_all([train_member(blobs(), seed=seed, **given) for seed in seeds])


def assert_alone(together, alone):
    for one_of_many, (by_itself,) in zip(together, alone, strict=True):
        for name, array in by_itself.arrays.items():
            np.testing.assert_array_equal(array, one_of_many.arrays[name])


@pytest.mark.parametrize(
    "rule",
    [{"rule": "sgd", "lr": 0.3}, {"rule": "sam", "inner": {"rule": "sgd", "lr": 0.3}}],
)
def test_they_are_trained_to_the_bits_of_each_alone(monkeypatch, rule):
    monkeypatch.setattr(cache_blocks, "CPU_PASS_BYTES", 1)
    given = {"rule": rule, "accumulation": 2, "dtype": "float32"}
    together, alone = fits(range(3), **given), [fits([n], **given) for n in range(3)]
    assert_alone(together, alone)


@pytest.mark.parametrize("few", ["sgd", "metric"])
def test_mixed_rules_are_trained_to_the_bits_of_each_alone(monkeypatch, few):
    monkeypatch.setattr(cache_blocks, "CPU_PASS_BYTES", 1)
    rules = {
        "sgd": {"rule": "sgd", "lr": 0.3},
        "metric": {"rule": "metric", "lr": 0.3, "rate": 0.01},
    }
    names = [few, *sorted({*rules} - {few}) * 2]
    members = [
        train_member(
            blobs(),
            model=MODULE,
            rule=rules[name],
            seed=seed,
            epochs=3,
            batch_size=10,
            dtype="float32",
        )
        for seed, name in enumerate(names)
    ]
    assert_alone(train_all(members), [train_all([member]) for member in members])


@pytest.mark.parametrize("operator", ["hessian", "residual", "ggn", "fisher_mc"])
def test_products_have_the_bits_of_each_alone(monkeypatch, operator):
    monkeypatch.setattr(problems, "CPU_PRODUCT_BYTES", 1)
    probes = [
        member(
            "probe.trace",
            {"operator": operator, "dtype": "float32"},
            weights=weights_of(fit),
            data=blobs(),
        )
        for fit in fits(range(3))
    ]
    names = problem_of(probes[0]).network.layout.names

    def products(members, vectors):
        params = [m.params for m in members]
        given = members, Machine(), params
        return batched_operator(*given, names=names, columns=4) @ vectors

    size = problem_of(probes[0]).network.num_parameters
    vectors = torch.randn(3, size, 4, generator=stream(0, "t"))
    together = products(probes, vectors)
    for number, probe in enumerate(probes):
        alone = products([probe], vectors[number : number + 1])
        assert torch.equal(alone[0], together[number])


def test_the_graph_of_each_is_kept_for_the_next_vectors():
    problem = pose(parse_model(MODULE), "auto", blobs())
    samples = load_samples(problem, [blobs()], "", "cpu", torch.float64)
    shape = 3, problem.network.num_parameters
    weights_MD = torch.randn(shape, generator=stream(0, "t"), dtype=torch.float64)
    calls = []

    def losses(*given):
        calls.append(len(given[0]))
        return problem.losses(*given)

    given = weights_MD, samples.inputs, samples.targets
    together = BatchedHessian(losses, *given, order="retained")
    alone = together.one_by_one()
    products = [alone @ weights_MD for _ in range(2)]
    assert calls == [1, 1, 1]
    torch.testing.assert_close(products, 2 * [together @ weights_MD])
    two = alone.select(torch.tensor([2, 0]))
    assert torch.equal(two @ weights_MD[[2, 0]], products[0][[2, 0]])


@pytest.mark.parametrize(("is_counted", "calls"), [(True, 3), (False, 6)])
def test_graphs_of_all_are_kept_only_where_memory_is_counted(
    monkeypatch, is_counted, calls
):
    monkeypatch.setattr(problems, "CPU_PRODUCT_BYTES", 1)
    params = {"order": "retained", "dtype": "float32"}
    given = {"data": blobs()}
    probes = [
        member("probe.trace", params, weights=weights_of(fit), **given)
        for fit in fits(range(3))
    ]
    names, seen = problem_of(probes[0]).network.layout.names, []

    def uncounted(*given):
        raise RuntimeError("a tensor without numbers has no item")

    if not is_counted:
        monkeypatch.setattr(network_operators, "_counted_bytes", uncounted)
    operator = batched_operator(
        probes, Machine(), [m.params for m in probes], names=names, columns=2
    )
    losses = operator._losses
    monkeypatch.setattr(
        operator, "_losses", lambda *given: (seen.append(1), losses(*given))[1]
    )
    vectors = torch.ones(*operator.shape[:2], 2)
    first, second = operator @ vectors, operator @ vectors
    assert torch.equal(first, second)
    assert len(seen) == calls
