# SPDX-License-Identifier: MIT
"""Time the tiles that a GEMM could take, on this GPU: what :mod:`rocm_guide.kernels.gemm.tuned` chooses by."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from rocm_guide.kernels.arguments import KernelError, architecture
from rocm_guide.kernels.gemm.configs import CONFIGS, RAGGED, SMALL, GemmTile

if TYPE_CHECKING:
    import torch

__all__ = ["TileTime", "time_tiles"]

Contender = TypeVar("Contender")

#: How many tiles of Hopper's own kernel are timed for a product, by default.
MOST = 12
#: From so many operations on Hopper's own kernel is always faster where it serves.
LARGE = 1e9
#: A graph of calls takes about so many microseconds; where tiles take turns, each has the GPU for so many at a time.
GRAPH_US, TURN_US = 1500.0, 4000.0
#: How many tiles are timed again, by turns, and how many times; and by how much they may be slower at first.
FINALISTS, TURNS, NEAR = 5, 6, 1.1


@dataclass(frozen=True)
class TileTime:
    """A tile, the name that a file has for it, and microseconds of a call in a graph (the median of some replays)."""

    tile: Any
    name: str
    us: float

    def __str__(self) -> str:
        """For reading."""
        return f"{self.us:,.1f} us, {self.name}"


def name_of(tile: Any) -> str:
    """A tile's name in a file.

    >>> name_of(CONFIGS["gfx942"][16][1])
    '128x128x64, 8 warps, 2 stages, group 8'
    """
    if not isinstance(tile, GemmTile):
        return f"hopper {tile}"
    described = ", descriptors" * tile.descriptors
    return f"{tile.bm}x{tile.bn}x{tile.bk}, {tile.warps} warps, {tile.stages} stages, group {tile.group}{described}"


def general_tiles(arch: str, bits: int) -> list[GemmTile]:
    """The tiles of the kernel that serves every GPU, for elements of that many bits. On AMD each also with fewer and
    more rows of tiles that are walked together: what finds its operands in the L2 of its XCD depends on that."""
    found = [*CONFIGS.get(arch, {}).get(bits, ()), *SMALL.get(arch, {}).get(bits, ())]
    if arch in RAGGED and bits in RAGGED[arch]:
        found.append(RAGGED[arch][bits])
    found += [replace(t, bm=t.bn, bn=t.bm) for t in found if t.bm != t.bn]
    groups = (8, 4, 16) if arch.startswith("gfx") else (8,)
    by_name = {name_of(way): way for t in found for group in groups for way in (replace(t, group=group),)}
    return list(by_name.values())


def hopper_tiles(bits: int) -> dict[str, Any]:
    """All tiles of Hopper's own kernel by name, with every way to share out K and to copy operands that is chosen."""
    found: dict[str, Any] = {}
    with contextlib.suppress(ImportError, AttributeError):  # a Triton without Gluon
        from rocm_guide.kernels.gemm.hopper.configs import MOST_PARTS, candidates
        from rocm_guide.kernels.gemm.hopper.times import ACROSS, Operands
        from rocm_guide.kernels.gluon import CLUSTERS

        for t in candidates(bits, Operands(ACROSS, ACROSS), CLUSTERS):
            ways = (replace(t, parts=parts) for parts in range(1, 2 if t.stream else MOST_PARTS + 1))
            found.update((name_of(way), way) for way in ways)
    return found


def tiles_to_time(
    a: torch.Tensor, b: torch.Tensor, activation: str, out_dtype: torch.dtype, most: int = MOST
) -> list[Any]:
    """What :func:`time_tiles` times: of Hopper's own kernel the likely tiles, of the general one all, except for large
    products that the other one serves."""
    arch, own = architecture(a), []
    if arch == "sm_90":
        with contextlib.suppress(ImportError, AttributeError):  # a Triton without Gluon
            from rocm_guide.kernels.gemm.hopper.launch import likely_for

            own = likely_for(a, b, out_dtype, most)
    if own and 2 * a.shape[0] * a.shape[1] * b.shape[1] > LARGE:
        return own
    # erf needs many registers: see pick_gemm_tile.
    general = general_tiles(arch, 8 * a.element_size())
    return [*own, *(t for t in general if activation != "gelu" or t.bm * t.bn < 256 * 256)]


