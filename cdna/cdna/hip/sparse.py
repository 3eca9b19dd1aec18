# SPDX-License-Identifier: MIT
"""The sparse trick of the skinny GEMM, in Python: 8 dense rows as 16 rows of which half is zero, in a fixed pattern.

A sparse matrix instruction multiplies a 16 x 64 matrix that has at most two numbers other than zero in every group of
four neighbours along the depth. It is given those two and their places, 16 x 32 numbers, and does the work of depth 64
in the time in which a dense instruction does depth 32. With 8 dense rows, let sparse row 2i take places 0 and 1 of
every group of row i, and sparse row 2i + 1 places 2 and 3. Both rows obey the pattern, together they hold every number
once, and because the product is linear in A, the two result rows add up to the dense one.

Source: "Creating custom kernels for the AMD MI300", Hugging Face, 2025; lanes and registers: AMD matrix instruction
calculator, https://github.com/ROCm/amd_matrix_instruction_calculator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdna.hip.toolchain import HipError

if TYPE_CHECKING:
    import torch

__all__ = ["compress", "lane_registers", "run_smfmac", "sparse_product", "spread_rows"]

ROWS, DEPTH, LANES = 16, 64, 64


def spread_rows(dense: torch.Tensor) -> torch.Tensor:
    """Spread (rows, depth) over (2 * rows, depth): the even result rows keep places 0 and 1 of each group,
    the odd ones 2 and 3.

    >>> import torch
    >>> spread_rows(torch.arange(1, 9).reshape(1, 8)).tolist()
    [[1, 2, 0, 0, 5, 6, 0, 0], [0, 0, 3, 4, 0, 0, 7, 8]]
    """
    import torch

    place = torch.arange(dense.shape[1]) % 4
    zero = torch.zeros_like(dense)
    both = torch.stack([torch.where(place < 2, dense, zero), torch.where(place < 2, zero, dense)], 1)
    return both.reshape(2 * dense.shape[0], dense.shape[1])


def compress(sparse: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Compress a matrix with at most two numbers per group of four to (those numbers, their places), both half as deep.

    A group with fewer than two is filled up with zeros at free places; the two places of a group always rise.

    Raises:
        HipError: a depth that is no multiple of four, or a group with more than two numbers.

    >>> import torch
    >>> compress(torch.tensor([[0, 7, 0, 9, 0, 0, 5, 0]]))
    (tensor([[7, 9, 0, 5]]), tensor([[1, 3, 0, 2]]))
    """
    import torch

    rows, depth = sparse.shape
    if depth % 4:
        raise HipError(f"depth {depth} is no multiple of four")
    groups = sparse.reshape(rows, depth // 4, 4)
    filled = (groups != 0).int()
    if int(filled.sum(-1).max()) > 2:
        raise HipError("more than two numbers in a group of four: not 2:4 sparse")
    # The first two places by (filled first, then leftmost), put back in rising order.
    chosen = (filled * 4 + 3 - torch.arange(4)).topk(2, dim=-1).indices.sort(-1).values
    values = groups.gather(-1, chosen)
    return values.reshape(rows, depth // 2), chosen.reshape(rows, depth // 2)


def lane_registers(sparse: torch.Tensor, columns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return what each of the 64 lanes holds for one v_smfmac_f32_16x16x64_fp8_fp8.

    Args:
        sparse: (16, 64), 2:4 sparse.
        columns: (16, 64), B transposed: row n is column n of B, as the weight lies in memory.

    Returns:
        a (64, 8): lane l holds row l % 16, compressed depth 8 * (l // 16) to + 7 (two registers);
        positions (64,): their places, two bits each, the first in the lowest bits (one register);
        b (64, 16): lane l holds column l % 16, depth 16 * (l // 16) to + 15 (four registers).
    """
    import torch

    values, places = compress(sparse)
    lane = torch.arange(LANES)
    line, block = lane % ROWS, lane // ROWS
    a = values.reshape(ROWS, 4, 8)[line, block]
    shifts = 2 * torch.arange(8)
    positions = (places.reshape(ROWS, 4, 8)[line, block] << shifts).sum(-1)
    return a, positions, columns.reshape(ROWS, 4, 16)[line, block]


def run_smfmac(a: torch.Tensor, positions: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Do the arithmetic of the instruction on what the lanes hold: (64, 4), in float64.

    Register r of lane l becomes row 4 * (l // 16) + r, column l % 16 of the product.
    """
    import torch

    out = torch.zeros(LANES, 4, dtype=torch.float64)
    lane = torch.arange(LANES)
    for r in range(4):
        for k in range(32):
            of_row = lane // ROWS * 4 + r + k // 8 * ROWS  # the lane that holds this row's number k
            place = k % 8 // 2 * 4 + (positions[of_row] >> 2 * (k % 8) & 3)
            of_column = lane % ROWS + k // 8 * ROWS
            out[:, r] += a[of_row, k % 8].double() * b[of_column, place].double()
    return out


def sparse_product(dense: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Compute ``dense @ weight.T`` for up to 8 rows and 16 columns, through the sparse instruction, in float64.

    Args:
        dense: (rows, depth), rows at most 8, depth a multiple of 64.
        weight: (16, depth).

    Raises:
        HipError: other shapes.

    >>> import torch
    >>> a, w = torch.ones(8, 128), torch.arange(16.0)[:, None].expand(16, 128)
    >>> sparse_product(a, w)[0, :4].tolist()
    [0.0, 128.0, 256.0, 384.0]
    """
    import torch

    rows, depth = dense.shape
    if rows > 8 or depth % DEPTH or tuple(weight.shape) != (ROWS, depth):
        raise HipError(
            f"dense {tuple(dense.shape)}, weight {tuple(weight.shape)}: give (8 or fewer, 64 * n), (16, 64 * n)"
        )
    padded = torch.zeros(8, depth, dtype=dense.dtype)
    padded[:rows] = dense
    sparse = spread_rows(padded)
    total = torch.zeros(LANES, 4, dtype=torch.float64)
    for k in range(0, depth, DEPTH):
        total += run_smfmac(*lane_registers(sparse[:, k : k + DEPTH], weight[:, k : k + DEPTH]))
    # Rows 2i and 2i + 1 lie in neighbouring registers of one lane.
    halves = total[:, 0::2] + total[:, 1::2]  # (64, 2): rows 2 * (lane // 16) and + 1
    result = halves.reshape(4, ROWS, 2).permute(0, 2, 1).reshape(8, ROWS)
    return result[:rows]
