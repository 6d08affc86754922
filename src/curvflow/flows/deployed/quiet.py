"""Prefect without telemetry, log lines, or a server started silently."""

from __future__ import annotations

import logging
import os
import sys

# Defaults of the environment. Workers hand these to their runs.
SETTINGS = {
    "DO_NOT_TRACK": "1",
    "PREFECT_CLI_PROMPT": "false",
    "PREFECT_INTERNAL_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "false",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_ENABLED": "false",
    "PREFECT_TELEMETRY_ENABLE_RESOURCE_METRICS": "false",
}
LOGGERS = {
    "prefect": "PREFECT_LOGGING_LEVEL",
    "prefect.client": "PREFECT_LOGGING_LEVEL",
    "prefect._internal": "PREFECT_INTERNAL_LOGGING_LEVEL",
}


def hush() -> None:
    """Set the variables that silence Prefect, unless the user has set them.

    Prefect reads the environment as it is imported. A worker has imported it before
    this package, so there its loggers are set as well.
    """
    unset = SETTINGS.keys() - os.environ.keys()
    os.environ.update({name: SETTINGS[name] for name in unset})
    if "prefect" in sys.modules:
        for name, setting in LOGGERS.items():
            if setting in unset:
                logging.getLogger(name).setLevel(SETTINGS[setting])
