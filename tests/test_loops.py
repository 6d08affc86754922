"""Every case at fault is listed, and a loop over nothing fails."""

import pytest

from tests.loops import for_each


def test_all_cases_at_fault_are_listed():
    @for_each("left, right", [(1, 1), (1, 2), (3, 4)])
    def equal(left, right):
        assert left == right

    with pytest.raises(AssertionError) as caught:
        equal()
    assert "(1, 2)" in str(caught.value)
    assert "(3, 4)" in str(caught.value)
    assert "(1, 1)" not in str(caught.value)


def test_no_case_at_all_is_a_fault():
    with pytest.raises(AssertionError):
        for_each("one", [])(lambda one: None)()


@for_each("number", [1, 2])
def test_fixtures_reach_the_test(number, tmp_path):
    assert tmp_path.is_dir()
