"""When a deployment's runs are due."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import available_timezones

from curvflow.errors import RequestError, nearest
from curvflow.schemas.words import format_interval, parse_interval

if TYPE_CHECKING:
    from prefect.client.schemas.schedules import SCHEDULE_TYPES

# Intervals count from here, so the same interval asked for twice is the same schedule,
# and every 6 hours is at 0, 6, 12 and 18 o'clock UTC.
ANCHOR = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class When:
    """A schedule: a cron expression in a time zone, or an interval.

    Attributes:
        cron: five fields; empty if there is an interval.
        timezone: in which they are meant.
        seconds: the interval; 0 if there is none.
    """

    cron: str = ""
    timezone: str = "UTC"
    seconds: int = 0

    def schedule(self) -> SCHEDULE_TYPES:
        """Return it as Prefect's client knows it."""
        from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule

        if self.cron:
            return CronSchedule(cron=self.cron, timezone=self.timezone)
        every = timedelta(seconds=self.seconds)
        return IntervalSchedule(interval=every, anchor_date=ANCHOR, timezone="UTC")

    def __str__(self) -> str:
        return shown_schedule(self.schedule())

    def upcoming(self) -> datetime:
        """Return the next time that a run is due."""
        from prefect.server.schemas import schedules

        own: schedules.CronSchedule | schedules.IntervalSchedule
        if self.cron:
            own = schedules.CronSchedule(cron=self.cron, timezone=self.timezone)
        else:
            every = timedelta(seconds=self.seconds)
            own = schedules.IntervalSchedule(interval=every, anchor_date=ANCHOR)
        (first,) = asyncio.run(own.get_dates(n=1, start=datetime.now(UTC)))
        return first


def read_when(cron: str | None, every: str | None, timezone: str) -> When | None:
    """Read a schedule as it is asked for.

    Args:
        cron: minute, hour, day of the month, month and weekday.
        every: span of time from one run to the next.
        timezone: in which the cron expression is meant.

    Returns:
        The schedule; None if none is asked for.

    Raises:
        RequestError: both are given, or one that is none.
    """
    if timezone not in available_timezones():
        raise RequestError(
            f"--timezone: expected a time zone such as Europe/Berlin, got '{timezone}'."
            f" {_zones_like(timezone)}"
        )
    if cron is not None and every is not None:
        raise RequestError("expected --cron or --every, got both. Choose one.")
    if every is not None:
        return When(seconds=parse_interval(every))
    if cron is None:
        return None
    return When(_five_fields(cron), timezone)


def _five_fields(cron: str) -> str:
    from prefect.client.schemas.schedules import CronSchedule

    fields = cron.split()
    with suppress(ValueError):
        if len(fields) == 5 and CronSchedule(cron=cron):
            return " ".join(fields)
    raise RequestError(
        "--cron: expected minute hour day month weekday, each in its range, got "
        f"'{' '.join(fields)}'. '0 2 * * *' is every night at two."
    )


def _zones_like(timezone: str) -> str:
    known = available_timezones()
    cities = {zone.rpartition("/")[2]: zone for zone in sorted(known)}
    city = timezone.rpartition("/")[2]
    if city in cities:
        return f"Did you mean '{cities[city]}'?"
    hint = nearest(timezone, known)
    return hint if hint.startswith("Did") else "UTC always exists."


def shown_schedule(schedule: SCHEDULE_TYPES) -> str:
    """Say when a schedule of Prefect's client fires.

    Args:
        schedule: of a deployment.

    Returns:
        Such as `cron "0 2 * * *" UTC` or `every 6h`.
    """
    from prefect.client.schemas.schedules import (
        CronSchedule,
        IntervalSchedule,
        RRuleSchedule,
    )

    if isinstance(schedule, CronSchedule):
        zone = schedule.timezone or "UTC"
        days = "" if schedule.day_or else ", days and weekdays both"
        return f'cron "{schedule.cron}" {zone}{days}'
    if isinstance(schedule, IntervalSchedule):
        every = f"every {format_interval(round(schedule.interval.total_seconds()))}"
        since = schedule.anchor_date
        return every if since == ANCHOR else f"{every} from {since:%Y-%m-%d %H:%M:%S}"
    if isinstance(schedule, RRuleSchedule):
        return f"rrule {' '.join(schedule.rrule.split())}"
    return "never"
