"""`curvflow serve` against a real server: it fires, and ends when asked to."""

import os
import signal
import subprocess
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from tests.deployed.server import BIN, PATIENCE, end, until
from tests.faults.long import NETS

pytestmark = pytest.mark.prefect

EVERY = "2s"

STUDY = """\
study: {name}
axes: {{seed: 2}}
stages:
  data: {{use: data.xor}}
  fit: {{use: train, data: data, model: {{factory: "nets:net", kwargs: {{}}}},
        rule: {{rule: sgd, lr: 0.1}}, seed: "${{seed}}", epochs: {epochs}}}
"""


def write(folder, name, epochs):
    """Write a study that counts its passes in a file `calls`."""
    (folder / "study.yaml").write_text(STUDY.format(name=name, epochs=epochs))
    (folder / "nets.py").write_text(NETS)


@contextmanager
def served(server, folder, *arguments):
    """Serve the study of a folder; yields the process and the path of what it says."""
    said = folder / "said.txt"
    # With threads that libraries start early, for a signal may reach any of them.
    own = {"PREFECT_RUNNER_POLL_FREQUENCY": "1", "OMP_NUM_THREADS": "2"}
    environment = server.environment | own
    with said.open("w") as file:
        process = subprocess.Popen(
            [BIN / "curvflow", "serve", "study.yaml", *arguments],
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
    try:
        yield process, said
    finally:
        end(process)


@pytest.fixture
def withdrawn(server):
    """Return a list of names, whose deployments are deleted even if a test fails.

    Their runs would come due every two seconds for all tests that follow.
    """
    names = []
    yield names
    for name in names:
        server.prefect("deployment", "delete", f"curvflow-study/{name}-served")


def deployment(server, name):
    """Return the identity of a served study's deployment, once it is there."""
    wanted = {"deployments": {"name": {"any_": [f"{name}-served"]}}}
    (found,) = until(lambda: server.post("/deployments/filter", **wanted), every=0.5)
    return found["id"]


def states(server, identity):
    """Return the types of states that the runs of a deployment are in."""
    return {run["state_type"] for run in server.flow_runs(identity)}


def test_a_served_study_fires_and_ends_on_sigterm_and_makes_up_for_missed_runs(
    server, tmp_path, withdrawn
):
    withdrawn.append("brief")
    write(tmp_path, "brief", 2)
    with served(server, tmp_path, "--every", EVERY) as (process, said):
        identity = deployment(server, "brief")
        until(lambda: "COMPLETED" in states(server, identity), every=0.5)
        process.terminate()
        assert process.wait(PATIENCE) == 0
        # Prefect's signal handler of the run at work may raise where Python can only
        # print it, so that other lines may lie between.
        first, *_, last = said.read_text().splitlines()
    assert first.startswith(
        f"serving curvflow-study/brief-served, every {EVERY}; next run 2"
    )
    assert last == "curvflow: SIGTERM; no longer served, its schedule is kept"
    found = server.get(f"/deployments/{identity}")
    assert found["work_pool_name"] is None
    assert not found["paused"]
    assert [one["active"] for one in found["schedules"]] == [True]

    def late():
        now = datetime.now(UTC)
        runs = [one for one in server.flow_runs(identity) if not one["start_time"]]
        return [one for one in runs if moment(one["expected_start_time"]) < now]

    until(lambda: len(late()) > 1, every=0.5)
    with served(server, tmp_path, "--every", EVERY) as (process, said):
        until(said.read_text, every=0.5)
        process.terminate()
        assert process.wait(PATIENCE) == 0
    assert "; one now for " in said.read_text()
    assert " missed, then 2" in said.read_text()


def test_ctrl_c_ends_a_served_study_and_the_run_at_work_keeps_its_state(
    server, tmp_path, withdrawn
):
    withdrawn.append("long")
    write(tmp_path, "long", 200_000)
    with served(server, tmp_path, "--every", EVERY) as (process, said):
        identity = deployment(server, "long")
        until(lambda: "RUNNING" in states(server, identity), every=0.5)
        store = tmp_path / ".curvflow"
        calls = tmp_path / "calls"
        until(lambda: calls.exists() and calls.stat().st_size > 200)  # it trains
        # As a terminal does: to all processes of its foreground.
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(PATIENCE) == 0
        last = said.read_text().splitlines()[-1]
        until(lambda: not alive(process.pid), every=0.5)
    assert last == "curvflow: SIGINT; no longer served, its schedule is kept"
    assert "RUNNING" not in states(server, identity)
    assert any((store / "partials").iterdir())


def moment(text):
    """Return a point in time that the API tells."""
    return datetime.fromisoformat(text)


def alive(group):
    """Return whether a process group has a member left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
