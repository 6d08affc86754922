"""Which runner a run's options open, and what it computes with."""

import os
import sys
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from importlib.util import find_spec
from uuid import uuid4

import pytest

from curvflow.errors import RequestError
from curvflow.flows.graph.heartbeats import beating
from curvflow.flows.graph.open_study import open_study
from curvflow.flows.graph.stopping import Stopping
from curvflow.flows.graph.tiles import tile_job
from curvflow.flows.plan.plan import make_plan
from curvflow.flows.plan.why.cost import Costs
from curvflow.flows.run.context import Counts, RunContext
from curvflow.flows.run.runners import open as runners
from curvflow.flows.run.runners.base import Broken, Finished
from curvflow.flows.run.runners.inline import Inline
from curvflow.flows.run.runners.open import open_runner
from curvflow.schemas import kinds
from curvflow.schemas.options import Adapt, Cluster, RunOptions
from tests.flows.run.runners.clusters import forking
from tests.flows.run.runners.conftest import came_back

STUDY = """
study: where
stages:
  where: {use: "NAME:where"}
"""
MODULE = """
import os
import numpy as np
from curvflow import stage, Variable

@stage("test.where", version=1, outputs=[Variable("pid", "process", (), "int64")])
def where():
    \"\"\"Tell which process computes.\"\"\"
    return {"pid": np.array(os.getpid())}
"""


class Opening:
    """A study beside which a module lies, ready to be computed."""

    def __init__(self, folder, name, store):
        self.module = folder / f"{name}.py"
        self.module.write_text(MODULE)
        (folder / "study.yaml").write_text(STUDY.replace("NAME", name))
        opened = open_study(folder / "study.yaml", store=store, create=True)
        self.store, self.folder, self.files = opened.store, folder, opened.files
        self.plan = make_plan(opened.study, opened.store, opened.files)
        self.plan.codes.read(self.plan.graph)
        self.lines = []

    def tell(self, message):
        self.lines.append(message)

    @contextmanager
    def runner(self, **options):
        context = RunContext(
            self.plan,
            self.store,
            self.files,
            RunOptions(device="cpu", **options),
            observer=self,
            stop=Stopping(),
            counts=Counts(self.plan.graph),
            costs=Costs(self.plan.graph, self.plan.index),
        )
        with open_runner(context) as runner_of:
            run = self.store.begin_run("where", document={}, environment={}, options={})
            with beating(self.store, run, context.stop, silence=60.0):
                yield runner_of(run)

    def job(self):
        nodes = self.plan.graph.nodes["where"]
        code = [self.plan.codes.of(node).fingerprint for node in nodes]
        return tile_job(self.plan.graph, nodes, {}, code=code)

    def computed(self, runner):
        number = runner.submit(self.job(), needs="cpu", priority=0)
        (returned,) = came_back(runner, number)
        return returned

    def pid(self, finished):
        assert isinstance(finished, Finished), finished
        (report,) = finished.reports
        return int(self.store.read_payload(report.payload)["pid"][report.slot])


