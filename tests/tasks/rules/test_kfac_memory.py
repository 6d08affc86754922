"""Memory of passes for factors, by the rules that take them."""

import pytest
import torch

from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.problems import pose
from curvflow.tasks.rules.shared import kfac_memory
from curvflow.tasks.rules.shared.kfac_memory import PassBytes, factor_pass_bytes
from tests.tasks.rules.checks import rule
from tests.tasks.rules.posed import images

PROBLEM = pose(parse_model({"kind": "lenet5"}), "auto", images(4, side=16))


def bytes_of(batch=64, **fields):
    return factor_pass_bytes(rule(**fields), PROBLEM, batch, torch.float32)


def test_rules_without_factors_take_none():
    assert bytes_of(rule="sgd", lr=0.1) == PassBytes()
    plain = {"rule": "gauss_newton", "preconditioner": "none", "damping": 0.1}
    assert bytes_of(**plain) == PassBytes()
    assert sum(bytes_of(**plain | {"preconditioner": "kron"})) > 0


def test_passes_grow_with_samples_and_roots():
    few, many = bytes_of(32, rule="kfac"), bytes_of(64, rule="kfac")
    assert 1.7 * sum(few) < sum(many) < 2.1 * sum(few)
    assert sum(bytes_of(rule="kfac", fisher_type="type-2")) > sum(many)
    assert sum(bytes_of(rule="kfac", kfac_approx="reduce")) <= sum(many)


def test_of_large_models_two_are_in_a_pass_and_share_it():
    small, large = bytes_of(4, rule="kfac"), bytes_of(8192, rule="kfac")
    assert small.each == small.shared > 0
    assert large.each == 0 < large.shared


def test_what_cannot_be_counted_is_as_large_as_its_graph(monkeypatch):
    counted = bytes_of(16, rule="kfac")
    monkeypatch.setattr(kfac_memory, "_counted", lambda *_, **__: 1 / 0)
    bounded = bytes_of(16, rule="kfac")
    assert sum(bounded) == pytest.approx(sum(counted), rel=0.9)
    assert sum(bounded) > 0
