# SPDX-License-Identifier: MIT
"""What a command needs to start: no heavy library where none is used, one line where one is missing, Tab."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rocm_guide
from rocm_guide.cli.main import COMMANDS, NEEDS, main
from rocm_guide.cli.options import model_names, notebook_numbers
from rocm_guide.common.installation import install_fix, missing_library

ROOT = Path(rocm_guide.__file__).parents[1]
SAMPLES = Path(__file__).parents[1] / "samples"
RECORDED = Path(__file__).parents[2] / "notebooks/recorded"
HEAVY = ("torch", "transformers", "triton", "matplotlib", "numpy", "papermill", "datasets", "pydantic")
ENV = dict(os.environ, PYTHONPATH=f"{ROOT}:{ROOT}/cdna")

LIGHT = [
    "--help",
    "--version",
    "list",
    "copy common.device.seed_all",
    "copy --list",
    "launch slurm --nodes 4 -- train.py",
    f"faults log {SAMPLES / 'debugging/dmesg.txt'}",
    "faults env",
    f"trace summary {RECORDED / 'decode_b32.json.gz'}",
    f"trace kernels {RECORDED / 'rocprofv3_results.db'}",
    "trace counters",
    "system check",
    f"tunable merge {SAMPLES / 'tunableop/results_torch2.11_blaslog.csv'}",
    "fit --help",
    "--show-completion bash",
]

RUN = """
import contextlib, io, json, shlex, sys
from rocm_guide.cli.main import main
found = []
for words in json.loads(sys.stdin.read()):
    sys.argv = ["rocm-guide", *shlex.split(words)]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
            code = 0
        except SystemExit as e:
            code = e.code
        except BaseException as e:
            code = f"{type(e).__name__}: {e}"
    found.append([words, code, err.getvalue(), sorted({*HEAVY, "rich"} & {*sys.modules})])
