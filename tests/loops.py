"""One test over many cases, each a look-up, that lists all cases at fault."""

import functools
import inspect

from _pytest.mark.structures import ParameterSet


def for_each(names, cases):
    """Give a test each case in turn, and fail with all that are at fault.

    To be used as `pytest.mark.parametrize` is. Cases share the fixtures, so it is for
    tests that change nothing.
    """
    given = [name.strip() for name in names.split(",")]

    def decorated(test):
        signature = inspect.signature(test)
        fixtures = [p for n, p in signature.parameters.items() if n not in given]

        @functools.wraps(test)
        def over_all(**fixed):
            faults, count = [], 0
            for case in cases:
                values = case.values if isinstance(case, ParameterSet) else case
                values = (values,) if len(given) == 1 else values
                count += 1
                try:
                    test(**dict(zip(given, values, strict=True)), **fixed)
                except Exception as error:
                    faults.append(f"{case}: {type(error).__name__}: {error}")
            assert count
            assert faults == [], "\n".join(faults)

        over_all.__signature__ = signature.replace(parameters=fixtures)
        return over_all

    return decorated
