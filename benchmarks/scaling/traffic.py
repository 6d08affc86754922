"""What a page under Prefect costs a run: requests, and seconds.

A real server on loopback, with SQLite, answers through a wire that counts. Runs are
processes of their own, as a person would start them.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from curvflow.flows.deployed.observer import STEPS
from tests.deployed.proxy import proxied
from tests.deployed.server import BIN, serving

HERE = Path(__file__).parent
PROGRAM = (str(BIN / "curvflow"),)


def table(folder: Path, sizes: list[int]) -> Iterator[str]:
    """Measure runs of some sizes with and without a server.

    Args:
        folder: for the stores and the server.
        sizes: numbers of nodes.

    Yields:
        Lines of a table.
    """
    yield "nodes, under Prefect   requests  artifacts  seconds  without    added"
    with serving(folder / "prefect") as server:
        alone = {k: v for k, v in server.environment.items() if k != "PREFECT_API_URL"}
        timed(folder / "warm", 2, server.environment)
        for nodes in sizes:
            without = timed(folder / f"without-{nodes}", nodes, alone)
            with proxied(server.api) as proxy:
                known = server.environment | {"PREFECT_API_URL": proxy.api}
                observed = timed(folder / f"observed-{nodes}", nodes, known)
            artifacts = sum(p.startswith("/api/artifacts") for p in proxy.requests)
            yield (
                f"{nodes:>20}{len(proxy.requests):>11}{artifacts:>11}"
                f"{observed:>9.1f}{without:>9.1f}{observed - without:>9.1f}"
            )
    yield f"to reach: as many for all, but for at most {STEPS} artifacts of progress"


def timed(folder: Path, nodes: int, environment: Mapping[str, str]) -> float:
    """Run a study of so many nodes in a fresh process; seconds."""
    where, options = HERE / "together.yaml", ("--workers", "1", "--store", folder)
    asked = ("run", where, "--set", f"axes.seed={nodes // 2}", *options)
    command = [*PROGRAM, *map(str, asked)]
    started = time.perf_counter()
    subprocess.run(command, env=environment, capture_output=True, check=True)
    return time.perf_counter() - started
