# SPDX-License-Identifier: MIT
"""Checks of the exercises of notebook 20: each says what is missing, and returns whether the answer holds."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from rocm_guide.base import GuideError
from rocm_guide.exercises.common import say

__all__ = ["CACHE_BYTES", "LAYERS", "check_cache_tokens", "check_join", "check_mla_tile", "matrix_work"]

#: Exercise 2: bytes left for the cache, and layers of the model.
CACHE_BYTES, LAYERS = 60_000_000_000, 61


def check_join(join: Callable[[Any, Any, Any, Any], tuple[Any, Any]]) -> bool:
    """Exercise 1: ``join(out_a, lse_a, out_b, lse_b)`` is attention over the keys of both parts.

    Shapes: outputs (heads, features), log-sum-exps (heads,), in natural logarithms.

    >>> check_join(lambda out_a, lse_a, out_b, lse_b: ((out_a + out_b) / 2, lse_a))
    [HINT] ordinary scores: the output is off by 0.4; each part counts by the exponential of its log-sum-exp
    False
    """
    import torch

    gen = torch.Generator().manual_seed(0)

    def part(keys: int, size: float) -> tuple[torch.Tensor, torch.Tensor]:
        scores = torch.randn(4, keys, generator=gen).double() * size
        return scores, torch.randn(4, keys, 8, generator=gen).double()

    def attend(scores: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if scores.shape[1] == 0:
            return torch.zeros(4, 8).double(), torch.full((4,), float("-inf")).double()
        return torch.einsum("hk,hkd->hd", scores.softmax(-1), values), scores.logsumexp(-1)

    cases = [
        ("ordinary scores", 5, 9, 1.0, "each part counts by the exponential of its log-sum-exp"),
        ("scores around 1,000", 5, 9, 1000.0, "exp overflows: subtract the larger log-sum-exp first"),
        ("the second part has no key", 5, 0, 1.0, "its log-sum-exp is -inf and it must not count"),
        ("the first part has no key", 0, 5, 1.0, "its log-sum-exp is -inf and it must not count"),
        ("neither part has a key", 0, 0, 1.0, "-inf minus -inf is NaN; the output is 0 and the log-sum-exp -inf"),
    ]
    for name, a, b, size, hint in cases:
        (scores_a, values_a), (scores_b, values_b) = part(a, size), part(b, size)
        wanted, wanted_lse = attend(torch.cat([scores_a, scores_b], 1), torch.cat([values_a, values_b], 1))
        out_a, lse_a = attend(scores_a, values_a)
        out_b, lse_b = attend(scores_b, values_b)
        try:
            out, lse = join(out_a, lse_a, out_b, lse_b)
            off = float((out - wanted).abs().max())
        except (TypeError, ValueError, RuntimeError, AttributeError) as e:
            return say(False, f"{name}: {type(e).__name__}: {e}")
        if not off < 1e-9:  # also true for NaN
            return say(False, f"{name}: the output is off by {off:.2g}; {hint}")
        if not torch.allclose(lse.double(), wanted_lse, atol=1e-9):
            return say(False, f"{name}: the log-sum-exp is {lse[0]:.4g}, wanted {wanted_lse[0]:.4g}")
    return say(True, f"{len(cases)} pairs of parts joined exactly")


def check_cache_tokens(latent: Any, int4: Any) -> bool:
    """Exercise 2: tokens that fit into :data:`CACHE_BYTES` over :data:`LAYERS` layers, in two kinds of cache.

    >>> check_cache_tokens(latent=1, int4=1)
    [HINT] latents: 576 numbers of 2 bytes per token and layer; you say 1 tokens
    False
    """
    per_latent = LAYERS * (512 + 64) * 2
    per_int4 = LAYERS * 8 * 2 * (128 // 2 + 2 * 4)
    if latent != CACHE_BYTES // per_latent:
        return say(False, f"latents: 576 numbers of 2 bytes per token and layer; you say {latent} tokens")
    if int4 == CACHE_BYTES // (LAYERS * 8 * 128):
        return say(False, "int4: 8 heads x 128 bytes are the codes of keys and values alone; they need their grids too")
    if int4 != CACHE_BYTES // per_int4:
        return say(
            False, f"int4: per head, keys and values have 64 bytes of codes and 2 grids of 4 bytes each; you say {int4}"
        )
    return say(True, f"{latent:,} tokens as latents, {int4:,} with int4 keys and values")


def matrix_work(mfma: Mapping[str, int], warps: int, rows: int, keys: int) -> float:
    """Products of one step of latent attention, as a multiple of what the tile needs.

    ``mfma`` has the matrix instructions of one wave with their number; an instruction of 16x16x16 makes 4,096 products.
    ``rows`` heads times ``keys`` keys need 576 products for the scores and 512 for the sums.

    >>> matrix_work({"v_mfma_f32_16x16x16_bf16": 68}, 8, 32, 64)
    1.0
    """
    made = 0
    for op, count in mfma.items():
        size = re.search(r"(\d+)x(\d+)x(\d+)", op)
        assert size is not None  # every matrix instruction has its size in its name
        made += count * math.prod(int(n) for n in size.groups())
    return made * warps / (rows * keys * (576 + 512))


def check_mla_tile(config: Mapping[str, Any], arch: str = "gfx942") -> bool:
    """Exercise 3: a tile of 16 heads that fits: nothing spilled, 2 waves per SIMD, at most 1.6 x the needed work.

    ``config`` has ``block`` (keys per step) and ``num_warps``.

    >>> check_mla_tile({"block": 17, "num_warps": 4})
    [HINT] block=17: a power of two from 16 to 128
    False
    """
    import torch

    from cdna.dry_run.driver import dry_run
    from rocm_guide.kernels.mla_decode import DecodeTile, launch_mla

    block, warps = config.get("block"), config.get("num_warps")
    if block not in (16, 32, 64, 128):
        return say(False, f"block={block!r}: a power of two from 16 to 128")
    if warps not in (1, 2, 4, 8, 16):
        return say(False, f"num_warps={warps!r}: a power of two from 1 to 16")
    try:
        with dry_run(arch, device="meta") as run:
            q, rope = (torch.empty(1, 16, n, dtype=torch.bfloat16, device="cuda") for n in (512, 64))
            cache = torch.empty(1, 32768, 576, dtype=torch.bfloat16, device="cuda")
            tile = DecodeTile(block, per_unit=2, least=128, warps=warps)
            launch_mla(q, rope, cache[..., :512], cache[..., 512:], None, 0.07, 8, {16: tile})
        r = run.launches[0].report
    except GuideError as e:
        return say(False, str(e))
    if not r.launches:
        return say(False, f"{r.findings[0].evidence}. Try: {r.findings[0].fix}")
    if r.resources.vgpr_spills:
        return say(
            False, f"{r.resources.vgpr_spills} registers spill: fewer keys per step, or more warps to share them"
        )
    if r.occupancy.waves_per_simd < 2:
        limits = " and ".join(r.occupancy.limited_by)
        return say(False, f"{r.occupancy.waves_per_simd:g} wave per SIMD, limited by {limits}; 2 are wanted")
    work = matrix_work(r.isa.mfma, warps, 16, block)
    text = f"{r.resources.vgprs_allocated} VGPRs, {r.occupancy.waves_per_simd:g} waves, {work:.2f} x the needed work"
    if work > 1.6:
        own = "1 wave has scores of its own" if block == 16 else f"{block // 16} waves have scores of their own"
        return say(False, f"{text}: with {block} keys {own}, the others repeat")
    return say(True, text)
