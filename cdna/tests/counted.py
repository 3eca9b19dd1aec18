# SPDX-License-Identifier: MIT
"""Work counted instead of timed: the same on every machine, busy or not. Times are the business of benchmarks/."""

import sys


def calls(function, *arguments):
    """How many functions, Python's and C's, one call of ``function`` calls in this thread."""
    count = 0

    def seen(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        function(*arguments)
    finally:
        sys.setprofile(before)
    return count


def assert_linear(function, small, large, times):
    """``large`` is ``times`` as large an input as ``small``; a tenth more of calls for each unit of it is allowed."""
    few, many = calls(function, small), calls(function, large)
    assert few > 100, "too little work to tell"
    assert many < 1.1 * times * few, f"{times} times the input, {many / few:.1f} times the work"
