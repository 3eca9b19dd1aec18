# SPDX-License-Identifier: MIT
"""A GEMM's tile by measuring: what is timed, what is remembered, and the file. Times themselves need a GPU."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch

from rocm_guide.kernels.arguments import KernelError, architecture
from rocm_guide.kernels.gemm import tile_times, tuned
from rocm_guide.kernels.gemm.configs import CONFIGS, RAGGED, SMALL
from rocm_guide.kernels.gemm.tile_times import TileTime, general_tiles, hopper_tiles, name_of, time_tiles
from rocm_guide.kernels.gemm.tiled import gemm, plan_gemm
from rocm_guide.kernels.gemm.tuned import forget_tiles, kind_of, load_tiles, tuning

WIDE = replace(CONFIGS["interpreter"][16][0], bn=64)
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="times are a GPU's")


@pytest.fixture(autouse=True)
def nothing_known():
    forget_tiles()
    yield
    forget_tiles()


@pytest.fixture
def timed(monkeypatch, device):
    """Everything can be timed, and WIDE is always the fastest tile. What was timed."""
    found = []

    def times(a, b, *rest):
        found.append((tuple(a.shape), tuple(b.shape), *rest))
        return [TileTime(WIDE, name_of(WIDE), 5.0), TileTime(CONFIGS["interpreter"][16][0], "other", 7.0)]

    monkeypatch.setattr(tuned, "why_not_timed", lambda tensor: "")
    monkeypatch.setattr(tuned, "tile_times", times)
    monkeypatch.setattr(tuned, "_here", lambda: {"gpu": "a GPU", "triton": "1.2"})
    monkeypatch.setattr(tuned, "architecture_here", lambda: architecture(torch.empty(0, device=device)))
    monkeypatch.setattr(tuned, "general_tiles", lambda arch, bits: [WIDE])
    return found


@pytest.fixture
def launched(monkeypatch):
    """The tiles of the launches of the general kernel, as (BM, BN)."""
    from rocm_guide.kernels.gemm import tiled

    found, launch = [], tiled.Launch

    def make(kernel, grid, sizes, constants, *rest):
        found.append((constants["BM"], constants["BN"]))
        return launch(kernel, grid, sizes, constants, *rest)

    monkeypatch.setattr(tiled, "Launch", make)
    return found


def product(device, m=40, k=64, n=70):
    return torch.randn(m, k, device=device).half(), torch.randn(k, n, device=device).half()


def test_a_kind_is_timed_once_and_its_tile_stays(timed, launched, device):
    a, b = product(device)
    want = a.float() @ b.float()
    for _ in range(2):  # the first is of a time before tuning
        torch.testing.assert_close(gemm(a, b).float(), want, atol=0.05, rtol=0.01)
    with tuning():
        for _ in range(2):
            torch.testing.assert_close(gemm(a, b).float(), want, atol=0.05, rtol=0.01)
        gemm(a, b, activation="gelu")
    gemm(a, b)
    assert [shapes[:2] for shapes in timed] == [((40, 64), (64, 70))] * 2 and [t[3] for t in timed] == ["none", "gelu"]
    assert launched[0] != (WIDE.bm, WIDE.bn) and set(launched[1:]) == {(WIDE.bm, WIDE.bn)}
    forget_tiles()
    gemm(a, b)
    assert launched[-1] == launched[0]


def test_a_tile_of_your_own_comes_first(timed, launched, device):
    with tuning():
        gemm(*product(device), tile=CONFIGS["interpreter"][16][0])
    assert timed == [] and launched == [(32, 32)]


def test_the_file_is_written_after_each_product_and_read_again(timed, launched, tmp_path, device):
    file, seen = tmp_path / "tiles.json", []
    with pytest.raises(RuntimeError, match="stop"), tuning(file, progress=lambda *found: seen.append(found)):
        gemm(*product(device))
        assert len(json.loads(file.read_text())["tiles"]) == 1
        gemm(*product(device, n=48))
        raise RuntimeError("stop")
    stored = json.loads(file.read_text())
    assert len(stored["tiles"]) == 2 and set(stored["tiles"].values()) == {name_of(WIDE)}
    assert [kind for kind, _ in seen] == sorted(stored["tiles"], key=lambda kind: "x70x" not in kind)
    assert all(times[0].us <= times[1].us for _, times in seen)
    assert str(seen[0][1][0]) == "5.0 us, 32x64x32, 4 warps, 2 stages, group 8"
    forget_tiles()
    assert load_tiles(file) == 2
    gemm(*product(device))
    assert len(timed) == 2 and launched[-1] == (WIDE.bm, WIDE.bn)
    with tuning(file):  # what the file has is not timed again
        gemm(*product(device))
        gemm(*product(device, n=16))
    assert len(timed) == 3 and len(json.loads(file.read_text())["tiles"]) == 3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"gpu": "another"}, "its gpu is another, here it is a GPU;"),
        ({"triton": "9"}, "its triton is 9, here it is 1.2;"),
        ({"format": "x"}, "its format is x, here it is rocm-guide gemm tiles 1"),
        ({"tiles": [1]}, "cannot be read as a file of tiles"),
        (None, "cannot be read as a file of tiles"),
    ],
)
def test_a_file_of_another_kind_is_refused_and_kept(timed, tmp_path, change, says, device):
    file = tmp_path / "tiles.json"
    with tuning(file):
        gemm(*product(device))
    text = "{" if change is None else json.dumps(json.loads(file.read_text()) | change)
    file.write_text(text)
    forget_tiles()
    with pytest.raises(KernelError, match=f"tiles.json: .*{says}"), tuning(file):
        raise AssertionError("what is in here would be lost")
    assert file.read_text() == text
    with tuning():  # that failure has not left it on
        gemm(*product(device))


def test_a_tile_that_this_version_lacks_is_left_out(timed, tmp_path, device):
    file = tmp_path / "tiles.json"
    with tuning(file):
        gemm(*product(device))
        gemm(*product(device, n=48))
    data = json.loads(file.read_text())
    data["tiles"][next(iter(data["tiles"]))] = "7x7x7"
    file.write_text(json.dumps(data))
    forget_tiles()
    with pytest.warns(UserWarning, match="1 tiles left out, such as 7x7x7"):
        assert load_tiles(file) == 1


def test_no_tuning_inside_tuning():
    with tuning(), pytest.raises(KernelError, match="on already"), tuning():
        pass


def test_kinds_differ_where_tiles_might():
    a, b = torch.empty(8, 64).half(), torch.empty(64, 32).half()
    later = torch.empty(8 * 64 + 1).half()[1:].view(8, 64)
    kinds = [
        kind_of(a, b, "none", torch.float16, False, "sm_90"),
        kind_of(a.bfloat16(), b.bfloat16(), "none", torch.float16, False, "sm_90"),
        kind_of(a, torch.empty(32, 64).half().T, "none", torch.float16, False, "sm_90"),
        kind_of(a[:7], b, "none", torch.float16, False, "sm_90"),
        kind_of(later, b, "none", torch.float16, False, "sm_90"),
        kind_of(a, b, "gelu", torch.float16, False, "sm_90"),
        kind_of(a, b, "none", torch.float32, False, "sm_90"),
        kind_of(a, b, "none", torch.float16, True, "sm_90"),
        kind_of(a, b, "none", torch.float16, False, "gfx942"),
    ]
    assert len(set(kinds)) == len(kinds)


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_all_tiles_of_the_tables_are_timed_under_names_of_their_own(bits):
    for arch in ("gfx942", "sm_90"):
        names = [name_of(t) for t in general_tiles(arch, bits)]
        tables = [
            *CONFIGS[arch][bits],
            *SMALL.get(arch, {}).get(bits, ()),
            *([RAGGED[arch][bits]] if arch in RAGGED else []),
        ]
        assert {name_of(t) for t in tables} <= set(names) and len(set(names)) == len(names)
    # AMD's XCDs have an L2 each, so how many rows of tiles are walked together is worth timing there.
    assert {t.group for t in general_tiles("gfx942", bits)} == {4, 8, 16}
    own = hopper_tiles(bits) if bits < 32 else {}
    assert all(name == name_of(tile) and name.startswith("hopper ") for name, tile in own.items())


def test_every_way_of_hoppers_kernel_has_a_name_of_its_own():
    pytest.importorskip("triton.experimental.gluon")
    from rocm_guide.kernels.gemm.hopper.configs import candidates
    from rocm_guide.kernels.gemm.hopper.times import ACROSS, Operands
    from rocm_guide.kernels.gluon import CLUSTERS

    for bits in (8, 16):
        whole = candidates(bits, Operands(ACROSS, ACROSS), CLUSTERS)
        names = hopper_tiles(bits)
        assert all(names[name_of(t)] == t for t in whole) and len(names) > len(whole)


def test_without_a_gpu_nothing_can_be_timed(device):
    if device != "cpu":
        pytest.skip("there is a GPU here")
    a, b = product(device)
    with pytest.raises(KernelError, match="tensors on 'cpu': times are a GPU's"):
        time_tiles(a, b)
    with tuning():
        torch.testing.assert_close(gemm(a, b).float(), a.float() @ b.float(), atol=0.05, rtol=0.01)


def test_a_copy_has_the_strides_and_the_alignment_of_the_matrix():
    x = torch.arange(4096.0)
    for matrix in (x.view(64, 64), x.view(64, 64).T, x[3:3003].view(50, 60)[:, :44], x.view(64, 64)[::2, 1::3]):
        copy = tile_times._alike(matrix)
        assert torch.equal(copy, matrix) and copy.stride() == matrix.stride()
        assert copy.data_ptr() % 16 == matrix.data_ptr() % 16 and copy.data_ptr() != matrix.data_ptr()


def test_hoppers_tile_needs_hoppers_kernel(device):
    pytest.importorskip("triton.experimental.gluon")
    from rocm_guide.kernels.gemm.hopper.tiles import HOPPER_TILES

    a, b = product(device, k=63)
    with pytest.raises(KernelError, match="does not serve this product on"):
        plan_gemm(a.float(), b.float(), None, "none", True, None, False, HOPPER_TILES[16][0])


def test_tiles_take_turns_and_the_first_turn_does_not_count(monkeypatch):
    """On graphs that are not there: of two tiles, one takes 10 us and one 500, and 1 us longer in each turn."""
    us, asked = {"short": 10.0, "long": 500.0}, []

    def replay_time(graph, count, times=1):
        asked.append((graph, times))
        return us[graph] + max((len(asked) - 3) // 2, 0)

    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(tile_times, "_graph_of", lambda calls, pool: (calls, 4))
    monkeypatch.setattr(tile_times, "_replay_time", replay_time)
    found = tile_times._times_by_turns(["short", "long"])
    middle = (1 + tile_times.TURNS) / 2
    assert found == [10 + middle, 500 + middle], "the median of all turns but the first"
    # Each has the GPU for about as long, by what a call took at first; of four in a graph.
    times = [(name, 1 + int(tile_times.TURN_US / (4 * first))) for name, first in us.items()]
    turns = [asked[i : i + 2] for i in range(2, len(asked), 2)]
    assert asked[:2] == [("short", 1), ("long", 1)] and len(turns) == 1 + tile_times.TURNS
    assert all(sorted(turn) == sorted(times) for turn in turns) and turns[0] == times


@pytest.mark.parametrize(("cache", "pairs"), [(1 << 20, 66), (1000, 3)])
def test_tiles_are_timed_on_copies_past_the_cache_three_at_least(monkeypatch, cache, pairs):
    """Each as it lies: the same strides, and as well aligned."""
    properties = SimpleNamespace(L2_cache_size=cache)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.version, "hip", None)
    a, b = torch.randn(66 * 64 + 1)[1:].view(66, 64)[:, :60], torch.randn(34, 60).T
    found = tile_times._copies(a, b)
    assert len(found) == pairs and found[0] == (a, b)
    assert pairs == 3 or (pairs - 1) * (a.nbytes + b.nbytes) < 1.5 * cache <= pairs * (a.nbytes + b.nbytes)
    for x, y in found[1:]:
        for copy, original in ((x, a), (y, b)):
            assert torch.equal(copy, original) and copy.data_ptr() != original.data_ptr()
            assert copy.stride() == original.stride() and copy.storage_offset() == original.storage_offset() % 16


@pytest.mark.parametrize("count", [2, 3, 5])
def test_turns_are_in_every_order_alike(count):
    """In as many turns as there are orders of beginnings and directions, nobody has a better place than another."""
    found = list(tile_times.orders(range(count), 2 * count))
    for place in zip(*found, strict=True):
        assert sorted(place) == sorted([*range(count)] * 2)
    after = [pair for order in found for pair in pairwise(order)]
    assert all(after.count((i, j)) == after.count((j, i)) for i in range(count) for j in range(count))


@needs_gpu
def test_times_and_results_on_this_gpu(tmp_path):
    a, b = torch.randn(700, 520, device="cuda").half(), torch.randn(520, 900, device="cuda").half()
    want, names = a.float() @ b.float(), []
    with tuning(tmp_path / "tiles.json", progress=lambda kind, times: names.append([t.name for t in times])):
        torch.testing.assert_close(gemm(a, b).float(), want, atol=0.2, rtol=0.01)
    torch.testing.assert_close(gemm(a, b).float(), want, atol=0.2, rtol=0.01)
    times = time_tiles(a, b, most=4)
    assert len(names[0]) == len(set(names[0])) >= len(times) > 1
    assert all(t.us > 0 for t in times)
    for t in times:
        torch.testing.assert_close(gemm(a, b, tile=t.tile).float(), want, atol=0.2, rtol=0.01)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), pytest.raises(KernelError, match="captured"):
        time_tiles(a, b)
