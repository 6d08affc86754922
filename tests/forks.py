"""All that processes need which tests fork: loaded once, by the process that forks."""

import gc
from importlib import import_module

from curvflow.cli.app import COMMANDS, command_line
from curvflow.schemas.kinds import all_kinds
from tests.code_read import read_code

LOADED = """
    curvflow.cli.app curvflow.cli.commands.run curvflow.flows.api
    curvflow.flows.run.runners.local curvflow.stores.zarr_payloads
    curvflow.tasks.aggregate.summary curvflow.tasks.data.xor curvflow.tasks.figures.bars
    curvflow.tasks.machine curvflow.tasks.probes.norms curvflow.tasks.train
    distributed.cli.dask_scheduler distributed.cli.dask_worker obstore.store pytest
    torch._dynamo
"""
for name in LOADED.split():
    import_module(name)
all_kinds()
for name in COMMANDS:
    command_line(name)
read_code()
gc.freeze()  # else each fork copies what its collector looks at
