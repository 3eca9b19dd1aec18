# SPDX-License-Identifier: MIT
"""Kernels of which each is one file: what every such file promises, whatever it computes."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import triton

from rocm_guide.kernels import (
    attention,
    attention_fp8,
    bandwidth,
    decode,
    decode_int4,
    experts,
    fp8,
    gemm,
    gemm_skinny,
    gemm_split_k,
    gemm_stream_k,
    int8_gemm,
    layer_norm,
    mla_decode,
    mla_prefill,
    paged,
    rms_norm,
    rmsnorm_fp8,
    softmax,
    swiglu_fp8,
)
from tests.forks import start_fork
from tests.in_turn import in_shares

FILES = (layer_norm, rms_norm, softmax)
NAMES = [f.__name__.rpartition(".")[2] for f in FILES]
PRODUCTS = (gemm, gemm_skinny, gemm_split_k, gemm_stream_k, int8_gemm, experts)
ATTENTION = (attention, attention_fp8, decode, decode_int4, paged, mla_decode, mla_prefill)
ALONE = (*FILES, *PRODUCTS, *ATTENTION, bandwidth, fp8, rmsnorm_fp8, swiglu_fp8)
#: What a copied file is asked for: file -> its call of tensors x and w, and what torch says.
PRODUCT_USES = {
    "gemm": ("gemm(x, w.T, w[:, 0].contiguous(), activation='relu')", "torch.relu(x @ w.T + w[:, 0])"),
    "gemm_skinny": (
        "gemm_skinny(x.half(), w.half(), out_dtype=torch.float32)",
        "(x.half().double() @ w.half().double().T).float()",
    ),
    "gemm_split_k": ("gemm_split_k(x, w.T, split=2)", "x @ w.T"),
    "gemm_stream_k": ("gemm_stream_k(x, w.T)", "x @ w.T"),
    "int8_gemm": ("linear_scaled(x.to(torch.int8), w.to(torch.int8).T, one, one)", "x.trunc() @ w.trunc().T"),
    "bandwidth": ("stream('copy', None, x)", "x"),
    "fp8": ("decode_fp8(encode_fp8(x, file.FP8['e4m3fn']), file.FP8['e4m3fn'])", "x.to(torch.float8_e4m3fn).float()"),
    "rmsnorm_fp8": ("rmsnorm_fp8(x, x, w[0].contiguous(), 0.5)[1]", "x + x"),
    "swiglu_fp8": (
        "swiglu_fp8(x[:, :64], 1.0)[0].float()",
        "file.reference_swiglu_fp8(x[:, :64]).to(torch.float8_e4m3fn).float()",
    ),
}
TABLES = [(f, table) for f in FILES for table in ("FORWARD", "BACKWARD")]


@pytest.mark.parametrize("file", ALONE, ids=lambda f: f.__name__.rpartition(".")[2])
def test_a_file_needs_nothing_of_this_package(file):
    tree = ast.parse(Path(file.__file__).read_text(encoding="utf-8"))
    froms = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    plain = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    own = {"torch", "triton", "triton.language", "triton.tools.tensor_descriptor"}
    assert froms | plain <= {*own, "__future__", "collections.abc", "contextlib", "math", "typing"}


@pytest.mark.parametrize("files", [FILES, PRODUCTS], ids=["rows", "products"])
def test_what_has_one_name_in_several_files_is_one_text(files):
    """Files that stand alone repeat each other; what is mended in one is to be mended in all."""
    found: dict[str, dict[str, list[str]]] = {}
    for file in files:
        text = Path(file.__file__).read_text(encoding="utf-8")
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                here = found.setdefault(node.name, {})
                here.setdefault(ast.get_source_segment(text, node), []).append(file.__name__)
    shared = {name: texts for name, texts in found.items() if sum(map(len, texts.values())) > 1}
    own = {"Tile", "GemmTile", "column_sums"}  # with what each chooses by; two sums at once in LayerNorm
    different = {n: list(texts.values()) for n, texts in shared.items() if len(texts) > 1 and n not in own}
    assert not different and len(shared) > 3


def run_alone(folder):
    """Run a folder's use.py without this package: on a GPU as whoever copies a file would, else in the interpreter, in
    forks of one process that has torch imported."""
    use, out = folder / "use.py", folder / "out"
    if torch.cuda.is_available():
        here = "import torch\ntorch.set_default_device('cuda')\n"
        use.write_text(use.read_text(encoding="utf-8").replace("import torch\n", here, 1), encoding="utf-8")
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        with out.open("w") as said:
            code = subprocess.call([sys.executable, "use.py"], cwd=folder, env=environment, stderr=said, timeout=600)
    else:
        if triton.__version__.startswith("3.6.") and np.lib.NumpyVersion(np.__version__) >= "2.4.0":
            pytest.skip("Triton 3.6's own interpreter cannot loop with numpy 2.4 and newer (triton-lang/triton #9171)")
        out.touch()
        use.write_text(f"{use.read_text(encoding='utf-8')}\n\ndef main():\n    return 0\n", encoding="utf-8")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | {"TRITON_INTERPRET": "1"}
        needed = ["torch", "triton.language"]
        code = start_fork(needed, "use", [], settings=environment, folder=folder, out=out, err=out).wait(600)
    assert code == 0, out.read_text()[-2000:]


@pytest.mark.parametrize("name", in_shares(PRODUCT_USES, 3))
def test_a_copied_file_of_products_runs_alone(name, tmp_path):
    source = next(f for f in ALONE if f.__name__.endswith(f".{name}")).__file__
    (tmp_path / f"{name}.py").write_text(Path(source).read_text(encoding="utf-8"))
    call, wanted = PRODUCT_USES[name]
    (tmp_path / "use.py").write_text(f"""
