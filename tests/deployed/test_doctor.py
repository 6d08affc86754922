"""`curvflow doctor` beside a real Prefect server."""

import json

import pytest

from tests.deployed.server import free_port

pytestmark = pytest.mark.prefect


def examined(server, folder, **how):
    """Return what is found about Prefect's server and pools, and the exit code."""
    said = server.curvflow("doctor", "--json", cwd=folder, **how)
    assert said.stderr == ""
    found = json.loads(said.stdout)["findings"]
    asked = [one for one in found if one["check"] in ("prefect.server", "prefect.pool")]
    return asked, said.returncode


def test_a_pool_without_a_worker_is_warned_of(server, tmp_path):
    server.post("/work_pools/", name="idle", type="process")
    (answers, *pools), code = examined(server, tmp_path, cold=True)
    assert code == 0
    assert answers["state"] == "ok"
    assert answers["found"].startswith(f"{server.api}/ answers, version 3.")
    assert {
        "check": "prefect.pool",
        "state": "warn",
        "found": "idle has 0 online workers",
        "remedy": "Run `prefect worker start --pool idle`.",
    } in pools


def test_a_worker_online_is_counted(server, worker, tmp_path):
    (_, *pools), _ = examined(server, tmp_path)
    assert {
        "check": "prefect.pool",
        "state": "ok",
        "found": f"{worker} has 1 online worker",
        "remedy": "",
    } in pools


def test_a_server_that_does_not_answer_fails_with_its_remedy(server, tmp_path):
    api = f"http://127.0.0.1:{free_port()}/api"
    (answers,), code = examined(server, tmp_path, PREFECT_API_URL=api)
    assert code == 1
    assert answers["state"] == "FAIL"
    assert answers["found"].startswith(f"{api}: expected a Prefect server, got no ")
    assert "`prefect server start`" in answers["remedy"]


def test_no_server_is_reported_with_how_to_have_one(server, tmp_path):
    (answers,), code = examined(server, tmp_path, PREFECT_API_URL="")
    assert code == 0
    assert (answers["state"], answers["found"]) == (
        "ok",
        "none configured; runs are not observed",
    )
