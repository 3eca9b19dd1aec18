# SPDX-License-Identifier: MIT
"""The GEMM of Hopper: what its tiles compile to (no GPU is needed for that), the choice among them, and when it serves.

Results are compared where there is such a GPU; the interpreter has no Gluon.
"""

from __future__ import annotations

import json
import re
import statistics
from dataclasses import replace

import pytest
import torch

from benchmarks.kernels import gemm_hopper as benchmark
from benchmarks.timing import RESULTS
from rocm_guide.kernels.gemm import tiled
from rocm_guide.kernels.gemm.hopper import helpers
from rocm_guide.kernels.gemm.hopper import launch as hopper
from rocm_guide.kernels.gemm.hopper.configs import candidates, in_parts, pick_hopper_tile
from rocm_guide.kernels.gemm.hopper.tiles import HOPPER_TILES
from rocm_guide.kernels.gemm.hopper.times import (
    ACROSS,
    APART,
    COSTS,
    IN_LINES,
    IN_SECTORS,
    ODD,
    Operands,
    expected_time,
    group_of,
)
from rocm_guide.kernels.gluon import CLUSTERS
from tests.kernels.pretend_hopper import MULTIPROCESSOR, SHARED_MEMORY, assembled, empty

BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn
LARGE = next(t for t in HOPPER_TILES[16] if (t.parties, t.blocks, t.ctas) == (2, (256,), 1))


@pytest.fixture(autouse=True)
def capturing(monkeypatch):
    """As in the capture of a graph: the kernel's memory for partial sums is not asked of a GPU's current stream."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)


def on_hopper():
    return torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)


def kernels(compiled, name="gemm_hopper_kernel"):
    return [kernel for found, kernel in compiled if found == name]


UPRIGHT = [t for _, t in benchmark.every_way() if not (t.copied or t.flip)]


@pytest.mark.slow
@pytest.mark.parametrize(("i", "tile"), list(enumerate(UPRIGHT)), ids=map(str, UPRIGHT))
def test_every_tile_fits_a_multiprocessor(compiled, tmp_path, i, tile):
    """Every other tile flipped; with B transposed and not, and K whole and in parts."""
    dtype = FP8 if tile.bk == 128 else BF16
    ways = [(False, True, 1), (True, True, 4), (False, False, 4), (True, False, 1)][i % 2 :: 2]
    # fp8 has both operands contiguous along K.
    for flip, weight, parts in ways[: 1 if dtype == FP8 else 2]:
        b = empty(3000, 4112, dtype=dtype).T if weight else empty(4112, 3000, dtype=dtype)
        way = replace(tile, flip=flip, parts=1 if tile.stream else parts)
        hopper.gemm_hopper(empty(1000, 4112, dtype=dtype), b, tile=way)
    for kernel in kernels(compiled):
        assert kernel.metadata.shared <= min(SHARED_MEMORY, MULTIPROCESSOR // tile.per - 1024)
        (registers,) = re.findall(r"\.maxnreg (\d+)", kernel.asm["ptx"])
        assert int(registers) * 128 * (tile.parties + 1) * tile.per <= 1 << 16
        for part in ("wgmma.mma_async", "cp.async.bulk.tensor", "setmaxnreg"):
            assert part in kernel.asm["ptx"]
        spilled, serial = assembled(kernel, tmp_path)
        assert spilled <= 128 * tile.stream and not serial


@pytest.mark.parametrize(
    "tile", {(t.per, t.stream, t.ctas, t.across): t for t in candidates(16, clusters=CLUSTERS)}.values(), ids=str
)
def test_no_more_programs_than_are_at_work_at_once(compiled, monkeypatch, tile):
    """The tiles of a stream wait for each other, so all its programs must be."""
    grids, launch = [], hopper.Launch
    monkeypatch.setattr(hopper, "Launch", lambda kernel, grid, *rest: grids.append(grid) or launch(kernel, grid, *rest))
    for m, n, parts in ((8192, 8192, 1), (100, 100, 1), (1000, 3000, 1 if tile.stream else 4)):
        hopper.gemm_hopper(empty(m, 4112), empty(4112, n), tile=replace(tile, parts=parts))
    assert (
        len(grids) == 3
        and max(grids) == ({1: 132, 2: 66, 4: 30, 8: 15}[tile.ctas] * tile.per,)
        and all(grids[1] <= grid for grid in grids)
    )


def receivers(kernel, ctas):
    """For each multicast: who receives it, as bits, by the number of the program that fetches. The address of the bits
    is followed back through the assembly to the program's number in its cluster."""
    ptx = kernel.asm["ptx"]
    made: dict = {}
    for line in ptx.splitlines():
        if found := re.match(r"\s*(?:mov|and|shr|shl|add|or|xor|bfe|sub)\S*\s+(%r\d+), (.*);", line):
            made[found[1]] = line.split(None, 1)[0].split(".")[0], found[2].split(", ")

    def value(name, number):
        if re.fullmatch(r"-?\d+", name):
            return int(name)
        if name == "%cluster_ctarank":
            return number
        how, of = made[name]
        x = [value(n, number) for n in of]
        return {
            "mov": lambda: x[0],
            "and": lambda: x[0] & x[1],
            "shr": lambda: x[0] >> x[1],
            "shl": lambda: x[0] << x[1],
            "add": lambda: x[0] + x[1],
            "sub": lambda: x[0] - x[1],
        }[how]()

    return [[value(name, i) for i in range(ctas)] for name in re.findall(r"cvt\.u16\.u32 all, (%r\d+);", ptx)]


