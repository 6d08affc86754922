"""The comparison with peers counts what curvflow computes."""

import sys
from pathlib import Path

import pytest

from benchmarks.peers_workflow import CURVFLOW, Grid, repetition


@pytest.mark.slow
def test_curvflow_computes_all_then_nothing_then_what_one_rate_concerns(tmp_path):
    grid = Grid(rates=2, seeds=5, repeats=1)
    assert grid.expected == (20, 0, 10)
    programs = Path(sys.executable).parent
    assert len([*repetition(CURVFLOW, programs, grid, tmp_path, 300)]) == 3
