# SPDX-License-Identifier: MIT
"""What a pretended GPU cannot do in the notebooks, cell by cell with the reason; and the smallest sizes of the rest."""

from __future__ import annotations

from typing import Any, NamedTuple


class LeftOut(NamedTuple):
    """One cell: a phrase that only it has, and why it is not executed."""

    notebook: str
    phrase: str
    why: str


class Shrunk(NamedTuple):
    """Text of a notebook's code that asks for a size that a CPU cannot do in time, and what stands there instead."""

    notebook: str
    large: str
    small: str


_CHILD = "a process of its own has no pretended GPU"
_COMPILES = "torch.compile compiles nothing for a pretended GPU"

#: Not executed, nor what reads the names that they would have bound.
LEFT_OUT: tuple[LeftOut, ...] = (
    LeftOut("05", 'watched = {"ddp": watch("ddp")}', _CHILD),
    LeftOut("06", 'command = "tune run lora_finetune_single_device', _CHILD),
    LeftOut(
        "15", "flex = torch.compile(flex_attention, dynamic=False) if", "FlexAttention is an operator of its own kind"
    ),
    LeftOut("16", "fast_norm = torch.compile(norm", _COMPILES),
    LeftOut("16", 'ways["compiled, static cache, GPU graph"]', "graphs of a GPU are not recorded"),
    LeftOut("16", "share = region[2] / whole[2]", _COMPILES),
    LeftOut("16", "torch.compiler.save_cache_artifacts()", "nothing was compiled, so there is nothing to pack"),
    LeftOut("16", "torch._inductor.aoti_compile_and_package(", _CHILD),
    LeftOut("16", 'glob("*.*")', "what a process of its own would have written"),
    LeftOut("08", 'python = [sys.executable, "-m"', _CHILD),
    LeftOut("16", "check_fusion(3)", _COMPILES),
    LeftOut("16", "assert check_fusion(1)", _COMPILES),
    LeftOut("16", "hidden, inner, kind = 256, 640", _COMPILES),
    LeftOut("17", 'device = "cuda" if torch.cuda.is_available() else "cpu"\nn_iter', _CHILD),
    LeftOut("17", "from torch.cuda import tunable", "TunableOp is part of a ROCm build of PyTorch"),
    LeftOut(
        "17",
        "import generate_fixed, padded_prompt",
        "the recorder of products and the pretence are two modes in one place",
    ),
    LeftOut("18", "server = open_servers.enter_context(start_server(folder", _CHILD),
    LeftOut("18", "stream_one(QUESTION)  # the first answer warms", _CHILD),
    LeftOut("36", "torch.version.hip and torch.cuda.is_available()", "a kernel is built with hipcc"),
    LeftOut("41", "shape, dtype = ((4, 32, 4096, 128)", "the profile of a GPU names its kernels"),
)

#: Executed, but what they assert of the GPU's clock, or of code compiled for it, is not held against them.
UNPROVEN: tuple[LeftOut, ...] = (
    LeftOut("16", 'torch.compile(clipped, backend="eager")(torch.randn(64))', _COMPILES),
    LeftOut("16", "total = torch.compile(lambda x", _COMPILES),
    LeftOut("16", "assert check_graphs(", _COMPILES),
    LeftOut("16", "growing = torch.compile(one_token", _COMPILES),
)

#: Sizes that no parameter sets. "random:small" is Llama's shape, narrow (SMALL_SHAPE).
SHRUNK: tuple[Shrunk, ...] = (
    Shrunk("00", "n = 8192 if big", "n = 256 if big"),
    Shrunk("03", 'speed_name = "random:llama-2-7b"', 'speed_name = "random:small"'),
    Shrunk("03", "longest = 1536 if", "longest = 192 if"),
    Shrunk("10", 'tokenizer, data["test"], notebook="10"', 'tokenizer, data["test"].select(range(8)), notebook="10"'),
    Shrunk("15", "(4, 32, 4096, 128) if large", "(1, 2, 128, 64) if large"),
    Shrunk("15", 'timed, _ = load_model("random:llama-2-7b"', 'timed, _ = load_model("random:small"'),
    Shrunk("15", "few = 32 if", "few = 2 if"),
    Shrunk("20", "range(20, 31)", "range(14, 17)"),
    Shrunk("30", "sizes, hardware = [2**k for k in range(12)]", "sizes, hardware = [1, 2]"),
    Shrunk("14", "for size in ((4096, k), (n, k))", "for size in ((64, k // 64), (n // 64, k // 64))"),
    Shrunk("40", 'spec = ("random:llama-2-7b"', 'spec = ("random:small"'),
    Shrunk("42", "n = 4096 if", "n = 256 if"),
)

#: What "random:small" is: Llama-2-7B's shape with its widths and layers divided.
SMALL_SHAPE = {
    "vocab_size": 4096,
    "hidden_size": 256,
    "intermediate_size": 688,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
}

#: Notebook -> parameters that make a notebook small where its defaults for a GPU are not.
SMALL: dict[str, dict[str, Any]] = {
    "12": {"STEPS": 10},
    "15": {"LENGTHS": [64, 128], "BATCHES": [1, 2]},
    "18": {"USERS": [1, 2], "LOAD": 4},
    "19": {"REQUESTS": 16, "LONGEST": 12, "TURNS": 1},
    "20": {"ARRAY_MIB": 1},
    "21": {"ROWS": 64, "COLUMNS": 1024},
    "22": {"SHAPE": (128, 128, 64)},
    "24": {"TOKENS": 128, "TIMED_TOKENS": 128},
    "31": {"LARGE": 128},
    "32": {"TIMED": (3, 64, 1024)},
    "33": {"TIMED_ROWS": 2},
    "34": {"LARGE": 256},
    "35": {"TOKENS": 32, "TIMED": (64, 48, 8, 2), "LARGE": 300},
    "37": {"LARGE": 64},
    "39": {"CONTEXT": 256},
    "42": {"RUNS": 20},
}

#: Notebook -> seconds of processor time that it took here, imports not counted.
SECONDS: dict[str, int] = {
    "00": 5, "01": 55, "02": 95, "03": 36, "04": 12, "05": 10, "06": 2, "07": 60, "08": 12, "10": 100, "11": 50,
    "12": 45, "13": 40, "15": 20,
    "16": 13, "17": 33, "18": 5, "19": 30, "20": 5, "21": 2, "22": 45, "23": 2, "24": 5, "30": 3, "31": 85, "32": 60,
    "33": 15, "34": 60, "39": 30, "35": 30, "36": 2, "37": 28, "14": 45, "40": 21, "41": 2, "42": 1, "38": 6, "25": 1,
}  # fmt: skip
