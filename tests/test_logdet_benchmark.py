"""The benchmark of log-determinants measures what it says it does."""

import json

import pytest

from benchmarks import logdet


@pytest.mark.parametrize("hold", [True, False])
def test_a_row_keeps_to_its_bracket_and_to_cholesky(hold, tmp_path, monkeypatch):
    monkeypatch.setattr(logdet, "EXACT", tmp_path / "exact.json")
    plan = logdet.Plan(
        points=300, rank=120, columns=20, runs=12, steps=40, hold=hold, exact=True
    )
    made = logdet.kernel(300, 0.95)
    dense = float(made.dense().logdet())
    got = logdet.estimated(made, plan)
    assert got.products == got.rank + 12 * 40
    assert got.found.gap < 0
    spread = 5 * got.found.sem
    assert got.found.value + got.found.gap - spread < dense < got.found.value + spread
    cells = logdet.row(0.95, plan).split(" | ")
    assert cells[1] == f"{got.rank} + 480"
    (value,) = json.loads(logdet.EXACT.read_text()).values()
    assert value == pytest.approx(dense, rel=1e-8)
    error = abs(got.found.value - dense) / abs(dense)
    assert float(cells[-2]) == pytest.approx(error, rel=0.1)
