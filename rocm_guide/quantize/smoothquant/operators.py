# SPDX-License-Identifier: MIT
"""The five operators of the ROCm guide in one table: formula, types, Composable Kernel's names, and a way to run each.

The guide builds all of them on ``DeviceBatchedGemmMultiD_Xdl``, with a struct of one's own that CK calls on every
element of the sum (its CDEElementOp). The names below are those of CK's headers of November 2025, folder
include/ck/tensor_operation/gpu; ``ScaleScaleAddRelu`` is the guide's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from rocm_guide.kernels.int8_gemm import (
    bmm_ab_i8_e_f32,
    bmm_abe_i8,
    linear_ab_i8_de_f32,
    linear_abde_i8,
    linear_relu_abde_i8,
    reference_operator,
)
from rocm_guide.quantize.grid import QuantizationError

__all__ = ["OPERATORS", "Operator", "operator_table", "run_operator"]

#: Structs that one has to write.
OWN_RELU, OWN_ADD = "ScaleScaleAddRelu", "ScaleScaleAdd"


@dataclass(frozen=True)
class Operator:
    """One of the five.

    Attributes:
        name: the guide's name of the wrapper.
        formula: what it computes.
        d, e: CK's DsDataType and EDataType; A and B are I8, the sum (AccDataType, CShuffleDataType) is I32.
        element: CK's struct that does the same to each element, or the struct that one has to write.
        used: where a SmoothQuant OPT uses it.
    """

    name: str
    formula: str
    d: str
    e: str
    element: str
    used: str

    @property
    def own(self) -> bool:
        """Return whether CK lacks the struct for these types."""
        return self.element in (OWN_RELU, OWN_ADD)

    @property
    def batched(self) -> bool:
        """Return whether its operands have three dimensions; then it takes no D."""
        return self.d == "none"

    @property
    def relu(self) -> bool:
        """Return whether negative results become 0."""
        return "ReLU" in self.formula

    @property
    def kernel(self) -> str:
        """Name of the course's Triton wrapper, in :mod:`rocm_guide.kernels.int8_gemm`."""
        return self.name.lower()


OPERATORS = {
    row[0]: Operator(*row)
    for row in (
        ("Linear_ABDE_I8", "E = alpha A B + beta D", "I8", "I8", "Bilinear", "q_proj, k_proj, v_proj (W8A8B8O8Linear)"),
        ("Linear_ReLU_ABDE_I8", "E = ReLU(alpha A B + beta D)", "I8", "I8", OWN_RELU, "fc1 (W8A8B8O8LinearReLU)"),
        (
            "Linear_AB_I8_DE_F32",
            "E = alpha A B + beta D",
            "F32",
            "F32",
            OWN_ADD,
            "out_proj, fc2 (W8A8BFP32OFP32Linear)",
        ),
        ("BMM_ABE_I8", "E = alpha A B", "none", "I8", "Scale", "probabilities times values"),
        ("BMM_AB_I8_E_F32", "E = alpha A B", "none", "F32", "Scale", "queries times keys"),
    )
}


_KERNELS: dict[str, Callable[..., Any]] = {
    kernel.__name__: kernel
    for kernel in (linear_abde_i8, linear_relu_abde_i8, linear_ab_i8_de_f32, bmm_abe_i8, bmm_ab_i8_e_f32)
}


def operator_table() -> str:
    """Return the five operators as text, with CK's types and struct of each."""
    lines = [f"{'operator':20s} {'formula':29s} {'D':4s} {'E':3s} {'CDEElementOp':18s} used for"]
    for o in OPERATORS.values():
        element = o.element + ("*" if o.own else "")
        lines.append(f"{o.name:20s} {o.formula:29s} {o.d:4s} {o.e:3s} {element:18s} {o.used}")
    return "\n".join(lines)


def run_operator(
    name: str, a: torch.Tensor, b: torch.Tensor, d: torch.Tensor | None = None, alpha: float = 1.0, beta: float = 1.0
) -> torch.Tensor:
    """Run an operator: the Triton kernel for tensors on a GPU, the same in torch for tensors on a CPU.

    Args:
        name: as in :data:`OPERATORS`.
        a, b: int8, (M, K) and (K, N), or with a batch in front for the two BMMs.
        d: (N,) or (M, N); int8 or float32 as the operator wants; None for the BMMs.
        alpha, beta: factors of the product and of D.

    Raises:
        QuantizationError: an unknown operator, or operands of other types or shapes.

    >>> a, b = torch.tensor([[1, -2]], dtype=torch.int8), torch.tensor([[10, 3], [4, 9]], dtype=torch.int8)
    >>> run_operator("Linear_ReLU_ABDE_I8", a, b, torch.tensor([1, 0], dtype=torch.int8), 0.5, 2.0).tolist()
    [[3, 0]]
    """
    if name not in OPERATORS:
        raise QuantizationError(f"{name!r}: no such operator; there are {', '.join(OPERATORS)}")
    operator = OPERATORS[name]
    _check(operator, a, b, d)
    operands: tuple[Any, ...] = (a, b) if operator.batched else (a, b, d)
    if a.is_cuda:
        result: torch.Tensor = _KERNELS[operator.kernel](*operands, *((alpha,) if operator.batched else (alpha, beta)))
        return result
    eight = operator.e == "I8"
    e = reference_operator(a, b, d, alpha, beta, relu=operator.relu, int8_out=eight)
    return e if eight else e.to(torch.float32)


def _check(operator: Operator, a: torch.Tensor, b: torch.Tensor, d: torch.Tensor | None) -> None:
    dims = 3 if operator.batched else 2
    for label, x in (("A", a), ("B", b)):
        if x.dtype != torch.int8 or x.ndim != dims:
            kind = f"{x.ndim}-D {str(x.dtype).removeprefix('torch.')}"
            raise QuantizationError(f"{operator.name}: {label} is {kind}; give {dims}-D int8")
    if a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        raise QuantizationError(
            f"{operator.name}: A {tuple(a.shape)} and B {tuple(b.shape)} do not fit; A's last size is B's last but one"
        )
    if (d is None) != operator.batched:
        raise QuantizationError(
            f"{operator.name}: " + ("takes no D; leave it out" if d is not None else "D is missing")
        )
    if d is None:
        return
    wanted = torch.int8 if operator.d == "I8" else torch.float32
    if d.dtype != wanted or tuple(d.shape) not in ((b.shape[-1],), (a.shape[0], b.shape[-1])):
        kind = f"{tuple(d.shape)} {str(d.dtype).removeprefix('torch.')}"
        shapes = f"({b.shape[-1]},) or ({a.shape[0]}, {b.shape[-1]})"
        raise QuantizationError(f"{operator.name}: D is {kind}; give {shapes} in {str(wanted).removeprefix('torch.')}")
