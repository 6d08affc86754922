import numpy as np
import pytest
from matplotlib.figure import Figure

from curvflow.tasks.drawing import scales

SEEDS = range(20)


def cases(seed, *, positive=False):
    """Draw means, error bars and doubts of some points; at least three are sure."""
    random = np.random.default_rng(seed)
    count = int(random.integers(4, 30))
    mean = random.normal(size=count) * 10 ** random.uniform(-3, 3)
    if positive:
        mean = np.abs(mean) + 1e-6
    error = np.where(random.random(count) < 0.3, np.nan, np.abs(mean) / 3)
    doubtful = random.random(count) < 0.4
    doubtful[:3] = False
    return mean, mean - error, mean + error, doubtful


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("is_log", [False, True])
def test_a_point_in_doubt_never_stretches_a_scale_beyond_three_spans(seed, is_log):
    mean, low, high, doubtful = cases(seed, positive=is_log)
    sure = [values[~doubtful] for values in (mean, low, high)]
    wild = mean.copy()
    wild[doubtful] *= 1e6
    alone = scales.sets_scale(*sure, doubtful[~doubtful], is_log=is_log)
    assert alone.all()
    kept = scales.sets_scale(wild, low, high, doubtful, is_log=is_log)
    assert kept[~doubtful].all()
    limits = scales.limits(wild, low, high, doubtful, is_log=is_log)
    if limits is None:
        assert kept.all()
        return
    width = np.log if is_log else np.array
    ends = np.array([np.fmin(sure[1], sure[0]).min(), np.fmax(sure[2], sure[0]).max()])
    if is_log:
        ends[0] = np.fmax(sure[1], sure[0] / 10).min()
    span = np.ptp(width(ends))
    assert np.ptp(width(np.array(limits))) <= 3 * span * 1.11
    assert scales.beyond(sure[0], limits).tolist() == [0] * len(sure[0])


@pytest.mark.parametrize("seed", SEEDS)
def test_without_doubts_every_point_sets_the_scale(seed):
    mean, low, high, doubtful = cases(seed)
    nothing = np.zeros_like(doubtful)
    assert scales.limits(mean, low, high, nothing, is_log=False) is None


def test_points_within_one_span_of_the_others_keep_their_place():
    mean = np.array([0.0, 1.0, 1.9, -0.9, 2.1])
    none = np.full(5, np.nan)
    doubtful = np.array([False, False, True, True, True])
    kept = scales.sets_scale(mean, none, none, doubtful, is_log=False)
    assert kept.tolist() == [True, True, True, True, False]
    low, high = scales.limits(mean, none, none, doubtful, is_log=False)
    assert (low, high) == pytest.approx((-0.9 - 0.14, 1.9 + 0.14))


@pytest.mark.parametrize("sure", [[], [3.0], [3.0, 3.0]])
def test_points_in_doubt_set_the_scale_where_others_span_none(sure):
    mean = np.array([*sure, -35.0, 20.0])
    doubtful = np.arange(len(mean)) >= len(sure)
    none = np.full(len(mean), np.nan)
    assert scales.sets_scale(mean, none, none, doubtful, is_log=False).all()


def test_triangles_stand_at_the_edge_of_their_side_one_for_each_colour():
    axes = Figure().add_subplot()
    axes.set(xlim=(0, 1), ylim=(0, 1))
    x = np.array([0.5, 0.5, 0.5, 0.2, -3.0, 0.4])
    y = np.array([-9.0, -8.0, -7.0, 9.0, 0.3, 0.4])
    scales.draw_at_edges(axes, x, y, ["red", "blue", "red", "red", "red", "red"])
    drawn = [(line.get_marker(), *line.get_xydata()[0]) for line in axes.lines]
    assert drawn == [("v", 0.5, 0), ("v", 0.5, 0), ("^", 0.2, 1), ("<", 0, 0.3)]
    heights = [
        line.get_transform().transform((0.5, 0))[1]
        - axes.transData.transform((0, 0))[1]
        for line in axes.lines[:2]
    ]
    inwards = scales.TRIANGLE / 72 * axes.figure.dpi
    assert heights == pytest.approx([0, inwards])


def test_a_caption_counts_each_point_beyond_an_axis_once():
    values = np.array([0.0, 5.0, -5.0])
    assert scales.beyond_sentences([(values, None), (values, None)]) == []
    text = scales.beyond_sentences([(values, (-1, 1)), (values, (-9, 1))])
    assert text == ["Beyond the axes, marked at their edge: 2 points."]
