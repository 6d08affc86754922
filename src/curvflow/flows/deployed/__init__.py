"""Studies under Prefect: the flow, its page, deployments and schedules."""

from curvflow.flows.deployed.quiet import hush

hush()  # before any module of this package imports Prefect
