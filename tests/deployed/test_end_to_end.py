"""Deployments of a study on a real server, carried out by a real worker."""

import json
import shlex

import pytest

from tests.deployed.server import RefusedError, until
from tests.deployed.studies import BROKEN, BROKEN_LINE, STAGES, WILD, Page, write
from tests.deployed.warm import command
from tests.faults.long import MIDDLE, Long

pytestmark = pytest.mark.prefect

# As anybody does who knows Prefect, and not curvflow.
DEPLOY = """
import json, sys
from datetime import datetime, timedelta, timezone
from prefect.schedules import RRule
from prefect.types.entrypoint import EntrypointType
from curvflow.flows.deployed.quiet import SETTINGS
from curvflow.flows.deployed.study import run_study

name, pool, parameters, scheduled = sys.argv[1:]
soon = datetime.now(timezone.utc) + timedelta(seconds=6)
rule = f"DTSTART:{soon:%Y%m%dT%H%M%S}Z\\nRRULE:FREQ=SECONDLY;INTERVAL=2;COUNT=2"
deployment = run_study.to_deployment(
    name,
    entrypoint_type=EntrypointType.MODULE_PATH,
    work_pool_name=pool,
    job_variables={"env": SETTINGS},
    parameters=json.loads(parameters),
    schedule=RRule(rule) if scheduled == "twice" else None,
    concurrency_limit=1,
)
print(deployment.apply())
"""


class Deployment:
    """A deployment of the tiny study."""

    def __init__(self, server, pool, path, *, scheduled="by hand"):
        self.server, self.path = server, path
        own = json.dumps({"study": path.name, "project": str(path.parent)})
        name = f"{path.parent.name} {scheduled}"
        said = server.python(DEPLOY, name, pool, own, scheduled)
        assert said.returncode == 0, said.stderr
        self.id = said.stdout.split()[-1]

    def begin(self, *, cold=False, **parameters):
        """Have a run carried out at once; return its id.

        Args:
            cold: start Python for it as a worker does unless told otherwise.
            parameters: of the flow.
        """
        asked = {"parameters": parameters}
        if not cold:
            forked = shlex.join(command(self.server.warm, "prefect.engine"))
            asked["job_variables"] = {"command": forked}
        made = self.server.post(f"/deployments/{self.id}/create_flow_run", **asked)
        return made["id"]

    def run(self, **parameters):
        """Have a run carried out to its end and return its page."""
        return Page(self.server, self.server.ended(self.begin(**parameters)))


@pytest.fixture(scope="module")
def deployment(server, worker, tmp_path_factory):
    return Deployment(server, worker, write(tmp_path_factory.mktemp("hand")))


@pytest.fixture(scope="module")
def first(deployment):
    """Return the page of the first run of the deployment."""
    return deployment.run()


@pytest.fixture(scope="module")
def scheduled(server, worker, tmp_path_factory):
    """Return the folder of a study that a schedule runs twice, and both pages."""
    path = write(tmp_path_factory.mktemp("twice"))
    deployment = Deployment(server, worker, path, scheduled="twice")
    until(lambda: len(server.flow_runs(deployment.id)) == 2, every=0.2)
    runs = server.flow_runs(deployment.id)
    return path.parent, [Page(server, server.ended(run["id"])) for run in runs]


def test_a_schedule_fires_and_its_second_run_executes_nothing(scheduled):
    folder, pages = scheduled
    assert [page.run["auto_scheduled"] for page in pages] == [True, True]
    assert [page.state for page in pages] == ["COMPLETED"] * 2
    told = sorted(page.message.partition(" in ")[0] for page in pages)
    assert told == [
        "run 1: 6 executed, 0 cached, 0 failed, 0 diverged",
        "run 2: 0 executed, 6 cached, 0 failed, 0 diverged",
    ]
    assert (folder / "results/tiny/table.csv").exists()


