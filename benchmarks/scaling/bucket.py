"""How many requests a tile makes of an object store, coordinator and worker together.

A server on loopback answers as S3 does. Two runs of different size are compared, so
that what a run asks once is not counted.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

from benchmarks.scaling.clock import Clock
from curvflow.flows.api import run
from curvflow.schemas.options import RunOptions
from curvflow.stores.bucket import Bucket
from tests.stores.server import serving

HERE = Path(__file__).parent
ASKS = ("get", "head", "put", "create", "list", "remove")


def table(few: int, many: int) -> Iterator[str]:
    """Count the requests of runs whose nodes have a tile each.

    Args:
        few: nodes of one run.
        many: nodes of the other.

    Yields:
        Lines of a table.
    """
    with serving() as server, mock.patch.dict(os.environ, server.environment()):
        for name in ("few", "many"):
            server.make_bucket(name)
        before, after = counted("few", few), counted("many", many)
    each = {ask: (after[ask] - before[ask]) / (many - few) for ask in ASKS}
    yield "requests to an object store, per tile  " + "".join(f"{a:>8}" for a in ASKS)
    yield f"{sum(each.values()):>37.1f}  " + "".join(f"{each[a]:>8.2f}" for a in ASKS)


def counted(bucket: str, nodes: int) -> Counter[str]:
    """Run a study on an empty bucket and count what is asked of it, by method."""
    clock = Clock()
    with ExitStack() as stack:
        for ask in ASKS:
            stack.enter_context(clock.on(Bucket, ask, ask))
        size = [f"axes.seed={nodes // 2}"]
        options = RunOptions(workers=1)
        where, store = HERE / "alone.yaml", f"s3://{bucket}/studies"
        run(where, store=store, overrides=size, options=options)
    return clock.calls
