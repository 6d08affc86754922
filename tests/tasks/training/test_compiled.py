"""Training compiled by torch.compile."""

import shutil
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from curvflow.errors import InputError
from curvflow.tasks.networks import problems
from curvflow.tasks.registry import Machine, find
from tests.tasks.toys import TANH_NET, blobs, train_member

HEADER = Path(sysconfig.get_paths()["include"]) / "Python.h"
needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None or not HEADER.exists(),
    reason="needs a C++ compiler and Python's headers",
)


SGD = {"rule": "sgd", "lr": 0.1}
METRIC = {"rule": "metric", "lr": 0.1, "rate": 0.001}  # of products H w
# PyTorch's compiler in this process, and sets of instructions by the processor's word:
# processes that compile, and programs that try each set, take long to start.
FEW_STARTS = {"compile_threads": 1, "cpp.vec_isa_ok": True, "cpp.simdlen": 256}


def tile(*rules, **settings):
    return [
        train_member(blobs(), seed=s, rule=r, epochs=2, batch_size=10, **settings)
        for r in rules
        for s in range(2)
    ]


def make_norms() -> nn.Module:
    """Two norms, of which the second is in evaluation, and buffers beside them."""
    held = nn.BatchNorm1d(3).eval()
    held.get_buffer("running_var").copy_(torch.tensor([0.1, 0.5, 2.0]))
    made = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), held)
    made.register_buffer("mask", torch.tensor([True]))
    made.register_buffer("scratch", torch.ones(2), persistent=False)
    return made


def compiled_once(members, mode):
    """Train; a program that is compiled twice, for its first step say, is an error."""
    from torch._inductor import config  # here, for it takes seconds

    torch._dynamo.reset()
    problems.forget()
    with torch._dynamo.config.patch(error_on_recompile=True), config.patch(FEW_STARTS):
        return find("train").compute(members, Machine(compiler=mode))


# torch's own, when it loads its compiler.
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@needs_compiler
@pytest.mark.processes  # the compiler
@pytest.mark.parametrize(
    ("mode", "rules", "model"),
    [
        ("default", [SGD, METRIC], TANH_NET),
        # Of the program with products H w the other one is a part.
        ("reduce-overhead", [METRIC], {"factory": f"{__name__}:make_norms"}),
    ],
    ids=["default", "reduce-overhead, a module of one's own"],
)
def test_compiled_training_ends_where_the_other_does(mode, rules, model, monkeypatch):
    # PyTorch 2.13 writes code for vectors where this says that there are none.
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    members = tile(*rules, model=model)
    plain = find("train").compute(members, Machine())
    for first, other in zip(compiled_once(members, mode), plain, strict=True):
        np.testing.assert_allclose(
            first.arrays["weights"], other.arrays["weights"], rtol=1e-9, atol=1e-12
        )


def test_networks_that_draw_are_refused():
    net = {"kind": "mlp", "hidden": [4], "dropout": 0.5}
    with pytest.raises(InputError, match=r"^--compile: .* Run without --compile\.$"):
        find("train").compute(tile(SGD, model=net), Machine(compiler="default"))
