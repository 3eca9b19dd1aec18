# SPDX-License-Identifier: MIT
"""The command itself: help, speed, errors, commands whose libraries are missing."""

import json
import subprocess
import sys

import pytest

from course.command import prepare
from rocm_guide import __version__
from rocm_guide.cli.main import PLACES

COMMAND = [sys.executable, "-m", "rocm_guide.cli.main"]


def cli(*arguments, **more):
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, **more)


def existing():
    import importlib.util

    return [n for n, (module, _) in PLACES.items() if importlib.util.find_spec(module)]


def test_help_imports_no_command_and_no_large_library():
    code = "import sys; sys.argv = ['rocm-guide', '--help']\nfrom rocm_guide.cli.main import main\n"
    code += "try: main()\nexcept SystemExit: pass\n"
    code += "print([m for m in sys.modules if m.endswith('_cmd') or m in ('torch', 'papermill', 'numpy', 'triton')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip().endswith("[]")
    assert all(name in done.stdout for name in existing())


@pytest.mark.parametrize("name", existing())
def test_every_command_loads_without_heavy_libraries(name):
    code = f"import sys; sys.argv = ['rocm-guide', {name!r}, '--help']\nfrom rocm_guide.cli.main import main\n"
    code += "try: main()\nexcept SystemExit as e: assert not e.code\n"
    code += "print([m for m in sys.modules if m in ('torch', 'papermill', 'transformers', 'triton')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("[]") and "Usage" in done.stdout


def test_version_and_no_arguments():
    assert cli("--version").stdout == f"rocm-guide {__version__}\n"
    assert "The course" in cli().stdout


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["nonsense"], "No such command 'nonsense'; see rocm-guide --help"),
        (["run", "--jobs", "two"], "Invalid value for '--jobs' / '-j': "),
        (["run", "--frobnicate"], "No such option: --frobnicate"),
        (["fit"], "Missing argument 'model'; see rocm-guide fit --help"),
        (["tunable", "plan"], "Missing argument 'model'; see rocm-guide tunable plan --help"),
    ],
)
def test_what_the_option_parser_says_is_one_line_too(words, line):
    done = cli(*words)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(line) and done.stderr.count("\n") == 1 and "--help" in done.stderr


@pytest.mark.parametrize("words", [[], ["trace"], ["faults"]])
def test_a_group_without_a_command_prints_its_help(words):
    done = cli(*words)
    assert done.returncode == 2 and "Usage" in done.stdout + done.stderr and "Traceback" not in done.stderr


def test_a_guide_error_is_one_line_on_stderr():
    done = cli("copy", "nothing.here")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("nothing.here: no public helper") and done.stderr.count("\n") == 1
    assert "\x1b" not in done.stderr, "no colours where there is no terminal"


def test_doctor_json_is_only_json():
    done = cli("doctor", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == (1 if found["status"] == "FAIL" else 0)
    assert {"python", "torch", "accelerator", "memory", "disk", "cache", "numa"} <= {c["name"] for c in found["checks"]}


def test_doctor_fails_with_exit_code_1(tmp_path):
    import os

    (tmp_path / "file").write_text("")
    done = cli("doctor", env=dict(os.environ, ROCM_GUIDE_CACHE=str(tmp_path / "file" / "x")))
    assert done.returncode == 1 and "[FAIL] cache" in done.stdout and "\x1b" not in done.stdout


def test_copy_prints_or_writes(tmp_path):
    printed = cli("copy", "common.device.seed_all").stdout
    done = cli("copy", "common.device.seed_all", "--out", str(tmp_path / "new" / "w.py"))
    assert done.returncode == 0 and (tmp_path / "new" / "w.py").read_text() == printed
    assert "common.device.seed_all\t" in cli("copy", "--list").stdout
    assert cli("copy").returncode == 2


def test_lists_the_course(tmp_path, make_notebook):
    folder = make_notebook("02_lora", "x = 1").parent
    done = cli("list", "--notebooks", str(folder))
    assert done.returncode == 0 and "02" in done.stdout and "S0 setup" in done.stdout and "none" in done.stdout
    outside = cli("list", "--notebooks", str(tmp_path))
    assert outside.returncode == 2 and "no notebooks there" in outside.stderr


def test_lab_without_jupyterlab_says_how_to_get_it(make_notebook):
    folder = make_notebook("02_lora", "x = 1").parent
    code = "import sys, importlib.util as u; f = u.find_spec\n"
    code += "u.find_spec = lambda n, *a: None if n == 'jupyterlab' else f(n, *a)\n"
    code += f"sys.argv = ['x', 'lab', '--notebooks', {str(folder)!r}]\nfrom rocm_guide.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2 and 'pip install -e ./cdna -e ".[lab]"' in done.stderr


def test_parameters_come_in_pairs():
    assert prepare(["-p", "A", "1", "-p", "B", "x y", "02"]) == ["-p", "A=1", "-p", "B=x y", "02"]
    assert prepare(["-p", "A=1", "02"]) == ["-p", "A=1", "02"]
    assert prepare(["-p", "A", "-1"]) == ["-p", "A=-1"]
    assert prepare(["-p", "A", "--out", "x"]) == ["-p", "A", "--out", "x"]


@pytest.mark.slow
def test_a_command_interrupted_leaves_130(tmp_path, make_notebook):
    import signal

    folder = make_notebook("01_long", "import time; time.sleep(100)").parent
    command = [*COMMAND, "run", "--notebooks", str(folder), "--out", str(tmp_path / "out")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert "started" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130 and errors.startswith("stopped; not done: 01")


def test_authors_commands_are_called_otherwise_and_need_a_clone(monkeypatch, capsys):
    from rocm_guide.cli import main as program

    assert not {"store", "predict", "table", "count", "sbom"} & set(PLACES)
    for clone, ending in ((True, "now"), (False, "now, in a clone of the course")):
        monkeypatch.setattr(program, "_CLONE", clone)
        monkeypatch.setattr(sys, "argv", ["rocm-guide", "store", "01"])
        with pytest.raises(SystemExit) as left:
            program.main()
        assert left.value.code == 2
        assert capsys.readouterr().err == f"rocm-guide store: is called python -m course store {ending}\n"
