"""Workers that are not fit for a run are told before any tile, and refused after."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import curvflow
from curvflow.errors import ClusterError, RequestError
from curvflow.flows.run.runners.base import Broken
from curvflow.flows.run.runners.job_context import sealed
from curvflow.stores.local import LocalStore
from tests.flows.run.runners.clusters import joined, worker
from tests.flows.run.runners.conftest import act, came_back

pytestmark = pytest.mark.cluster

OTHER_TORCH = """
import importlib.metadata as metadata
real = metadata.version
metadata.version = lambda name: "0.4.1" if name == "torch" else real(name)
"""


def refused(running, client, *, device="auto", **changes):
    """Return what the preflight says in one line."""
    from curvflow.flows.run.runners.preflight import preflight

    with pytest.raises(RequestError) as caught:
        preflight(client, sealed(replace(running.jobs, **changes)), device=device)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_worker_with_another_version_is_named(running, site, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(OTHER_TORCH)
    with worker(site, first=tmp_path), joined(site, 1) as client:
        said = refused(running, client)
        assert said.startswith("worker tcp://127.0.0.1:")
        assert ", got 0.4.1. Install the same there" in said
        assert "expected torch " in said
        # A worker that comes too late for the preflight says the same of itself.
        runner = running.runner(client)
        (late,) = came_back(runner, runner.submit(act(), needs="cpu", priority=0))
    assert late == Broken(said, is_request=True)


def test_a_worker_with_another_source_of_one_version_is_named(running, site, tmp_path):
    package = Path(curvflow.__file__).parent
    shutil.copytree(package, tmp_path / "curvflow")
    with (tmp_path / "curvflow" / "errors.py").open("a") as file:
        file.write("\n# edited\n")
    with worker(site, first=tmp_path), joined(site, 1) as client:
        assert "expected source of curvflow" in refused(running, client)


def test_a_worker_without_this_package_is_named(running, site, tmp_path):
    (tmp_path / "curvflow.py").write_text("raise ImportError('no curvflow here')")
    with worker(site, first=tmp_path), joined(site, 1) as client:
        assert "ImportError('no curvflow here'). Install" in refused(running, client)
        runner = running.runner(client)
        (late,) = came_back(runner, runner.submit(act(), needs="cpu", priority=0))
    assert isinstance(late, Broken)
    assert "no curvflow here" in late.error
    assert late.is_request


def test_a_store_that_is_another_one_elsewhere_is_named(
    running, site, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    LocalStore(tmp_path / "elsewhere" / "store").make()
    place = "/proc/self/cwd/store"
    with worker(site, cwd=tmp_path / "elsewhere"), joined(site, 1) as client:
        said = refused(running, client, store=place)
    assert f"{place}: expected the store of the run, got another one on " in said
    assert os.uname().nodename in said


def test_a_module_that_the_worker_does_not_have_is_named(running, site):
    with worker(site), joined(site, 1) as client:
        said = refused(running, client, modules=("kinds_beside_the_study",))
    assert "kinds_beside_the_study: expected a module that can be imported" in said


def test_modules_of_other_code_are_refused_until_the_worker_is_restarted(
    running, site, tmp_path
):
    from curvflow.flows.plan.code.sources import Sources
    from curvflow.flows.run.runners.preflight import preflight

    module = tmp_path / "beside.py"

    def changes(text):
        module.write_text(text)
        digest = Sources(tmp_path, tmp_path).digest("beside")
        return {
            "folder": str(tmp_path),
            "modules": ("beside",),
            "files": {"beside": digest},
        }

    with worker(site), joined(site, 1) as client:
        order = replace(running.jobs, **changes("A = 1"))
        preflight(client, sealed(order), device="cpu")
        said = refused(running, client, **changes("A = 2"))
        assert "beside: expected the code that the run was planned with" in said
        assert "restart the workers" in said


def test_a_worker_that_leaves_while_it_is_queried_is_not_missed(
    running, site, tmp_path
):
    from curvflow.flows.run.runners.preflight import preflight

    left = tmp_path / "left"
    leaves = f"import os, pathlib\npathlib.Path({str(left)!r}).touch()\nos._exit(0)\n"
    (tmp_path / "leaves.py").write_text(leaves)
    order = replace(running.jobs, folder=str(tmp_path), modules=("leaves",))
    with worker(site), joined(site, 1) as client:
        preflight(client, sealed(order), device="cpu")
    assert left.exists()


def test_a_worker_of_several_threads_is_refused(running, site):
    with worker(site, "--nthreads", 2), joined(site, 1) as client:
        said = refused(running, client)
        runner = running.runner(client)
        (late,) = came_back(runner, runner.submit(act(), needs="cpu", priority=0))
    assert late == Broken(said, is_request=True)
    assert "expected one thread, got 2" in said
    assert f"`dask worker {site} --nthreads 1`" in said


def test_a_gpu_that_nobody_has_is_refused_with_two_ways_out(running, site):
    with worker(site), joined(site, 1) as client:
        said = refused(running, client, device="cuda")
    assert f"dask worker {site} --nthreads 1 --resources GPU=1" in said
    assert "--device cpu" in said


def test_tiles_of_a_gpu_that_goes_away_do_not_hang(running, site):
    with (
        worker(site),
        worker(site, "--resources", "GPU=1") as gpu,
        joined(site, 2) as client,
    ):
        runner = running.runner(client, device="auto", patience=1.0)
        came_back(runner, runner.submit(act(), needs="gpu", priority=0))
        gpu.kill()
        gpu.wait()
        runner.submit(act(), needs="gpu", priority=0)
        with pytest.raises(ClusterError, match="with the resource GPU, got none"):
            came_back(runner, 2)
    assert running.lines == ["waiting for a worker with the resource GPU"]
