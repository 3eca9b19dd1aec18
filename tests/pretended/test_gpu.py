# SPDX-License-Identifier: MIT
"""gpu_checks.py in a process of its own: libraries keep for good whether a GPU was there when they were imported."""

import os
import re
import subprocess
import sys
from pathlib import Path

CHECKS = Path(__file__).with_name("gpu_checks.py")


def test_the_pretended_gpu():
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", str(CHECKS)]
    done = subprocess.run(command, env=environment, cwd=CHECKS.parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 20
    print(done.stdout)
