"""What a tile keeps while it is at work."""

from dataclasses import replace

import numpy as np
import pytest

from curvflow.errors import InputError
from curvflow.flows.graph.heartbeats import Stopping
from curvflow.flows.graph.tiles import MemberJob, TileJob
from curvflow.flows.run.tile.compute import main_memory, outcomes
from curvflow.flows.run.tile.snapshots import Snapshots
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
    result = []
    real = registry.find("toy.fit")

    def compute(members, machine):
        result.append(machine.partial.load())
        machine.partial.keep(STATE)
        return real.compute(members, machine)

    watched = replace(real, compute=compute)
    monkeypatch.setitem(registry._implementations, "toy.fit", watched)
    job = TileJob("toy.fit", [MemberJob("key", FitParams(), {"data": []}, {})], code)
    for _ in range(2):
        outcomes(store, job, machine_for("cpu", 1), Snapshots(store, Stopping()))
    assert result[0] is None
    assert (result[-1] is not None) == is_kept


def test_a_machine_says_what_last_bits_depend_on():
    member = machine_for("cpu", 3)
    assert (member.device, member.threads) == ("cpu", 3)
    assert member.hardware


def test_what_is_larger_than_the_machine_is_refused_before_it_starts(
    store, monkeypatch
):
    def compute(members, machine):
        raise AssertionError("begun")

    real = registry.find("toy.fit")
    huge = replace(real, compute=compute, member_bytes=lambda member: 3_000_000_000)
    monkeypatch.setitem(registry._implementations, "toy.fit", huge)
    member_job = MemberJob("key", FitParams(), {"data": []}, {})
    machine = replace(machine_for("cpu", 1), memory=2_000_000_000)
    job = TileJob("toy.fit", [member_job, member_job], [])
    for result, width in outcomes(store, job, machine, Snapshots(store, Stopping())):
        assert width == 1
        assert str(result) == (
            "memory: expected at most the 2 GB of cpu for a node of toy.fit, got an "
            "estimate of 3 GB. Take a smaller model, or take another machine."
        )


@pytest.mark.parametrize(
    ("data", "widths"), [(0, [1, 1]), (1_400_000_000, [2])], ids=["own", "shared"]
)
def test_what_fits_only_alone_is_computed_alone(store, monkeypatch, data, widths):
    seen = []

    def compute(members, machine):
        seen.append(len(members))
        raise InputError("enough")

    real = registry.find("toy.fit")
    large = replace(
        real,
        compute=compute,
        member_bytes=lambda member: 1_500_000_000,
        data_bytes=lambda member: data,
    )
    monkeypatch.setitem(registry._implementations, "toy.fit", large)
    member_job = MemberJob("key", FitParams(), {"data": []}, {})
    machine = replace(machine_for("cpu", 1), memory=2_000_000_000)
    job = TileJob("toy.fit", [member_job, member_job], [])
    list(outcomes(store, job, machine, Snapshots(store, Stopping())))
    assert seen[: len(widths)] == widths


def test_memory_that_is_not_known_refuses_nothing(store, monkeypatch):
    real = registry.find("toy.fit")
    huge = replace(real, member_bytes=lambda member: 10**18, compute=_nothing)
    monkeypatch.setitem(registry._implementations, "toy.fit", huge)
    job = TileJob("toy.fit", [MemberJob("key", FitParams(), {"data": []}, {})], [])
    unknown = replace(machine_for("cpu", 1), memory=0)
    ((result, _),) = outcomes(store, job, unknown, Snapshots(store, Stopping()))
    assert "expected 2 outcomes, got 0" in str(result)


def _nothing(members, machine):
    return []


def test_a_machine_knows_its_memory():
    assert machine_for("cpu", 1, main_memory=main_memory()).memory > 1 << 28
