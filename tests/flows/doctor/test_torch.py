"""PyTorch's build and the GPUs, of this machine and of others."""

import warnings

import pytest

from curvflow.flows.doctor.machine import Finding, torch_findings
from curvflow.tasks import machine as module
from curvflow.tasks.machine import Devices, devices


@pytest.fixture
def driver(tmp_path):
    path = tmp_path / "version"
    path.touch()
    return path


def found_with(monkeypatch, has, *, driver, text=""):
    def pretended():
        if text:
            warnings.warn(text, stacklevel=1)
        return has

    monkeypatch.setattr(module, "devices", pretended)
    return list(torch_findings(driver))


def test_this_pytorch_is_reported_with_its_build(tmp_path):
    build, *gpus = torch_findings(tmp_path / "none")
    assert build.state == "ok"
    assert build.message.startswith(devices().torch)
    assert len(gpus) == max(1, len(devices().gpus))


def test_every_gpu_is_named_with_its_number(monkeypatch, driver):
    has = Devices("2.13.0", "13.0", ("H200", "H100"))
    assert found_with(monkeypatch, has, driver=driver) == [
        Finding("torch", "ok", "2.13.0, built for CUDA 13.0"),
        Finding("torch.gpu", "ok", "cuda:0 is H200"),
        Finding("torch.gpu", "ok", "cuda:1 is H100"),
    ]


def test_a_gpu_that_a_cpu_build_leaves_idle_is_warned_of(monkeypatch, driver):
    has = Devices("2.13.0+cpu", None, ())
    assert found_with(monkeypatch, has, driver=driver)[1] == Finding(
        "torch.gpu",
        "warn",
        "a GPU's driver, but no CUDA build",
        "Install a CUDA build of PyTorch; see its install page.",
    )


def test_a_driver_that_is_too_old_is_reported_in_pytorchs_words(monkeypatch, driver):
    has, text = Devices("2.13.0", "13.0", ()), "The driver is\ntoo old (12.2)."
    finding = found_with(monkeypatch, has, driver=driver, text=text)[1]
    assert (finding.state, finding.message) == ("warn", "The driver is too old (12.2).")
    assert finding.remedy.startswith("Update the driver to one for CUDA 13.0, or ")


def test_a_cuda_build_without_a_gpu_is_fine(monkeypatch, tmp_path):
    has = Devices("2.13.0", "13.0", ())
    finding = found_with(monkeypatch, has, driver=tmp_path / "none")[1]
    assert finding == Finding("torch.gpu", "ok", "none; everything runs on the CPU")