in_clusters = pytest.mark.skipif(not CLUSTERS, reason="this Triton has no multicast: 3.9 has")


@pytest.mark.parametrize("mode", ["tiles", "split", "stream", pytest.param("pairs", marks=in_clusters)])
def test_a_stage_is_given_back_once_for_each_time_it_is_read(compiled, mode):
    """In 16 bits a step gives back the stage of the step before: one computed from its own, not the first of a tile."""
    ctas = 2 if mode == "pairs" else 1
    tile = replace(LARGE, parts=3 if mode == "split" else 1, stream=mode == "stream", ctas=ctas)
    hopper.gemm_hopper(empty(1000, 4112), empty(4112, 3000), tile=tile)
    (kernel,) = kernels(compiled)
    made, arrivals = {}, []
    for line in kernel.asm["ttgir"].splitlines():
        if found := re.match(r" *(%\w+) = (.*)", line):
            made[found[1]] = found[2]  # names of one partition come again in the next
        elif found := re.match(r" *(?:ttng\.arrive_barrier|ttg\.inline_asm .*@does.*\}) (%\w+),(?: 1,)? %", line):
            (stage,) = re.findall(r"memdesc_index %\w+\[(%\w+)\]", made[found[1]])
            arrivals.append(made.get(stage, "what the loop began with"))
    assert len(arrivals) == 4, "two warpgroups, each in the loop and after it"
    assert all("arith.select" in way for way in arrivals)


@pytest.mark.slow
def test_epilogues_and_other_results(compiled, tmp_path):
    a, b = empty(1000, 2048), empty(2048, 3000)
    for options in ({"bias": empty(3000), "activation": "gelu", "alpha": 0.5}, {"out_dtype": torch.float32}):
        hopper.gemm_hopper(a, b, **options)
    hopper.gemm_hopper(a, empty(2048, 3001)[:, :3001])
    for kernel in kernels(compiled):
        assert kernel.metadata.shared <= SHARED_MEMORY and assembled(kernel, tmp_path) == (0, False)
    stores = [".global.shared::cta" in kernel.asm["ptx"] for kernel in kernels(compiled)]
    assert stores == [True, True, False], "rows of 3001 do not start at multiples of 16 bytes"


