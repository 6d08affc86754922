"""The operator of a probe's tile, from weights and from matrices."""

from typing import get_args

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.operators import OperatorName, OperatorParams
from curvflow.schemas.nodes import Matrix, Member
from curvflow.tasks.curvature.operators import (
    batch_key,
    block_sizes,
    product_bytes,
    size_of,
    tile_operator,
)
from curvflow.tasks.networks.problems import data_set_bytes, load_samples, read
from curvflow.tasks.numerics import sample_losses
from curvflow.tasks.numerics.derivatives.hessians import BatchedHessian
from curvflow.tasks.numerics.derivatives.passes import GIVEN, peak_bytes
from curvflow.tasks.numerics.operators.algebra import PrincipalBlock
from curvflow.tasks.registry import Machine
from tests.tasks.models.examples import EXAMPLES
from tests.tasks.probes.checks import DATA, fits
from tests.tasks.toys import weights_of

CPU = Machine()


def members(case="tanh-ce", count=2, seeds=None, **params):
    data = DATA[case][1]
    return [
        Member(
            OperatorParams(seed=(seeds or range(count))[number], **params),
            {"weights": [weights_of(fit)], "data": [data]},
        )
        for number, fit in enumerate(fits(case)[:count])
    ]


def matrix(entries, digest="a"):
    arrays = {
        "form": np.array("dense"),
        "dense": np.asarray(entries, dtype=float),
        "size": np.array(len(entries)),
    }
    return Matrix("m", "data.random_matrix", {}, arrays, digest)


def dense(several):
    operator = tile_operator(several, CPU, columns=4).operator
    size = operator.shape[1]
    eye = torch.eye(size, dtype=operator.dtype).expand(len(several), -1, -1)
    return operator @ eye


def parts(member):
    """Jacobian (N, C, D) of the outputs, their loss's gradients and Hessians."""
    weights = member.one("weights")
    problem = read(str(weights["network"].item()))
    flat = torch.as_tensor(weights["weights"], dtype=torch.float64)
    inputs = torch.as_tensor(member.one("data")["inputs"], dtype=torch.float64)
    data = [member.one("data")]
    targets = load_samples(problem, data, "", "cpu", torch.float64).targets[0]

    def outputs(at):
        return problem.network.outputs(at[None], inputs[None])[0]

    def loss(at, sample):
        target = targets[sample][None, None]
        return sample_losses(problem.loss)(at[None, None], target).sum()

    jacobian = torch.func.jacrev(outputs)(flat)
    result = outputs(flat)
    slopes, curves = [], []
    for sample, at in enumerate(result):
        slopes.append(torch.func.grad(loss)(at, sample))
        curves.append(torch.func.hessian(loss)(at, sample))
    return jacobian, torch.stack(slopes), torch.stack(curves)


def of_parts(name, member):
    jacobian, slopes, curves = parts(member)
    gradients = torch.einsum("nc,ncd->nd", slopes, jacobian)
    if name == "ggn":
        result = torch.einsum("nca,nck,nkb->nab", jacobian, curves, jacobian).mean(0)
    else:
        result = gradients.T @ gradients / len(gradients)
    if name == "gradient_covariance":
        result = result - torch.outer(gradients.mean(0), gradients.mean(0))
    return result


@pytest.mark.parametrize("case", ["tanh-ce", "tanh-mse"])
@pytest.mark.parametrize("name", ["ggn", "fisher_empirical", "gradient_covariance"])
def test_an_operator_equals_its_sums_over_samples(name, case):
    several = members(case, operator=name)
    for got, operand in zip(dense(several), several, strict=True):
        torch.testing.assert_close(got, of_parts(name, operand), rtol=0, atol=1e-10)


def test_hessian_minus_ggn_is_the_residual():
    hessian, ggn, residual = (
        dense(members(operator=name)) for name in ("hessian", "ggn", "residual")
    )
    torch.testing.assert_close(hessian - ggn, residual, rtol=0, atol=1e-10)


def test_over_its_own_labels_the_fisher_matrix_is_the_ggn():
    torch.testing.assert_close(
        dense(members(operator="fisher_type2")),
        dense(members(operator="ggn")),
        rtol=0,
        atol=1e-12,
    )


def test_drawn_labels_follow_the_seed_of_each_member_alone():
    wide = dense(members(operator="fisher_mc", mc_samples=3, seeds=[5, 6]))
    twin = dense(members(operator="fisher_mc", mc_samples=3, seeds=[6, 6]))
    assert not torch.allclose(wide[0], twin[0])
    torch.testing.assert_close(wide[1], twin[1], rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    "order", ["reverse_over_reverse", "retained", "linearised", "auto"]
)
def test_orders_of_differentiation_agree(order):
    torch.testing.assert_close(
        dense(members(order=order)), dense(members()), rtol=0, atol=1e-10
    )


