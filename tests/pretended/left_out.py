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
    LeftOut("05", 'command = "tune run lora_finetune_single_device', _CHILD),
    LeftOut("10", "fast_norm = torch.compile(norm", _COMPILES),
    LeftOut("10", 'ways["compiled, static cache, GPU graph"]', "graphs of a GPU are not recorded"),
    LeftOut("05", 'spec = MODEL if gpus != 1 else "tiny"', "NCCL is part of a build for GPUs"),
    LeftOut("10", "check_fusion(3)", _COMPILES),
    LeftOut("10", "assert check_fusion(1)", _COMPILES),
    LeftOut("10", "hidden, inner, kind = 256, 640", _COMPILES),
    LeftOut("11", 'device = "cuda" if torch.cuda.is_available() else "cpu"\nn_iter', _CHILD),
    LeftOut("11", "def tune_here(filename)", "TunableOp is part of a ROCm build of PyTorch"),
    LeftOut("11", "result = compare_matmul(512, 1024, 2048", _CHILD),
    LeftOut("11", "tune = on_gpu and SCALE", _CHILD),
    LeftOut(
        "11",
        "import generate_fixed, padded_prompt",
        "the recorder of products and the pretence are two modes in one place",
    ),
    LeftOut("12", "server = open_servers.enter_context(start_server(folder", _CHILD),
    LeftOut("21", "torch.version.hip and torch.cuda.is_available()", "a kernel is built with hipcc"),
    LeftOut("24", "shape, dtype = ((4, 32, 4096, 128)", "the profile of a GPU names its kernels"),
)

#: Executed, but what they assert of the GPU's clock, or of code compiled for it, is not held against them.
UNPROVEN: tuple[LeftOut, ...] = (
    LeftOut("10", 'torch.compile(clipped, backend="eager")(torch.randn(64))', _COMPILES),
    LeftOut("10", "torch.compile(clipped_in_one", _COMPILES),
    LeftOut("10", "total = torch.compile(lambda x", _COMPILES),
    LeftOut("10", "assert check_graphs(", _COMPILES),
    LeftOut("10", "growing = torch.compile(one_token", _COMPILES),
)

#: Sizes that no parameter sets. "random:small" is Llama's shape, narrow (SMALL_SHAPE).
SHRUNK: tuple[Shrunk, ...] = (
    Shrunk("00", "n = 8192 if big", "n = 256 if big"),
    Shrunk("02", 'large, _ = load_model("random:llama-2-7b")', 'large, _ = load_model("random:small")'),
    Shrunk("03", 'speed_name = "random:llama-2-7b"', 'speed_name = "random:small"'),
    Shrunk("03", "longest = 1536 if", "longest = 192 if"),
    Shrunk("06", 'list(data["test"])[::4]', 'list(data["test"])[::24]'),
    Shrunk("06", 'tokenizer, data["test"], notebook="06"', 'tokenizer, data["test"].select(range(8)), notebook="06"'),
    Shrunk("09", "(4, 32, 4096, 128) if large", "(1, 2, 128, 64) if large"),
    Shrunk("09", 'timed, _ = load_model("random:llama-2-7b"', 'timed, _ = load_model("random:small"'),
    Shrunk("09", "few = 32 if", "few = 2 if"),
    Shrunk("13", "range(20, 31)", "range(14, 17)"),
    Shrunk("17", "sizes, hardware = [2**k for k in range(12)]", "sizes, hardware = [1, 2]"),
    Shrunk("22", "for size in ((4096, k), (n, k))", "for size in ((64, k // 64), (n // 64, k // 64))"),
    Shrunk("23", 'spec = ("random:llama-2-7b"', 'spec = ("random:small"'),
    Shrunk("25", "n = 4096 if", "n = 256 if"),
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
    "09": {"LENGTHS": [64, 128], "BATCHES": [1, 2]},
    "12": {"REQUESTS": 16, "LONGEST": 12, "TURNS": 1, "USERS": [1, 2], "LOAD": 4},
    "13": {"ARRAY_MIB": 1},
    "14": {"SHAPE": (128, 128, 64)},
    "16": {"TOKENS": 128, "TIMED_TOKENS": 128},
    "18": {"LARGE": 128},
    "19": {"TIMED_ROWS": 2},
    "20": {"CONTEXT": 256},
    "25": {"RUNS": 20},
}

#: Notebook -> seconds of processor time that it took here, imports not counted.
SECONDS: dict[str, int] = {
    "00": 5, "01": 55, "02": 95, "03": 36, "04": 12, "05": 2, "06": 100, "07": 50, "08": 60, "09": 20,
    "10": 13, "11": 33, "12": 20, "13": 5, "14": 5, "15": 2, "16": 5, "17": 3, "18": 17, "19": 15,
    "20": 18, "21": 2, "22": 45, "23": 21, "24": 2, "25": 1, "26": 6, "27": 1,
}  # fmt: skip
