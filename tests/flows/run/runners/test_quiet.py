"""Dask's logs, while a cluster is open."""

import logging

from curvflow.flows.run.runners.clients import LOGGERS, quiet


def test_dask_says_nothing_until_the_cluster_is_closed():
    before = {name: logging.getLogger(name).level for name in LOGGERS}
    with quiet():
        for name in (*LOGGERS, "distributed.nanny"):
            assert not logging.getLogger(name).isEnabledFor(logging.CRITICAL)
    assert {name: logging.getLogger(name).level for name in LOGGERS} == before
