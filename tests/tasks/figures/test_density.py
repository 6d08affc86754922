from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from curvflow.errors import InputError
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.figures.density import DensityFigureParams
from curvflow.schemas.kinds.shared.figures import KestenMcKay
from curvflow.schemas.nodes import Density, Member
from curvflow.tasks.drawing.spectra import atom_points, law_density, law_support
from curvflow.tasks.registry import Machine, find
from tests.tasks.figures.ritz_nodes import as_matrix, ritz, wigner, wishart

W = wigner(60)
SEMICIRCLE = {"kind": "semicircle", "radius": 2 * 60**0.5}


def draw(of, density=(), matrix=(), **params):
    inputs = {"of": of, "density": density, "matrix": matrix}
    given = {name: nodes for name, nodes in inputs.items() if nodes}
    checked = find_kind("figure.density").params(**params)
    (outcome,) = find("figure.density").compute([Member(checked, given)], Machine())
    return outcome.arrays


def entropy(**coords):
    arrays = {"grid": np.linspace(-1, 1, 5), "density": np.full(5, 0.5)}
    return Density("maxent", "probe.maxent", coords, arrays, "")


def integral(got, number):
    x, y = got["eigenvalue"][number], got["density"][number]
    there = np.isfinite(x)
    return np.trapezoid(y[there], x[there])


def test_densities_of_every_source_have_the_integral_1():
    got = draw(
        [ritz(W, 10, 2)],
        [entropy()],
        [as_matrix(W)],
        compare=["eigenvalues", "diagonal"],
        overlay=SEMICIRCLE,
    )
    sources = ["eigenvalues", "diagonal", "ritz", "density", "law"]
    assert got["source"].tolist() == sources
    assert got["curve"].tolist() == [
        "eigenvalues", "diagonal", "Ritz values", "maxent", "semicircle",
    ]  # fmt: skip
    for number in range(5):
        assert integral(got, number) == pytest.approx(1, abs=2e-3)


def test_the_width_is_the_share_requested_of_the_range_or_the_value():
    node = ritz(W, 10)
    spread = np.ptp(node["ritz_values"])
    assert draw([node])["width"][0] == pytest.approx(0.01 * spread)
    assert draw([node], kappa=0.1)["width"][0] == pytest.approx(0.1 * spread)
    got = draw([node], sigma=0.5)
    assert got["width"].tolist() == [0.5]
    assert "Gaussians of width 0.5." in str(got["caption"])


def test_each_label_has_a_curve_and_each_stage_too():
    got = draw([ritz(W, m, m=m) for m in (5, 10)], label="m")
    assert got["curve"].tolist() == ["5", "10"]
    got = draw([ritz(W, 5, stage=s) for s in ("one", "other")])
    assert got["curve"].tolist() == ["one", "other"]


def test_a_density_has_the_colour_of_its_label_if_it_has_one():
    of = [ritz(W, m, m=m) for m in (5, 10)]
    got = draw(of, [entropy()], label="m")
    assert got["curve"].tolist() == ["5", "10", "maxent"]
    got = draw(of, [entropy(m=10), entropy(m=15)], label="m")
    assert got["curve"].tolist() == ["5", "10", "10, maxent", "15, maxent"]


def test_densities_alone_may_have_the_axis_of_the_labels():
    got = draw([ritz(W, 5)], [entropy(m=10), entropy(m=15)], label="m")
    assert got["curve"].tolist() == ["Ritz values", "10, maxent", "15, maxent"]
    with pytest.raises(InputError, match="label: expected an axis of"):
        draw([ritz(W, 5)], [entropy(m=10)], label="k")


def test_the_atom_of_a_law_is_smoothed_and_reported():
    got = draw(
        [ritz(wishart(40, 20), 8)], overlay={"kind": "marchenko_pastur", "ratio": 2.0}
    )
    assert "What the law has at 0 is smoothed" in str(got["caption"])
    x, y = got["eigenvalue"][-1], got["density"][-1]
    near = np.abs(x) < 0.1
    assert y[near].max() > 10 * y[x > 1].max()
    assert got["curve"][-1] == "Marchenko-Pastur, q = 2"


@pytest.mark.parametrize(
    "operator",
    ["normalized_laplacian", "normalized_adjacency", "laplacian", "adjacency"],
)
def test_regular_graphs_have_the_moments_of_kesten_and_mckay(operator):
    """Closed walks of trees of degree 3: 1, 0, 3, 0, 15, 0, 87 of 0 to 6 steps."""
    law = KestenMcKay(degree=3, operator=operator)
    low, high = law_support(law)
    angle = (np.arange(4000) + 0.5) * np.pi / 4000
    x = (low + high) / 2 - (high - low) / 2 * np.cos(angle)
    mass = law_density(law, x) * np.sin(angle) * (high - low) / 2 * np.pi / 4000
    walks = x if operator.endswith("adjacency") else 3 - x
    if operator.startswith("normalized"):
        walks = 3 * x if operator.endswith("adjacency") else 3 - 3 * x
    moments = [float((mass * walks**k).sum()) for k in range(7)]
    assert moments == pytest.approx([1, 0, 3, 0, 15, 0, 87], abs=1e-9)
    got = draw([ritz(W, 5)], overlay=law.model_dump())
    assert got["curve"][-1] == "Kesten-McKay, d = 3"
    assert integral(got, -1) == pytest.approx(1, abs=2e-3)


