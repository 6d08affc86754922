"""Chains of another device than the CPU."""

from unittest import mock

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import _disable_current_modes

from curvflow.tasks.llc import losses, targets
from curvflow.tasks.numerics.sampling import dense_losses, measured_curvature
from curvflow.tasks.registry import Machine, find
from tests.tasks.elsewhere import ELSEWHERE, MixedError, elsewhere
from tests.tasks.numerics.sampling.bowls import METHODS
from tests.tasks.probes.checks import probes
from tests.tasks.toys import CPU, compute

KIND = "probe.llc"
GIVEN = {
    "calibrate": "none",
    "lr": 1e-3,
    "localization": 1.0,
    "num_burnin_steps": 4,
    "num_draws": 12,
    "num_steps_bw_draws": 2,
}
FOUND = {"num_draws": 8, "num_burnin_steps": 16, "num_steps_bw_draws": 2}
WAYS = [
    *(GIVEN | {"sampling_method": method} for method in METHODS),
    GIVEN | {"sampling_method": "sgld", "batch_size": 8, "at_draws": "batch"},
    GIVEN | {"sampling_method": "mala", "layers": ["*.bias"], "keep_draws": True},
    FOUND,
    FOUND | {"sampling_method": "sgld"},
]


def members(way):
    return probes(KIND, "tanh-ce", 2, **way)


@pytest.fixture
def machine(monkeypatch):
    """Return a machine of another device, which measures spectra on the CPU."""
    for module in (losses, dense_losses):
        limits = module.PASS_BYTES | {ELSEWHERE.type: module.PASS_BYTES["cpu"]}
        monkeypatch.setattr(module, "PASS_BYTES", limits)

    # Products by forward differentiation do not run there.
    def hessians(members, machine, columns, build=targets._hessians):
        return build(members, CPU, columns)

    def spectrum(targets, measure=measured_curvature.spectrum, **how):
        with _disable_current_modes():
            return measure(targets, **how)

    monkeypatch.setattr(targets, "_hessians", hessians)
    with mock.patch.object(measured_curvature, "spectrum", spectrum):
        yield Machine(str(ELSEWHERE))


def test_two_devices_do_not_mix():
    with elsewhere() as device:
        away = torch.ones(3, device=device)
        assert float((2 * away + torch.tensor(1.0)).sum()) == 9.0
        with pytest.raises(MixedError, match=r"aten\.add"):
            away + torch.ones(3)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(map(str, way.values())))
def test_chains_elsewhere_equal_those_here(way, machine):
    here = compute(KIND, members(way))
    with elsewhere():
        away = find(KIND).compute(members(way), machine)
    for a, b in zip(away, here, strict=True):
        assert a.arrays["verdict"] == b.arrays["verdict"]
        np.testing.assert_array_equal(a.arrays["loss_trace"], b.arrays["loss_trace"])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(map(str, way.values())))
def test_chains_on_a_gpu_equal_those_here(way):
    on_gpu = find(KIND).compute(members(way), Machine("cuda:0"))
    for a, b in zip(on_gpu, compute(KIND, members(way)), strict=True):
        np.testing.assert_allclose(
            a.arrays["loss_trace"], b.arrays["loss_trace"], rtol=1e-6
        )
