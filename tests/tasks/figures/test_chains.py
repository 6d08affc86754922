"""Traces of chains as a figure."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes

from curvflow.schemas.kinds import find_kind
from curvflow.schemas.nodes import Member
from curvflow.tasks.drawing import canvas
from curvflow.tasks.figures import chains
from curvflow.tasks.registry import Machine, find
from tests.pictures import place_only
from tests.tasks.probes.drawn_nodes import bowl

KIND = "figure.chains"


def draw(of, **params):
    checked = find_kind(KIND).params(**params)
    (outcome,) = find(KIND).compute([Member(checked, {"of": of})], Machine())
    return outcome.arrays


def test_traces_are_the_losses_and_the_estimate_ends_where_the_probe_does():
    draws = bowl(count=300)
    got = draw([draws])
    for chain, losses in enumerate(draws["loss_trace"]):
        of_chain = got["source"] == f"chain {chain}"
        np.testing.assert_array_equal(got["value"][of_chain], losses)
    running = got["source"] == "running"
    assert got["draw"][running][-1] == 300
    assert got["value"][running][-1] == pytest.approx(float(draws["llc_mean"]))
    assert got["sem"][running][-1] == pytest.approx(float(draws["llc_sem"]))
    # True of whatever `at_draws` the probe was given, which the figure does not see.
    assert str(got["caption"]).startswith(
        "Left: losses at the draws of 4 chains after the burn-in (over all the data, "
        "or as at_draws says), dashed: at the weights, over all the data."
    )
    assert "Verdict: converged." in str(got["caption"])


def test_labels_have_a_row_each_and_diverged_ones_are_reported():
    of = [replace(bowl(seed, count=40), coords={"seed": seed}) for seed in (0, 1)]
    of[1] = replace(of[1], status="diverged", arrays={})
    got = draw(of, label="seed")
    assert set(got["label"].tolist()) == {"0"}
    assert "Diverged, left out: 1 (1 of 1)." in str(got["caption"])


def titles(sheets):
    return [axes.get_title() for axes in sheets[0].axes if axes.get_title()]


def test_rows_of_several_stages_bear_their_own_names(monkeypatch):
    sheets = []
    monkeypatch.setattr(canvas, "compose", lambda figure, **_: sheets.append(figure))
    near, far = bowl(count=40), replace(bowl(1, count=40), stage="alone")
    of = [replace(near, coords={"rule": rule}) for rule in ("sgd", "adam")]
    got = draw([*of, far], label="rule")
    assert titles(sheets) == ["llc, rule = sgd", "llc, rule = adam", "alone"]
    assert list(dict.fromkeys(got["label"])) == ["llc, sgd", "llc, adam", "alone"]


def test_a_row_of_chains_that_all_failed_says_so_and_why():
    of = [replace(bowl(seed, count=40), coords={"seed": seed}) for seed in (0, 1)]
    failed = of[1].arrays | {"verdict": np.array("failed")}
    of[1] = replace(of[1], status="diverged", arrays=failed, reason="4 of 4 left.")
    caption = str(draw(of, label="seed")["caption"])
    assert "Verdict: 0: converged; 1: failed. 1: 4 of 4 left." in caption
    assert "Diverged, left out: 1 (1 of 1)." in caption


def test_both_panels_of_a_diverged_node_say_that_there_are_no_values(monkeypatch):
    sheets = []
    monkeypatch.setattr(canvas, "compose", lambda figure, **_: sheets.append(figure))
    got = draw([replace(bowl(count=40), status="diverged", arrays={})])
    assert len(sheets[0].axes) == 2
    for axes in sheets[0].axes:
        assert [text.get_text() for text in axes.texts] == ["no values"]
        assert not len(axes.get_xticks())
    assert "band: \u00b1 2 standard errors (mcse)." in str(got["caption"])


def test_a_failed_chain_is_drawn_as_far_as_it_went():
    got = draw([bowl(count=40, failed=(1,))])
    assert np.isnan(got["value"][got["source"] == "chain 1"][20:]).all()
    assert np.isfinite(got["value"][got["source"] == "running"]).all()


def swept(draws, parameter="localization", taken=2, **tried):
    factor = np.array([0.1, 0.3, 1.0, 3.0, 10.0])
    sweep = {
        "trial_parameter": np.array([parameter] * 5),
        "trial_value": factor * float(draws["localization"]),
        "trial_llc": np.array([2.9, 2.8, 2.7, 2.5, 1.9]),
        "trial_sem": np.full(5, 0.1),
        "trial_in_plateau": np.arange(5) <= taken,
        "predicted": np.array(2.6),
    }
    return replace(draws, arrays=draws.arrays | sweep | tried)


def test_an_estimate_of_the_fewest_draws_is_seen_as_a_mark(monkeypatch):
    seen = []
    monkeypatch.setattr(Axes, "plot", lambda axes, *xy, **how: seen.append((xy, how)))
    draw([bowl(count=8)])
    (xy, how) = seen[-1]
    assert len(xy[0]) == 1
    assert how["marker"] == "o"


def test_the_sweep_is_reported_trial_by_trial_and_only_where_there_was_one():
    of = [swept(bowl(count=40)), bowl(1, count=40)]
    got = draw(
        [replace(draws_node, coords={"seed": n}) for n, draws_node in enumerate(of)],
        label="seed",
    )
    assert got["trial_label"].tolist() == ["0"] * 5
    for name in ("parameter", "value", "llc", "sem", "in_plateau"):
        np.testing.assert_array_equal(got[f"trial_{name}"], of[0][f"trial_{name}"])
    assert got["predicted"].tolist() == [2.6] * 5
    assert "Right: short trials that varied localization" in str(got["caption"])
    without = draw([of[1]])
    assert len(without["trial_value"]) == 0
    assert "trials" not in str(without["caption"])


@pytest.mark.pictures
def test_the_same_draws_give_the_same_bytes_whatever_was_drawn_between(monkeypatch):
    of, other = (swept(bowl(n, count=8)) for n in (0, 1))
    first = draw([of])
    with monkeypatch.context() as patch:
        place_only(patch, ["svg"])  # whose identifiers could be counted on
        draw([other])
    again = draw([of])
    assert first.keys() == again.keys()
    for name in first:
        assert first[name].tobytes() == again[name].tobytes(), name


@pytest.mark.parametrize("parameter", ["localization", "lr"])
@pytest.mark.parametrize("on", [[0, 0, 1, 0, 0], [1, 1, 1, 1, 0], [0, 0, 0, 0, 0]])
def test_a_line_marks_the_value_that_was_taken(parameter, on):
    draws = swept(bowl(count=40), parameter, trial_in_plateau=np.array(on, bool))
    axes = canvas.new_figure(60, 40).add_subplot()
    chains.draw_sweep(axes, draws)
    units = {"localization": "1 / parameter²", "lr": "parameter²"}[parameter]
    assert axes.get_xlabel() == f"{parameter} ({units})"
    (line,) = (
        line for line in axes.lines if line.get_color() == chains.TAKEN_STYLE["color"]
    )
    assert line.get_xdata()[0] == draws[parameter]
    filled, hollow = (container[0] for container in axes.containers)
    np.testing.assert_array_equal(
        filled.get_ydata(), draws["trial_llc"][np.array(on) > 0]
    )
    assert len(hollow.get_ydata()) == 5 - sum(on)
