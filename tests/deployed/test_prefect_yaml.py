"""The deployments that ship in prefect.yaml, deployed and run for real."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from curvflow.flows.deployed.quiet import SETTINGS
from tests.deployed.warm import command

pytestmark = pytest.mark.prefect

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "prefect.yaml").read_text(encoding="utf-8")
SHIPPED = {one["name"]: one for one in YAML(typ="safe").load(TEXT)["deployments"]}


@pytest.fixture
def clone(tmp_path):
    """Return a folder with what a clone has of prefect.yaml and its studies."""
    shutil.copy(ROOT / "prefect.yaml", tmp_path)
    shutil.copytree(ROOT / "studies", tmp_path / "studies", ignore=_results)
    return tmp_path


def _results(folder, names):
    return {name for name in names if name in {".curvflow", "results"}}


def run_of(server, flow, name, *, cold=False, **parameters):
    """Have a deployment run now and return the run once it has ended."""
    identity = server.get(f"/deployments/name/{flow}/{name}")["id"]
    forked = {"command": shlex.join(command(server.warm, "prefect.engine"))}
    own = {} if cold else {"job_variables": forked}
    asked = f"/deployments/{identity}/create_flow_run"
    return server.ended(server.post(asked, parameters=parameters, **own)["id"])


def test_each_shipped_deployment_enqueues_and_names_its_schedules():
    assert set(SHIPPED) == {"quickstart-nightly", "store-gc-weekly", "reanalyse"}
    for one in SHIPPED.values():
        pool = {"name": "curvflow", "job_variables": {"env": SETTINGS}}
        assert one["work_pool"] == pool
        limit = {"limit": 1, "collision_strategy": "ENQUEUE"}
        assert one["concurrency_limit"] == limit
        assert (ROOT / one["parameters"]["study"]).is_file()
        for schedule in one.get("schedules", ()):
            assert schedule["slug"]
            assert schedule["timezone"] == "UTC"
    assert "schedules" not in SHIPPED["reanalyse"]
    assert not re.search(r"(?<![\w:/.])/(?!api)\w+/", TEXT), "an absolute path"


def test_every_shipped_deployment_is_deployed_from_a_clone_and_completes(
    server, worker, clone
):
    arguments = ["--no-prompt", "deploy", "--all"]
    done = server.prefect(*arguments, cwd=clone, PWD=str(clone))
    assert done.returncode == 0, done.stdout + done.stderr
    again = server.prefect(*arguments, cwd=clone, PWD=str(clone))
    assert again.returncode == 0, again.stdout + again.stderr

    nightly = server.get("/deployments/name/curvflow-study/quickstart-nightly")
    assert nightly["parameters"]["project"] == str(clone)
    assert [one["slug"] for one in nightly["schedules"]] == ["nightly"]
    assert not nightly["pull_steps"]

    small = {"profile": "smoke"}
    first = run_of(server, "curvflow-study", "quickstart-nightly", cold=True, **small)
    assert first["state_type"] == "COMPLETED", first["state"]["message"]
    figure = clone / "studies" / "results" / "quickstart"
    assert any(figure.iterdir())

    swept = run_of(server, "curvflow-gc", "store-gc-weekly")
    assert swept["state_type"] == "COMPLETED", swept["state"]["message"]
    assert "0 payloads (0 B) moved to the trash" in swept["state"]["message"]

    last = run_of(server, "curvflow-study", "reanalyse", **small)
    assert last["state_type"] == "COMPLETED", last["state"]["message"]
