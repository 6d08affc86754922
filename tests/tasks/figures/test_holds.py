"""Captions of figures on the localization at which coefficients were estimated."""

import numpy as np
import pytest

from tests.tasks.measured_nodes import compute, node, toy_kinds

DRAWN = {
    "figure.bars": {"y": ["llc_mean", "hold_share"], "label": "rule", "over": "seed"},
    "figure.lines": {"y": "llc_mean", "x": "seed", "label": "rule"},
    "figure.heatmap": {"z": "llc_mean", "x": "seed", "y": "rule"},
    "figure.scaling": {"y": "llc_mean", "along": "seed", "label": "rule"},
    "figure.scatter": {"x": "llc_mean", "y": "init_loss", "label": "rule"},
}


@pytest.fixture(autouse=True)
def _toys():
    with toy_kinds():
        yield


def estimates(holds, stage="llc"):
    return [
        node(
            {"rule": rule, "seed": seed + 1},
            stage=stage,
            kind="probe.llc",
            llc_mean=2.0 + seed + len(rule),
            init_loss=1.0 + seed * (seed - 2.5),
            verdict="converged",
            localization=hold,
        )
        for (rule, seed), hold in zip(
            [(rule, seed) for rule in ("sgd", "lion") for seed in range(3)],
            holds,
            strict=True,
        )
    ]


def caption(name, of, **params):
    return str(compute(name, of, **DRAWN[name], **params).arrays["caption"])


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_captions_say_where_estimates_were_held_differently(name):
    random = np.random.default_rng(1)
    holds = random.permutation([5.61, 7.0, 9.0, 11.0, 13.0, 17.71])
    assert "Localization 5.61 to 17.7 in 6 estimates." in caption(
        name, estimates(holds)
    )


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_captions_state_a_localization_that_all_estimates_share(name):
    assert "Localization 5." in caption(name, estimates([5.0] * 6)).split(" in ")[0]


def test_captions_of_what_has_no_verdict_say_nothing_of_it():
    of = estimates([5.0, 6, 7, 8, 9, 10])
    got = compute("figure.bars", of, y="hold_share", label="rule", over="seed")
    assert "ocalization" not in str(got.arrays["caption"])


def test_two_stages_in_one_figure_each_have_their_localization():
    of = [*estimates([5.0] * 6), *estimates([8.0] * 6, stage="again")]
    got = compute(
        "figure.scatter",
        of,
        x="llc_mean",
        y="init_loss",
        label="stage",
        each=["rule", "seed"],
    )
    text = str(got.arrays["caption"])
    assert "Localization of llc 5. Localization of again 8." in text
