"""Traces that stop where their standard error is as small as asked."""

import numpy as np
import pytest
import torch
from scipy.stats import t

from curvflow.tasks.numerics import BatchedDense
from curvflow.tasks.numerics.estimators.sketched_traces import METHODS, looks, traces
from tests.tasks.toys import with_spectrum

VALUES = np.linspace(0.1, 3, 30)


def result(A_MDD, seeds, method="hutchinson", **given):
    asked = {"num_probes": 16, "distribution": "rademacher", "block": 64, **given}
    return traces(BatchedDense(A_MDD), [10, 20], seeds, method=method, **asked)


def test_looks_double():
    assert looks(16, 100) == [16, 32, 64, 100]
    assert looks(16, None) == [16]
    assert looks(16, 8) == [16]


@pytest.mark.parametrize("method", METHODS)
def test_the_requested_error_is_reached_and_no_earlier_look_had_it(method):
    A_MDD = with_spectrum(VALUES, 0)[None].expand(4, -1, -1)
    seeds = [0, 1, 2, 3]
    for number, one in enumerate(
        result(A_MDD, seeds, method, rel_sem=0.015, max_probes=4096)
    ):
        assert one.reached
        whole = one.draws.sum(0)
        assert one.sem <= 0.015 * whole.mean().abs()
        size = len(whole) * (2 if method == "hutch++" else 1)
        assert size in looks(16, 4096)
        if size > 16:
            before = result(A_MDD, seeds, method, num_probes=size // 2)[number]
            assert before.sem > 0.015 * before.draws.sum(0).mean().abs()


def test_each_model_stops_by_itself():
    easy, hard = with_spectrum(np.ones(30), 0), with_spectrum(VALUES - 1.4, 1)
    A_MDD = torch.stack([hard, easy, hard])
    asked = {"rel_sem": 0.2, "max_probes": 256}
    together = result(A_MDD, [0, 1, 2], **asked)
    assert together[1].num_matvecs == 16
    assert together[0].num_matvecs > 16
    alone = result(A_MDD[2:].expand(2, -1, -1), [2, 2], **asked)[0]
    assert together[2].num_matvecs == alone.num_matvecs
    torch.testing.assert_close(together[2].draws, alone.draws, rtol=1e-10, atol=1e-12)


def test_an_error_out_of_reach_is_reported():
    (one,) = result(with_spectrum(VALUES, 0)[None], [0], rel_sem=1e-6, max_probes=40)
    assert not one.reached
    assert one.num_matvecs == 40


def test_intervals_cover_although_the_data_say_when_to_stop():
    A_MDD = with_spectrum(VALUES, 0).expand(600, -1, -1)
    within, stopped = [], set()
    for one in result(A_MDD, range(600), rel_sem=0.035, max_probes=1024):
        whole = one.draws.sum(0)
        half = t.ppf(0.975, one.freedom) * one.sem
        within.append(abs(whole.mean() - VALUES.sum()) <= half)
        stopped.add(len(whole))
    assert len(stopped) > 1
    assert 0.92 <= np.mean(within) <= 0.98


def test_errors_of_layers_are_those_of_the_draws_and_of_the_whole_of_the_products():
    A_DD = with_spectrum(VALUES, 0)
    (one,) = result(A_DD[None], [0])
    layers = one.draws.std(1) / 4
    torch.testing.assert_close(one.layer_sem, layers)
    law = 2 * (A_DD.square().sum() - A_DD.diagonal().square().sum())
    torch.testing.assert_close(one.sem, law.sqrt() / 4, rtol=0.2, atol=0)