print(json.dumps(found))
"""

# Hides every project that the bare package does not need, as on a machine with only typer and rich.
BARE = """
import importlib.metadata, sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
HIDDEN = {"torch", "transformers", "triton", "matplotlib", "numpy", "papermill", "nbclient", "nbformat", "nbconvert",
          "latex2mathml", "ipykernel", "psutil", "jupyterlab", "datasets", "peft", "trl", "safetensors", "tokenizers",
          "accelerate"}
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name.partition(".")[0] in HIDDEN else real(name, *a)
sys.meta_path.insert(0, Hidden())
"""


def in_one_process(commands, cwd, before=""):
    code = f"HEAVY = {HEAVY!r}\n{before}{RUN}"
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(commands), capture_output=True, text=True, env=ENV, cwd=cwd
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_light_commands_import_no_heavy_library():
    for words, code, err, heavy in in_one_process(LIGHT, ROOT):
        assert not {*heavy} - {"rich"}, f"{words} imports {heavy}"
        assert code in (0, 1, 2) and "Traceback" not in err, (words, code, err)


def test_doctor_and_check_import_no_torch_where_there_is_no_gpu():
    commands = ["doctor", f"tunable check {SAMPLES / 'tunableop/results_torch2.11_blaslog.csv'}"]
    without = "from rocm_guide.common import host\nfrom rocm_guide.observe.doctor import software\n"
    without += "host.gpu_possible = software.gpu_possible = lambda: False\n"
    for words, code, err, heavy in in_one_process(commands, ROOT, without):
        assert not {"torch", "pydantic", "rich"} & {*heavy} and isinstance(code, int), (words, code, err)


def test_a_bare_package_says_in_one_line_what_is_missing(tmp_path):
    (tmp_path / "work.py").write_text("print(1)")
    tuned = SAMPLES / "tunableop/results_torch2.11_blaslog.csv"
    needing = {
        "fit llama-2-7b": None,
        "tunable plan random:llama-2-7b": "torch",
        f"tunable plan random:llama-2-7b --covers {tuned}": "torch",
        "trace record work.py": "torch",
        "run 01": "papermill",
        "lab": "jupyterlab",
    }
    folder = f" --notebooks {ROOT / 'notebooks'}"
    commands = [w + (folder if w.split()[0] in ("run", "lab") else "") for w in needing]
    results = in_one_process(commands, tmp_path, BARE)
    for (words, code, err, _), named in zip(results, needing.values(), strict=True):
        if named is None and code in (0, 1):
            continue  # works without any library, which is better still
        assert code == 2 and err.count("\n") == 1, (words, code, err)
        assert "Traceback" not in err and "pip install" in err and (named or "") in err, (words, err)
        assert "rocm-guide[" not in err, "a name that is not ours on the index"
    assert {p.name for p in tmp_path.iterdir()} == {"work.py"}


def test_the_fix_in_a_clone_and_for_a_wheel(monkeypatch):
    from rocm_guide.common import installation

    assert install_fix(["torch"]).startswith('pip install -e ./cdna -e ".[course]" in ')
    monkeypatch.setattr(installation, "clone_folder", lambda: None)
    monkeypatch.setattr(installation, "_requirements", lambda: {"torch": "torch>=2.11,<2.14"})
    assert install_fix(["torch", "psutil"]) == 'pip install "torch>=2.11,<2.14" psutil'
    missing = ModuleNotFoundError("No module named 'torch'", name="torch")
    assert 'pip install "torch>=2.11,<2.14"' in missing_library(missing, ["torch"])
    # A part of another library may be called otherwise on the index: no name is guessed.
    part = missing_library(ModuleNotFoundError("No module named 'yaml'", name="yaml"), [])
    assert "pip install" not in part and "yaml" in part
    broken = missing_library(ImportError("libtorch.so: cannot open shared object file", name="torch"), ["torch"])
    assert "cannot be imported (libtorch.so" in broken
    assert missing_library(ImportError("x", name="rocm_guide.common.base")) is None
    assert set(NEEDS) <= set(COMMANDS)


def complete(line):
    env = {**ENV, "_ROCM_GUIDE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    code = "import sys\nfrom rocm_guide.cli.main import main\nmain()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, cwd=ROOT)
    assert "Traceback" not in done.stderr, done.stderr[-1000:]
    return done.stdout.split()


def test_completion_for_bash():
    shown = subprocess.run(
        [sys.executable, "-m", "rocm_guide.cli.main", "--show-completion", "bash"],
        capture_output=True,
        text=True,
        env=ENV,
    )
    assert "complete -o default -F _rocm_guide_completion rocm-guide" in shown.stdout
    assert set(complete("rocm-guide l")) == {"list", "lab", "launch"}
    assert complete("rocm-guide run 0")[:2] == ["00", "01"]
    assert complete("rocm-guide launch s") == ["slurm"]
    assert "random:llama-3-70b" in complete("rocm-guide tunable plan random:llama-3")


def test_completion_offers_what_commands_take(monkeypatch, tmp_path):
    assert ("02", "lora fine tuning") in notebook_numbers("0")
    assert "llama-3-70b" in model_names("llama-3-7")
    monkeypatch.chdir(tmp_path)
    assert notebook_numbers("0") != []  # the clone that the package runs from


def test_an_unknown_shell_is_refused():
    done = subprocess.run(
        [sys.executable, "-m", "rocm_guide.cli.main", "--show-completion", "tcsh"],
        capture_output=True,
        text=True,
        env=ENV,
    )
    assert done.returncode == 2 and "'tcsh'" in done.stderr and done.stderr.count("\n") == 1 and not done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ["list", "--json"],
        ["doctor", "--json"],
        ["trace", "counters", "SQ_WAVES", "--json"],
        ["tunable", "check", str(SAMPLES / "tunableop/results_torch2.11_blaslog.csv"), "--json"],
        ["tunable", "merge", str(SAMPLES / "tunableop/results_torch2.11_blaslog.csv"), "--json"],
        ["system", "check", "--json"],
    ],
    ids=" ".join,
)
def test_json_is_alone_on_stdout(words):
    done = subprocess.run(
        [sys.executable, "-m", "rocm_guide.cli.main", *words], capture_output=True, text=True, env=ENV, cwd=ROOT
    )
    assert json.loads(done.stdout), done.stderr[-500:]


def test_json_of_tunable_files_holds_the_warnings(tmp_path, capsys, monkeypatch):
    line = "GemmTunableOp_Half_TN,tn_8_4_2_ld_2_2_8"
    (tmp_path / "twice.csv").write_text(f"{line},Default,0.5\n{line},Default,0.5\n")
    (tmp_path / "wanted.csv").write_text(f"{line}\n{line}1\n")

    def guide(*words):
        monkeypatch.setattr(sys, "argv", ["rocm-guide", "tunable", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            main()
        assert left.value.code == 0
        return capsys.readouterr()

    twice, wanted, out = tmp_path / "twice.csv", tmp_path / "wanted.csv", tmp_path / "out.csv"
    said = guide("merge", twice, "--json", "-o", out)
    assert said.err == "" and out.read_text() == f"{line},Default,0.5\n"
    found = json.loads(said.out)
    assert [x["time_ms"] for x in found["tuned"]] == [0.5] and "appears again" in found["problems"][0]
    said = guide("merge", twice)
    assert said.out == f"{line},Default,0.5\n" and said.err.startswith("[WARN] twice.csv:2: ")

    torch = pytest.importorskip("torch")
    from rocm_guide.common import host
    from rocm_guide.tune.tunableop import tuning
    from rocm_guide.tune.tunableop.files import read_file

    monkeypatch.setattr(host, "gpu_possible", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda.tunable, "get_validators", lambda: [("PT_VERSION", "2.11.0")])
    monkeypatch.setattr(tuning, "tune_file", lambda *a, **k: k["progress"](1, 2) or read_file(twice))
    said = guide("tune", wanted, out, "--json")
    found = json.loads(said.out)
    assert said.err == "" and found["left"] == [f"{line}1"] and len(found["tuned"]) == 1


def test_inspect_json_is_not_mixed_with_what_the_file_prints(tmp_path):
    pytest.importorskip("triton")
    file = tmp_path / "noisy.py"
    file.write_text(
        "print('at import')\nimport torch\nimport triton\nimport triton.language as tl\n\n\n@triton.jit\n"
        "def one(x, B: tl.constexpr):\n    tl.store(x + tl.arange(0, B), 1.0)\n\n\n"
        "def example():\n    print('in example')\n    one[(1,)](torch.empty(64), 64)\n"
    )
    command = [sys.executable, "-m", "cdna.cli.main", "inspect", str(file), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=ENV, cwd=tmp_path)
    assert json.loads(done.stdout)[0]["name"] == "one", done.stderr[-500:]
    assert "at import" in done.stderr and "in example" in done.stderr


def test_a_reader_that_leaves_early_gets_no_traceback():
    command = f"{sys.executable} -m rocm_guide.cli.main copy --list | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=ENV)
    assert done.stdout.count("\n") == 1 and "Traceback" not in done.stderr and "Error" not in done.stderr


@pytest.mark.parametrize(
    ("shell", "words"),
    [
        ("fish", {"_TYPER_COMPLETE_ARGS": "rocm-guide la", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "rocm-guide la"}),
    ],
)
def test_completion_for_other_shells(shell, words):
    module = [sys.executable, "-m", "rocm_guide.cli.main"]
    script = subprocess.run([*module, "--show-completion", shell], capture_output=True, text=True, env=ENV).stdout
    assert "rocm-guide" in script and f"complete_{shell}" in script
    env = {**ENV, "_ROCM_GUIDE_COMPLETE": f"complete_{shell}", **words}
    done = subprocess.run(module, capture_output=True, text=True, env=env, cwd=ROOT)
    assert "lab" in done.stdout and "launch" in done.stdout and "copy" not in done.stdout, done.stderr


def test_long_work_has_a_line_before_and_after_where_no_terminal_is(capsys):
    import time

    from cdna.cli.output import announced

    with announced("compiling", after=3600):
        pass
    assert capsys.readouterr() == ("", ""), "short work is not announced"
    with announced("compiling", after=0):
        while not (seen := capsys.readouterr()).err:
            time.sleep(0.01)
    assert seen == ("", "compiling ...\n")
    out, err = capsys.readouterr()
    assert not out and err.startswith("compiling: done in ") and err.count("\n") == 1
    with pytest.raises(ValueError, match="its own line"), announced("compiling", after=3600):
        raise ValueError("its own line")
    assert capsys.readouterr() == ("", "")


class Terminal(io.StringIO):
    """A stream that says it is a terminal, and remembers what was written."""

    def isatty(self):
        return True


def test_long_work_has_a_moving_line_on_a_terminal_only(monkeypatch, capsys):
    import time

    from cdna.cli.output import working

    with working("compiling", after=0) as step:
        step("add, 1 compiled")
    assert capsys.readouterr() == ("", "")
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with working("compiling \x1b[2J", after=0) as step:
        step("add, 7 compiled\n[OK]")
        while "7 compiled" not in screen.getvalue():
            time.sleep(0.01)
        print("from the file itself")
    seen = screen.getvalue()
    assert "compiling \\x1b[2J: add, 7 compiled\\n[OK]" in seen and seen.endswith("\x1b[2K")
    assert capsys.readouterr().out == "from the file itself\n"
    screen.truncate(0)
    with pytest.raises(ValueError, match="its own line"), working("compiling", after=3600):
        raise ValueError("its own line")
    assert not screen.getvalue()


def test_inspect_says_what_it_has_compiled(tmp_path):
    pytest.importorskip("triton")
    from cdna.cli.inspect.python_file import HowTo, inspect_python

    file = tmp_path / "three_kernels.py"
    kernel = "@triton.jit\ndef {0}(x, B: tl.constexpr):\n    tl.store(x + tl.arange(0, B), 1.0)\n\n\n"
    calls = "".join(f"    {n}[(1,)](torch.empty(64), 64)\n" for n in ("one", "two"))
    head = "import torch\nimport triton\nimport triton.language as tl\n\n\n"
    file.write_text(head + kernel.format("one") + kernel.format("two") + f"def example():\n{calls}")
    seen = []
    assert len(inspect_python(file, "", HowTo(), "gfx942", seen.append)) == 2
    assert seen == ["one, 1 compiled", "two, 2 compiled"]
    typed = HowTo(arguments=["x=*fp32"], constants=["B=64"])
    seen.clear()
    inspect_python(file, "two", typed, "gfx942", seen.append)
    assert seen == ["two, 1 compiled"]