@pytest.fixture
def opening(request, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = f"where_{uuid4().hex}"
    monkeypatch.setattr(kinds, "_added", dict(kinds._added))
    is_cluster = request.node.get_closest_marker("cluster")
    with forking() if is_cluster else nullcontext():
        yield Opening(tmp_path, name, tmp_path / "store")
    sys.modules.pop(name, None)


@pytest.mark.parametrize("options", [{"workers": 1}, {}], ids=["one", "few"])
def test_few_tiles_are_computed_in_this_process(opening, options):
    with opening.runner(**options) as runner:
        assert isinstance(runner, Inline)
        assert opening.pid(opening.computed(runner)) == os.getpid()


@pytest.mark.cluster
def test_workers_compute_kinds_that_lie_next_to_the_study(opening):
    with opening.runner(workers=2) as runner:
        assert opening.pid(opening.computed(runner)) != os.getpid()
        assert len(list((opening.folder / "store" / "partials").iterdir())) == 1
    assert list((opening.folder / "store" / "partials").iterdir()) == []


@pytest.mark.cluster
def test_workers_know_the_kinds_of_what_is_cached_for_it_may_be_lost(opening):
    (node,) = opening.plan.graph
    node.state = "cached"
    with opening.runner(workers=2) as runner:
        assert opening.pid(opening.computed(runner)) != os.getpid()


@pytest.mark.cluster
def test_workers_leave_this_process_as_it_was(opening, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)  # which Dask sets
    environment, main = dict(os.environ), sys.modules["__main__"]
    with opening.runner(workers=2):
        pass
    assert dict(os.environ) == environment
    assert sys.modules["__main__"] is main


@pytest.mark.cluster
def test_dask_s_page_needs_bokeh(opening):
    if find_spec("bokeh") is None:
        with (
            pytest.raises(RequestError, match="--dashboard: expected Bokeh"),
            opening.runner(workers=2, dashboard=True),
        ):
            pass
    else:
        with opening.runner(workers=2, dashboard=True):
            assert opening.lines[0].startswith("Dask's page: http://127.0.0.1:")


@pytest.mark.cluster
def test_a_module_that_changed_after_the_plan_is_refused(opening):
    opening.module.write_text(MODULE + "\nOTHER = 1\n")
    with opening.runner(workers=2) as runner:
        returned = opening.computed(runner)
    assert isinstance(returned, Broken)
    assert returned.is_request
    assert (
        f"{opening.module.stem}: expected the code that the run was" in returned.error
    )


@pytest.mark.cluster
def test_a_cluster_that_grows_with_the_work_is_started_and_ended(opening):
    kwargs = {
        "n_workers": 0,
        "threads_per_worker": 1,
        "dashboard_address": "127.0.0.1:0",
    }
    factory = "distributed:LocalCluster"
    cluster = Cluster(factory=factory, kwargs=kwargs, adapt=Adapt(maximum=1))
    with opening.runner(cluster=cluster) as runner:
        assert opening.pid(opening.computed(runner)) != os.getpid()
    (line,) = opening.lines
    assert line.endswith("waiting for the first worker")


@pytest.mark.cluster
def test_a_cluster_that_cannot_be_ended_is_reported_on_one_line(opening):
    factory = "tests.flows.run.runners.clusters:stubborn"
    kwargs = {
        "n_workers": 1,
        "threads_per_worker": 1,
        "dashboard_address": "127.0.0.1:0",
    }
    with opening.runner(cluster=Cluster(factory=factory, kwargs=kwargs)) as runner:
        assert opening.pid(opening.computed(runner)) != os.getpid()
    (line,) = opening.lines
    assert line == (
        f"--cluster: expected {factory} to end its cluster, got RuntimeError: scancel: "
        "not found. Look whether its jobs have ended."
    )


@pytest.mark.cluster
@pytest.mark.parametrize("factory", ["nowhere:Cluster", "distributed:Nothing"])
def test_a_cluster_that_cannot_be_started_is_named(opening, factory):
    with (
        pytest.raises(RequestError, match=f"--cluster: expected {factory} to start"),
        opening.runner(cluster=Cluster(factory=factory)),
    ):
        pass


@pytest.mark.cluster
def test_a_scheduler_that_does_not_answer_is_named(opening):
    address = "tcp://127.0.0.1:9"
    with (
        pytest.raises(RequestError, match=f"{address}, got no answer within 6 s"),
        opening.runner(scheduler=address),
    ):
        pass


def test_a_store_in_memory_is_for_this_process_alone(opening, monkeypatch):
    opening.store.location = "memory:"
    with (
        pytest.raises(RequestError, match="workers can reach, got memory:"),
        opening.runner(workers=2),
    ):
        pass
    monkeypatch.setattr(runners, "_num_tiles", lambda _: 10_000)
    with opening.runner() as runner:
        assert isinstance(runner, Inline)


@pytest.mark.parametrize("home", ["__main__:where", "None:where", "no_module:where"])
def test_a_kind_of_the_script_itself_is_for_this_process_alone(opening, home):
    (stage,) = opening.plan.graph.study.stages.values()
    kind = replace(stage.kind, home=home)
    opening.plan.graph.study.stages["where"] = replace(stage, kind=kind)
    with (
        pytest.raises(RequestError, match="got one of the script or notebook itself"),
        opening.runner(workers=2),
    ):
        pass