import sys
sys.modules["rocm_guide"] = sys.modules["cdna"] = None  # to import them is an error
import torch
import {name} as file
from {name} import *
torch.manual_seed(0)
x, w, one = torch.randn(4, 65) * 3, torch.randn(40, 65) * 3, torch.ones(1)
torch.testing.assert_close({call}, {wanted}, atol=1e-3, rtol=1e-3)
""")
    run_alone(tmp_path)


ROWS = """
x = torch.randn(3, 65, requires_grad=True)
y, wanted = file.{name}(x), file.reference_{name}(x)
dy = torch.randn(3, 65)
dx, dx_wanted = (torch.autograd.grad(out, x, dy)[0] for out in (y, wanted))
assert torch.allclose(y, wanted, atol=1e-5) and torch.allclose(dx, dx_wanted, atol=1e-5)
"""
USES = dict.fromkeys(NAMES, ROWS) | {
    "attention": """
x = torch.randn(1, 2, 20, 40, requires_grad=True)
y, (wanted, _) = file.attention(x, x, x, causal=True), file.reference_attention(x, x, x, causal=True)
dx, dx_wanted = (torch.autograd.grad(out.sum(), x)[0] for out in (y, wanted))
assert torch.allclose(y, wanted, atol=1e-5) and torch.allclose(dx, dx_wanted, atol=1e-5)
""",
    "attention_fp8": """
x = torch.randn(1, 2, 20, 40)
codes, s = file.quantize_heads(x, torch.int8)
y, _ = file.attention_quantized(codes, codes, codes, q_scale=s, k_scale=s, v_scale=s)
wide = file.dequantize_heads(codes, s).float()
assert torch.allclose(y.float(), torch.nn.functional.scaled_dot_product_attention(wide, wide, wide), atol=3e-3)
""",
    "decode": """
q, k = torch.randn(2, 4, 32).half(), torch.randn(2, 20, 2, 32).half()
y, wanted = file.attention_decode(q, k, k, parts=2), file.reference_attention_decode(q.float(), k.float(), k.float())
assert torch.allclose(y.float(), wanted, atol=5e-3)
""",
    "decode_int4": """
q, (k, grid) = torch.ones(2, 4, 32).half(), file.quantize_kv(torch.randn(2, 20, 2, 32), 4)
y, v = file.attention_decode_int(q, k, k, grid, grid, parts=2).float(), file.dequantize_kv(k, grid)
p = (v.sum(-1) / 32**0.5).softmax(1)
assert torch.allclose(y[:, ::2], torch.einsum("bnh,bnhd->bhd", p, v), atol=5e-3)
""",
    "experts": """
x, gate_up, down = torch.randn(5, 32).half(), torch.randn(4, 16, 32).half() / 6, torch.randn(4, 32, 8).half() / 3
index, weight = torch.tensor([[0, 3], [2, 0], [0, 1], [3, 2], [1, 0]]), torch.rand(5, 2)
y, wanted = (f(x, gate_up, down, index, weight) for f in (file.experts, file.reference_experts))
assert torch.allclose(y.double(), wanted, atol=5e-3)
""",
    "paged": """
q, k, lengths = torch.randn(2, 4, 32).half(), torch.randn(3, 16, 2, 32).half(), torch.tensor([20, 3])
table = torch.tensor([[2, 0], [1, 0]])
y = file.attention_paged(q, k, k, table, lengths)
wanted = file.reference_attention_paged(q.float(), k, k, table, lengths)
assert torch.allclose(y.float(), wanted, atol=5e-3)
""",
    "mla_decode": """
