# SPDX-License-Identifier: MIT
"""What a learner came for stands in the notebook's own code, as the library writes it, and is executed there."""

import io
import json
import tokenize
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent.parent / "notebooks"

# Notebook -> what a cell that runs must say word for word; neither a comment nor an exercise's solution counts.
CALLS = {
    "02_lora_fine_tuning": ("SFTTrainer(", "SFTConfig(", "print_trainable_parameters("),
    "03_inference": ("PeftModel.from_pretrained(", "merge_and_unload(", "pipeline("),
    "04_device_maps": ("from_pretrained(", 'device_map="auto"', "infer_auto_device_map(", "hf_device_map"),
    "05_several_gpus": ("DistributedDataParallel(", "fully_shard(", "dcp.save(", "tp_plan=", "torchrun"),
    "06_torchtune": ("tune run", '"tune ls"', "tune cp", "tune download"),
    "07_preferences": ("DPOTrainer(", "DPOConfig(", "GRPOTrainer(", "GRPOConfig(", "RewardTrainer("),
    "08_evaluate_and_export": ("merge_and_unload(", "save_pretrained(", "safe_open(", "ModelCard(", "lm_eval run"),
    "10_gptq": ("GPTQConfig(",),
    "11_awq": ("QuantizeConfig(",),
    "12_bitsandbytes": ("BitsAndBytesConfig(", "bnb.matmul("),
    "13_fp8_and_mx_formats": ("apply_quantization_config(", "ModelCompressor.", "from_pretrained("),
    "15_flash_attention": (
        "from_pretrained(",
        "attn_implementation=",
        "sdpa_kernel(",
        "SDPBackend.",
        "torch.compile(flex_attention",
        "create_block_mask(",
        "score_mod=",
        "AuxRequest(lse=True)",
    ),
    "35_experts": ("set_experts_implementation(", "output_router_logits=True", "torch.nn.functional.grouped_mm("),
    "40_profiling": ("profile(activities=", "schedule(", "key_averages().table(", "export_chrome_trace("),
    "16_torch_compile": (
        "torch.compile(",
        'cache_implementation="static"',
        "StaticCache(",
        "TORCH_COMPILE_DEBUG",
        "mark_dynamic(",
        "layer.compile(",
        "save_cache_artifacts(",
        "aoti_compile_and_package(",
    ),
    "17_tunableop": (
        '"PYTORCH_TUNABLEOP_ENABLED": "1"',
        "tunable.enable(True)",
        '"matmul.py"',
        "pad_to_multiple_of=",
        'cache_implementation = "static"',
    ),
}


def executed(source):
    """The code of a cell without comments, with its own spacing."""
    lines = source.splitlines(keepends=True)
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(source).readline))):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column] + "\n"
    return "".join(lines)


def code_of(notebook):
    cells = json.loads((FOLDER / f"{notebook}.ipynb").read_text(encoding="utf-8"))["cells"]
    return "\n".join(
        executed(c["source"] if isinstance(c["source"], str) else "".join(c["source"]))
        for c in cells
        if c["cell_type"] == "code" and "solution" not in c["metadata"].get("tags", [])
    )


@pytest.mark.parametrize("notebook", CALLS)
def test_the_library_is_called_by_its_own_name(notebook):
    code = code_of(notebook)
    assert [call for call in CALLS[notebook] if call not in code] == []


def test_the_gpu_of_the_tunableop_blog_has_no_name():
    """Its results file says gfx90a, which is the target of three products; no figure of it is one product's."""
    cells = json.loads((FOLDER / "17_tunableop.ipynb").read_text(encoding="utf-8"))["cells"]
    lines = "\n".join(c["source"] if isinstance(c["source"], str) else "".join(c["source"]) for c in cells)
    named = [line for line in lines.splitlines() if "MI250" in line or "MI210" in line]
    assert all("MI210, MI250 and MI250X" in line for line in named), named


@pytest.mark.parametrize("notebook", ["10_gptq", "12_bitsandbytes", "13_fp8_and_mx_formats", "15_flash_attention"])
def test_the_memory_of_an_mi300x_is_that_of_the_table(notebook):
    """192 GiB are 206 GB; a line drawn at 192 in a plot of GB is in the wrong place."""
    cells = json.loads((FOLDER / f"{notebook}.ipynb").read_text(encoding="utf-8"))["cells"]
    text = "\n".join(c["source"] if isinstance(c["source"], str) else "".join(c["source"]) for c in cells)
    assert "192 GB" not in text and "192.0" not in text


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda p: p.stem)
def test_no_notebook_names_the_host_of_a_package_index(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    text = "\n".join(c["source"] if isinstance(c["source"], str) else "".join(c["source"]) for c in cells)
    assert "index-url" not in text


def test_a_comment_is_no_call():
    assert executed("x = 1  # SFTTrainer(\ny = '# kept'\n") == "x = 1  \ny = '# kept'\n"
