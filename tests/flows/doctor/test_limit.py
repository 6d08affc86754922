"""A check that hangs or breaks is a finding, and the others go on."""

import threading

from curvflow.flows.doctor.machine import Finding, within

FINE = Finding("toy", "ok", "fine")


def test_a_check_that_ends_is_reported_as_it_is():
    assert within(60, "toy", lambda: iter([FINE]), "Wait.") == [FINE]


def test_a_check_that_hangs_is_left_with_what_it_had_found():
    asleep = threading.Event()

    def check():
        yield FINE
        asleep.wait()

    findings = within(0.2, "toy", check, "Wake it.")
    asleep.set()
    assert findings == [
        FINE,
        Finding("toy", "FAIL", "no answer within 0.2 s", "Wake it."),
    ]


def test_a_check_that_breaks_is_reported_on_one_line():
    def check():
        yield FINE
        raise ImportError("no such\nlibrary")

    broken = Finding("toy", "FAIL", "ImportError: no such library", "Mend it.")
    assert within(60, "toy", check, "Mend it.") == [FINE, broken]
