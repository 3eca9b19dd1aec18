# SPDX-License-Identifier: MIT
"""The tile of a GEMM by measuring: time the likely tiles on this GPU, and keep the fastest, in a file if you like.

:func:`rocm_guide.kernels.gemm.tiled.gemm` chooses by the time that a tile is expected to take. That costs nothing,
works for a GPU that nobody has measured, and errs by a few percent, now and then by more. Measuring costs some seconds
for each kind of product, most of it compilation, and pays where a product comes again and again::

    with tuning("tiles.json"):
        model(**batch)  # each kind of product is timed when it comes first
    ...
    load_tiles("tiles.json")  # in the next process: nothing is timed

PyTorch's TunableOp does the same among the kernels of hipBLASLt and rocBLAS (notebook 11).
"""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocm_guide.base import read_regular, shown, write_text
from rocm_guide.kernels.arguments import KernelError, architecture
from rocm_guide.kernels.gemm.tile_times import (
    MOST,
    TileTime,
    general_tiles,
    hopper_tiles,
    name_of,
    tile_times,
    why_not_timed,
)
from rocm_guide.kernels.launch import forget_plans

if TYPE_CHECKING:
    import torch

__all__ = ["forget_tiles", "load_tiles", "tuning"]

FORMAT = "rocm-guide gemm tiles 1"
#: Bytes of a file that is read.
LIMIT = 16 << 20

#: Tiles by the kind of product, for the current process.
_known: dict[str, Any] = {}
#: What finds the tile of a kind of product that is not known, inside :func:`tuning`.
_tuner: Callable[..., None] | None = None


def kind_of(a: torch.Tensor, b: torch.Tensor, activation: str, out_dtype: torch.dtype, tf32: bool, arch: str) -> str:
    """What products have in common that get the same tile: a key of the file.

    >>> import torch
    >>> kind_of(torch.empty(8, 64), torch.empty(32, 64).T, "none", torch.float32, False, "sm_90")
    'sm_90: float32 8x32x64, strides 64 1 and 1 64, to float32'
    """
    (m, k), n = a.shape, b.shape[1]
    strides = " and ".join(" ".join(map(str, x.stride())) for x in (a, b))
    types = str(a.dtype) if a.dtype == b.dtype else f"{a.dtype}, {b.dtype}"
    ends = "" if activation == "none" else f", {activation}"
    odd = "".join(f", {name} off {at}" for name, x in (("a", a), ("b", b)) if (at := x.data_ptr() % 16))
    found = f"{arch}: {types} {m}x{n}x{k}, strides {strides}{odd}, to {out_dtype}{ends}{', tf32' * tf32}"
    return found.replace("torch.", "")


def tuned_tile(
    arch: str,
    a: torch.Tensor,
    b: torch.Tensor,
    bias: Any,
    activation: str,
    no_factor: bool,
    out_dtype: torch.dtype,
    tf32: bool,
) -> Any:
    """The tile that was found for products like this one, or is found now, inside :func:`tuning`; else None."""
    if not _known and _tuner is None:
        return None
    kind = kind_of(a, b, activation, out_dtype, tf32, arch)
    if kind not in _known and _tuner is not None:
        _tuner(kind, a, b, bias, activation, no_factor, out_dtype, tf32)
    return _known.get(kind)


def _here() -> dict[str, str]:
    """What a file's times are of: other GPUs, and other compilers, may want other tiles."""
    import torch
    import triton

    return {"gpu": torch.cuda.get_device_name(), "triton": triton.__version__}


def architecture_here() -> str:
    """The architecture of the current GPU, as tables have it."""
    import torch

    return architecture(torch.empty(0, device="cuda"))


def load_tiles(file: str | os.PathLike[str]) -> int:
    """Take the tiles of a file that :func:`tuning` wrote, from now on, in this process; returns how many there are.

    A tile that this version of the library does not have is left out, with a warning.

    Raises:
        KernelError: the file cannot be read, is of another kind, or of another GPU or Triton.
    """
    _known.update(_read(Path(file)))
    forget_plans()
    return len(_known)


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(read_regular(path, LIMIT).decode())
        kinds = {str(kind): str(name) for kind, name in data["tiles"].items()}
        of = {name: str(data[name]) for name in ("format", "gpu", "triton")}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise KernelError(f"{path.name}: cannot be read as a file of tiles ({shown(e, 100)}); give a new name") from e
    for name, here in {"format": FORMAT, **_here()}.items():
        if of[name] != here:
            raise KernelError(
                f"{path.name}: its {name} is {shown(of[name], 60)}, here it is {here}; give another file to tune into"
            )
    arch = architecture_here()
    tiles = {bits: {name_of(t): t for t in general_tiles(arch, bits)} for bits in (8, 16, 32)}
    if arch == "sm_90":
        for bits in (8, 16):
            tiles[bits] |= hopper_tiles(bits)
    found = {}
    for kind, name in kinds.items():
        here, _, rest = kind.partition(": ")
        bits = 32 if rest.startswith("float32 ") else 16 if rest.startswith(("float16 ", "bfloat16 ")) else 8
        if here == arch and name in tiles[bits]:
            found[kind] = tiles[bits][name]
    if len(found) < len(kinds):
        lost = next(name for kind, name in kinds.items() if kind not in found)
        warnings.warn(f"{path.name}: {len(kinds) - len(found)} tiles left out, such as {shown(lost, 60)}", stacklevel=3)
    return found


def _write(path: Path) -> None:
    tiles = {kind: name_of(tile) for kind, tile in sorted(_known.items())}
    write_text(path, json.dumps({"format": FORMAT, **_here(), "tiles": tiles}, indent=1) + "\n")


def forget_tiles() -> None:
    """Choose by the expected time again."""
    _known.clear()
    forget_plans()


@contextlib.contextmanager
def tuning(
    file: str | os.PathLike[str] | None = None,
    *,
    most: int = MOST,
    progress: Callable[[str, list[TileTime]], object] | None = None,
) -> Iterator[None]:
    """Inside, a product of a kind that is not known is timed on every tile that could serve it, before it is computed.

    The tiles stay in use after the end. What is computed is the same up to rounding: another tile may add in another
    order. Inside the capture of a graph nothing can be timed; call the function once before.

    Args:
        file: where the tiles are kept, of one process: give each rank its own. Those that it has are loaded first,
            and it is written after each product, so that nothing is lost if you stop. None: this process keeps them.
        most: see :func:`rocm_guide.kernels.gemm.tile_times.time_tiles`.
        progress: called with each kind of product and its times, the fastest tile first.

    Raises:
        KernelError: the file is of another GPU or Triton, or cannot be read; tuning is on already.
    """
    global _tuner
    if _tuner is not None:
        raise KernelError("tuning() is on already: leave it first")
    path = None if file is None else Path(file)
    if path is not None and path.exists():
        load_tiles(path)

    def tune(kind: str, a: Any, b: Any, bias: Any, *options: Any) -> None:
        if why_not_timed(a):
            return
        activation, no_factor, out_dtype, tf32 = options
        times = tile_times(a, b, bias, activation, no_factor, out_dtype, tf32, most)
        _known[kind] = times[0].tile
        if path is not None:
            _write(path)
        if progress is not None:
            progress(kind, times)

    forget_plans()
    _tuner = tune
    try:
        yield
    finally:
        _tuner = None
