"""Prefect says nothing, asks nobody beyond this machine, and starts no server."""

import json
import socket

import pytest

from curvflow.flows.deployed.quiet import SETTINGS
from tests.deployed.studies import recorded

pytestmark = pytest.mark.prefect

LOOK = """
import json, sys
import curvflow.flows.deployed
from prefect.settings import get_current_settings
now = get_current_settings()
print(json.dumps([
    now.cli.prompt,
    now.internal.logging_level,
    now.logging.level,
    now.results.persist_by_default,
    now.server.analytics_enabled,
    now.server.ephemeral.enabled,
    now.telemetry.enable_resource_metrics,
]))
"""
AT_HOME = {"127.0.0.1", "::1", "localhost", "None"}


def test_each_setting_is_one_that_prefect_knows_and_holds(server):
    said = server.python(LOOK, cold=True)
    assert said.stderr == ""
    wanted = [False, "CRITICAL", "CRITICAL", False, False, False, False]
    assert json.loads(said.stdout) == wanted
    assert len(wanted) == len(SETTINGS) - 1  # DO_NOT_TRACK is none of Prefect's


def test_what_the_user_has_set_stays(server):
    own = {"PREFECT_LOGGING_LEVEL": "DEBUG", "PREFECT_CLI_PROMPT": "true"}
    said = server.python(LOOK, cold=True, **own)
    assert json.loads(said.stdout)[:3] == [True, "CRITICAL", "DEBUG"]


def test_an_observed_run_reaches_nothing_beyond_this_machine(ran):
    hosts = set(ran.hosts.read_text().split())
    assert "127.0.0.1" in hosts
    assert hosts <= AT_HOME


def test_the_guard_sees_the_requested_address(server, tmp_path):
    environment, log = recorded(tmp_path)
    ask = "import socket; socket.getaddrinfo('nowhere.invalid', 80)"
    server.python(ask, cold=True, **environment)
    assert "nowhere.invalid" in log.read_text()
    assert socket.gethostname()  # this process is not watched
