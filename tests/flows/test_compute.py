"""What a tile keeps while it is at work."""

from dataclasses import replace

import numpy as np
import pytest

from curvflow.flows.compute import outcomes
from curvflow.flows.jobs import MemberJob, TileJob
from curvflow.flows.partials import Partials
from curvflow.flows.stopping import Stopping
from curvflow.tasks import registry
from curvflow.tasks.machine import machine_for
from tests.flows.toys import FitParams

STATE = {"weight": np.ones(2)}


@pytest.mark.parametrize(
    ("code", "is_kept"),
    [(["one"], True), ([""], False), ([], False)],
    ids=["known", "untold", "unsaid"],
)
def test_a_state_is_kept_only_of_code_that_can_be_told(
    store, monkeypatch, code, is_kept
):
    found = []
    real = registry.find("toy.fit")

    def compute(members, machine):
        found.append(machine.partial.load())
        machine.partial.keep(STATE)
        return real.compute(members, machine)

    watched = replace(real, compute=compute)
    monkeypatch.setitem(registry._implementations, "toy.fit", watched)
    job = TileJob("toy.fit", [MemberJob("key", FitParams(), {"data": []}, {})], code)
    for _ in range(2):
        outcomes(store, job, machine_for("cpu", 1), Partials(store, Stopping()))
    assert found[0] is None
    assert (found[-1] is not None) == is_kept


def test_a_machine_says_what_last_bits_depend_on():
    one = machine_for("cpu", 3)
    assert (one.device, one.threads) == ("cpu", 3)
    assert one.hardware