def test_a_run_by_hand_has_a_task_per_stage_and_three_artifacts(first):
    assert (first.run["name"], first.state) == ("tiny", "COMPLETED")
    assert first.tasks == dict.fromkeys(STAGES, "COMPLETED")
    assert first.artifacts.keys() == {"tiny-plan", "tiny-progress", "tiny-results"}


def test_the_log_of_a_run_has_no_lines_of_prefects_engine(scheduled):
    _, (page, _) = scheduled
    loggers = {line.partition(":")[0] for line in page.lines}
    assert loggers == {"curvflow", "prefect.flow_runs.worker"}


def test_an_override_runs_the_new_nodes_alone(deployment, first):
    page = deployment.run(overrides=["axes.seed=3"])
    assert page.state == "COMPLETED"
    assert ": 3 executed, 5 cached, 0 failed, 0 diverged in" in page.message
    assert page.tasks == dict.fromkeys(["fit", "norms", "table"], "COMPLETED")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"num_threads": 0}, "0 is less than the minimum of 1"),
        ({"device": "gpu"}, "is not one of ['auto', 'cpu', 'cuda']"),
        ({"overrides": "axes.seed=3"}, "is not valid under any of the given schemas"),
    ],
    ids=lambda given: next(iter(given)) if isinstance(given, dict) else "",
)
def test_the_form_refuses_what_cannot_be(deployment, wrong, told):
    with pytest.raises(RefusedError) as refused:
        deployment.begin(**wrong)
    assert refused.value.code == 409
    assert told in refused.value.text


def test_failure_and_divergence_are_reported_by_the_final_state(deployment, first):
    page = deployment.run(overrides=[WILD])
    assert page.state == "COMPLETED"
    assert ", 0 failed, 4 diverged in" in page.message
    page = deployment.run(overrides=[BROKEN])
    assert page.state == "FAILED"
    assert ", 2 failed, 0 diverged, 3 blocked in" in page.message
    assert f"\n{BROKEN_LINE}" in page.message
    assert not [line for line in page.lines if "Traceback" in line]


def test_a_study_that_is_not_there_fails_with_one_line(deployment):
    page = deployment.run(study="none.yaml")
    assert page.state == "FAILED"
    where = deployment.path.with_name("none.yaml")
    assert page.message.startswith(f"{where}: expected a study file, got none: ")
    assert "\n" not in page.message


def test_tables_alone_are_made_where_all_else_is_there(deployment, first):
    (deployment.path.parent / "results/tiny/table.csv").unlink(missing_ok=True)
    page = deployment.run(reanalyse=True)
    assert page.state == "COMPLETED"
    assert (deployment.path.parent / "results/tiny/table.csv").exists()
    page = deployment.run(reanalyse=True, overrides=["axes.seed=4"])
    assert page.state == "FAILED"
    assert "expected all results but tables and figures" in page.message


def test_a_cancelled_run_keeps_its_state_and_a_later_one_goes_on(
    deployment, server, tmp_path
):
    long = Long(tmp_path / "long")
    long.hold_at(MIDDLE)
    begun = deployment.begin(cold=True, study=str(long.path))
    until(long.held.exists)
    server.post(f"/flow_runs/{begun}/set_state", state={"type": "CANCELLING"})
    said = server.home / "worker.log"
    until(lambda: "curvflow: stopping as soon as work is safe" in said.read_text())
    long.hold.unlink()
    page = Page(server, server.ended(begun))
    assert page.state == "CANCELLED"
    assert page.tasks == {"data": "COMPLETED", "fit": "CANCELLED"}
    assert len(long.kept) == 1
    checked = server.curvflow("verify", long.path, cwd=long.folder)
    assert checked.returncode == 0, checked.stdout

    page = deployment.run(study=str(long.path))
    assert page.state == "COMPLETED"
    assert ": 7 executed, 1 cached, 0 failed, 0 diverged in" in page.message
    assert any("go on from a kept state" in line for line in page.lines)
    assert long.kept == []
