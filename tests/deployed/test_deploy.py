"""`curvflow deploy` against a real server, pool and worker."""

import json

import pytest

from tests.deployed.server import free_port, until

pytestmark = pytest.mark.prefect

STUDY = """\
study: {name}
axes: {{seed: 2}}
stages:
  data: {{use: data.xor}}
  fit: {{use: train, data: data, model: {{kind: mlp, hidden: [3]}},
        rule: {{rule: sgd, lr: 0.1}}, seed: "${{seed}}", epochs: 2}}
profiles:
  smoke: {{axes.seed: 3}}
"""


@pytest.fixture
def study(tmp_path):
    """Return the path of a study whose name no other test has."""
    path = tmp_path / "study.yaml"
    path.write_text(STUDY.format(name=tmp_path.name.replace("_", "-")))
    return path


@pytest.fixture
def deploy(server, pool, study):
    """Return a function that runs `curvflow deploy STUDY` in the study's folder."""

    def run(*arguments, cwd=study.parent, **how):
        given = [study.name, "--pool", pool, *arguments]
        return server.curvflow("deploy", *given, cwd=cwd, **how)

    return run


def name_of(study):
    """Return flow and name of the study's deployment."""
    return f"curvflow-study/{study.parent.name.replace('_', '-')}"


def deployment(server, study):
    """Return a study's deployment as the server has it."""
    return server.get(f"/deployments/name/{name_of(study)}")


def said(done):
    """Return what a command said, which has done what it was asked for."""
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def complaint(done, code):
    """Return the one line with which a command refused."""
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line


def test_a_deployment_is_created_once_and_then_there_is_nothing_to_do(
    server, deploy, study, pool
):
    asked = ("--cron", "0 2 * * *", "--profile", "smoke", "--name", "nights")
    out = said(deploy(*asked, cold=True))
    assert out.splitlines()[0] == "curvflow-study/nights: created"
    assert '  + schedule nights: cron "0 2 * * *" UTC' in out
    assert f"  + parameter project: {study.parent}" in out
    assert "02:00:00 UTC" in out

    found = server.get("/deployments/name/curvflow-study/nights")
    assert found["entrypoint"] == "curvflow.flows.deployed.study.run_study"
    assert found["work_pool_name"] == pool
    assert found["global_concurrency_limit"]["limit"] == 1
    assert found["concurrency_options"]["collision_strategy"] == "ENQUEUE"
    assert [one["slug"] for one in found["schedules"]] == ["nights"]
    assert found["parameters"] == {
        "study": "study.yaml",
        "project": str(study.parent),
        "profile": "smoke",
    }
    assert found["parameter_openapi_schema"]["required"] == ["study"]

    assert (
        said(deploy(*asked)).splitlines()[0] == "curvflow-study/nights: nothing to do"
    )
    after = server.get("/deployments/name/curvflow-study/nights")
    assert after["updated"] == found["updated"]


def test_what_differs_is_reported_and_reconciled_and_no_schedule_is_left_over(
    server, deploy, study
):
    said(deploy("--cron", "0 2 * * *", "--set", "axes.seed=4"))
    # Somebody adds a schedule by hand and pauses the one that is there.
    identity = deployment(server, study)["id"]
    extra = [{"schedule": {"interval": 3600}, "active": True, "slug": "extra"}]
    server.python(PAUSE, identity, json.dumps(extra))

    dry = json.loads(said(deploy("--cron", "30 4 * * *", "--dry-run", "--json")))
    assert dry["acted"] is False
    (added,) = [one for one in dry["changes"] if one["what"] == "schedule extra"]
    assert added["new"] is None
    assert len(deployment(server, study)["schedules"]) == 2

    out = said(deploy("--cron", "30 4 * * *", "--timezone", "Europe/Berlin"))
    name = deployment(server, study)["name"]
    lines = out.splitlines()
    assert lines[0] == f"{name_of(study)}: changed"
    was, now = 'cron "0 2 * * *" UTC', 'cron "30 4 * * *" Europe/Berlin'
    assert f"  ~ schedule {name}: {was} -> {now}" in lines
    assert "  - parameter overrides: axes.seed=4" in lines
    assert any(line.startswith("  - schedule extra: every 1h from ") for line in lines)
    assert "note: its schedule was paused on the server and stays so" in lines
    (only,) = deployment(server, study)["schedules"]
    assert (only["slug"], only["active"]) == (name, False)
    assert only["schedule"]["cron"] == "30 4 * * *"
    assert "overrides" not in deployment(server, study)["parameters"]


