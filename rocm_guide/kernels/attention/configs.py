# SPDX-License-Identifier: MIT
"""Launch configurations of the attention kernels: data, by architecture and head size, and how one is picked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from rocm_guide.kernels.arguments import KernelError, choose, compiler_options
from rocm_guide.kernels.attention.problem import AttentionProblem
from rocm_guide.kernels.direct import scratch
from rocm_guide.kernels.fp8 import FP8
from rocm_guide.kernels.launch import maker

if TYPE_CHECKING:
    import torch

__all__ = []


@dataclass(frozen=True)
class AttentionTile:
    """Launch settings of an attention kernel.

    Attributes:
        m, n: queries and keys of a tile.
        warps, stages: as Triton's num_warps and num_stages.
        tma: load keys and values through Hopper's tensor descriptors.
        heads_first: number programs so that neighbours belong to different heads: MI300X deals workgroups out to its 8
            XCDs in turn, each with an L2 of its own.
        per_unit: programs that share a compute unit in a persistent loop.
        waves_per_eu, maxnreg: hints to AMD's and NVIDIA's compiler; None gives none.
        persistent, with_bias, register_heavy: changes to the settings above, for launches that need registers and
            shared memory for something else as well; :func:`pick_config` applies one of them at most.
            ``persistent`` is for persistent loops and for 8 bits. ``with_bias`` is for a bias, for ALiBi and for
            transposed values. ``register_heavy`` is for dropout; where a tile has no ``with_bias`` it is for a bias
            too; where a tile has one, it is for a bias in fp32, for rows that TMA cannot load, and for what
            ``with_bias`` is for when the loop is persistent or the type has 8 bits.
    """

    m: int
    n: int
    warps: int
    stages: int = 1
    tma: bool = False
    heads_first: bool = False
    per_unit: int = 1
    waves_per_eu: int | None = None
    maxnreg: int | None = None
    persistent: Mapping[str, Any] = field(default_factory=dict)
    with_bias: Mapping[str, Any] = field(default_factory=dict)
    register_heavy: Mapping[str, Any] = field(default_factory=dict)

    def options(self, arch: str) -> dict[str, Any]:
        """The compile options of a launch on ``arch``."""
        hints = {"waves_per_eu": self.waves_per_eu, "maxnreg": self.maxnreg}
        given = {name: value for name, value in hints.items() if value is not None}
        return compiler_options(arch, {"num_warps": self.warps, "num_stages": self.stages, **given}, matrix=True)


_Tile = AttentionTile
#: By architecture and columns of a tile (head size rounded up). sm_90, heads of 128: two programs of one warpgroup
#: share a multiprocessor, so that one can use the matrix units while the other computes exponentials
#: (benchmarks/kernels/attention.py --tiles, NVIDIA H100 80GB, torch 2.11).
FORWARD_CONFIGS: dict[str, dict[int, AttentionTile]] = {
    "gfx942": {
        64: _Tile(128, 64, warps=4, heads_first=True, register_heavy={"n": 32}),
        128: _Tile(128, 32, warps=4, heads_first=True),
        256: _Tile(64, 32, warps=4, heads_first=True),
    },
    "sm_90": {
        64: _Tile(64, 128, warps=4, stages=2, tma=True),
        128: _Tile(
            128,
            64,
            warps=4,
            stages=2,
            tma=True,
            with_bias={"warps": 8, "maxnreg": 128},
            register_heavy={"warps": 8},
            persistent={"n": 128, "warps": 8, "stages": 3},
        ),
        256: _Tile(128, 64, warps=8, stages=2, tma=True, register_heavy={"n": 32}),
    },
    "interpreter": {256: _Tile(16, 16, warps=4)},
}
#: What changes for fp32, whose tiles are twice as large and whose products do not run on the 16-bit matrix units.
FP32_TILES: dict[str, Any] = {"m": 32, "n": 32, "warps": 4, "stages": 1, "tma": False}

#: By architecture, columns of a tile and part (keys and values, or queries).
BACKWARD_CONFIGS: dict[str, dict[int, dict[str, AttentionTile]]] = {
    "gfx942": {
        64: {"kv": _Tile(64, 64, warps=4), "q": _Tile(64, 64, warps=4)},
        128: {"kv": _Tile(32, 64, warps=4, register_heavy={"m": 16}), "q": _Tile(64, 32, warps=4)},
        256: {"kv": _Tile(16, 32, warps=4), "q": _Tile(64, 16, warps=4)},
    },
    "sm_90": {
        64: {"kv": _Tile(64, 64, warps=4, stages=3), "q": _Tile(128, 64, warps=8, stages=3, tma=True)},
        128: {
            "kv": _Tile(64, 64, warps=4, stages=2, tma=True, register_heavy={"m": 32, "stages": 2}),
            "q": _Tile(64, 64, warps=4, stages=2, tma=True),
        },
        256: {"kv": _Tile(32, 64, warps=8, stages=2, tma=True), "q": _Tile(64, 32, warps=4, tma=True)},
    },
    "interpreter": {256: {"kv": _Tile(16, 16, warps=4), "q": _Tile(16, 16, warps=4)}},
}


def pick_config(
    table: dict[str, dict[int, Any]], problem: AttentionProblem, arch: str, part: str = "", *, persistent: bool = False
) -> AttentionTile:
    """The entry for this architecture, head size and type.

    ``part`` is the backward pass's ``"kv"`` or ``"q"``; ``persistent`` stands for a persistent loop or 8-bit products.
    """
    rows = choose(table, arch)
    config: Any = rows[min((columns for columns in rows if columns >= problem.columns), default=max(rows))]
    tile: AttentionTile = config[part] if part else config
    if problem.q.dtype.itemsize == 4 and arch != "interpreter":
        return replace(tile, **FP32_TILES)
    bias, v = problem.bias, problem.v
    wants_more = bias is not None or problem.slopes is not None or v.stride(-1) != 1
    register_heavy = problem.drop is not None or (bias is not None and not tile.with_bias)
    if tile.with_bias:
        # These settings halve the registers of a thread so that two programs share a multiprocessor. Odd addresses need
        # more registers than that, and a persistent program has no second one beside it.
        odd = not fits_tma(problem.k) or (v.stride(-1) == 1 and not fits_tma(v))
        register_heavy = (
            register_heavy or odd or (wants_more and persistent) or (bias is not None and bias.element_size() == 4)
        )
    if register_heavy:
        return replace(tile, **tile.register_heavy)
    if wants_more:
        return replace(tile, **tile.with_bias)
    return replace(tile, **tile.persistent) if persistent else tile


def check_tile(config: Mapping[str, Any]) -> AttentionTile:
    """A tile given by hand: queries, keys and warps are powers of two, and a matrix unit needs 16 rows at least.

    Raises:
        KernelError: an entry is missing, is another number, or has a name that is no setting.

    >>> check_tile({"m": 128, "n": 48, "warps": 4})
    Traceback (most recent call last):
        ...
    rocm_guide.kernels.arguments.KernelError: config has n=48: give a power of two from 16 to 512
    """
    for name, low, high in (("m", 16, 512), ("n", 16, 512), ("warps", 1, 32)):
        value = config.get(name)
        if not (isinstance(value, int) and low <= value <= high and value & (value - 1) == 0):
            raise KernelError(f"config has {name}={value!r}: give a power of two from {low} to {high}")
    names = [f.name for f in fields(AttentionTile)]
    if unknown := [name for name in config if name not in names]:
        raise KernelError(f"config has {unknown[0]}={config[unknown[0]]!r}: there are {', '.join(names)}")
    return AttentionTile(**config)


def triton_type(dtype: torch.dtype) -> Any:
    """Triton's type for torch's."""
    import triton.language as tl

    name = str(dtype).removeprefix("torch.")
    return getattr(tl, {f"float8_{f.name}": f.triton for f in FP8.values()}.get(name, name))


def descriptor_room(device: torch.device) -> Callable[[int], torch.Tensor]:
    """What makes the few bytes in which each program of a launch builds its TMA descriptors."""
    key = descriptor_room, device
    found: Callable[[int], torch.Tensor] | None = scratch.get(key)
    if found is not None:
        return found
    import torch

    like = torch.empty(0, dtype=torch.int8, device=device)
    known: dict[int, Callable[[], torch.Tensor]] = {}

    def allocate(size: int) -> torch.Tensor:
        new = known.get(size)
        if new is None:
            new = known[size] = maker(like, (size,))
        return new()

    scratch[key] = allocate
    return allocate


def unit_of(d: int, x: torch.Tensor, fit: bool) -> int:
    """As many elements like those of ``x`` as 128 bits hold, if new rows of ``d`` elements start at multiples of them
    and the given rows do, which is to say ``fit`` (:func:`fits_tma`); else 1."""
    unit = 16 // x.element_size()
    return unit if fit and d % unit == 0 else 1


def fits_tma(x: torch.Tensor) -> bool:
    """What a tensor descriptor asks for: 16-byte steps between rows, neighbours in a row, an aligned start."""
    size = x.element_size()
    steps = all(s * size % 16 == 0 for s in x.stride()[:-1])
    return x.stride(-1) == 1 and x.stride(-2) > 0 and steps and x.data_ptr() % 16 == 0
