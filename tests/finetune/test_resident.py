# SPDX-License-Identifier: MIT
"""Programs in forks of one process that has their libraries imported: agents, workers, several at a time."""

import os
import subprocess
import sys
import textwrap
import time

import psutil
import pytest

from rocm_guide.finetune import nodes, resident
from rocm_guide.finetune.nodes import LaunchError, agent_command, free_port, start_node
from rocm_guide.finetune.resident import close_libraries

LIBRARIES = ("torch.distributed.run",)

PROGRAM = """
import os, signal, sys, time
print(*sys.argv[1:], os.environ.get("RANK"), os.getpid(), os.getppid(), len(sys.modules), flush=True)
print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, flush=True)
def main():
    if "wait" in sys.argv: time.sleep(600)
    if "raise" in sys.argv: raise ValueError("no such part")
    sys.exit({"three": 3, "none": None}.get(sys.argv[-1], 0))
if __name__ == "__main__" or os.environ.get("RANK") is None:
    main()
"""


@pytest.fixture(autouse=True)
def program(tmp_path, monkeypatch):
    (tmp_path / "resident_program.py").write_text(textwrap.dedent(PROGRAM))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setattr(nodes, "gpu_nodes", list)
    yield
    close_libraries(LIBRARIES)


def residents():
    """Those of these tests; another test of this process may have kept one with other libraries."""
    return [kept for kept in resident._RESIDENTS if kept.modules == tuple(LIBRARIES)]


def agent(*words, processes=2):
    program = ["-m", "resident_program", *words]
    return agent_command(program, nodes="1", processes=processes, port=free_port())


def test_agent_and_workers_are_forks_and_end_well(tmp_path):
    with start_node(agent("a", "none"), tmp_path / "log", (), libraries=LIBRARIES) as node:
        node.finish(timeout=300)
        (parent,) = (mine.process.pid for mine in residents())
        assert node.agent.returncode == 0
    lines = [x.split() for x in (tmp_path / "log").read_text().splitlines() if x.startswith("a none")]
    assert sorted(x[2] for x in lines) == ["0", "1"], "a worker for each rank, and its variables"
    assert {x[4] for x in lines} == {str(node.agent.pid)} and len({x[3] for x in lines}) == 2
    assert node.agent.pid != parent and min(int(x[5]) for x in lines) > 500, "torch was imported before the program"
    assert (tmp_path / "log").read_text().count("True\n") == 2, "the agent's handlers of signals are not the worker's"


@pytest.mark.parametrize(("word", "said"), [("raise", "ValueError: no such part"), ("three", "exit code 1")])
def test_a_worker_that_fails_ends_the_run_with_its_reason(tmp_path, word, said):
    command = [w for w in agent("a", word, processes=1) if not w.startswith("--max-restarts")]
    with start_node(command, tmp_path / "log", (), libraries=LIBRARIES) as node, pytest.raises(LaunchError, match=said):
        node.finish(timeout=300)


def test_a_lost_machine_leaves_nothing_and_the_other_goes_on(tmp_path):
    logs = [tmp_path / name for name in ("lost", "left")]
    one, two = (start_node(agent("a", "wait"), log, (), libraries=LIBRARIES) for log in logs)
    nodes.wait_for(lambda: all(log.read_text().count("True\n") == 2 for log in logs), what="both", timeout=300)
    assert len(residents()) == 1, "two machines share the libraries"
    workers = [int(x.split()[3]) for x in logs[0].read_text().splitlines() if x.startswith("a wait")]
    assert one.lose() == 3 and one.lose() == 0
    assert not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in workers)
    assert one.agent.wait(60) == -9 and two.agent.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        two.agent.wait(0.2)
    two.agent.terminate()
    assert two.agent.wait(120) != 0


def test_what_runs_ends_with_this_process(tmp_path):
    code = f"""
    import sys
    sys.path.insert(0, {str(tmp_path)!r})
    from rocm_guide.finetune import nodes
    nodes.gpu_nodes = list
    node = nodes.start_node([sys.executable, "-m", "resident_program", "wait"], {str(tmp_path / "log")!r},
                            libraries=["json"])
    print(node.agent.pid, node.agent.resident.process.pid)
    """
    out = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=300)
    until = time.monotonic() + 60
    while (alive := [p for p in map(int, out.stdout.split()) if psutil.pid_exists(p)]) and time.monotonic() < until:
        time.sleep(0.05)
    assert len(out.stdout.split()) == 2 and not alive, out


def test_with_a_gpu_python_is_started_for_each(tmp_path, monkeypatch):
    monkeypatch.setattr(nodes, "gpu_nodes", lambda: [tmp_path])
    command = [sys.executable, "-m", "resident_program", "ok"]
    with start_node(command, tmp_path / "log", (), libraries=LIBRARIES) as node:
        node.finish(timeout=300)
    assert isinstance(node.agent, subprocess.Popen) and not residents()
    assert int((tmp_path / "log").read_text().split()[4]) < 200