PAUSE = """
import json, sys, uuid
from prefect.client.orchestration import get_client
from prefect.client.schemas.schedules import IntervalSchedule

with get_client(sync_client=True) as client:
    one = client.read_deployment(uuid.UUID(sys.argv[1]))
    client.update_deployment_schedule(one.id, one.schedules[0].id, active=False)
    for extra in json.loads(sys.argv[2]):
        schedule = IntervalSchedule(interval=extra["schedule"]["interval"])
        body = {"schedule": schedule.model_dump(mode="json")}
        client.request(
            "POST",
            "/deployments/{id}/schedules",
            path_params={"id": one.id},
            json=[extra | body],
        ).raise_for_status()
"""


def test_the_same_study_from_another_folder_moves_the_deployment_and_says_so(
    server, deploy, study
):
    said(deploy())
    other = study.parent / "other"
    other.mkdir()
    (other / study.name).write_text(study.read_text())
    out = said(deploy(cwd=other))
    assert f"  ~ parameter project: {study.parent} -> {other}" in out.splitlines()
    found = deployment(server, study)
    assert found["parameters"]["project"] == str(other)
    assert found["schedules"] == []


def test_a_deployment_of_curvflow_fires_by_itself_and_the_worker_runs_it(
    server, worker, deploy, study
):
    said(deploy("--every", "10s", "--store", "here"))
    identity = deployment(server, study)["id"]

    def begun():
        runs = server.flow_runs(identity)
        return [run for run in runs if run["state_type"] != "SCHEDULED"]

    # One run is enough: where each takes longer than ten seconds they would pile up.
    first = until(begun, every=0.5)[0]
    server.post(f"/deployments/{identity}/pause_deployment")
    first = server.ended(first["id"])
    assert first["state_type"] == "COMPLETED", first["state"]["message"]
    assert first["auto_scheduled"]
    assert (study.parent / "here").is_dir()
    said(deploy("--remove"))
    ours = json.loads(said(server.curvflow("deploy", "--list", "--json", cwd=".")))
    assert name_of(study) not in [one["name"] for one in ours]


def test_what_the_server_has_is_listed_with_studies_that_are_gone(
    server, deploy, study, pool
):
    said(deploy("--every", "6h"))
    study.unlink()
    listed = said(server.curvflow("deploy", "--list", cwd=study.parent)).splitlines()
    at = listed.index(f"{name_of(study)}: every 6h")
    assert listed[at + 1] == f"  {study}, by {pool}"
    assert listed[at + 2] == "  its study file is not on this machine"


def test_a_missing_pool_is_named_with_the_command_that_makes_it(server, deploy, study):
    line = complaint(deploy("--pool", "nowhere"), 2)
    assert line == (
        "curvflow: --pool: expected a work pool of the server, got 'nowhere', which "
        "does not exist. Make it with `prefect work-pool create nowhere --type process`"
        ", or add --create-pool."
    )
    out = said(deploy("--pool", "fresh", "--create-pool"))
    assert "note: work pool fresh made; it has no worker, start one with" in out
    assert server.get("/work_pools/fresh")["type"] == "process"


def test_without_a_server_the_commands_that_help_are_named(deploy):
    line = complaint(deploy(PREFECT_API_URL=""), 2)
    assert line == (
        "curvflow: PREFECT_API_URL: expected the address of a Prefect server, got "
        "none. Start one with `prefect server start` and name it with "
        "`export PREFECT_API_URL=http://127.0.0.1:4200/api`."
    )
    url = f"http://127.0.0.1:{free_port()}/api"
    line = complaint(deploy(PREFECT_API_URL=url), 1)
    assert line.startswith(f"curvflow: {url}: expected a Prefect server, got no answer")
    assert "`prefect server start`" in line
