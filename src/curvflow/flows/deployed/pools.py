"""Work pools: where workers look for runs that are due."""

from __future__ import annotations

from typing import TYPE_CHECKING

from curvflow.errors import RequestError

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient


def pool_news(
    client: SyncPrefectClient, name: str, *, create: bool, dry_run: bool
) -> list[str]:
    """Look for a work pool, make it if that is asked for, and say what it lacks.

    Args:
        client: of the server.
        name: of the pool.
        create: make one of processes if there is none.
        dry_run: only say so.

    Returns:
        What the user should know, a sentence each.

    Raises:
        RequestError: there is no such pool and none is to be made.
    """
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.client.schemas.objects import WorkPoolStatus
    from prefect.exceptions import ObjectNotFound

    start = f"start one with `prefect worker start --pool {name}`"
    try:
        pool = client.read_work_pool(name)
    except ObjectNotFound:
        if not create:
            raise RequestError(
                f"--pool: expected a work pool of the server, got '{name}', which it "
                f"does not have. Make it with `prefect work-pool create {name} --type "
                "process`, or add --create-pool."
            ) from None
        if not dry_run:
            client.create_work_pool(WorkPoolCreate(name=name, type="process"))
        made = "would be made" if dry_run else "made"
        return [f"work pool {name} {made}; it has no worker, {start}"]
    if pool.is_paused:
        return [f"work pool {name} is paused; `prefect work-pool resume {name}`"]
    if pool.status is WorkPoolStatus.NOT_READY:
        return [f"no worker looks at work pool {name}; {start}"]
    return []