def deflated(*, runs=2, **coords):
    """Return Ritz data of 60 eigenvalues, beside 15 at 0 and 5 at 20."""
    node = ritz(W, 10, runs, **coords)
    atoms = {"atom_values": np.array([0.0, 20.0]), "atom_counts": np.array([15, 5])}
    return replace(node, arrays=node.arrays | atoms | {"size": np.array(80)})


def test_eigenvalues_taken_out_are_stems_beside_the_rest():
    got = draw([deflated()], sigma=0.5)
    assert got["curve"].tolist() == ["Ritz values", "atoms"]
    assert got["source"].tolist() == ["ritz", "atoms"]
    assert integral(got, 0) == pytest.approx(60 / 80, abs=2e-3)
    assert got["eigenvalue"][1][:2].tolist() == [0, 20]
    expected = np.array([15, 5]) / 80 / (0.5 * np.sqrt(2 * np.pi))
    assert got["density"][1][:2] == pytest.approx(expected)
    assert "Stems are eigenvalues known exactly" in str(got["caption"])
    plain = draw([ritz(W, 10, 2)], sigma=0.5)
    assert got["density"][0] == pytest.approx(0.75 * plain["density"][0])
    assert got["quadrature"][0] == pytest.approx(plain["quadrature"][0])
    assert "Stems" not in str(plain["caption"])


def test_atoms_of_several_spectra_are_weighed_by_their_runs():
    points = atom_points([deflated(), ritz(W, 10, 6)])
    assert points.values.tolist() == [0, 20]
    assert points.weights == pytest.approx(np.array([15, 5]) / 80 / 4)


def test_a_density_of_the_rest_is_drawn_as_its_share():
    atoms = deflated().arrays
    rest = replace(entropy(), arrays=entropy().arrays | {
        name: atoms[name] for name in ("atom_values", "atom_counts", "size")
    })  # fmt: skip
    got = draw([deflated()], [rest])
    assert got["source"].tolist() == ["ritz", "atoms", "density"]
    assert integral(got, 2) == pytest.approx(60 / 80)
    got = draw([ritz(W, 10)], [rest])
    assert got["curve"].tolist() == ["Ritz values", "maxent", "maxent, atoms"]


def test_diverged_nodes_are_in_no_curve():
    of = [ritz(W, 5, m=5), ritz(W, 5, diverged=True, m=6)]
    got = draw(of, label="m")
    assert got["curve"].tolist() == ["5"]
    assert "Diverged, left out: 6 (1 of 1)." in str(got["caption"])
    nothing = draw(of[1:])
    assert nothing["density"].shape == (0, 0)
    caption = str(nothing["caption"])
    assert caption.startswith("Ritz values of no Lanczos runs, smoothed")
    assert caption.endswith("Diverged, left out: 1 of 1.")


def test_what_a_density_has_beyond_the_ritz_values_is_reported():
    arrays = {
        "ritz_values": np.array([[-0.5, 0.5]]),
        "ritz_weights": np.array([[0.5, 0.5]]),
    }
    node = ritz(W, 2)
    node = replace(node, arrays=node.arrays | arrays)
    fine = {"grid": np.linspace(-1, 1, 2001), "density": np.full(2001, 0.5)}
    flat = replace(entropy(), arrays=fine)
    caption = str(draw([node], [flat], kappa=0.1)["caption"])
    assert "Beyond the Ritz values by 2 widths: 0.3 of the density" in caption
    assert "Beyond" not in str(draw([node])["caption"])


def test_a_kernel_narrower_than_the_steps_resolve_is_said_to_be():
    wide, narrow = draw([ritz(W, 30)], kappa=0.1), draw([ritz(W, 5)], kappa=0.01)
    assert wide["quadrature"] < 0.05
    assert narrow["quadrature"] > 0.5
    assert "narrower than the steps resolve" not in str(wide["caption"])
    text = "narrower than the steps resolve: the quadrature may be off by"
    assert text in str(narrow["caption"])


@pytest.mark.pictures
def test_the_same_input_gives_the_same_bytes():
    first, second = (draw([ritz(W, 10)], limits=[-5.0, 5.0]) for _ in range(2))
    assert all(a.tobytes() == second[name].tobytes() for name, a in first.items())


def test_every_declared_variable_is_there_in_its_type():
    got = draw([ritz(W, 5)], log_y=False)
    for variable in find_kind("figure.density").outputs:
        array = got[variable.name]
        is_text = variable.dtype == "str"
        assert array.dtype.kind == "U" if is_text else array.dtype == variable.dtype
        assert array.ndim == len(variable.dims)


def test_more_curves_than_can_be_distinguished_are_refused():
    with pytest.raises(InputError, match="label: expected at most 21 labels"):
        draw([ritz(W, 2, m=m) for m in range(22)], label="m")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"kappa": 0.1, "sigma": 1.0}, "kappa cannot be combined with sigma"),
        ({"limits": (1.0, 0.0)}, "expected limits that ascend, got"),
        ({"overlay": {"kind": "semicircle"}}, "radius"),
        ({"label": "m", "over": ("m",)}, "expected label to differ from over"),
    ],
)
def test_contradictory_parameters_are_refused(params, message):
    with pytest.raises(ValidationError, match=message):
        DensityFigureParams(**params)
