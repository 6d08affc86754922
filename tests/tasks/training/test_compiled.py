"""Training compiled by torch.compile."""

import shutil
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.tasks.networks import problems
from curvflow.tasks.registry import Machine, find
from tests.tasks.toys import blobs, train_member

HEADER = Path(sysconfig.get_paths()["include"]) / "Python.h"
needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None or not HEADER.exists(),
    reason="needs a C++ compiler and Python's headers",
)


SGD = {"rule": "sgd", "lr": 0.1}
METRIC = {"rule": "metric", "lr": 0.1, "rate": 0.001}  # of products H w


def tile(*rules, **settings):
    return [
        train_member(blobs(), seed=s, rule=r, epochs=2, batch_size=10, **settings)
        for r in rules
        for s in range(2)
    ]


def compiled_once(members, mode="default"):
    """Train; a program that is compiled twice, for its first step say, is an error."""
    torch._dynamo.reset()
    problems.forget()
    with torch._dynamo.config.patch(error_on_recompile=True):
        return find("train").compute(members, Machine(compiler=mode))


# torch's own, when it loads its compiler.
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@needs_compiler
@pytest.mark.processes  # the compiler
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_training_ends_where_the_other_does(mode, monkeypatch):
    # PyTorch 2.13 writes code for vectors where this says that there are none.
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    members = tile(SGD, METRIC)
    plain = find("train").compute(members, Machine())
    for first, other in zip(compiled_once(members, mode), plain, strict=True):
        np.testing.assert_allclose(
            first.arrays["weights"], other.arrays["weights"], rtol=1e-9, atol=1e-12
        )


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@needs_compiler
@pytest.mark.processes  # the compiler
def test_a_module_of_ones_own_is_compiled_too(monkeypatch):
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    model = {"factory": "tests.tasks.toys:make_scaled_norm", "kwargs": {}}
    members = tile(METRIC, model=model)  # of its program the other one is a part
    plain = find("train").compute(members, Machine())
    for first, other in zip(compiled_once(members), plain, strict=True):
        np.testing.assert_allclose(
            first.arrays["weights"], other.arrays["weights"], rtol=1e-9, atol=1e-12
        )


def test_networks_that_draw_are_refused():
    net = {"kind": "mlp", "hidden": [4], "dropout": 0.5}
    with pytest.raises(InputError, match=r"^--compile: .* Run without --compile\.$"):
        find("train").compute(tile(SGD, model=net), Machine(compiler="default"))