@pytest.mark.parametrize("name", get_args(OperatorName))
def test_layers_take_their_diagonal_block_to_the_bit(name):
    whole = dense(members(operator=name))
    part = members(operator=name, layers=("layer2.*",))
    assert list(block_sizes(part[0])) == list(block_sizes(members()[0]))[2:]
    size = size_of(part[0])
    torch.testing.assert_close(dense(part), whole[:, -size:, -size:], rtol=0, atol=0)


def test_some_layers_of_a_network_with_statistics_are_its_block():
    example = EXAMPLES["vgg-norm"]
    network = example.network()
    names = ("norm2.shift", "dense1.bias", "conv1.bias")
    some = network.of_parameters(names)
    generator = torch.Generator().manual_seed(0)
    size = network.num_parameters + network.statistics.size
    weights_MW = torch.rand(2, size, generator=generator, dtype=torch.float64)
    x = torch.randn(1, 3, *example.shape, generator=generator, dtype=torch.float64)
    target = torch.zeros(1, 3, example.outputs, dtype=torch.float64)

    def hessian(net, weights_MW):
        def losses(weights, inputs, targets):
            return (net.outputs(weights, inputs) - targets).square().mean(-1)

        weights_MD, fixed_MS = net.split(weights_MW)
        return BatchedHessian(losses, weights_MD, x, target, fixed_MS=fixed_MS)

    places = network.places(names)
    few = hessian(some, weights_MW[:, places])
    index_B = places[: some.num_parameters]
    block = PrincipalBlock(hessian(network, weights_MW), index_B)
    eye = torch.eye(len(index_B), dtype=torch.float64).expand(2, -1, -1)
    torch.testing.assert_close(few @ eye, block @ eye, rtol=0, atol=1e-12)
    assert few.product_bytes(4) < block._operator.product_bytes(4)


def test_a_layer_that_is_not_there_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"got layre2\.\*\. .*'layer2\.\*'\?"):
        block_sizes(members(layers=("layre2.*",))[0])
    with pytest.raises(InputError, match=r"Known: layer1\.weight, .*layer2\.bias\."):
        block_sizes(members(layers=("9.*",))[0])


def test_matrices_are_taken_as_they_are():
    rng = np.random.default_rng(0)
    first, second = (m + m.T for m in rng.normal(size=(2, 4, 4)))
    several = [
        Member(OperatorParams(seed=seed), {"matrix": [source]})
        for seed, source in enumerate(
            [matrix(first), matrix(second, "b"), matrix(first)]
        )
    ]
    assert len({batch_key(operand) for operand in several}) == 1
    result = dense(several)
    for got, expected in zip(result, (first, second, first), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-12)
    assert tile_operator(several, CPU, columns=1).names == ("matrix",)
    chosen = tile_operator(several, CPU, columns=1).operator.select(
        torch.tensor([1, 0])
    )
    column = torch.ones(2, 4, dtype=torch.float64)
    np.testing.assert_allclose(chosen @ column, [second.sum(1), first.sum(1)])


def test_a_matrix_has_no_layers():
    probed = Member(OperatorParams(operator="ggn"), {"matrix": [matrix(np.eye(2))]})
    with pytest.raises(InputError, match="combined with a matrix"):
        block_sizes(probed)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"order": "reverse_over_reverse"},
        {"order": "linearised"},
        {"operator": "residual", "order": "retained"},
        {"operator": "ggn"},
        {"operator": "fisher_mc", "mc_samples": 20},
        {"operator": "gradient_covariance"},
    ],
    ids=str,
)
def test_memory_is_of_the_operator_its_order_and_its_precision(asked, dtype):
    several = members(**asked, dtype=dtype)
    operator = tile_operator(several, CPU, columns=8).operator
    shape = (*operator.shape[:2], 8)
    taken = peak_bytes(
        lambda: operator @ torch.ones(shape, dtype=operator.dtype),
        given=[getattr(operator, name) for name in GIVEN],
    )
    assert 2 * charged(several[0], 8) == pytest.approx(taken, rel=0.02)


def charged(member, columns):
    """Bytes of products alone, without data and weights."""
    held = data_set_bytes(member.one("data"), 8) + 16 * size_of(member)
    return product_bytes(member, columns) - held


def test_memory_of_the_fastest_order_is_that_of_the_largest_tried():
    tried = ("reverse_over_reverse", "retained", "linearised")
    auto, *others = (charged(members(order=order)[0], 8) for order in ("auto", *tried))
    assert auto == max(others) > charged(members()[0], 8)
