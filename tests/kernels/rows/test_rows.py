# SPDX-License-Identifier: MIT
"""How the row kernels see a tensor and pick their tile; and the rules that every configuration obeys."""

from __future__ import annotations

import pytest
import torch

from rocm_guide.kernels.arguments import KernelError
from rocm_guide.kernels.rows import configs as row_configs
from rocm_guide.kernels.rows.tile import RowTile, as_rows, pick_row_tile

TABLE = {
    "gfx942": (
        RowTile(1024, 4, 4),
        RowTile(4096, 1, 32, max_rows=8),
        RowTile(4096, 1, 8, aligned=True),
        RowTile(4096, 1, 16),
        RowTile(2048, 1, 16, blocked=True),
    )
}


@pytest.mark.parametrize(
    ("rows", "columns", "stride", "warps"),
    [
        (5, 1, 1, 4),
        (5, 1024, 1024, 4),
        (5, 1025, 1025, 32),
        (8, 4096, 4096, 32),
        (9, 4096, 4096, 8),
        (9, 4095, 4095, 16),
        (9, 4096, 4097, 16),
        (9, 4088, 5000, 8),
    ],
)
def test_the_first_tile_that_serves(rows, columns, stride, warps):
    tile = pick_row_tile(TABLE, "gfx942", rows, columns, stride)
    assert tile.warps == warps and not tile.blocked


def test_long_rows_are_blocked_and_far_rows_taken_one_by_one():
    assert pick_row_tile(TABLE, "gfx942", 9, 4097).blocked
    assert pick_row_tile(TABLE, "gfx942", 9, 64, stride=1 << 29).rows == 1, "4 x 2^29 does not fit into 32 bits"
    assert pick_row_tile(TABLE, "gfx942", 9, 64, stride=1 << 28).rows == 4
    with pytest.raises(KernelError, match="no blocked tile"):
        pick_row_tile({"gfx942": TABLE["gfx942"][:1]}, "gfx942", 1, 5000)


def test_narrow_tiles_leave_wide_types_to_the_next():
    table = {"gfx942": (RowTile(1024, 1, 16, only_16_bit=True), RowTile(1024, 1, 8), TABLE["gfx942"][-1])}
    assert [pick_row_tile(table, "gfx942", 9, 1000, bits=bits).warps for bits in (16, 32)] == [16, 8]


@pytest.mark.parametrize(
    ("tile", "columns", "stride", "offset", "fetched"),
    [
        (RowTile(64, 1, 4, prefetch=1), 64, 64, 0, True),
        (RowTile(64, 1, 4, prefetch=1), 64, 72, 8, True),
        (RowTile(64, 1, 4), 64, 64, 0, False),
        (RowTile(64, 2, 4, prefetch=1), 64, 64, 0, False),  # two rows of a program are not next to each other
        (RowTile(64, 1, 4, prefetch=1), 60, 64, 0, False),  # the tile reaches beyond the row, perhaps beyond the tensor
        (RowTile(64, 1, 4, prefetch=1), 64, 68, 0, False),  # rows that do not start at 16 bytes
        (RowTile(64, 1, 4, prefetch=1), 64, 72, 4, False),
    ],
)
def test_rows_are_fetched_ahead_where_the_hardware_can(tile, columns, stride, offset, fetched):
    x = torch.zeros(5 * stride + offset, dtype=torch.bfloat16)[offset:].view(5, stride)[:, :columns]
    assert tile.fetches(x) is fetched


@pytest.mark.parametrize("name", [n for n, v in vars(row_configs).items() if n.isupper() and isinstance(v, dict)])
@pytest.mark.parametrize("arch", ["gfx942", "sm_90"])
def test_every_configuration(name, arch):
    tiles = getattr(row_configs, name)[arch]
    assert [t.blocked for t in tiles] == [False] * (len(tiles) - 1) + [True], "the last one, and only it, is blocked"
    assert [t.columns for t in tiles[:-1]] == sorted(t.columns for t in tiles[:-1])
    for t in tiles:
        assert all(n & (n - 1) == 0 for n in (t.columns, t.rows, t.warps))
        assert t.warps * {"gfx942": 64, "sm_90": 32}[arch] <= 1024
        assert arch == "sm_90" or not t.registers, "the compiler for AMD has no such option"
    # Every length finds a tile, whatever the number of rows.
    for rows in (1, 64, 100, 100_000):
        for columns in (1, 100, 1000, 5000, 9001, 20_000, 40_000, 1 << 20):
            tile = pick_row_tile({arch: tiles}, arch, rows, columns)
            assert tile.blocked or tile.columns >= columns


def test_rows_of_a_tensor():
    x = torch.zeros(4, 6, 8)
    assert as_rows("x", x).shape == (24, 8) and as_rows("x", x[:, 0]).stride() == (48, 1)
    assert as_rows("x", x[0, 0]).shape == (1, 8) and as_rows("x", x[:0]).shape == (0, 8)
    for bad, words in ((x.transpose(0, 1), "list of rows"), (x.transpose(1, 2), "stride 8"), (x.int(), "int32")):
        with pytest.raises(KernelError, match=words):
            as_rows("x", bad)
