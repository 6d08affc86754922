"""The Prefect server that deployments live on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from curvflow.errors import CurvflowError, RequestError

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

START = "Start one with `prefect server start`"
POINT = "`export PREFECT_API_URL=http://127.0.0.1:4200/api`"


@contextmanager
def prefect_api() -> Iterator[SyncPrefectClient]:
    """Open a client of the server that PREFECT_API_URL names.

    Yields:
        The client, whose server has answered.

    Raises:
        RequestError: no server is named.
        CurvflowError: it does not answer, or refuses what is asked.
    """
    from prefect.client.orchestration import get_client
    from prefect.exceptions import PrefectHTTPStatusError
    from prefect.settings import get_current_settings

    url = get_current_settings().api.url
    if not url:
        raise RequestError(
            "PREFECT_API_URL: expected the address of a Prefect server, got none. "
            f"{START} and name it with {POINT}."
        )
    with get_client(sync_client=True) as client:
        if (failure := client.api_healthcheck()) is not None:
            reason = " ".join(str(failure).split()) or type(failure).__name__
            raise CurvflowError(
                f"{url}: expected a Prefect server, got no answer of one: "
                f"{reason.rstrip('.')}. {START}, or name another with {POINT}; "
                "its address ends in /api."
            )
        try:
            yield client
        except PrefectHTTPStatusError as error:
            detail = " ".join(str(error).split())
            raise CurvflowError(
                f"{url}: expected the server to take the request, got {detail}. "
                "Look at the server's log."
            ) from error
