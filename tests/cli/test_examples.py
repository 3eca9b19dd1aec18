# SPDX-License-Identifier: MIT
"""Every example of every --help, typed into a shell as it stands there, in a folder that holds what it names.

What needs a GPU, a server or a package that is seldom there meets what stands in for it: ``ENDS``,
``VLLM``, ``JUPYTER``.
"""

import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import cdna.cli.main
import course.__main__
import hub.__main__
from cdna.cli.program import find_command
from rocm_guide.cli.main import PLACES
from rocm_guide.cli.main import examples as examples_of_guide
from rocm_guide.finetune.passport import new_passport, write_passport
from rocm_guide.models.tiny import tiny_folder
from rocm_guide.observe.debugging.faults.agent_log import read_report
from rocm_guide.observe.debugging.faults.code_objects import find_objdump, saved_name
from tests.serve.fake_server import fake_server

ROOT = Path(__file__).parents[2]
SAMPLES, RECORDED = ROOT / "tests/samples", ROOT / "notebooks/recorded"

PROGRAMS = {
    "rocm-guide": ("rocm_guide.cli.main", PLACES, examples_of_guide()),
    "cdna": ("cdna.cli.main", cdna.cli.main.COMMANDS, cdna.cli.main.EXAMPLES),
    "python -m course": ("course", course.__main__.COMMANDS, course.__main__.EXAMPLES),
}
LINES = [line for _, _, found in PROGRAMS.values() for lines in found.values() for line, _ in lines]
LINES += [line for line, _ in hub.__main__.EXAMPLES]

#: How a line ends that does not end with 0, and what it says: no GPU is shown to it, the server leaves, CK refuses.
ENDS = {
    "rocm-guide serve": (1, "the server has ended by itself"),
    "rocm-guide ck check document_prose 3840x4096x4096 --set": (1, "[FAIL] KPerBlock=24"),
    "rocm-guide tunable tune": (2, "GPU"),
}
#: Findings about this machine are no fault of the example's.
OF_THE_MACHINE = ("rocm-guide doctor", "rocm-guide system check", "python -m hub")
OBJDUMP = ("rocm-guide faults read",)

#: Not executed here, and why.
PARSED = {
    "python -m course table --check": "compiles every kernel; tests/kernels/test_resource_table.py compares the table",
}

KERNELS = """
import torch
import triton
import triton.language as tl


@triton.jit
def softmax(x, y, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * n + o, mask=o < n, other=-float("inf"))
    row = tl.exp(row - tl.max(row, 0))
    tl.store(y + tl.program_id(0) * n + o, row / tl.sum(row, 0), mask=o < n)


@triton.jit
def add(x, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + o, tl.load(x + o, mask=o < n) + 1, mask=o < n)


def example():
    x = torch.randn(2, 100)
    softmax[(2,)](x, torch.empty_like(x), 100, BLOCK=128)
"""

ASSEMBLY = """
.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
.type twice,@function
twice:
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  v_lshlrev_b32_e32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  global_load_dword v2, v1, s[4:5]
  s_waitcnt vmcnt(0)
  v_add_f32_e32 v2, v2, v2
  global_store_dword v1, v2, s[4:5]
  s_endpgm
.amdgpu_metadata
amdhsa.kernels:
  - .args:
      - .offset:         0
        .size:           8
        .value_kind:     global_buffer
    .max_flat_workgroup_size: 64
    .name:           twice
.end_amdgpu_metadata
"""

TRAIN = "import torch\nfrom torch.profiler import record_function\ntorch.ones(64, 64) @ torch.ones(64, 64)\n"

#: Stands in for vLLM: is ready, and leaves when it was asked once.
VLLM = """#!{python} -S
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Healthy(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    log_message = lambda *_: None
words = sys.argv[1:]
HTTPServer((words[words.index("--host") + 1], int(words[words.index("--port") + 1])), Healthy).handle_request()
"""
#: Stands in for JupyterLab, which would run until it is stopped.
JUPYTER = "import sys\nassert sys.argv[1] == 'lab', sys.argv\nprint('lab:', sys.argv[2:])\n"


#: As cdna's README shows it.
PUZZLE = re.search(r"```python\n(import torch\n\nfrom cdna\.grade.*?)```", (ROOT / "cdna/README.md").read_text(), re.S)[
    1
]
DOUBLE = """
import torch, triton
import triton.language as tl

@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)

def double(x):
    y = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
"""