given = [torch.randn(s).half() / 4 for s in ((2, 2, 16), (2, 2, 8), (2, 20, 32), (2, 20, 8), (2, 24, 32))]
y, wanted = file.mla_decode(*given, parts=2), file.reference_mla_decode(*(x.float() for x in given))
assert torch.allclose(y.float(), wanted, atol=5e-3)
""",
    "mla_prefill": """
given = [torch.randn(s).half() / 4 for s in ((2, 5, 2, 16), (2, 5, 2, 8), (2, 20, 32), (2, 20, 8), (2, 24, 32))]
y, wide = file.mla_attention(*given, causal=True), [x.float() for x in given]
for wanted in (file.reference_mla_naive(*wide, causal=True), file.reference_mla_absorbed(*wide, causal=True)):
    assert torch.allclose(y.float(), wanted, atol=5e-3)
""",
}


@pytest.mark.parametrize("name", USES)
def test_a_copied_file_runs_alone(name, tmp_path):
    """In an empty folder, with nothing but torch and triton: what it computes agrees with torch."""
    source = next(f for f in ALONE if f.__name__.endswith(f".{name}")).__file__
    (tmp_path / f"{name}.py").write_text(Path(source).read_text(encoding="utf-8"))
    first = 'import sys\nsys.modules["rocm_guide"] = sys.modules["cdna"] = None  # to import them is an error\n'
    first += "import torch\n"
    (tmp_path / "use.py").write_text(f"{first}import {name} as file\n{USES[name].format(name=name)}")
    run_alone(tmp_path)


@pytest.mark.parametrize(("file", "table"), TABLES, ids=[f"{f.__name__.rpartition('.')[2]}-{t}" for f, t in TABLES])
@pytest.mark.parametrize("arch", ["gfx942", "sm_90"])
def test_every_tile(file, table, arch):
    tiles = getattr(file, table)[arch]
    assert [t.blocked for t in tiles] == [False] * (len(tiles) - 1) + [True], "the last one, and only it, is blocked"
    assert [t.columns for t in tiles[:-1]] == sorted(t.columns for t in tiles[:-1])
    for t in tiles:
        assert all(n & (n - 1) == 0 for n in (t.columns, t.rows, t.warps))
        assert t.warps * {"gfx942": 64, "sm_90": 32}[arch] <= 1024
    for columns in (1, 100, 1000, 5000, 9001, 20_000, 40_000, 1 << 20):
        tile = file.pick_tile(tiles, torch.empty(2, columns, device="meta"))
        assert tile.blocked or tile.columns >= columns


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_the_first_tile_that_serves(file):
    tiles = (
        file.Tile(1024, 4, 4),
        file.Tile(4096, 1, 8, aligned=True),
        file.Tile(4096, 1, 16),
        file.Tile(2048, 1, 32, blocked=True),
    )
    warps = {}
    for columns, stride in ((1, 1), (1024, 1024), (4096, 4096), (4095, 4095), (4096, 4097), (4088, 5000), (4097, 4097)):
        flat = torch.empty(9 * stride, device="meta").as_strided((9, columns), (stride, 1))
        warps[columns, stride] = file.pick_tile(tiles, flat).warps
    assert list(warps.values()) == [4, 4, 8, 16, 16, 8, 32]
    for stride, rows in ((1 << 29, 1), (1 << 28, 4)):  # 4 x 2^29 does not fit into 32 bits
        far = torch.empty(9 * stride, dtype=torch.int8, device="meta").as_strided((9, 64), (stride, 1))
        assert file.pick_tile(tiles, far).rows == rows


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_rows_of_a_tensor(file):
    x = torch.zeros(4, 6, 8)
    assert file.as_rows(x).shape == (24, 8) and file.as_rows(x[:, 0]).stride() == (48, 1)
    assert file.as_rows(x[0, 0]).shape == (1, 8) and file.as_rows(x[:0]).shape == (0, 8)
    for bad, words in ((x.transpose(0, 1), "list of rows"), (x.transpose(1, 2), "stride 8"), (x.int(), "int32")):
        with pytest.raises(ValueError, match=words):
            file.as_rows(bad)


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_where_a_kernel_cannot_run(file, monkeypatch):
    x = torch.zeros(2, 8, device="meta")
    with pytest.raises(ValueError, match="tensors on meta: move them to a GPU"):
        file.architecture(x)

    class There:
        device = torch.device("cuda", 1)

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    with pytest.raises(ValueError, match=r"tensors on cuda:1, Triton launches on cuda:0: use torch.cuda.device"):
        file.architecture(There())
