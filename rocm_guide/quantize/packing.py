# SPDX-License-Identifier: MIT
"""Codes side by side in bytes, and a linear layer that stores only those."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from rocm_guide.common.base import whole_file
from rocm_guide.quantize.grid import QuantizationError, Quantized

__all__ = ["PackedLinear", "save_packed"]


def pack_bits(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Pack codes below 2**bits into bytes without gaps, lowest bit first; works for odd widths such as 3 as well.

    Raises:
        QuantizationError: a code that needs more bits.

    >>> pack_bits(torch.tensor([1, 2, 3, 4], dtype=torch.uint8), 4).tolist()
    [33, 67]
    """
    if codes.numel() and int(codes.max()) >= 2**bits:
        raise QuantizationError(f"code {int(codes.max())} does not fit into {bits} bits; the largest is {2**bits - 1}")
    planes = (codes.reshape(-1, 1) >> torch.arange(bits, device=codes.device, dtype=torch.uint8)) & 1
    stream = torch.nn.functional.pad(planes.reshape(-1), (0, -planes.numel() % 8)).reshape(-1, 8)
    return (stream << torch.arange(8, device=codes.device, dtype=torch.uint8)).sum(1, dtype=torch.uint8)


def unpack_bits(data: torch.Tensor, bits: int, count: int) -> torch.Tensor:
    """Return the first ``count`` codes of what :func:`pack_bits` packed, as uint8.

    >>> codes = torch.tensor([5, 0, 7, 2, 6], dtype=torch.uint8)
    >>> unpack_bits(pack_bits(codes, 3), 3, 5).tolist()
    [5, 0, 7, 2, 6]
    """
    mask = 2**bits - 1
    if 8 % bits == 0:  # no code lies in two bytes
        places = torch.arange(0, 8, bits, device=data.device, dtype=torch.uint8)
        return ((data.reshape(-1, 1) >> places) & mask).reshape(-1)[:count]
    # Eight codes fill exactly ``bits`` bytes: one number each time, from which all eight are read.
    parts = torch.nn.functional.pad(data.reshape(-1), (0, -data.numel() % bits)).reshape(-1, bits).long()
    words = (parts << torch.arange(0, 8 * bits, 8, device=data.device)).sum(1, keepdim=True)
    codes = (words >> torch.arange(0, 8 * bits, bits, device=data.device)) & mask
    return codes.reshape(-1)[:count].to(torch.uint8)


class PackedLinear(torch.nn.Module):
    """A linear layer that keeps packed codes and restores its weights at every call.

    This is what "4-bit weights, 16-bit arithmetic" means. A real kernel restores a tile at a time, in registers; this
    one restores the whole matrix with a handful of torch operations, and is therefore slow. Notebook 10.

    >>> from rocm_guide.quantize.grid import round_to_nearest
    >>> layer = torch.nn.Linear(32, 8, bias=False)
    >>> packed = PackedLinear(round_to_nearest(layer.weight, bits=4, group=32))
    >>> packed.codes.numel(), 8 * 32 * 4 // 8, bool((packed(torch.eye(32)) - layer(torch.eye(32))).abs().max() < 0.02)
    (128, 128, True)
    """

    def __init__(self, quantized: Quantized, bias: torch.Tensor | None = None) -> None:
        super().__init__()
        self.bits, self.shape = quantized.bits, tuple(quantized.codes.shape)
        self.out_features, self.in_features = self.shape
        self.register_buffer("codes", pack_bits(quantized.codes, quantized.bits))
        self.register_buffer("scale", quantized.scale.half())
        self.register_buffer("zero", pack_bits(quantized.zero.to(torch.uint8), quantized.bits))
        width = self.shape[1] // quantized.scale.shape[1]
        plain = torch.arange(self.shape[1], device=quantized.codes.device) // width
        # Without act-order column i is in group i // width, and nothing has to be stored about it.
        stored = None if torch.equal(plain, quantized.groups) else quantized.groups.to(torch.int16)
        self.register_buffer("groups", stored)
        column_scale = quantized.column_scale
        self.register_buffer("column_scale", None if column_scale is None else column_scale.half())
        self.register_buffer("bias", None if bias is None else bias.detach().clone())

    def unpacked(self) -> Quantized:
        """Return the codes and the grid again; scales have been rounded to float16."""
        rows, columns = self.shape
        count = self.scale.shape[1]
        zero = unpack_bits(self.zero, self.bits, rows * count).reshape(rows, count)
        groups = torch.arange(columns, device=self.codes.device) // (columns // count)
        return Quantized(
            unpack_bits(self.codes, self.bits, rows * columns).reshape(rows, columns),
            self.scale.float(),
            zero.float(),
            groups if self.groups is None else self.groups.long(),
            self.bits,
            None if self.column_scale is None else self.column_scale.float(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (…, in) to (…, out) in the type of ``x``."""
        return torch.nn.functional.linear(x, self.unpacked().dequantize().to(x.dtype), self.bias)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Move to another device, but keep the storage types: ``model.float()`` must not widen the scales."""
        kept = {name: b.dtype for name, b in self.named_buffers()}
        super()._apply(fn, recurse)
        for name, dtype in kept.items():
            setattr(self, name, getattr(self, name).to(dtype))
        return self

    def extra_repr(self) -> str:
        """Return what print shows."""
        return f"in={self.in_features}, out={self.out_features}, bits={self.bits}, groups={self.scale.shape[1]}"


def save_packed(model: torch.nn.Module, folder: str | Path) -> Path:
    """Write every parameter and buffer of a model with packed layers to ``folder``/model.safetensors; gives its path.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as d:
    ...     save_packed(torch.nn.Linear(8, 4).half(), d).stat().st_size > 72
    True
    """
    from safetensors.torch import save_model

    path = Path(folder) / "model.safetensors"
    with whole_file(path) as part:
        save_model(model, str(part))
    return path
