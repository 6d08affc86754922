"""A run that is at work on a store, and clusters for its tiles."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

from curvflow.flows.graph.heartbeats import beating
from curvflow.flows.graph.stopping import Stopping
from curvflow.flows.graph.tiles import MemberJob, TileJob
from curvflow.flows.run.runners.job_context import JobContext, sealed
from curvflow.schemas.records.receipts import RunRecord
from curvflow.stores.local import LocalStore
from tests.flows.run.runners.acts import PATIENCE, ActParams
from tests.flows.run.runners.clusters import forking, scheduler, until
from tests.flows.toys import FitParams

ROOT = Path(__file__).parents[4]


@dataclass
class Running:
    """A run, and what its runners are told."""

    store: LocalStore
    run: RunRecord
    jobs: JobContext
    stop: Stopping
    store_folder: Path
    lines: list[str] = field(default_factory=list)

    def runner(self, client, *, device="cpu", patience=PATIENCE, **changes):
        """Make a runner of the run."""
        from curvflow.flows.run.runners.dask_runner import DaskRunner

        return DaskRunner(
            client,
            sealed(replace(self.jobs, **changes)),
            device=device,
            patience=patience,
            tell=self.lines.append,
        )


@pytest.fixture
def running(tmp_path):
    store = LocalStore(tmp_path / "store")
    run = store.begin_run("toys", document={}, environment={}, options={})
    token = f"shared{uuid4().hex}"
    store.save_snapshot(token, {"token": np.zeros(1)})
    jobs = JobContext(
        store=str(tmp_path / "store"),
        token=token,
        begun=run.begun,
        folder=str(ROOT),
        modules=("tests.flows.run.runners.registered",),
        files={},
        compiler="none",
        threads=1,
        every=60.0,
        silence=60.0,
    )
    stop = Stopping()
    with beating(store, run, stop, silence=60.0):
        yield Running(store, run, jobs, stop, tmp_path / "store")


@pytest.fixture(scope="session")
def local():
    """Two workers of this machine, shared by the tests that leave them alone."""
    from curvflow.flows.run.runners.local import local_client

    with forking(), local_client(2, [], dashboard=False) as client:
        yield client


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """Run a scheduler without workers; its address."""
    with scheduler(tmp_path_factory.mktemp("site")) as (_, address):
        yield address


def fit(*seeds):
    """Describe a tile of the toy training."""
    members = [MemberJob(f"k{s}", FitParams(seed=s), {"data": []}, {}) for s in seeds]
    return TileJob("toy.fit", members, ["code"] * len(members), "fit")


def act(what="return", path="", seconds=0.0, kind="test.act"):
    """Describe a tile that does as asked."""
    params = ActParams(what=what, path=str(path), seconds=seconds)
    member = MemberJob(uuid4().hex, params, {}, {})
    return TileJob(kind, [member], ["code"], "act")


def came_back(runner, *numbers):
    """Wait for some tiles, in any jobs, and return their fates in that of asking."""
    returned_by_number = {}
    while len(returned_by_number) < len(numbers):
        returned = dict(runner.wait(PATIENCE))
        assert returned, "it hangs"
        returned_by_number |= returned
    return [returned_by_number[number] for number in numbers]


def pid_in(path):
    """Return the number of the process that a tile has left in a file."""
    until(lambda: path.exists() and path.read_text())
    return int(path.read_text())


def read(running, finished):
    """Return the arrays of the one node of a tile."""
    (report,) = finished.reports
    arrays = running.store.read_payload(report.payload)
    return {name: array[report.slot] for name, array in arrays.items()}
