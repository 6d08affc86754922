"""What is said of a node that is larger than a machine: what would make it smaller."""

from dataclasses import replace

import pytest

from curvflow.flows.run.tile.outcome_checks import remedies
from curvflow.schemas.kinds import find_kind
from curvflow.tasks import registry
from tests.tasks.toys import (
    TANH_NET,
    blobs,
    member,
    train_all,
    train_member,
    weights_of,
)


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
