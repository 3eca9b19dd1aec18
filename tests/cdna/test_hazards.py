# SPDX-License-Identifier: MIT
"""Without a wait or a barrier a kernel fails with an error that names both lines; a part of what hazards.py shows."""

from __future__ import annotations

import pytest

from tests.cdna.hazards import SUBJECTS, examine

#: One change of so many, so that each kernel takes a few seconds.
EVERY = {"softmax": 3, "gemm": 9, "attention": 19, "fp8": 13, "skinny": 11}


@pytest.mark.parametrize("name", SUBJECTS)
def test_what_is_removed_is_caught(name):
    found, notes = examine(SUBJECTS[name](), EVERY[name], first=1)
    assert found.total() - len(notes) >= 3
    good = ("caught", "redundant: ")
    assert all(verdict.startswith(good) and "limit" not in verdict for _, verdict in found), notes
