# SPDX-License-Identifier: MIT
"""The symptom tables: every row is read, and a pasted error finds its own."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import pytest

from rocm_guide.cli.lessons import catalogue, read_notebook
from rocm_guide.cli.symptoms import all_symptoms, explain, rows_of

# What people paste, as public trackers show it, and a word of the fix that helped.
PASTED = [
    ("RuntimeError: HIP error: invalid device function\nHIP kernel errors might be asynchronously", "get_arch_list"),
    ("Unable to open /dev/kfd read-write: Permission denied\nFailed to get user name to check", "render"),
    ("rocBLAS error: Cannot read /opt/rocm/lib/rocblas/library/TensileLibrary.dat: Illegal seek", "LD_LIBRARY_PATH"),
    ("UserWarning: Attempting to use hipBLASLt on an unsupported architecture! Overriding", "TORCH_BLAS"),
    ('x:402:402 [0] NCCL WARN Missing "iommu=pt" from kernel command line which can lead to', "system check"),
    ("two GPUs hang in all_reduce, with NCCL_P2P_DISABLE=1 they do not", "iommu=pt"),
    ("TypeError: LoraConfig.__init__() got an unexpected keyword argument 'corda_config'", "peft"),
    ("ValueError: MXFP4 quantization is not supported on gfx942", "VLLM_ROCM_USE_AITER_FP4BMM=0"),
    ("ValueError: vLLM does not yet support DoRA.", "merge"),
    ("ValueError: LoRA rank 24 is greater than max_lora_rank 16.", "merge"),
    ("[aiter] shape M:16, N:7168, K:2048, not found tuned config in CKGEMM, will use default config!", "aiter"),
    ("WARNING [fused_moe.py:886] Using default MoE config. Performance might be sub-optimal!", "benchmark_moe"),
    (
        "AssertionError: Inconsistant values found. Please use either HIP_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES.",
        "alone",
    ),
    ("RuntimeError: HIP error: invalid device ordinal", "NOSET_HIP_VISIBLE_DEVICES"),
    ("RuntimeError: Failed to infer device type", "amd_smi"),
    ("terminated with exception: HIP error: operation not permitted when stream is capturing", "enforce-eager"),
    ("OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: 65536.", "num_stages=2"),
    (
        "ValueError(\"type fp8e4nv not supported in this architecture. The supported fp8 dtypes are ('fp8e5',)\")",
        "fnuz",
    ),
    ("HW Exception by GPU node-1 (Agent handle: 0x55d0) reason :GPU Hang", "faults log"),
    ("[ 8123.1] amdgpu: qcm fence wait loop timeout expired", "serialise"),
    ("amdgpu 0000:c5:00.0: amdgpu: MES failed to respond to msg=REMOVE_QUEUE", "firmware"),
    ("4-bit answers are nonsense on an MI300X", "1887"),
]


@pytest.mark.parametrize(("text", "word"), PASTED, ids=[p[0][:40] for p in PASTED])
def test_a_pasted_error_finds_its_row(text, word):
    found = explain(text, all_symptoms())
    assert found and word in found[0].fix, found[:2]


def test_around_the_error_may_stand_anything():
    rng = random.Random(3)
    noise = [f'  File "/usr/lib/python3.12/site-packages/x/{n}.py", line {n}, in forward' for n in range(300)]
    for text, word in PASTED[:1] + PASTED[16:18]:
        lines = noise[:]
        lines.insert(rng.randrange(len(lines)), text)
        assert word in explain("\n".join(lines), all_symptoms())[0].fix


@pytest.mark.parametrize("text", ["", "all is well", "step 10 loss 2.1", "error", "RuntimeError: HIP error"])
def test_what_is_no_known_error_finds_nothing(text):
    assert explain(text, all_symptoms()) == []


def test_every_row_of_every_table_is_there():
    """Counted by another way: lines between a head and the next line that is none of a table."""
    count = 0
    for lesson in catalogue():
        for cell in read_notebook(lesson.path)["cells"]:
            lines = "".join(cell["source"]).split("\n") if cell["cell_type"] == "markdown" else []
            heads = [n for n, line in enumerate(lines) if line.lower().startswith("| symptom")]
            for at in heads:
                end = next((n for n in range(at, len(lines)) if not lines[n].startswith("|")), len(lines))
                count += end - at - 2
    page = catalogue()[0].path.parent.parent / "docs" / "troubleshooting.md"
    count += sum(line.startswith("| ") and not line.startswith("| Symptom") for line in page.read_text().split("\n"))
    assert len(all_symptoms()) == count > 200


def test_each_row_is_found_by_its_own_words():
    rows = all_symptoms()
    lost = [row.symptom for row in rows if row not in explain(row.symptom, rows, most=5)]
    assert len(lost) <= len(rows) // 20, lost  # a symptom of one word ("slow") says too little


def test_a_cell_may_hold_a_bar():
    (row,) = rows_of("| Symptom | Cause | Fix |\n|---|---|---|\n| x \\| y | b | c |\ntext | no | row |\n", "n")
    assert row.symptom == "x | y"


def test_the_command(tmp_path):
    command = [sys.executable, "-c", "from rocm_guide.cli.main import main; main()", "faults", "explain"]
    done = subprocess.run([*command, "out of resource: shared memory"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and "num_stages=2" in done.stdout
    piped = subprocess.run(
        [*command, "-", "--json"], input="amdgpu: qcm fence wait loop timeout expired\n", capture_output=True, text=True
    )
    found = json.loads(piped.stdout)
    assert found["faults"][0]["kind"] == "hang" and "notebook 41" in found["symptoms"][0]["where"]
    assert "no table has it" in subprocess.run([*command, "well"], capture_output=True, text=True).stdout
