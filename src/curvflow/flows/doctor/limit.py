"""Checks that may hang, and do not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from curvflow.flows.doctor.finding import Finding


def within(
    seconds: float, name: str, check: Callable[[], Iterable[Finding]], remedy: str
) -> list[Finding]:
    """Carry out a check, but wait for it no longer than so many seconds.

    Args:
        seconds: the limit.
        name: of the check, should it not end.
        check: yields what it finds.
        remedy: what to do should it not end.

    Returns:
        What it has found. A check that did not end, or broke, is a finding as well.
    """
    found: list[Finding] = []

    def carry_out() -> None:
        # A library that is being looked at may raise anything: that is what is found.
        try:
            found.extend(check())  # one by one, so that none is lost later
        except Exception as error:
            words = " ".join(f"{type(error).__name__}: {error}".split())
            found.append(Finding(name, "FAIL", words, remedy))

    thread = threading.Thread(target=carry_out, name=f"doctor {name}", daemon=True)
    thread.start()
    thread.join(seconds)
    so_far = list(found)
    if thread.is_alive():
        told = f"no answer within {seconds:g} s"
        so_far.append(Finding(name, "FAIL", told, remedy))
    return so_far
