# SPDX-License-Identifier: MIT
"""A service ends whenever its parent ends, in whatever way, and takes what it has started with it."""

import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from cdna.children import ChildError, Service, call_in_child

# A service that starts a process of its own, says both numbers, and wants to be asked twice.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, lambda *_: print("asked", flush=True))
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
print("ready", os.getpid(), child.pid, flush=True)
while True:
    time.sleep(600)
"""
# A parent that starts it, tells the numbers, and then does what its argument says.
PARENT = f"""
import os, sys, time
from cdna.children import Service
with Service([sys.executable, "-S", "-c", {STUBBORN!r}], grace=0.2) as service:
    service.wait_until(lambda: "ready" in service.last_lines(), 60)
    print(service.last_lines(), flush=True)
    if sys.argv[1] == "raise":
        raise RuntimeError("a cell that failed")
    if sys.argv[1] == "exit":
        os._exit(3)
    while sys.argv[1] == "wait":
        time.sleep(600)
"""


def alive(pid):
    """Whether it runs; what has ended and waits for its parent to ask does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def ended(pids, seconds=60):
    until = time.monotonic() + seconds
    while time.monotonic() < until and any(map(alive, pids)):
        time.sleep(0.02)
    return not any(map(alive, pids))


def parent(what):
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, what], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    word, *pids = process.stdout.readline().split()
    assert word == "ready" and len(pids) == 2
    assert what != "wait" or all(map(alive, pids))  # the others may have ended by now
    return process, pids


@pytest.mark.parametrize("what", ["leave", "raise", "exit"])
def test_nothing_is_left_after_success_failure_and_a_sudden_exit(what):
    process, pids = parent(what)
    said = process.communicate(timeout=60)[1]
    assert ended(pids) and ("a cell that failed" in said) == (what == "raise")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_after_ctrl_c_and_after_a_kill(number):
    process, pids = parent("wait")
    process.send_signal(number)
    process.communicate(timeout=60)
    assert ended(pids)


def test_a_killed_guard_takes_the_service_with_it():
    with Service([sys.executable, "-S", "-c", STUBBORN], grace=0.2) as service:
        service.wait_until(lambda: "ready" in service.last_lines(), 60)
        _, pid, grandchild = service.last_lines().split()
        os.kill(service._guard.pid, signal.SIGKILL)
        assert ended([pid])
    os.kill(int(grandchild), signal.SIGKILL)  # of its group only the guard knew


def test_it_is_asked_before_it_is_killed():
    with Service([sys.executable, "-S", "-c", STUBBORN], grace=0.5) as service:
        service.wait_until(lambda: "ready" in service.last_lines(), 60)
    assert service.last_lines(1) == "asked" and not service.running
    service.stop()  # once more does no harm


def test_one_that_dies_says_why():
    code = "import sys; print('loading'); sys.exit('weights: no such file')"
    with Service([sys.executable, "-c", code]) as service, pytest.raises(ChildError, match="weights: no such file"):
        service.wait_until(lambda: False, 60)


def test_one_that_is_never_ready_is_stopped_in_time():
    with Service([sys.executable, "-c", "import time; time.sleep(600)"]) as service:
        with pytest.raises(ChildError, match=r"not ready after 0\.2 s; its last lines: it printed nothing"):
            service.wait_until(lambda: False, 0.2)
        assert not service.running


def test_a_program_that_is_not_there_is_named():
    with Service(["no-such-program"]) as service, pytest.raises(ChildError, match="no-such-program: cannot be started"):
        service.wait_until(lambda: False, 60)


def test_neither_the_pipe_nor_the_log_is_left_open():
    def descriptors():
        return sorted(p.name for p in Path("/proc/self/fd").iterdir())

    before, service = descriptors(), Service([sys.executable, "-S", "-c", "print('ready')"])
    service.wait_until(lambda: "ready" in service.last_lines(), 60)
    service.stop()
    service = None
    assert descriptors() == before


def test_of_several_processes_the_first_error_is_named():
    """The last lines of vLLM say only that another process of it has failed; the reason stands far above them."""
    said = ["(EngineCore pid=7) ModuleNotFoundError: No module named 'flashinfer'", *["(API pid=6)   File ..."] * 40]
    said += ["(API pid=6)     raise RuntimeError(", "(API pid=6) RuntimeError: Engine core initialization failed."]
    code = f"print({chr(10).join(said)!r}); raise SystemExit(1)"
    with Service([sys.executable, "-c", code]) as service, pytest.raises(ChildError) as caught:
        service.wait_until(lambda: False, 120)
    message = str(caught.value)
    assert "the first error: ModuleNotFoundError: No module named 'flashinfer'; its last lines: (API pid=6)" in message
    assert message.endswith("RuntimeError: Engine core initialization failed.")
    assert message.count("RuntimeError") == 2  # an error among the last lines is not said twice


def test_an_error_among_the_last_lines_is_said_once():
    code = "raise ValueError('no such model')"
    with Service([sys.executable, "-c", code]) as service, pytest.raises(ChildError) as caught:
        service.wait_until(lambda: False, 120)
    assert "ended before it was ready; its last lines: " in str(caught.value)
    assert str(caught.value).count("ValueError: no such model") == 1


SCRIPT = """
from cdna.children import call_in_child
FACTOR = 3
def times(x):
    return FACTOR * x
if __name__ == "__main__":
    print(call_in_child(times, x=14))
"""
#: A function whose text alone goes over, and a library's that ends the process from one of its threads.
NOTEBOOK = """
from cdna.children import call_in_child
if True:
    def root(x):
        import math
        return math.sqrt(x)
print(call_in_child(root, x=16))
"""


def end_from_a_thread(columns):
    """As GPTQModel does after an error in a worker: the traceback, then the end, while another thread goes on."""

    def work():
        try:
            raise ValueError(f"in_features {columns} not divisible by 128\nmore")
        except ValueError:
            traceback.print_exc()
            print("quantising:  3%|", file=sys.stderr, flush=True)
            os._exit(1)

    threading.Thread(target=work).start()
    time.sleep(60)


def test_the_last_traceback_says_why_a_process_ended():
    with pytest.raises(ChildError) as caught:
        call_in_child(end_from_a_thread, columns=576)
    assert str(caught.value) == "end_from_a_thread: ValueError: in_features 576 not divisible by 128"


def test_functions_of_scripts_and_notebooks_are_called_too(tmp_path):
    script = tmp_path / "mine.py"
    script.write_text(SCRIPT)
    assert subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout == "42\n"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(NOTEBOOK)])
    NotebookClient(notebook, timeout=120).execute()
    assert notebook.cells[0].outputs[0].text == "4.0\n"
