"""Snapshots that tiles keep, outcomes, and remedies for nodes that are too large."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from curvflow.errors import InputError
from curvflow.flows.graph.stopping import Stopping
from curvflow.flows.graph.tiles import MemberJob, TileJob
from curvflow.flows.run.compute import (
    Snapshots,
    _fitting,
    estimated,
    main_memory,
    outcomes,
    remedies,
)
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.params import Params
from curvflow.tasks import registry
from curvflow.tasks.machine import machine_for
from tests.flows.toys import FitParams
from tests.tasks.toys import (
    TANH_NET,
    as_data,
    blobs,
    member,
    train_all,
    train_member,
    weights_of,
)

STATE = {"weight": np.ones(2)}


@pytest.mark.parametrize(
    ("code", "is_kept"),
    [(["one"], True), ([""], False), ([], False)],
    ids=["known", "untold", "unsaid"],
)
def test_a_state_is_kept_only_of_code_that_can_be_identified(
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


def test_data_are_counted_once_where_all_members_have_the_same(monkeypatch):
    real = registry.find("toy.fit")
    sized = replace(
        real,
        member_bytes=lambda member: 700,
        data_bytes=lambda member: 400,
        copied_bytes=lambda member: 200,
    )
    monkeypatch.setitem(registry._implementations, "toy.fit", sized)
    one = estimated(find_kind("toy.fit"), member("toy.fit"))
    taken = [
        one.fixed(share_data=s) + 3 * one.each(share_data=s) for s in (True, False)
    ]
    assert taken == [400 + 3 * 300, 3 * (700 + 200)]


@pytest.mark.parametrize(("digests", "fits"), [(("a", "a"), True), (("a", "b"), False)])
def test_several_data_sets_take_their_copies_too(monkeypatch, digests, fits):
    real = registry.find("toy.fit")
    sized = replace(
        real,
        member_bytes=lambda member: 700,
        data_bytes=lambda member: 400,
        copied_bytes=lambda member: 200,
    )
    monkeypatch.setitem(registry._implementations, "toy.fit", sized)
    members = [member("toy.fit", data=as_data({}, digest)) for digest in digests]
    machine = replace(machine_for("cpu", 1), memory=1_000)
    kind = find_kind("toy.fit")
    if fits:
        assert _fitting(kind, members, machine, is_plain=False) == members
        return
    with pytest.raises(InputError, match=r"^memory: "):
        _fitting(kind, members, machine, is_plain=False)


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


@pytest.fixture(scope="module")
def trained():
    data = blobs()
    first = train_member(data, model=TANH_NET, epochs=1)
    return {"weights": weights_of(train_all([first, first])[0]), "data": data}


def remedies_of(kind, trained, **params):
    return remedies(find_kind(kind), member(kind, params, **trained))


def test_draws_that_are_kept_are_named_with_what_their_number_is_made_of(trained):
    sentence = remedies_of("probe.llc", trained, keep_draws=True, num_draws=10**8)
    assert sentence == (
        "Set keep_draws: false, lower num_chains, lower num_draws, or take another "
        "machine."
    )


def test_a_parameter_at_its_least_is_not_to_be_lowered(trained):
    sentence = remedies_of(
        "probe.llc", trained, keep_draws=True, num_draws=10**8, num_chains=2
    )
    assert "num_draws" in sentence
    assert "num_chains" not in sentence


def test_draws_that_are_not_kept_are_to_be_fewer_where_their_losses_are_large(trained):
    assert "num_draws" not in remedies_of("probe.llc", trained, num_draws=10)
    sentence = remedies_of("probe.llc", trained, num_draws=10**8)
    assert sentence == "Lower num_chains, lower num_draws, or take another machine."


def test_columns_of_eigenvalues_and_their_precision_are_named(trained, monkeypatch):
    real = registry.find("probe.eigenvalues")
    bytes_of = {"float32": 4, "float64": 8}

    def count(member):
        params = member.params
        return bytes_of[params.dtype] * 10**9 * (params.k + params.oversampling)

    sized = replace(real, member_bytes=count, data_bytes=lambda member: 0)
    monkeypatch.setitem(registry._implementations, "probe.eigenvalues", sized)
    assert remedies_of("probe.eigenvalues", trained, k=20, oversampling=4) == (
        "Set dtype: float32, lower k, or take another machine."
    )


def test_factors_that_are_smaller_than_dense_blocks_are_named(trained, monkeypatch):
    real = registry.find("probe.factors")

    def count(member):
        dense = member.params.structure == "block"
        return 10**12 if dense else 10**9

    sized = replace(real, member_bytes=count, data_bytes=lambda member: 0)
    monkeypatch.setitem(registry._implementations, "probe.factors", sized)
    sentence = remedies_of("probe.factors", trained, structure="block")
    assert sentence == "Set structure: kron, or take another machine."
    assert "Set structure" not in remedies_of("probe.factors", trained)


class OfAUser(Params):
    """Parameters named as those of other kinds, with choices of their own."""

    dtype: Literal["float64", "bfloat16"] = "float64"
    structure: Literal["block", "chain"] = "block"
    other: Literal["block", "none"] = "block"


def test_choices_that_a_kind_does_not_have_are_no_remedy(trained, monkeypatch):
    real = registry.find("probe.eigenvalues")

    def count(member):
        return 10**12 if member.params == OfAUser() else 10**6

    sized = replace(real, member_bytes=count, data_bytes=lambda member: 0)
    monkeypatch.setitem(registry._implementations, "probe.eigenvalues", sized)
    asked = replace(member("probe.eigenvalues", {}, **trained), params=OfAUser())
    assert remedies(find_kind("probe.eigenvalues"), asked) == (
        "Take a smaller model, or take another machine."
    )


def test_the_largest_number_that_fits_stands_beside_a_parameter(trained, monkeypatch):
    real = registry.find("probe.eigenvalues")
    sized = replace(
        real,
        member_bytes=lambda member: 10**6 * (7 + member.params.k),
        data_bytes=lambda member: 0,
    )
    monkeypatch.setitem(registry._implementations, "probe.eigenvalues", sized)
    kind, given = find_kind("probe.eigenvalues"), {"k": 10_000, "oversampling": 4}
    asked = member("probe.eigenvalues", given, **trained)
    for room, words in ((2_006 * 10**6, "1900"), (30 * 10**6, "23"), (10**6, None)):
        wanted = f"Lower k to {words}," if words else "Lower k,"
        assert remedies(kind, asked, room) == f"{wanted} or take another machine."


def test_samples_are_named_where_the_data_are_what_is_large(trained, monkeypatch):
    real = registry.find("probe.eigenvalues")
    sized = replace(
        real, member_bytes=lambda member: 10**9, data_bytes=lambda member: 10**9
    )
    monkeypatch.setitem(registry._implementations, "probe.eigenvalues", sized)
    assert remedies_of("probe.eigenvalues", trained) == (
        "Take fewer samples, or take another machine."
    )


def test_what_no_estimate_can_be_made_of_is_no_remedy(trained, monkeypatch):
    real = registry.find("probe.eigenvalues")

    def count(member):
        if member.params.k < 20:
            raise ValueError("too few")
        return 10**9

    sized = replace(real, member_bytes=count, data_bytes=lambda member: 0)
    monkeypatch.setitem(registry._implementations, "probe.eigenvalues", sized)
    assert remedies_of("probe.eigenvalues", trained, k=20) == (
        "Take a smaller model, or take another machine."
    )
