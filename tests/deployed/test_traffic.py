"""The benchmark of requests, by the server of this folder and by forks."""

from contextlib import nullcontext

import pytest

from benchmarks.scale import QUICK
from benchmarks.scaling import traffic
from tests.deployed.warm import command

pytestmark = pytest.mark.prefect


def test_requests_are_counted_for_each_number_of_nodes(server, tmp_path, monkeypatch):
    monkeypatch.setattr(traffic, "serving", lambda _: nullcontext(server))
    monkeypatch.setattr(traffic, "PROGRAM", command(server.warm, "curvflow"))
    _, few, more, _ = QUICK["prefect"](tmp_path)
    assert [row.split()[0] for row in (few, more)] == ["10", "20"]
    assert int(few.split()[1]) >= 20
