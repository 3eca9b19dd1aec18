# SPDX-License-Identifier: MIT
"""Rules of Composable Kernel for what an instance moves: tiles into LDS, the epilogue's slices, and the room for them.

Called by :func:`rocm_guide.tune.ck.rules.check`. Source: CK 1.2.0, include/ck, files as given.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from cdna.arch import ARCHS
from rocm_guide.tune.ck.instance import GemmInstance
from rocm_guide.tune.ck.refusal import (
    BUFFER,
    COPY,
    DEVICE,
    GRID,
    POWERS,
    STORE,
    THREAD,
    THREAD_STORE,
    VECTORS,
    Refusal,
    nearest,
)

__all__ = ["epilogue_rules", "lds_rules", "transfer_rules"]


def transfer_rules(i: GemmInstance, x: str, dims: str, whole: tuple[int, int, int], layout: str) -> Iterator[Refusal]:
    cluster_name = f"{x}BlockTransferThreadClusterLengths_{dims}"
    cluster = getattr(i, cluster_name)
    vector_name, vector_dim = f"{x}BlockTransferSrcScalarPerVector", getattr(i, f"{x}BlockTransferSrcVectorDim")
    vector, write_name = getattr(i, vector_name), f"{x}BlockTransferDstScalarPerVector_{x}K1"
    write, k_by_rows = getattr(i, write_name), (layout == "Row") == (x == "A")
    if vector_dim != (need := 2 if k_by_rows else 1):
        yield Refusal(
            f"{x}BlockTransferSrcVectorDim",
            vector_dim,
            f"{x} by {'rows' if layout == 'Row' else 'columns'} is contiguous along dimension {need}",
            f"{DEVICE}, IsSupported",
            str(need),
        )
    if vector not in VECTORS:
        yield Refusal(
            vector_name,
            vector,
            "a load takes 1, 2, 4, 8 or 16 elements",
            f"{BUFFER}:244",
            nearest(vector, lambda n: n <= 16, POWERS),
        )
    if bad := next((d for d in range(3) if whole[d] % cluster[d]), None) is not None:
        d = next(d for d in range(3) if whole[d] % cluster[d])
        good = nearest(cluster[d], lambda n: whole[d] % n == 0, POWERS)
        fixed = (*cluster[:d], int(good), *cluster[d + 1 :]) if good else ""
        yield Refusal(
            cluster_name,
            cluster,
            f"{whole[d]} in dimension {d} of the tile {whole} is no multiple of {cluster[d]}",
            f"{COPY}:75",
            str(fixed),
        )
    if math.prod(cluster) > i.BlockSize:
        yield Refusal(cluster_name, cluster, f"{math.prod(cluster)} threads, and BlockSize={i.BlockSize}", f"{COPY}:79")
    if bad or vector_dim not in (1, 2):
        return
    piece = tuple(w // c for w, c in zip(whole, cluster, strict=True))
    if piece[vector_dim] % vector:
        yield Refusal(
            vector_name,
            vector,
            f"a thread has {piece[vector_dim]} elements along dimension {vector_dim}, no multiple of it",
            f"{THREAD}:137",
            nearest(vector, lambda n: piece[vector_dim] % n == 0, VECTORS),
        )
    if piece[2] % write:
        yield Refusal(
            write_name,
            write,
            f"a thread has {piece[2]} elements of K1, and the rest of the division is never written",
            THREAD,
            nearest(write, lambda n: piece[2] % n == 0, VECTORS),
            False,
        )


def _divides(whole: int, part: int) -> bool:
    return whole % part == 0


def epilogue_rules(i: GemmInstance) -> Iterator[Refusal]:
    m, n = "CShuffleMXdlPerWavePerShuffle", "CShuffleNXdlPerWavePerShuffle"
    for name, all_of_them in ((m, i.MXdlPerWave), (n, i.NXdlPerWave64)):
        if all_of_them % (now := getattr(i, name)):
            yield Refusal(
                name,
                now,
                f"{all_of_them} matrix tiles of a wave are no multiple of it",
                f"{GRID}:729",
                nearest(now, partial(_divides, all_of_them), POWERS),
            )
    name = "CDEBlockTransferClusterLengths_MBlock_MPerBlock_NBlock_NPerBlock"
    cluster, (rows, columns) = i.CDEBlockTransferClusterLengths_MBlock_MPerBlock_NBlock_NPerBlock, i.shuffle_slice
    vector = i.CDEBlockTransferScalarPerVector_NPerBlock
    whole = (1, rows, 1, columns)
    if any(w % c for w, c in zip(whole, cluster, strict=True)):
        yield Refusal(
            name,
            cluster,
            f"the slice {whole} of the epilogue is no multiple of it",
            f"{STORE}:80",
            _store_cluster(i, rows, columns, vector),
        )
    elif columns // cluster[3] % vector:
        yield Refusal(
            "CDEBlockTransferScalarPerVector_NPerBlock",
            vector,
            f"a thread has {columns // cluster[3]} columns of the slice, no multiple of it",
            f"{THREAD_STORE}:76",
            nearest(vector, lambda k: columns // cluster[3] % k == 0, VECTORS),
        )
    if math.prod(cluster) > i.BlockSize:
        yield Refusal(
            name,
            cluster,
            f"{math.prod(cluster)} threads, and BlockSize={i.BlockSize}",
            f"{STORE}:84",
            _store_cluster(i, rows, columns, vector),
        )
    if vector not in VECTORS:
        yield Refusal(
            "CDEBlockTransferScalarPerVector_NPerBlock",
            vector,
            "a store takes 1, 2, 4, 8 or 16 elements",
            f"{BUFFER}:368",
            nearest(vector, lambda k: k <= 16, POWERS),
        )


def _store_cluster(i: GemmInstance, rows: int, columns: int, vector: int) -> str:
    across = next((c for c in (32, 16, 8, 4, 2, 1) if columns % (c * vector) == 0 and i.BlockSize % c == 0), 0)
    down = math.gcd(i.BlockSize // across, rows) if across else 0
    return str((1, down, 1, across)) if down else ""


def lds_rules(i: GemmInstance) -> Iterator[Refusal]:
    limit = ARCHS["gfx942"].lds_bytes
    if i.lds_bytes > limit:
        good = nearest(
            i.KPerBlock, lambda n: i.but(KPerBlock=n).lds_bytes <= limit and n % i.AK1 == 0 == n % i.BK1, POWERS
        )
        yield Refusal(
            "KPerBlock",
            i.KPerBlock,
            f"{i.lds_bytes:,} bytes of LDS, and a workgroup has {limit:,}",
            f"{GRID}, GetSharedMemoryNumberOfByte",
            good,
            False,
        )