def time_tiles(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    activation: str = "none",
    alpha: float = 1.0,
    out_dtype: torch.dtype | None = None,
    tf32: bool = False,
    most: int = MOST,
) -> list[TileTime]:
    """Time the tiles that :func:`rocm_guide.kernels.gemm.tiled.gemm` could take for a product, on this GPU.

    Each is called on copies of the operands in turn, which together exceed the last cache, because in a model nothing
    of a layer is still in the cache when the layer comes round again. The fastest five are timed again, by turns and
    without a rest between them: a GPU that rested is faster for a while, until its power is at the limit.

    Args:
        a, b, bias, activation, alpha, out_dtype, tf32: as ``gemm`` takes them.
        most: how many tiles of Hopper's own kernel (there are some hundred ways) are timed, those first that are
            expected to be fast. Of the general kernel all are.

    Returns:
        The fastest first; ``gemm(a, b, tile=times[0].tile)`` takes it. A tile that does not fit into the GPU's memory
        or its multiprocessors is left out.

    Raises:
        KernelError: as ``gemm`` does; or there is no GPU, or a graph is being captured here.
    """
    from rocm_guide.kernels.gemm.tiled import check_operands, usual_type

    if why := why_not_timed(a):
        raise KernelError(why)
    check_operands(a, b, bias, architecture(a))
    plain = activation == "none" and bias is None and alpha == 1.0
    out_dtype = out_dtype or usual_type(a, plain)
    return tile_times(a, b, bias, activation, alpha == 1.0, out_dtype, tf32, most)


def why_not_timed(tensor: torch.Tensor) -> str:
    """Why nothing can be timed where ``tensor`` is, now; or nothing.

    >>> import torch
    >>> why_not_timed(torch.empty(1))
    "tensors on 'cpu': times are a GPU's, give tensors on one"
    """
    import torch
    from triton.runtime import driver

    # A dry run has a driver of its own, and tensors that only claim to be on a GPU.
    if not tensor.is_cuda or driver.active.get_current_device is not torch.cuda.current_device:
        return f"tensors on {tensor.device.type!r}: times are a GPU's, give tensors on one"
    if torch.cuda.is_current_stream_capturing():
        return "a graph is being captured, in which nothing can be timed: do it before"
    return ""


def tile_times(
    a: Any, b: Any, bias: Any, activation: str, no_factor: bool, out_dtype: Any, tf32: bool, most: int
) -> list[TileTime]:
    """:func:`time_tiles` of operands on a GPU, outside of a capture."""
    import torch
    from triton.runtime.errors import OutOfResources

    from rocm_guide.kernels.gemm.tiled import plan_gemm

    pairs = _copies(a.detach(), b.detach())
    ways: dict[str, tuple[Any, Sequence[Callable[[], Any]]]] = {}
    us: dict[str, float] = {}
    for tile in tiles_to_time(a, b, activation, out_dtype, most):
        try:
            plan = plan_gemm(a, b, bias, activation, no_factor, out_dtype, tf32, tile)
            calls = [partial(plan, x, y, bias, 1.0) for x, y in pairs]
            us[name_of(tile)] = _first_time(calls)
            ways[name_of(tile)] = tile, calls
        except (OutOfResources, torch.OutOfMemoryError):
            continue
    if not us:
        raise KernelError(f"a {tuple(a.shape)} and b {tuple(b.shape)}: no tile had room to be timed; free GPU memory")
    least = min(us.values())
    near = [name for name in sorted(us, key=us.__getitem__)[:FINALISTS] if us[name] <= NEAR * least]
    if len(near) > 1:
        with contextlib.suppress(torch.OutOfMemoryError):  # then the first times have to do
            us.update(zip(near, _times_by_turns([ways[name][1] for name in near]), strict=True))
    # Those timed once stay behind those timed again.
    order = sorted(us, key=lambda name: (name not in near, us[name]))
    return [TileTime(ways[name][0], name, us[name]) for name in order]


