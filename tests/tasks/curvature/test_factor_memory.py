"""Memory of factors counted without numbers, against what real ones take."""

from itertools import product

import numpy as np
import pytest
import torch

from curvflow.schemas.models import parse_model
from curvflow.schemas.nodes import Data, Weights
from curvflow.tasks.curvature import factor_memory
from curvflow.tasks.curvature import network_factors as network_factors_module
from curvflow.tasks.curvature.factor_memory import (
    copied_bytes,
    factors_bytes,
    sampled_bytes,
)
from curvflow.tasks.curvature.network_factors import network_factors, rows_per_pass
from curvflow.tasks.networks.initialization import initial_weights
from curvflow.tasks.networks.problems import data_set_bytes, pose
from curvflow.tasks.numerics.derivatives.passes import peak_bytes
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.registry import Machine
from tests.tasks.probes.kronecker.nets import NETS, trained
from tests.tasks.rules.posed import images
from tests.tasks.toys import member

FORMS = {
    "kron": {},
    "mc": {"fisher_type": "mc", "mc_samples": 2},
    "projection": {"fisher_type": "projection"},
    "reduce": {"kfac_approx": "reduce"},
    "ekfac": {"structure": "ekfac"},
    "kfoc": {"structure": "kfoc"},
    "block": {"structure": "block"},
    "diag": {"structure": "diag"},
    "float32": {"dtype": "float32"},
    "recursive": {"fisher_type": "recursive"},
}
TABLE = ("tokens", "recursive")  # which is refused


def members_of(name, form):
    data, pair = trained(name)
    return [member("probe.factors", FORMS[form], weights=w, data=data) for w in pair]


@pytest.mark.parametrize(
    ("name", "form"), [pair for pair in product(NETS, FORMS) if pair != TABLE]
)
def test_every_form_is_counted(name, form, monkeypatch):
    one, _ = members_of(name, form)
    monkeypatch.setattr(
        factor_memory, "_bounded", lambda *_: pytest.fail("not counted")
    )
    assert factors_bytes(one, one.params) > sampled_bytes(one, one.params)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_inputs_that_are_read_where_they_lie_are_counted_once(dtype, monkeypatch):
    data, (weights, _) = trained("labels")
    one = member("probe.factors", {"dtype": dtype}, weights=weights, data=data)
    taken = []
    real = network_factors_module.recorded_networks

    def recorded(problem, params, given):
        taken.append(given["inputs"])
        return real(problem, params, given)

    monkeypatch.setattr(network_factors_module, "recorded_networks", recorded)
    network_factors([one], Machine(), [one.params])
    is_shared = np.shares_memory(taken[0].numpy(), data["inputs"])
    assert is_shared == (dtype == "float64")

    copied, loaded = copied_bytes(one, one.params), data["inputs"].size
    assert copied == (8 * loaded if is_shared else 0)
    whole = data_set_bytes(data, getattr(torch, dtype).itemsize)
    assert sampled_bytes(one, one.params) == whole - copied
    other = Data("data", "data.array", {}, data.arrays, "other")
    two = [one, member("probe.factors", {"dtype": dtype}, weights=weights, data=other)]
    network_factors(two, Machine(), [each.params for each in two])
    assert not np.shares_memory(taken[1].numpy(), data["inputs"])


MODELS = {
    "mlp": {"kind": "mlp", "hidden": [64, 32]},
    "lenet5": {"kind": "lenet5"},
    "resnet": {"kind": "resnet", "widths": [4, 8], "blocks": [1, 1]},
}


def posed_members(name, form, data, seeds):
    """Return the problem of a model, and its networks as drawn."""
    problem = pose(parse_model(MODELS[name]), "cross_entropy", data)
    several = []
    for seed in seeds:
        drawn = initial_weights(problem.network, stream(seed, "weights"), None)
        arrays = {"weights": drawn.numpy(), "network": np.array(problem.text)}
        weights = Weights("fit", "train", {}, arrays, f"fit{seed}")
        several.append(member("probe.factors", FORMS[form], weights=weights, data=data))
    return problem, several


@pytest.mark.parametrize("form", ["kron", "mc"])
def test_more_passes_keep_no_more(form, monkeypatch):
    monkeypatch.setattr(network_factors_module, "rows_per_pass", lambda *_: 20)

    def peak(number):
        _, (one,) = posed_members("resnet", form, images(number, side=16), [0])
        return peak_bytes(lambda: network_factors([one], Machine(), [one.params]))

    assert peak(80) < 1.1 * peak(40)


@pytest.mark.parametrize("form", ["kron", "mc", "ekfac", "float32"])
@pytest.mark.parametrize("name", MODELS)
def test_what_is_counted_is_what_tensors_take(name, form, monkeypatch):
    problem, several = posed_members(name, form, images(40, side=16), (0, 1))
    params = several[0].params
    rows = rows_per_pass(problem, params, 40)

    def compute():
        found = network_factors(several, Machine(), [params] * 2)
        return [block.eigenpairs for block in found.operator.blocks]

    # Numbers that are stored are in no tensor of a real run.
    monkeypatch.setattr(factor_memory, "_stored", lambda operator: [
        block.eigenpairs for block in operator.blocks
    ])  # fmt: skip
    factor_memory._counted.cache_clear()
    counted = 2 * factor_memory._counted(params, problem.text, rows, min(40, 2 * rows))
    factor_memory._counted.cache_clear()
    # Of dense layers the largest matrix decides, and what LAPACK works in.
    work = 2 * 2 * 257**2 * getattr(torch, params.dtype).itemsize
    expected = peak_bytes(compute) + work * (name == "mlp")
    assert counted == pytest.approx(expected, rel=0.2)
