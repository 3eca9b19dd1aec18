# SPDX-License-Identifier: MIT
"""The loopback interface: in a fresh network namespace it is off, and comes on only where that is allowed."""

import subprocess
import sys

import pytest

from rocm_guide.finetune import all_reduce as loopback
from rocm_guide.finetune.all_reduce import LoopbackError, loopback_answers, require_loopback

AS_ROOT = ["unshare", "--map-root-user", "--net"]
CODE = """
from rocm_guide.finetune import all_reduce as loopback
assert not loopback.loopback_answers()
loopback.require_loopback()
assert loopback.loopback_answers()
"""


def namespaces() -> str | None:
    """Why no network namespace can be made here, or None."""
    try:
        done = subprocess.run([*AS_ROOT, "true"], capture_output=True, text=True)
    except OSError as e:
        return str(e)
    return done.stderr.strip() or None if done.returncode else None


def test_switched_on_in_a_namespace_of_ones_own():
    if reason := namespaces():
        pytest.skip(f"this machine makes no network namespaces: {reason}")
    done = subprocess.run([*AS_ROOT, sys.executable, "-c", CODE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_off_and_not_ours_to_change_is_one_line(monkeypatch):
    monkeypatch.setattr(loopback, "loopback_answers", lambda: False)
    monkeypatch.setattr(loopback.sys, "platform", "elsewhere")
    with pytest.raises(LoopbackError, match="ip link set lo up") as caught:
        require_loopback()
    assert "\n" not in str(caught.value)


def test_here_it_answers():
    assert loopback_answers()
