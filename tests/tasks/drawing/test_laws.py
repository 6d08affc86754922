import numpy as np
import pytest

from curvflow.schemas.kinds.shared.figures import MarchenkoPastur, Semicircle
from curvflow.tasks.drawing.spectra import law_atom, law_density, law_support
from tests.tasks.figures.ritz_nodes import wigner, wishart

LAWS = [
    Semicircle(radius=3.0),
    MarchenkoPastur(ratio=0.5),
    MarchenkoPastur(ratio=2.0, variance=1.5),
]


@pytest.mark.parametrize("law", LAWS)
def test_a_density_and_its_atom_have_the_integral_1(law):
    low, high = law_support(law)
    # Angles, so that the roots at the ends cost no accuracy.
    angles = (np.arange(4000) + 0.5) * np.pi / 4000
    x = (low + high) / 2 - (high - low) / 2 * np.cos(angles)
    weights = (high - low) / 2 * np.sin(angles) * np.pi / 4000
    whole = law_density(law, x) @ weights + law_atom(law)
    assert whole == pytest.approx(1, rel=1e-6)
    assert law_density(law, np.array([low - 1, high + 1])).tolist() == [0, 0]


def test_the_eigenvalues_of_random_matrices_follow_their_law():
    cases = [
        (Semicircle(radius=2 * 400**0.5), wigner(400)),
        (MarchenkoPastur(ratio=0.5), wishart(300, 600)),
        (MarchenkoPastur(ratio=2.0), wishart(300, 150)),
    ]
    for law, matrix in cases:
        values = np.linalg.eigvalsh(matrix)
        low, high = law_support(law)
        middle = (low + high) / 2
        inside = (values > middle) & (values < high)
        x = np.linspace(middle, high, 2001)
        share = np.trapezoid(law_density(law, x), x)
        assert inside.mean() == pytest.approx(share, abs=0.02)
        assert (np.abs(values) < 1e-9).mean() == pytest.approx(law_atom(law), abs=0.01)
