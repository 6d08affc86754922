import io

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from curvflow.errors import InputError
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.figures.landscape import LandscapeFigureParams
from curvflow.schemas.nodes import Landscape, Member
from curvflow.tasks.registry import Machine, find

STEP = np.linspace(-1, 1, 5)
SLOPE, CURVATURE = np.array([0.5, 0.0]), np.array([[2.0, 0.0], [0.0, 4.0]])


def node(coords=None, *, plane=False, diverged=False, path=(), loose=0, **changed):
    """Return slices of a quadratic loss, 1 + t.slope + t.curvature t / 2."""
    lines = np.array([1 + s * STEP + c * STEP**2 / 2 for s, c in ((0.5, 2), (0, 4))])
    square = lines[0][:, None] + lines[1] - 1 if plane else np.zeros((0, 0))
    arrays = {
        "along": np.array(["eigenvector 1", "eigenvector 2"]),
        "step": STEP,
        "train_loss": lines,
        "test_loss": lines + 0.5,
        "train_accuracy": np.full((2, 5), 0.9),
        "test_accuracy": np.full((2, 5), np.nan),
        "plane_train_loss": square,
        "plane_test_loss": square + 0.5,
        "path": np.reshape(path, (-1, 2)),
        "slope": SLOPE,
        "curvature": CURVATURE,
        "rayleigh": np.array([2.0, 4.0]),
        "converged": np.arange(2) >= loose,
        "centre_train_loss": np.array(1.0),
        "centre_test_loss": np.array(1.5),
        "num_nonfinite": np.array(0),
        **changed,
    }
    status = "diverged" if diverged else "ok"
    held = {} if diverged else arrays
    return Landscape("slices", "probe.landscape", coords or {}, held, "", status)


def draw(*of, **params):
    checked = find_kind("figure.landscape").params(**params)
    (outcome,) = find("figure.landscape").compute(
        [Member(checked, {"of": list(of)})], Machine()
    )
    return outcome.arrays


def test_the_model_drawn_is_the_quadratic_of_the_probe():
    got = draw(node())
    assert got["along"].tolist() == ["eigenvector 1", "eigenvector 2"]
    np.testing.assert_allclose(got["step"], [STEP, STEP])
    np.testing.assert_allclose(got["model"], got["train"], rtol=1e-12)
    np.testing.assert_allclose(got["test"], got["train"] + 0.5, rtol=1e-12)


def test_a_row_for_each_label_and_a_line_for_each_node():
    of = [node({"rule": r, "seed": s}) for r in ("sgd", "adam") for s in (0, 1)]
    got = draw(*of, label="rule", over="seed")
    assert got["row"].tolist() == ["sgd"] * 4 + ["adam"] * 4
    assert got["node"][0] == "rule = sgd, seed = 0"
    assert "all of 2 seeds" in str(got["caption"])


def test_nodes_of_other_lengths_are_padded():
    short = node(
        {"n": 3}, step=STEP[::2], train_loss=np.ones((2, 3)), test_loss=np.ones((2, 3))
    )
    got = draw(node({"n": 5}), short, label="n")
    assert np.isnan(got["step"][2:, 3:]).all()
    assert got["train"].shape == (4, 5)


def test_accuracies_have_no_model():
    got = draw(node(), y="accuracy")
    assert np.isnan(got["model"]).all()
    assert "quadratic" not in str(got["caption"])


@pytest.mark.parametrize("show", ["lines", "plane"])
def test_losses_that_are_not_finite_leave_gaps_and_are_reported(show):
    lost = np.array([[np.inf, 2.0, 1.0, 2.0, np.nan], [3.0, 2.0, 1.0, 2.0, 3.0]])
    plane = np.full((5, 5), 2.0)
    plane[0], plane[2, 2] = np.inf, 1.0
    of = node(
        train_loss=lost,
        plane_train_loss=plane,
        plane_test_loss=plane,
        num_nonfinite=np.array(7),
    )
    got = draw(of, show=show)
    assert "Not finite, not shown: 7 losses." in str(got["caption"])
    assert np.isinf(got["train"][0, 0])


def test_eigenvectors_that_have_not_converged_are_reported():
    assert "Not converged: 1 eigenvector." in str(draw(node(loose=1))["caption"])


def test_diverged_nodes_have_no_line_and_are_reported():
    of = [
        node({"seed": 0, "rule": "sgd"}),
        node({"seed": 0, "rule": "adam"}, diverged=True),
    ]
    got = draw(*of, label="rule")
    assert got["row"].tolist() == ["sgd", "sgd"]
    assert "Diverged, left out: adam (1 of 1)." in str(got["caption"])


@pytest.mark.pictures("png")
def test_where_all_diverged_there_is_a_figure_that_says_so():
    for show in ("lines", "plane"):
        got = draw(node({"seed": 0}, diverged=True), show=show)
        assert len(got["row"]) == 0
        assert Image.open(io.BytesIO(got["png"].tobytes())).format == "PNG"


LOGARITHMIC = {"log_y": True, "limits": "equal"}
PLANE = {"show": "plane", "log_y": True, "quadratic": False}


@pytest.mark.parametrize(
    "params",
    [
        pytest.param({}, marks=pytest.mark.pictures("png")),
        pytest.param(LOGARITHMIC, marks=pytest.mark.pictures("png")),
        pytest.param(PLANE, marks=pytest.mark.pictures),
    ],
)
def test_the_same_input_gives_the_same_bytes(params):
    of = node(plane=True, path=[[1, 1], [0.5, 0], [0, 0]])
    first, second = draw(of, **params), draw(of, **params)
    assert all(a.tobytes() == second[name].tobytes() for name, a in first.items())
    if params == PLANE:  # whose SVG is drawn
        svg = first["svg"].tobytes()
        assert svg.startswith(b"<?xml")
        assert b"<dc:date>" not in svg
    expected = "White points: checkpoints, projected." in str(first["caption"])
    assert expected == ("show" in params)
    assert ("Cross: the weights w." in str(first["caption"])) == expected


def test_every_declared_variable_is_there_in_its_type_and_shape():
    got = draw(node())
    sizes = {"line": 2, "point": 5}
    for variable in find_kind("figure.landscape").outputs:
        array = got[variable.name]
        is_text = variable.dtype == "str"
        assert array.dtype.kind == "U" if is_text else array.dtype == variable.dtype
        if variable.file is None:
            assert array.shape == tuple(sizes[dim] for dim in variable.dims)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"show": "plane"},
            "show: expected results with a plane, got lines only. Set plane: true in "
            "the probe.",
        ),
        (
            {"label": "rul"},
            "label: expected an axis of slices, got 'rul'. Did you mean 'rule'?",
        ),
    ],
)
def test_what_was_not_measured_is_refused(params, message):
    with pytest.raises(InputError) as caught:
        draw(node({"rule": "sgd"}), **params)
    assert str(caught.value) == message


def test_several_planes_in_one_panel_are_refused():
    of = [node({"seed": s}, plane=True) for s in (0, 1)]
    with pytest.raises(InputError, match="over: expected a single result"):
        draw(*of, show="plane", over="seed")


def test_a_logarithmic_axis_without_anything_positive_is_refused():
    of = node(train_loss=-np.ones((2, 5)), test_loss=np.full((2, 5), np.nan))
    with pytest.raises(InputError, match="log_y: expected positive loss, got none"):
        draw(of, log_y=True)


def test_one_axis_has_one_part():
    with pytest.raises(ValidationError, match="expected label to differ from over"):
        LandscapeFigureParams(label="seed", over=("seed",))