def _copies(a: torch.Tensor, b: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Pairs of operands that exceed the last cache together, three at least; with the same strides, and starts as well
    aligned. Of a pair twice as large as the cache a part is found there again, and 307 x 4,608 x 11,344, timed on one
    pair on an H100, got a tile that takes 7 % longer on three.
    """
    import torch

    properties = torch.cuda.get_device_properties(a.device)
    cache = max(properties.L2_cache_size, 256 << 20 if torch.version.hip else 0)  # MI300X: the Infinity Cache behind it
    count = max(3, int(1.5 * cache / (a.nbytes + b.nbytes)) + 1)
    pairs = [(a, b)]
    with contextlib.suppress(torch.OutOfMemoryError):  # the fewer have to do
        while len(pairs) < count:
            pairs.append((_alike(a), _alike(b)))
    return pairs


def _alike(x: torch.Tensor) -> torch.Tensor:
    import torch

    off = x.storage_offset() % 16
    span = off + 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    room = torch.empty(span, dtype=x.dtype, device=x.device)
    return room.as_strided(x.shape, x.stride(), off).copy_(x)


def _first_time(calls: Sequence[Callable[[], Any]]) -> float:
    """Microseconds of a call, the median of three replays of a graph."""
    graph, count = _graph_of(calls)
    graph.replay()
    return statistics.median(_replay_time(graph, count) for _ in range(3))


def orders(contenders: Sequence[Contender], turns: int) -> Iterator[list[Contender]]:
    """Who comes when in each turn. At the limit of its power a GPU is slower after a kernel that took much of it, so
    the order changes: in six turns each of three comes first, second and last, and after each other one, twice.

    >>> ["".join(order) for order in orders("abc", 6)]
    ['abc', 'cba', 'bca', 'acb', 'cab', 'bac']
    """
    for turn in range(turns):
        first = turn // 2 % len(contenders)
        order = [*contenders[first:], *contenders[:first]]
        yield order[::-1] if turn % 2 else order


def _times_by_turns(contenders: Sequence[Sequence[Callable[[], Any]]]) -> list[float]:
    """Microseconds of a call of each, who take turns: the median of the turns. One before these only warms up."""
    import torch

    pool = torch.cuda.graph_pool_handle()  # outputs of one may lie where another's did
    graphs = [_graph_of(calls, pool) for calls in contenders]
    replays = [1 + int(TURN_US / (count * _replay_time(graph, count))) for graph, count in graphs]
    us: list[list[float]] = [[] for _ in graphs]
    for turn, order in enumerate(orders(range(len(graphs)), 1 + TURNS)):
        for i in order:
            time = _replay_time(*graphs[i], replays[i])
            if turn:
                us[i].append(time)
    return [statistics.median(times) for times in us]


def _graph_of(calls: Sequence[Callable[[], Any]], pool: Any = None) -> tuple[torch.cuda.CUDAGraph, int]:
    """A graph of the calls, again and again, and how many it has."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in calls[:2]:  # compiles, and then knows the kind of call
            call()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        calls[0]()
        end.record()
    torch.cuda.current_stream().wait_stream(side)
    end.synchronize()
    count = max(4, min(400, int(GRAPH_US / max(start.elapsed_time(end) * 1e3, 1.0)) + 1))
    graph, kept = torch.cuda.CUDAGraph(), []
    # Other threads may go on allocating: a loader that pins memory, say.
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        for i in range(count):
            kept.append(calls[i % len(calls)]())  # each call writes to memory of its own
    return graph, count


def _replay_time(graph: torch.cuda.CUDAGraph, count: int, times: int = 1) -> float:
    """Microseconds of a call, of ``count`` in a graph."""
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(times):
        graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3 / (count * times)
