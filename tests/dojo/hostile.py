# SPDX-License-Identifier: MIT
"""Solutions that harm: each as the body of ``copy(x)``, and what the grader says about it."""

HOSTILE = {
    "sleeps": ("import time\n    time.sleep(3600)", r"time\.sleep\(3600\)\): no end after 3 s: does it sleep"),
    "loops": ("while True:\n        pass", r"still running after 3 s.*: does this loop end"),
    "loops and catches everything": (
        "while True:\n        try:\n            while True:\n                pass\n        except BaseException:\n"
        "            continue",
        "no end after 3 s, and the solution cannot be interrupted",
    ),
    "waits outside of Python": (
        "import ctypes\n    ctypes.CDLL(None).pause()\n    ctypes.CDLL(None).pause()",
        "no end after 3 s",
    ),
    "blocks signals and sleeps": (
        "import signal, time\n    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))\n    time.sleep(3600)",
        "no end after 3 s, and the solution cannot be interrupted",
    ),
    "takes memory in a list": (
        "kept = []\n    while True:\n        kept.append(bytes(1 << 28))",
        "more than 4 GiB of memory",
    ),
    "takes memory in torch": ("torch.zeros(1 << 40)", "more than 4 GiB of memory"),
    "takes memory in numpy": ("import numpy\n    numpy.zeros(1 << 40)", "more than 4 GiB of memory"),
    "forks": ("import os\n    os.fork()", r"os\.fork\(\)\): it starts another process"),
    "forks in C": (
        "import ctypes, time\n    if ctypes.CDLL(None).fork() == 0:\n        ctypes.CDLL(None).setsid()\n"
        "        time.sleep(3600)\n    return x.clone()",
        "no Triton kernel was launched",
    ),
    "runs a program": ("import subprocess\n    subprocess.run(['true'])", "it starts another process"),
    "runs a shell": ("import os\n    os.system('true')", "it starts another process"),
    "becomes a program": ("import os\n    os.execv('/bin/true', ['true'])", "it starts another process"),
    "uses multiprocessing": (
        "import multiprocessing\n    multiprocessing.get_context('fork').Process(target=print).start()",
        "it starts another process",
    ),
    "connects": ("import socket\n    socket.create_connection(('127.0.0.1', 9))", "it asks for the network"),
    "listens": ("import socket\n    socket.socket().bind(('127.0.0.1', 0))", "it asks for the network"),
    "downloads": (
        "import urllib.request\n    urllib.request.urlopen('http://192.0.2.1/')",
        "it asks for the network",
    ),
    "fills the disk": (
        "import tempfile\n    with tempfile.TemporaryFile() as f:\n        f.truncate(1 << 40)",
        "File too large|code -25",
    ),
    "ends the process": ("import os\n    os._exit(0)", r"the solution ended its process \(code 0\)"),
    "kills its process": ("import os\n    os.kill(os.getpid(), 9)", r"the solution ended its process \(code -9\)"),
    "crashes": ("import ctypes\n    ctypes.string_at(0)", r"the solution ended its process \(code -11\)"),
    "raises what nobody catches": ("raise KeyboardInterrupt", r"KeyboardInterrupt|ended its process"),
    "recurses": ("copy(x)", "RecursionError"),
}

#: Right in the interpreter; where kernels are compiled it does this.
ELSEWHERE = {
    "loops outside of the interpreter": (
        "while True:\n            pass",
        r"still running after 3 s.*: does this loop end",
    ),
    "sleeps outside of the interpreter": ("__import__('time').sleep(3600)", "no end after 3 s"),
    "takes memory outside of the interpreter": ("bytearray(1 << 40)", "more than 4 GiB of memory"),
}