def program(path, text):
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def folder(tmp_path, make_notebook):
    """A folder with every file that an example names, and on its PATH the commands of this checkout."""
    work, tools = tmp_path / "work", tmp_path / "tools"
    for each in (work, work / "package", work / "code_objects", tools, tools / "jupyterlab"):
        each.mkdir()
    program(tools / "rocm-guide", f'#!/bin/sh\nexec {sys.executable} -W ignore -m rocm_guide.cli.main "$@"\n')
    program(tools / "cdna", f'#!/bin/sh\nexec {sys.executable} -W ignore -m cdna.cli.main "$@"\n')
    program(tools / "python", f'#!/bin/sh\nexec {sys.executable} -W ignore "$@"\n')
    program(tools / "vllm", VLLM.format(python=sys.executable))
    (tools / "jupyter.py").write_text(JUPYTER)
    (tools / "jupyterlab/__init__.py").touch()

    (work / "kernel.py").write_text(KERNELS)
    (work / "double.py").write_text(DOUBLE)
    (work / "puzzle.py").write_text(PUZZLE)
    (work / "kernel.s").write_text(ASSEMBLY)
    for script in ("train.py", "package/train.py", "package/__init__.py"):
        (work / script).write_text(TRAIN)
    for name in ("trace", "before", "after"):
        shutil.copy(RECORDED / "decode_b32.json.gz", work / f"{name}.json.gz")
    shutil.copy(RECORDED / "rocprofv3_kernel_trace.csv", work / "kernel_trace.csv")

    tuned = SAMPLES / "tunableop/results_torch2.11_blaslog.csv"
    shutil.copy(SAMPLES / "tunableop/untuned_torch2.11.csv", work / "untuned.csv")
    for name in ("tunableop_results0", "results", "a", "b", "before", "after"):
        shutil.copy(tuned, work / f"{name}.csv")

    shutil.copy(SAMPLES / "tunableop/elsewhere/a8w8_tuned_gemm.csv", work / "a8w8_tuned_gemm.csv")

    shutil.copy(ROOT / "rocm_guide/data/fault_report.txt", work / "report.txt")
    shutil.copy(SAMPLES / "debugging/dmesg.txt", work / "dmesg.txt")
    code = SAMPLES / "debugging/fault_code.co"
    shutil.copy(code, work / "k.co")
    shutil.copy(code, work / "code_objects" / saved_name(read_report(work / "report.txt").faulting[0].disassembly.uri))

    (work / "advisory-database/vulns").mkdir(parents=True)
    (work / "benchmarks/results").mkdir(parents=True)

    shutil.copytree(tiny_folder(), run := work / "runs/my-model")
    write_passport(
        run, {**new_passport("my-model", "tiny", "tiny"), "stages": [{"stage": "base", "held_out": {"loss": 3.5}}]}
    )
    (adapter := work / "runs/my-adapter").mkdir()
    (adapter / "adapter_config.json").write_text(
        json.dumps({"base_model_name_or_path": str(run), "peft_type": "LORA", "r": 4})
    )
    save_file({"a": torch.zeros(1)}, adapter / "adapter_model.safetensors")
    for number in ("01", "02", "03", "10", "18"):
        make_notebook(
            f"{number}_topic",
            "print(SCALE)",
            parameters="SCALE = 'auto'\nMODEL = 'tiny'\nRUN = ''",
            folder=work / "notebooks",
            tags=["take"],
        )
    return work


@pytest.fixture
def type_in(folder, tmp_path):
    """Return a function that types a line into a shell in that folder, where no GPU is, with a home of its own."""
    tools = folder.parent / "tools"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ROCM_GUIDE_RUNS", "XDG_"))}
    env |= {"PATH": f"{tools}:{env['PATH']}", "PYTHONPATH": f"{ROOT}:{ROOT}/cdna:{tools}", "HOME": str(tmp_path)}
    env |= {"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}

    def type_in(line, shell="bash"):
        return subprocess.run(
            [shell, "-c", line], cwd=folder, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )

    return type_in


def called(line):
    """Return the program, the path of the command in it, and the words behind that."""
    name = next(n for n in [*PROGRAMS, "python -m hub"] if line.startswith(n))
    words = shlex.split(line.removeprefix(name))
    paths = [p for p in PROGRAMS.get(name, ("", {}, {}))[2] if words[: len(p.split())] == p.split()]
    path = max(paths, key=len, default="")
    return name, path, words[len(path.split()) :]


def commands(name):
    """Yield (path, command) of every command of a program, and of the groups in it."""
    module, places, examples = PROGRAMS[name]

    def walk(path, command):
        yield path, command
        for inner, child in getattr(command, "commands", {}).items():
            yield from walk(f"{path} {inner}", child)

    for first, (module, _) in places.items():
        yield from walk(first, find_command(importlib.import_module(module), first, examples))


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_help_ends_with_examples_of_its_own(name):
    found = dict(commands(name))
    assert set(found) == set(PROGRAMS[name][2])
    for path, lines in PROGRAMS[name][2].items():
        assert "Examples:" in found[path].epilog
        for line, _ in lines:
            # An example of a group shows one of its commands.
            assert called(line)[:2] == (name, path) or called(line)[1].startswith(f"{path} "), line


#: Words that zsh would take for a pattern, a command's path, a part of history or a comment.
ZSH = re.compile(r"[\[\]{}()<>?*^#!~`]|(?<![^\s])=")


@pytest.mark.parametrize("line", LINES)
def test_an_example_is_quoted_for_every_shell(line):
    bare = re.sub(r"'[^']*'|\"[^\"$`!]*\"", "", line)
    assert not ZSH.search(bare), f"quote it: {line}"


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in LINES if line not in PARSED])
def test_an_example_does_what_it_says(line, folder, type_in):
    if line.startswith(OBJDUMP) and find_objdump() is None:
        pytest.skip("needs llvm-objdump 17 or newer")
    typed = line.replace("/tmp/k.co", f"{folder}/k.co")
    with fake_server() as server:
        done = type_in(typed.replace("http://127.0.0.1:8000", server.url))
    code, said = next((end for start, end in ENDS.items() if line.startswith(start)), (0, ""))
    assert done.returncode in ((0, 1) if line.startswith(OF_THE_MACHINE) else (code,)), (done.stdout, done.stderr)
    assert said in done.stdout + done.stderr and "Traceback" not in done.stderr and done.stdout + done.stderr
    _, _, words = called(line)
    for option in ("--out", "--html", "--plot"):
        if option in words and not code:
            assert (folder / words[words.index(option) + 1]).exists(), "the file that it names"


@pytest.mark.parametrize("line", PARSED)
def test_an_example_that_is_not_executed_is_one_that_the_parser_accepts(line):
    name, path, words = called(line)
    dict(commands(name))[path].make_context(path, words, resilient_parsing=False)
