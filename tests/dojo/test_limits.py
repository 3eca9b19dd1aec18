# SPDX-License-Identifier: MIT
"""A solution that harms ends in a line that names the limit; nothing of it stays behind, and the next one is judged."""

from __future__ import annotations

import re
import socket
import time
from pathlib import Path

import pytest

from cdna.grade import GradeError
from cdna.testing import HEAD, run_cell
from rocm_guide.dojo import grade
from tests.dojo.hostile import ELSEWHERE, HOSTILE
from tests.dojo.solutions import SOLUTIONS
from tests.in_turn import dealt


def solution(body):
    return run_cell(f"{HEAD}def copy(x):\n    {body}\n")["copy"]


@pytest.mark.parametrize("how", dealt(HOSTILE, 3))
def test_a_solution_that_harms_ends_in_one_line(how):
    body, said = HOSTILE[how]
    result = grade(solution(body), "copy", seconds=3)
    assert not result.passed and re.search(said, str(result)), str(result)
    assert "Traceback" not in str(result) and all("\n" not in c.found for c in result.checks)


@pytest.mark.parametrize("how", dealt(ELSEWHERE, 3))
def test_a_solution_is_limited_where_it_is_compiled_too(how):
    body, said = ELSEWHERE[how]
    code = SOLUTIONS["copy"].replace(
        "    y = torch.empty_like(x)\n",
        f"    if 'TRITON_INTERPRET' not in __import__('os').environ:\n        {body}\n    y = torch.empty_like(x)\n",
    )
    result = grade(run_cell(HEAD + code)["copy"], "copy", seconds=3)
    assert not result.passed and re.search(rf"\[FAIL\] compiles +.*{said}", str(result)), str(result)


def test_nothing_that_a_solution_started_outlives_it(tmp_path):
    """Processes that Python does not hear of, in a session of their own."""
    told = tmp_path / "pid"
    body = (
        "import ctypes, os, time\n    c = ctypes.CDLL(None)\n    if c.fork() == 0:\n        c.setsid()\n"
        f"        open({str(told)!r}, 'a').write(f'{{os.getpid()}} ')\n        time.sleep(3600)\n"
        f"    while not (os.path.exists({str(told)!r}) and open({str(told)!r}).read()):\n        time.sleep(0.01)\n"
        "    raise ValueError('started')"
    )
    assert "started" in str(grade(solution(body), "copy"))
    for pid in told.read_text().split():
        stat = Path(f"/proc/{pid}/stat")
        for _ in range(200):
            if not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] == "Z":
                break
            time.sleep(0.05)
        else:
            pytest.fail(f"process {pid} still runs")


def test_a_program_that_listens_here_is_not_reached():
    """Neither by Python's sockets nor by the system's own calls, where Linux has a network for each process."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        body = f"import socket\n    socket.socket().connect(('127.0.0.1', {server.getsockname()[1]}))\n    return x"
        assert "it asks for the network" in str(grade(solution(body), "copy"))
        server.settimeout(0.1)
        with pytest.raises(TimeoutError):
            server.accept()


def test_the_limit_is_a_positive_number():
    for seconds in (0, -1, "10", float("nan")):
        with pytest.raises(GradeError, match=r"seconds=.*: give a positive number"):
            grade(solution("return x"), "copy", seconds=seconds)
