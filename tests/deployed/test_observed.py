"""`curvflow run` with a page of its own under a real Prefect server."""

import signal
import subprocess

import pytest

from tests.deployed.proxy import proxied
from tests.deployed.server import PATIENCE, free_port, until
from tests.deployed.studies import (
    BROKEN,
    BROKEN_LINE,
    STAGES,
    WILD,
    Page,
    last_page,
    write,
    write_slow,
)
from tests.deployed.warm import command
from tests.faults.long import MIDDLE, Long

pytestmark = pytest.mark.prefect

LOST = "curvflow: Prefect's server is lost ("


@pytest.fixture
def long(tmp_path):
    return Long(tmp_path / "long")


@pytest.fixture
def start(server):
    """Return a function that starts `curvflow run`; it is killed in the end."""
    started = []

    def begin(path, **environment):
        process = subprocess.Popen(
            [*command(server.warm, "curvflow"), "run", path],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=path.parent,
            env=server.environment | environment,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def test_the_command_says_what_it_says_without_prefect_and_no_more(ran):
    path, said, _, _ = ran
    assert said.returncode == 0
    assert said.stderr == ""
    assert said.stdout.splitlines()[-2].startswith("tiny: run 1 executed 6 nodes in")
    assert (path.parent / "results/tiny/table.csv").exists()


def test_the_flow_run_is_named_after_the_study_and_its_state_counts_nodes(ran):
    page = ran.page
    assert page.run["name"] == "tiny"
    assert page.state == "COMPLETED"
    assert page.message.startswith(
        "run 1: 6 executed, 0 cached, 0 failed, 0 diverged in "
    )


def test_each_stage_is_one_task(ran):
    assert ran.page.tasks == dict.fromkeys(STAGES, "COMPLETED")


def test_plan_progress_and_results_are_artifacts(ran):
    artifacts = ran.page.artifacts
    assert artifacts.keys() == {"tiny-plan", "tiny-progress", "tiny-results"}
    assert artifacts["tiny-progress"] == 100
    assert "| norms | probe.norms | 2 | 0 | 0 | 2 |" in artifacts["tiny-plan"]
    assert "- never computed: 6 run" in artifacts["tiny-plan"]
    results = artifacts["tiny-results"]
    assert "| fit | 2 | 0 | 0 | 0 |" in results
    assert "| agrees | table\\[rule=sgd\\] |" in results
    assert "results/tiny/table.csv" in results


def test_the_log_has_lines_of_curvflow_alone(ran):
    lines = ran.page.lines
    assert {line.partition(":")[0] for line in lines} == {"curvflow"}
    assert lines[0] == "curvflow: 6 nodes, 6 to do"
    assert "curvflow: fit: 2 of 2 nodes done" in lines


def test_a_second_run_does_nothing_and_its_page_is_short(ran, server):
    path = ran.path
    said = server.curvflow("run", path, cwd=path.parent)
    assert (said.returncode, said.stderr) == (0, "")
    page = last_page(server)
    assert page.message.startswith("run 2: 0 executed, 6 cached, ")
    assert page.tasks == {}
    assert page.artifacts.keys() == {"tiny-results"}


def test_nodes_that_fail_are_named_in_the_final_state(tmp_path, server):
    path = write(tmp_path)
    said = server.curvflow("run", path, "--set", BROKEN, cwd=tmp_path)
    assert (said.returncode, said.stderr) == (1, "")
    page = last_page(server)
    assert page.state == "FAILED"
    first, *failed = page.message.splitlines()
    assert "1 executed, 0 cached, 2 failed, 0 diverged, 3 blocked in" in first
    assert failed[0] == BROKEN_LINE
    assert page.tasks["fit"] == "FAILED"
    assert "### Failed" in page.artifacts["tiny-results"]


def test_divergence_is_counted_in_the_final_state(tmp_path, server):
    path = write(tmp_path)
    said = server.curvflow("run", path, "--set", WILD, cwd=tmp_path)
    assert (said.returncode, said.stderr) == (0, "")
    page = last_page(server)
    assert page.state == "COMPLETED"
    assert " 0 failed, 4 diverged in" in page.message
    assert "- 2 of fit: " in page.artifacts["tiny-results"].partition("### Div")[2]


def test_a_wrong_request_is_refused_as_ever_and_in_the_final_state(tmp_path, server):
    path = write(tmp_path)
    said = server.curvflow("run", path, "--set", "axes.seed=none", cwd=tmp_path)
    assert said.returncode == 2
    (line,) = said.stderr.splitlines()
    page = last_page(server)
    assert page.state == "FAILED"
    assert page.message in line
    assert "axes.seed" in line


def test_a_stop_ends_the_flow_run_as_cancelled_with_the_state_kept(long, start, server):
    long.hold_at(MIDDLE)
    process = start(long.path)
    until(long.held.exists)
    process.send_signal(signal.SIGTERM)
    assert process.stderr.readline().startswith("curvflow: stopping")
    long.hold.unlink()
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 143
    page = last_page(server)
    assert page.state == "CANCELLED"
    assert page.message.startswith("stopped by SIGTERM; ")
    assert page.tasks == {"data": "COMPLETED", "fit": "CANCELLED"}
    assert len(long.kept) == 1


def test_a_server_that_hangs_from_the_start_is_asked_twice_at_most(tmp_path, server):
    path = write(tmp_path / "study")
    with proxied(server.api) as proxy:
        proxy.hang(0)
        hurried = {"PREFECT_API_URL": proxy.api, "PREFECT_API_REQUEST_TIMEOUT": "2"}
        said = server.curvflow("run", path, cwd=path.parent, **hurried)
        assert len(proxy.requests) <= 2
    assert said.returncode == 0
    assert said.stderr.count("\n") == 1
    assert "expected a Prefect server, got no answer" in said.stderr


def test_of_two_runs_at_once_the_second_follows_the_first(tmp_path, start, server):
    path = write_slow(tmp_path)
    first = start(path)
    until(path.with_name("held").exists)
    second = start(path)
    waiting = "curvflow: waiting for run 1 of slow"
    until(lambda: any(line.startswith(waiting) for line in last_page(server).lines))
    page = last_page(server)
    path.with_name("hold").unlink()
    for process in (first, second):
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
    page = Page(server, server.flow_run(page.id))
    assert page.state == "COMPLETED"
    assert ": 0 executed, 3 cached, 0 failed, 0 diverged in" in page.message
    assert page.message.endswith("; 2 nodes came from run 1 of slow at the same time")
    assert page.tasks == {"wait": "COMPLETED"}


def test_the_science_finishes_though_the_server_dies_in_its_midst(long, start, server):
    long.hold_at(MIDDLE)
    with proxied(server.api) as proxy:
        process = start(long.path, PREFECT_API_URL=proxy.api)
        until(long.held.exists)
        page = last_page(server)
        proxy.cut()
        long.hold.unlink()
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    (line,) = err.splitlines()
    assert line.startswith(LOST)
    assert "long: run 1 executed 8 nodes" in out
    assert Page(server, server.flow_run(page.id)).state == "RUNNING"


def test_without_a_server_one_line_says_so_and_the_study_runs(tmp_path, server):
    path = write(tmp_path)
    nowhere = f"http://127.0.0.1:{free_port()}/api"
    said = server.curvflow("run", path, cwd=tmp_path, PREFECT_API_URL=nowhere)
    assert said.returncode == 0
    assert said.stderr.splitlines() == [
        f"curvflow: {nowhere}: expected a Prefect server, got no answer; the study "
        "runs without a page"
    ]
    assert "tiny: run 1 executed 6 nodes" in said.stdout


def test_the_number_of_requests_does_not_grow_with_the_nodes(tmp_path, server):
    path, counted = write(tmp_path), []
    for seeds in (9, 99):
        with proxied(server.api) as proxy:
            more = ("--set", f"axes.seed={seeds}")
            said = server.curvflow(
                "run", path, *more, cwd=tmp_path, PREFECT_API_URL=proxy.api
            )
            assert (said.returncode, said.stderr) == (0, "")
            counted.append(len(proxy.requests))
    assert counted[0] >= 20
    assert counted[1] <= counted[0] + 20  # steps of progress, at most