@in_clusters
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("ctas", [2, 4])
@pytest.mark.parametrize("b_t", [False, True])
def test_a_cluster_asks_for_b_once_and_divides_a(compiled, ctas, flip, b_t):
    """Each program fetches a part of B for all, and its own rows of A."""
    blocks = 128, 64, 16
    tile = replace(LARGE, blocks=blocks, strip=16, ctas=ctas, flip=flip)
    a = empty(2048, 1000).T if flip and not b_t else empty(1000, 2048)
    b = empty(3000, 2048).T if b_t and not flip else empty(2048, 3000)
    hopper.gemm_hopper(a, b, tile=tile)
    (kernel,) = kernels(compiled)
    ptx = kernel.asm["ptx"]
    assert f".reqnctapercluster {ctas}" in ptx
    fetches = re.findall(r"cp\.async\.bulk\.tensor\S*mbarrier\S*", ptx)
    shared = ["multicast::cluster" in fetch for fetch in fetches]
    # Of rows that are not along K, a block of 128 columns is two lines.
    assert (shared.count(False), shared.count(True)) == (2, 3 if b_t else 4), "one of A for each warpgroup; B's blocks"
    # Rows of a block that each program fetches: of columns, or of the 64 of K; no fewer than eight.
    rows = [max(block // ctas, 8) if b_t else 64 // ctas for block in blocks]
    assert [int(n) for n in re.findall(r"mad\.lo\.u32 row, %r\d+, (\d+),", ptx)] == rows
    # Where there are fewer parts than programs, some have nothing to fetch.
    programs = [block // n if b_t else ctas for block, n in zip(blocks, rows, strict=True)]
    assert [int(n) for n in re.findall(r"setp\.ge\.u32 idle, %r\d+, (\d+);", ptx)] == [n for n in programs if n < ctas]
    assert receivers(kernel, ctas) == [[(1 << ctas) - 1] * ctas] * 3
    # The block of 16 columns is fetched as whole lines where these are not along K.
    expected = 2 * 64 * 64 * 2 + (208 if b_t else 256) * 64 * 2
    assert f"expect_tx.shared::cta.b64 _, [%r0], {expected}" in re.sub(r"\[%r\d+\]", "[%r0]", ptx)


@in_clusters
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("ctas", [4, 8])
def test_in_two_columns_a_cluster_asks_for_a_once_too(compiled, ctas, flip):
    """Two programs beside each other fetch one half of A's rows each, for both; those below each other share B."""
    tile = replace(LARGE, rows=64, parties=2, blocks=(128,), strip=32, ctas=ctas, across=2, flip=flip)
    hopper.gemm_hopper(empty(1000, 2048), empty(3000, 2048).T, tile=tile)
    (kernel,) = kernels(compiled)
    ptx, down = kernel.asm["ptx"], ctas // 2
    assert f".reqnctapercluster {ctas}" in ptx
    assert len(re.findall(r"multicast::cluster \[to\], \[desc", ptx)) == 3, "A for each of two warpgroups, and B"
    assert [int(n) for n in re.findall(r"mad\.lo\.u32 row, %r\d+, (\d+),", ptx)] == [32, 32, 128 // down]
    # Programs are numbered down the first column, then down the second.
    below = [(1 << down) - 1 << i // down * down for i in range(ctas)]
    beside = [(1 | 1 << down) << i % down for i in range(ctas)]
    assert receivers(kernel, ctas) == [beside, beside, below]
    counts = re.findall(r"mbarrier\.init\.shared::cta\.b64 \[%r\d+\], (\d+);", ptx)
    assert set(counts) == {"1", str(2 * (down + 1))}, "two warpgroups of each program in the same row or column"
    # A thread arrives at the program of its number if that one, by the bits in which both differ, is in either.
    lines = "\n".join(line.strip() for line in ptx.splitlines() if not line.strip().startswith(".loc"))
    below = re.findall(r"setp\.lt\.u32 below, other, (\d+);\nand\.b32 other, other, (\d+);\n", lines)
    assert len(below) == ptx.count("and.pred does, does, beside;") == ptx.count("@does mbarrier.arrive") == 4
    assert set(below) == {(str(down), str(down - 1))}
    expected = (2 * 64 + 128) * 64 * 2
    assert f"expect_tx.shared::cta.b64 _, [%r0], {expected}" in re.sub(r"\[%r\d+\]", "[%r0]", ptx)


@pytest.mark.parametrize("parties", [1, 2])
def test_a_warpgroup_that_is_alone_begins_two_steps_in_fp8(compiled, tmp_path, parties):
    """It waits for the first of them while the second is under way; two warpgroups multiply by turns."""
    tile = replace(next(t for t in HOPPER_TILES[8] if (t.parties, t.ctas, t.per) == (parties, 1, 1)), blocks=(64,))
    hopper.gemm_hopper(empty(1000, 4112, dtype=FP8), empty(3000, 4112, dtype=FP8).T, tile=tile)
    (kernel,) = kernels(compiled)
    waits = re.findall(r"wgmma\.wait_group\.sync\.aligned (\d)", kernel.asm["ptx"])
    assert waits == (["1", "0", "0"] if parties == 1 else ["0", "0"])
    assert assembled(kernel, tmp_path) == (0, False)


@in_clusters
def test_a_pair_beside_each_other_shares_a_alone(compiled):
    """Each fetches half of A's rows for both, and B for itself."""
    tile = replace(LARGE, rows=64, parties=2, blocks=(128, 64), strip=32, ctas=2, across=2)
    hopper.gemm_hopper(empty(1000, 2048), empty(3000, 2048).T, tile=tile)
    (kernel,) = kernels(compiled)
    ptx = kernel.asm["ptx"]
    fetches = re.findall(r"cp\.async\.bulk\.tensor\S*mbarrier\S*", ptx)
    assert ["multicast::cluster" in fetch for fetch in fetches] == [True, True, False, False]
    assert [int(n) for n in re.findall(r"mad\.lo\.u32 row, %r\d+, (\d+),", ptx)] == [32, 32, 128, 64]
    assert receivers(kernel, 2)[:2] == [[3, 3], [3, 3]]
    counts = re.findall(r"mbarrier\.init\.shared::cta\.b64 \[%r\d+\], (\d+);", ptx)
    assert counts == ["1"] * 4 + ["4"] * 4, "two warpgroups of both programs empty a stage"


@in_clusters
@pytest.mark.parametrize("ctas", [1, 4])
def test_descriptors_are_the_parameters_that_the_assembly_names(compiled, ctas):
    tile = next(t for t in HOPPER_TILES[16] if t.blocks == (128, 64, 8) and t.ctas == ctas)
    hopper.gemm_hopper(empty(1000, 2048), empty(3000, 2048).T, tile=tile)
    (kernel,) = kernels(compiled)
    described = re.findall(r"\.param \.align 64 \.b8 (gemm_hopper_kernel_param_\d+)\[128\]", kernel.asm["ptx"])
    named = re.findall(r"mov\.b64 desc, (\w+);", kernel.asm["ptx"])
    assert len(described) == 6 and named == described[1:4], "of A, of three blocks of B, of C's strips and narrow ones"


@in_clusters
def test_a_block_comes_with_the_one_before_it_where_it_lies_in_the_same_line(compiled):
    """B's rows are not along K: 32 columns and 8 are in the second line of 64."""
    tile = next(t for t in HOPPER_TILES[16] if t.blocks == (64, 32, 8))
    hopper.gemm_hopper(empty(1000, 2048), empty(2048, 3000), tile=tile)
    (kernel,) = kernels(compiled)
    assert len(re.findall(r"mov\.b64 desc, (\w+);", kernel.asm["ptx"])) == 2
    expected = (tile.parties * 64 + 128) * 64 * 2
    assert f"expect_tx.shared::cta.b64 _, [%r0], {expected}" in re.sub(r"\[%r\d+\]", "[%r0]", kernel.asm["ptx"])


@in_clusters
def test_a_stage_is_free_when_all_of_a_cluster_have_read_it(compiled):
    hopper.gemm_hopper(empty(1000, 4112), empty(4112, 3000), tile=replace(LARGE, ctas=4))
    (kernel,) = kernels(compiled)
    ptx = kernel.asm["ptx"]
    counts = re.findall(r"mbarrier\.init\.shared::cta\.b64 \[%r\d+\], (\d+);", ptx)
    assert counts == ["1"] * 4 + ["8"] * 4, "one fetch makes a stage ready; two warpgroups of four programs empty it"
    arrivals = re.findall(r"mapa\.shared::cluster\.u32 there.*\n(@does mbarrier\.arrive\.\S+)", ptx)
    assert set(arrivals) == {"@does mbarrier.arrive.shared::cluster.b64"} and len(arrivals) == 4
    # Nobody ends while others may still arrive at its barriers: Triton makes a cluster wait for all.
    assert ptx.rindex("barrier.cluster.wait") > max(ptx.rindex("mapa"), ptx.rindex("multicast::cluster"))


@pytest.mark.parametrize("how", ["short", "long", "split", "stream"])
def test_a_short_kernel_overlaps_with_the_one_before_unless_its_programs_wait(compiled, how):
    """Split: so does the kernel after it that adds the parts."""
    tile = replace(LARGE, parts=2 if how == "split" else 1, stream=how == "stream")
    k = 4112 if how == "long" else 912
    hopper.gemm_hopper(empty(1000, k), empty(k, 3000), tile=tile)
    assert len(compiled) == 1 + (how == "split")
    for _, kernel in compiled:
        ptx, overlaps = kernel.asm["ptx"], how in ("short", "split")
        assert kernel.metadata.launch_pdl == overlaps
        assert [ptx.count(f"griddepcontrol.{x}") for x in ("wait", "launch_dependents")] == [overlaps, overlaps]
        if overlaps:
            before = ptx[: ptx.index("griddepcontrol.wait")]
            assert not re.search(r"ld\.global|st\.global|cp\.async\.bulk|wgmma", before.split(".entry")[1])


def test_the_general_kernel_overlaps_too(compiled):
    tiled.gemm(empty(256, 256), empty(256, 256))
    (kernel,) = kernels(compiled, "gemm_kernel")
    ptx = kernel.asm["ptx"]
    assert kernel.metadata.launch_pdl and ptx.count("griddepcontrol.launch_dependents") == 1
    assert not re.search(r"ld\.global|st\.global|cp\.async", ptx[: ptx.index("griddepcontrol.wait")].split(".entry")[1])


def test_without_multicast_there_are_no_clusters(compiled, monkeypatch):
    monkeypatch.setattr(hopper, "CLUSTERS", False)
    assert not any(t.ctas > 1 for bits in HOPPER_TILES for t in candidates(bits))
    with pytest.raises(hopper.KernelError, match="clusters"):
        hopper.gemm_hopper(empty(1000, 4112), empty(4112, 3000), tile=replace(LARGE, ctas=2))


def test_a_flipped_product_stores_c_as_it_is(compiled):
    """Its tiles are of C^T, and what TMA stores are strips of C: as many rows as a strip has columns."""
    for flip, box in ((False, "64x64xbf16"), (True, "32x128xbf16")):
        compiled.clear()
        tile = replace(LARGE, rows=128 if flip else 64, blocks=(128,), strip=32 if flip else 64, flip=flip)
        hopper.gemm_hopper(empty(1000, 4112, dtype=BF16), empty(4112, 3000, dtype=BF16), tile=tile)
        (kernel,) = kernels(compiled)
        stores = [line for line in kernel.asm["ttgir"].splitlines() if "async_tma_copy_local_to_global" in line]
        assert stores and all(re.search(rf"tensordesc<(tensor<)?{box}", line) for line in stores)


@pytest.mark.parametrize(
    ("last", "at_once"),
    [(16, False), pytest.param(16, True, marks=in_clusters), pytest.param(8, True, marks=in_clusters)],
)
def test_blocks_of_columns_stand_side_by_side(compiled, monkeypatch, last, at_once):
    """Three warpgroups: B is fetched from, and C stored to, where the blocks before it end, also in a narrow strip."""
    if not at_once:
        monkeypatch.setattr(hopper.HopperTile, "columns_at_once", lambda tile, bits: 0)
    tile = replace(LARGE, parties=3, blocks=(128, 64, last), strip=16)
    hopper.gemm_hopper(empty(1000, 4112), empty(4112, 3000), tile=tile)
    (kernel,) = kernels(compiled)
    made, fetched, stored = {}, [], []
    for line in kernel.asm["ttgir"].splitlines():
        if found := re.match(r" *(%\w+) = arith\.constant (\d+) : i32", line):
            made[found[1]] = ("", int(found[2]))
        elif found := re.match(r" *(%\w+) = arith\.addi (%\w+), (%\w+) : i32", line):
            (base, x), (other, y) = (made.get(name, (name, 0)) for name in found.groups()[1:])
            made[found[1]] = (base or other, x + y) if not (base and other) else (found[1], 0)
        elif found := re.match(r" *(%\w+) = ", line):
            made.pop(found[1], None)  # names of one partition come again in the next
        elif found := re.search(r"async_tma_copy_global_to_local %\w+\[%k\w*, (%\w+)\]", line) or re.search(
            r"inline_asm .*cp\.async\.bulk\.tensor.* %\w+, %\w+, %k\w*, (%\w+) ", line
        ):
            fetched.append(made.get(found[1], (found[1], 0)))
        elif found := re.search(r"async_tma_copy_local_to_global %\w+\[%\w+, (%\w+)\]", line):
            stored.append(made.get(found[1], (found[1], 0)))
    assert [at for _, at in fetched] == [0, 128, 192] and len({base for base, _ in fetched}) == 1
    strips = [*range(0, 192, 16), 192]
    assert [at for _, at in stored] == 3 * strips, "of 16 columns, from each warpgroup, and of the last block"


@in_clusters
@pytest.mark.parametrize(
    ("bits", "blocks", "rows", "parties", "instructions"),
    [
        (16, (128, 64, 16), 64, 2, [208]),
        (16, (128, 64, 16), 64, 3, [192, 16]),
        (16, (256, 64), 64, 2, [256, 64]),
        (16, (128, 64), 128, 2, [192, 192]),
        (8, (128, 64), 64, 2, [192]),
        (8, (128, 128), 64, 2, [128, 128]),
    ],
)
def test_several_blocks_are_one_instruction(compiled, bits, blocks, rows, parties, instructions):
    """As far as registers reach; so often for each 32 bytes of K, of each 64 rows, in each warpgroup."""
    tile = next(
        t for t in HOPPER_TILES[bits] if (t.blocks, t.rows, t.parties, t.ctas) == (blocks, rows, parties, t.ctas)
    )
    dtype = FP8 if bits == 8 else BF16
    hopper.gemm_hopper(empty(1000, 4112, dtype=dtype), empty(3008, 4112, dtype=dtype).T, tile=tile)
    (kernel,) = kernels(compiled)
    found = [int(n) for n in re.findall(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k", kernel.asm["ptx"])]
    assert sorted(found) == sorted(4 * parties * instructions)


@in_clusters
@pytest.mark.parametrize("a_t", [False, True])
@pytest.mark.parametrize("b_t", [False, True])
@pytest.mark.parametrize("rows", [64, 128])
def test_operands_are_read_from_where_triton_would(compiled, monkeypatch, a_t, b_t, rows):
    """Of one block of 128 columns, by our assembly and by Triton itself: the same distances from the stage's begin."""
    tile = replace(next(t for t in HOPPER_TILES[16] if t.blocks == (128,) and t.rows == 64), rows=rows)
    a, b = empty(2048, 1000).T if a_t else empty(1000, 2048), empty(3000, 2048).T if b_t else empty(2048, 3000)
    found = []
    for ours in (False, True):
        compiled.clear()
        monkeypatch.setattr(hopper.HopperTile, "columns_at_once", lambda tile, bits, ours=ours: 256 * ours)
        hopper.gemm_hopper(a, b, tile=replace(tile, strip=32 + 32 * ours))
        found.append(read_by_products(kernels(compiled)[0].asm["ptx"]))
    assert found[0] == found[1] and len(found[0]) == 2 * 4 * rows // 64, "of two warpgroups"


def read_by_products(ptx):
    """Of each instruction that multiplies: its operands' addresses less those of the first, and the rest of their
    descriptors; and whether they are transposed."""
    known: dict[str, tuple[str, int]] = {}
    found, first = [], {}

    def value(name):
        return ("", int(name)) if re.fullmatch(r"-?\d+", name) else known.get(name, (name, 0))

    for line in ptx.splitlines():
        line = line.split("//")[0].strip().rstrip(";")
        name, *rest = re.split(r",\s*", line.split(None, 1)[1]) if " " in line or "\t" in line else ("",)
        op = line.split(None, 1)[0] if line else ""
        if op.startswith(("add.s32", "add.u32", "or.b32", "or.b64")) and len(rest) == 2:
            (x, i), (y, j) = value(rest[0]), value(rest[1])
            known[name] = (x or y, i + j) if not (x and y) else (name, 0)
        elif op.startswith("mov.b64") and len(rest) == 2 and rest[0].startswith("{"):
            (x, i), (_, j) = value(rest[0].strip("{} ")), value(rest[1].strip("{} "))
            known[name] = x, i + (j << 32)
        elif op.startswith(("cvt.u64.u32", "mov.b32", "mov.u32")) and len(rest) == 1:
            known[name] = value(rest[0])
        elif op.startswith("wgmma.mma_async"):
            a, b, _, *flags = re.split(r",\s*", line.split("},")[1].strip())
            bases = value(a)[0], value(b)[0]
            start = first.setdefault(bases, (value(a)[1], value(b)[1]))
            found.append((value(a)[1] - start[0] % (1 << 14), value(b)[1] - start[1] % (1 << 14), flags))
        else:
            known.pop(name, None)
    return found


def test_when_it_serves(compiled):
    kinds = [
        (empty(512, 512), empty(512, 512), True),
        (empty(512, 512), empty(512, 512).T, True),
        (empty(512, 512).T, empty(512, 512), True),
        (empty(512, 1024)[:, ::2], empty(512, 512), False),
        (empty(512, 512, dtype=torch.float32), empty(512, 512, dtype=torch.float32), False),
        (empty(512, 512, dtype=torch.int8), empty(512, 512, dtype=torch.int8).T, False),
        (empty(512, 512, dtype=FP8), empty(512, 512, dtype=FP8).T, True),
        (empty(512, 512, dtype=FP8), empty(512, 512, dtype=FP8), False),
    ]
    for a, b, serves in kinds:
        out = torch.float32 if a.dtype == torch.float32 else torch.bfloat16
        assert (hopper.plan_hopper(a, b, None, "none", True, out) is not None) == serves


def test_a_small_product_of_odd_rows_is_copied_where_its_rows_are_long(compiled):
    for k, kernels in ((333, ["gemm_kernel"]), (3187, ["copy_rows_kernel", "gemm_hopper_kernel", "add_tiles_kernel"])):
        compiled.clear()
        tiled.gemm(empty(308, k), empty(k, 280))
        assert [name for name, _ in compiled] == kernels
    for k, kernel in ((2304, "gemm_kernel"), (3200, "gemm_hopper_kernel")):
        compiled.clear()
        tiled.gemm(empty(308, k), empty(k, 280))
        assert compiled[0][0] == kernel, "nothing to copy: it is the operations that count"


def test_without_gluon_the_plain_kernel_serves(compiled, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "rocm_guide.kernels.gemm.hopper.launch", None)
    tiled.gemm(empty(512, 512), empty(512, 512))
    assert [name for name, _ in compiled] == ["gemm_kernel"]


def test_large_matrices_are_copied_where_the_tile_says_so(compiled):
    a, b = empty(1000, 4104), empty(4104, 3000)
    for copied in ("a", "b", "ab"):
        compiled.clear()
        hopper.gemm_hopper(a, b, tile=replace(HOPPER_TILES[16][0], copied=copied))
        assert [name for name, _ in compiled] == ["copy_rows_kernel", "gemm_hopper_kernel"]


@pytest.mark.parametrize(("pitch", "way"), [(4096, IN_LINES), (4112, IN_SECTORS), (4104, ACROSS), (4103, ODD)])
def test_how_rows_lie_in_memory(pitch, way):
    a, b = empty(100, 4000), empty(4000, pitch)
    found = hopper.operands_of(a, b, *(hopper.view_of(x, True) for x in (a, b)), torch.bfloat16)
    assert (found.a, found.b, found.c) == (IN_SECTORS, way, ODD if way == ODD else IN_LINES)
    assert benchmark.operands_of(100, pitch, 4000, 0, 16) == found
    assert {t.copied for t in candidates(16, found)} == {""} | ({"b"} if way == ACROSS else set())


def test_no_large_tile_where_c_is_stored_without_tma():
    """It would spill: 1,532 bytes of a thread with 256 x 192."""
    of_c = {c: candidates(16, Operands(c=c)) for c in (IN_LINES, ODD)}
    most = {c: max(t.rows * t.width for t in tiles) for c, tiles in of_c.items()}
    assert most == {IN_LINES: 128 * 192, ODD: 128 * 128}


def test_odd_rows_are_copied_first_and_parts_added_after(compiled):
    tile = replace(LARGE, parts=3)
    hopper.gemm_hopper(empty(1001, 1333), empty(1333, 1031), empty(1031), activation="silu", tile=tile)
    assert [name for name, _ in compiled] == ["copy_rows_kernel", "gemm_hopper_kernel", "add_tiles_kernel"]
    compiled.clear()
    hopper.gemm_hopper(empty(1001, 1333), empty(1333, 1032), tile=replace(tile, parts=1))
    assert [name for name, _ in compiled] == ["copy_rows_kernel", "gemm_hopper_kernel"]


@pytest.mark.parametrize(("rows", "columns", "stride"), [(5, 3, 3), (3, 130, 131), (70, 1026, 1026), (2, 4100, 4104)])
def test_copies_of_rows(rows, columns, stride, device):
    x, y = torch.randn(rows, stride, device=device).half(), torch.randn(7, 2 * columns, device=device).half()
    later = torch.randn(rows * stride + 1, device=device).half()[1:].view(rows, stride)[:, :columns]
    for matrices in ([x[:, :columns]], [x[:, :columns], y], [later]):
        found = helpers.copier(matrices, on_hopper())(*matrices)
        for copy, matrix in zip(found, matrices, strict=True):
            assert copy.stride(0) % 64 == 0 and copy.shape[1] - matrix.shape[1] < 64
            assert torch.equal(copy[:, : matrix.shape[1]], matrix)


@pytest.mark.parametrize(("m", "n", "parts"), [(1, 1, 2), (100, 200, 3), (128, 256, 5)])
def test_parts_are_added(m, n, parts, device):
    rows, columns = -(-m // 128) * 128, -(-n // 128) * 128
    sums, bias = torch.randn(parts, rows, columns, device=device), torch.randn(n, device=device)
    plain = {"EPILOGUE": False, "BIAS": False, "ACT": "none"}
    for ends, want in (
        (plain, sums.double().sum(0)[:m, :n]),
        ({"EPILOGUE": True, "BIAS": True, "ACT": "relu"}, (0.5 * sums.double().sum(0)[:m, :n] + bias).relu()),
    ):
        c = torch.full((m, n), torch.nan, device=device)
        helpers.adder(m, n, parts, rows, columns, ends, on_hopper())(sums.view(-1, columns), c, bias, 0.5)
        torch.testing.assert_close(c.double(), want, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("operands", [Operands(), Operands(ACROSS, ACROSS)], ids=["lines", "across"])
@pytest.mark.parametrize("bits", HOPPER_TILES)
def test_the_choice_has_the_least_expected_time(bits, operands):
    """Also where it leaves out copies without asking what they would take."""
    sizes = (
        (256, 256, 256),
        (1000, 3000, 5000),
        (16384, 300, 4096),
        (8192, 8192, 8192),
        (8192, 600, 8192),
        (512, 384, 10496),
    )
    for m, n, k in sizes:
        best = pick_hopper_tile(m, n, k, bits, 132, operands, clusters=True)
        ways = [w for t in candidates(bits, operands, True) for w in (t, *in_parts(t, m, n, k, 132))]
        times = [expected_time(t, m, n, k, bits, 132, operands) for t in ways]
        assert expected_time(best, m, n, k, bits, 132, operands) == min(times) < max(times)
        assert min(times) > 2e-6 * m * n * k / best.rate, "no faster than a full GPU"
    assert best.parts > 1, "few tiles and a long K"
    assert all(t.parts <= 10496 // t.bk // 3 for t in ways)


def test_the_taller_c_is_the_fewer_rows_are_walked_together():
    """By tiles of one program, in one round and in several; in pairs, in fours; as wide as its transpose is tall."""

    def groups(tile, *sizes):
        assert [group_of(replace(tile, flip=not tile.flip), n, m, 132) for m, n in sizes] == [
            group_of(tile, m, n, 132) for m, n in sizes
        ]
        return [group_of(tile, m, n, 132) for m, n in sizes]

    small, usual, pair, four = (
        next(t for t in HOPPER_TILES[16] if (t.parties, t.ctas, t.across, t.width) == kind)
        for kind in ((1, 1, 1, 72), (2, 1, 1, 128), (2, 2, 1, 256), (2, 4, 1, 256))
    )
    # One round: wide, about square, tall.
    assert groups(small, (280, 1888), (576, 576), (1888, 280)) == [16, 8, 1]
    assert groups(usual, (256, 8192), (1024, 1024), (4096, 512)) == [8, 4, 1]
    assert groups(replace(usual, parts=2), (2048, 256), (256, 4096)) == [4, 8], "each part of K has its rows"
    # Several rounds: wide, about square, tall, a strip.
    assert groups(usual, (1024, 16384), (8192, 8192), (16384, 4096), (65536, 512)) == [8, 4, 2, 1]
    assert groups(pair, (1024, 16384), (8192, 8192), (8192, 512)) == [4, 4, 8]
    assert groups(four, (1024, 16384), (8192, 8192), (4096, 512)) == [2, 2, 1]


def test_an_instruction_for_each_block_takes_longer():
    """As Triton 3.6 has it: the choice there is by other times."""
    apart = replace(COSTS, apart=APART)
    for tile in (t for t in HOPPER_TILES[16] if t.rows * t.parties > 64):
        once, each = (expected_time(tile, 8192, 8192, 8192, 16, 132, Operands(), costs) for costs in (COSTS, apart))
        assert (each > once) == (len(tile.blocks) > 1 and tile.blocks[0] < 256), "256 columns are all that one can have"
    found = pick_hopper_tile(3000, 3000, 4096, 16, 132)
    ways = [t for t in candidates(16) if t.parts == 1]
    assert found in ways
    assert found == min(ways, key=lambda t: expected_time(t, 3000, 3000, 4096, 16, 132, Operands(), apart))


def test_the_choice_is_near_the_best_that_was_timed():
    """On the stored times of an H100 (benchmarks/kernels/gemm_hopper.py), by which the constants were fitted: among the
    ways that were timed, that with the least expected time."""
    rows = benchmark.stored(RESULTS)
    assert len(rows) == 567
    reached, best = [], []
    for row in rows:
        (m, n, k), bits = row["mnk"], 8 if "float8" in row["t"] else 16
        operands = benchmark.operands_of(m, n, k, row["bt"], bits)
        ways = {benchmark.name_of(t, bits): t for t in benchmark.all_ways(m, n, k, bits, operands)}
        timed = {name: ways[name] for name in row["us"] if name in ways}
        times = {name: expected_time(t, m, n, k, bits, benchmark.UNITS, operands) for name, t in timed.items()}
        assert len(times) == len(row["us"]) - 1 >= 7, "all but the library's"
        fastest = min(row["us"][name] for name in times)
        reached.append(fastest / row["us"][min(times, key=times.__getitem__)])
        best.append(row["us"]["cuBLAS"] / fastest)
    assert sum(reached) / len(reached) > 0.975 and sorted(reached)[10] > 0.8
    assert statistics.median(best) > 1.05


def test_the_fit_has_the_model_that_chooses():
    """All ways at once, as :class:`Model` has them, which looks itself that its times are those of expected_time; and
    leaving out what cannot be chosen leaves the choice as it is."""
    model = benchmark.Model(benchmark.stored(RESULTS)[::24])
    timed, (least, _, chosen) = model.us[model.timed], model.choice(model.expected)
    took, ways = model.us[chosen], len(model.us)
    model.leave_out()
    assert len(model.us) == len(model.entries) == len(model.names) < ways / 2
    found, _, chosen = model.choice(model.expected)
    assert (found == least).all() and (model.us[chosen] == took).all() and (model.us[model.timed] == timed).all()
    (m, n, k, bits, operands), tile = model.entries[-1]
    assert model.expected[-1] == pytest.approx(expected_time(tile, m, n, k, bits, benchmark.UNITS, operands))


def test_a_measured_choice_is_near_the_best():
    """The stored figures of random products (benchmarks/kernels/gemm.py), to none of which constants were fitted."""
    found = json.loads((RESULTS / "gemm_random.json").read_text())
    rows, ways = found["products"], ("ratio", "tuned")
    assert len(rows) >= 200
    for way, prefix in zip(ways, ("", "tuned_"), strict=True):
        ratios = [row[way] for row in rows]
        assert found[f"{prefix}median"] == statistics.median(ratios) and found[f"{prefix}worst"] == min(ratios)
    # A tile that was timed in the same minute is seldom slower than one that was chosen by a model.
    gained = [row["tuned"] / row["ratio"] for row in rows]
    assert statistics.geometric_mean(gained) > 1.02 and statistics.median(found["tuned"] for found in rows) > 1.1


needs_hopper = pytest.mark.skipif(not on_hopper(), reason="needs a Hopper GPU")


@needs_hopper
def test_chains_of_products(monkeypatch):
    monkeypatch.undo()
    benchmark.check_chain()


@needs_hopper
@pytest.mark.parametrize(("bits", "tile"), benchmark.every_way(), ids=str)
def test_results(bits, tile, monkeypatch):
    monkeypatch.undo()
    benchmark.check(bits, tile)
