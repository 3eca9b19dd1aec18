# SPDX-License-Identifier: MIT
"""What the kernels that a model launches at every step compute, in PyTorch: the interpreter takes seconds for each.

Liger's, GPTQModel's and the INT8 product are written from what each stores, in the same types; TRL has its own for
machines without Triton. A test compares each with the interpreter. A launch with an option that is not written here is
interpreted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_LLAMA, _GEMMA = 0, 1
Arguments = dict[str, Any]


def _rows(a: Arguments, name: str, stride: str | None = None) -> torch.Tensor:
    """The rows of one argument, as the kernel walks over them."""
    tensor = a[name]
    columns = a["n_cols"]
    rows = a.get("n_rows", tensor.numel() // columns)
    return tensor.as_strided((rows, columns), (a[stride or f"{name.removesuffix('_ptr')}_row_stride"], 1))


def _rms_forward(a: Arguments) -> bool:
    if a["casting_mode"] not in (_LLAMA, _GEMMA):
        return False
    x, y = _rows(a, "X_ptr"), _rows(a, "Y_ptr")
    wide = x.float()
    rstd = torch.rsqrt(wide.square().sum(1) / a["n_cols"] + a["eps"])
    a["RSTD_ptr"].copy_(rstd)
    normal = wide * rstd[:, None]
    if a["casting_mode"] == _LLAMA:
        normal = normal.to(x.dtype)
    if a["elementwise_affine"]:
        weight = a["W_ptr"].float() if a["casting_mode"] == _GEMMA else a["W_ptr"]
        normal = normal * (a["offset"] + weight)
    y.copy_(normal)
    return True


def _rms_backward(a: Arguments) -> bool:
    if a["casting_mode"] not in (_LLAMA, _GEMMA):
        return False
    x, grad, out = _rows(a, "X_ptr"), _rows(a, "dY_ptr"), _rows(a, "dX_ptr")
    wide, rstd = x.float(), a["RSTD_ptr"][:, None]
    if a["casting_mode"] == _GEMMA:
        grad = grad.float()
    m = (grad * (a["W_ptr"].float() + a["offset"])).float() if a["elementwise_affine"] else grad.float()
    result = rstd * m - rstd**3 / a["n_cols"] * (m * wide).sum(1, keepdim=True) * wide
    if a["elementwise_affine"] and a["COMPUTE_DW"]:
        normal = wide * rstd
        normal = normal.to(x.dtype) if a["casting_mode"] == _LLAMA else normal
        a["dW_ptr"].zero_()  # the kernel keeps a sum for each of its programs, and the caller adds them up
        a["dW_ptr"][0].copy_((grad * normal).float().sum(0))
    out.copy_(result)
    return True


def _swiglu_forward(a: Arguments) -> bool:
    gate, up, out = (_rows(a, name, "stride") for name in ("a_ptr", "b_ptr", "c_ptr"))
    out.copy_(torch.nn.functional.silu(gate.float() * a["gate_multiplier"]).to(up.dtype) * up)
    return True


def _swiglu_backward(a: Arguments) -> bool:
    grad, gate, up = (_rows(a, name, "stride") for name in ("dc_ptr", "a_ptr", "b_ptr"))
    wide = gate.float() * a["gate_multiplier"]
    sigmoid = torch.sigmoid(wide)
    silu = wide * sigmoid
    first, second = grad * (silu * (1 - sigmoid) + sigmoid) * up * a["gate_multiplier"], grad * silu
    gate.copy_(first)
    up.copy_(second)
    return True


def _rope(a: Arguments) -> bool:
    batch, length, half = a["bs"], a["sl"], a["rd"] // 2
    times = 1 if a["cos_bs"] == batch else batch
    cos, sin = (
        a[name].as_strided((a["cos_bs"] * length, half), (a[f"{name}_row_stride"], 1)).repeat(times, 1)[:, None]
        for name in ("cos", "sin")
    )
    sin = -sin if a["BACKWARD_PASS"] else sin
    for name, heads in (("q", a["n_qh"]), ("k", a["n_kh"])):
        rows = a[f"{name}_ptr"].as_strided((batch * length, heads, a["hd"]), (a[f"{name}_row_stride"], a["hd"], 1))
        left, right = rows[..., :half].to(sin.dtype), rows[..., half : 2 * half].to(sin.dtype)
        new = left * cos - right * sin, right * cos + left * sin
        rows[..., :half], rows[..., half : 2 * half] = new
    return True


def _cross_entropy(a: Arguments) -> bool:
    asked = ("HAS_WEIGHT", "HAS_SOFTCAPPING", "RETURN_Z_LOSS", "label_smoothing", "lse_square_scale")
    if any(a[name] for name in asked):
        return False
    x = a["X_ptr"].as_strided((a["Y_ptr"].numel(), a["n_cols"]), (a["X_stride"], 1))
    y = a["Y_ptr"]
    kept = y != a["ignore_index"]
    logits, target = x[kept].float(), y[kept]
    each = a["n_non_ignore"] if a["reduction"] == "mean" else 1
    a["loss_ptr"][kept] = (torch.nn.functional.cross_entropy(logits, target, reduction="none") / each).to(
        a["loss_ptr"].dtype
    )
    best = logits.argmax(1)
    if a["RETURN_TOKEN_ACCURACY"]:
        a["token_accuracy_ptr"].zero_()
        a["token_accuracy_ptr"][kept] = (best == target).to(a["token_accuracy_ptr"].dtype)
    if a["RETURN_PREDICTED_TOKENS"]:
        a["predicted_tokens_ptr"].fill_(-1)
        a["predicted_tokens_ptr"][kept] = best
    if a["HAS_GRADIENTS"]:
        grad = torch.softmax(logits, 1)
        grad[torch.arange(len(target)), target] -= 1
        x.zero_()
        x[kept] = (grad / each).to(x.dtype)
    else:
        x[~kept] = 0
    return True


def _element_mul(a: Arguments) -> bool:
    if a["X_col_stride"] != 1:
        return False
    x = a["X_ptr"].as_strided((a["X_ptr"].numel() // a["n_cols"], a["n_cols"]), (a["X_stride"], 1))
    x.mul_(a["grad_output_ptr"])
    return True


def _int8_operator(a: Arguments) -> bool:
    if a["A_DESC"] or a["B_DESC"]:
        return False
    m, n, k = a["M"], a["N"], a["K"]
    out = a["e_ptr"].as_strided((a["e_ptr"].numel() // (m * n), m, n), (a["stride_ez"], a["stride_em"], 1))
    left = a["a"].as_strided((len(out), m, k), (a["stride_az"], a["stride_am"], a["stride_ak"]))
    right = a["b"].as_strided((len(out), k, n), (a["stride_bz"], a["stride_bk"], a["stride_bn"]))
    x = (left.double() @ right.double()).float() * a["alpha"]
    if a["ROWS"] != "none":
        x *= a["rows_ptr"][:, None]
    if a["COLUMNS"] != "none":
        x *= a["columns_ptr"]
    if a["D"] != "none":
        x += a["beta"] * a["d_ptr"].float()
    if a["RELU"]:
        x = x.relu()
    out.copy_(x.clamp(-128, 127).round() if out.dtype == torch.int8 else x)
    return True


def _gptq_weights(a: Arguments) -> bool:
    bits, columns = a["bits"], a["out_features"]
    if bits == 3 or a["pack_bits"] != 32:
        return False
    group = a["g_idx_ptr"].long() % a["num_groups"]
    at = torch.arange(32 // bits, dtype=torch.int32) * bits
    codes = (a["qweight_ptr"].view(-1, 1, columns) >> at[:, None]) & a["maxq"]  # packed down the rows
    zeros = (a["qzeros_ptr"].view(a["num_groups"], -1, 1) >> at) & a["maxq"]  # and along them
    difference = codes.view(-1, columns).float() - zeros.view(-1, columns)[group].float()
    a["out_ptr"].copy_(difference * a["scales_ptr"].float()[group])
    return True


def _of_trl(name: str) -> Callable[[Arguments], bool]:
    """TRL's own function in PyTorch, which takes a kernel's arguments in their order."""

    def compute(a: Arguments) -> bool:
        from trl.kernels import chunked_logprob

        getattr(chunked_logprob, name)(*a.values())
        return True

    return compute


#: Kernel -> what does its work on its arguments by name; False where it does not know an option.
IN_TORCH: dict[str, Callable[[Arguments], bool]] = {
    "liger_kernel.ops.rms_norm._rms_norm_forward_kernel": _rms_forward,
    "liger_kernel.ops.rms_norm._block_rms_norm_forward_kernel": _rms_forward,
    "liger_kernel.ops.rms_norm._rms_norm_backward_kernel": _rms_backward,
    "liger_kernel.ops.rms_norm._block_rms_norm_backward_kernel": _rms_backward,
    "liger_kernel.ops.swiglu._swiglu_forward_kernel": _swiglu_forward,
    "liger_kernel.ops.swiglu._swiglu_backward_kernel": _swiglu_backward,
    "liger_kernel.ops.rope._triton_rope": _rope,
    "liger_kernel.ops.cross_entropy.liger_cross_entropy_kernel": _cross_entropy,
    "liger_kernel.ops.utils.element_mul_kernel": _element_mul,
    "gptqmodel.nn_modules.triton_utils.dequant.dequant_kernel": _gptq_weights,
    "rocm_guide.kernels.int8_gemm.int8_operator_kernel": _int8_operator,
    "trl.kernels.chunked_logprob._forward_kernel": _of_trl("_forward_tile"),
    "trl.kernels.chunked_logprob._backward_kernel": _of_trl("_backward_tile"),
}
