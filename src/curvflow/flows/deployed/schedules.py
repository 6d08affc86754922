"""Due times of a deployment: cron expressions and intervals."""

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

# Intervals count from here, so equal intervals are equal schedules, and every 6 hours
# is at 0, 6, 12 and 18 o'clock UTC.
ANCHOR = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class DueTimes:
    """A schedule: a cron expression in a time zone, or an interval.

    Attributes:
        cron: five fields; empty for an interval.
        timezone: of the cron expression.
        seconds: the interval; 0 for a cron expression.
    """

    cron: str = ""
    timezone: str = "UTC"
    seconds: int = 0

    def schedule(self) -> SCHEDULE_TYPES:
        """Return the schedule for Prefect's client."""
        from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule

        if self.cron:
            return CronSchedule(cron=self.cron, timezone=self.timezone)
        every = timedelta(seconds=self.seconds)
        return IntervalSchedule(interval=every, anchor_date=ANCHOR, timezone="UTC")

    def __str__(self) -> str:
        return shown_schedule(self.schedule())

    def upcoming(self) -> datetime:
        """Return the next due time."""
        from prefect.server.schemas import schedules

        schedule: schedules.CronSchedule | schedules.IntervalSchedule
        if self.cron:
            schedule = schedules.CronSchedule(cron=self.cron, timezone=self.timezone)
        else:
            every = timedelta(seconds=self.seconds)
            schedule = schedules.IntervalSchedule(interval=every, anchor_date=ANCHOR)
        (first,) = asyncio.run(schedule.get_dates(n=1, start=datetime.now(UTC)))
        return first


def read_due_times(
    cron: str | None, every: str | None, timezone: str
) -> DueTimes | None:
    """Read the options --cron, --every and --timezone; None without a schedule."""
    if timezone not in available_timezones():
        raise RequestError(
            f"--timezone: expected a time zone such as Europe/Berlin, got '{timezone}'."
            f" {_zones_like(timezone)}"
        )
    if cron is not None and every is not None:
        raise RequestError("--cron cannot be combined with --every. Choose one.")
    if every is not None:
        return DueTimes(seconds=parse_interval(every))
    if cron is None:
        return None
    return DueTimes(_five_fields(cron), timezone)


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
    """Return a schedule in words: `cron "0 2 * * *" UTC` or `every 6h`."""
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
