# SPDX-License-Identifier: MIT
"""The exercises of notebook 34 accept the solution and refuse the obvious wrong answers, each with its own hint."""

from __future__ import annotations

import pytest
import torch

from rocm_guide.exercises.attention_kernels import check_cache_tokens, check_join, check_mla_tile


def right_join(out_a, lse_a, out_b, lse_b):
    lse = torch.logaddexp(lse_a, lse_b)
    safe = torch.where(lse.isinf(), torch.zeros_like(lse), lse)
    return (lse_a - safe).exp()[..., None] * out_a + (lse_b - safe).exp()[..., None] * out_b, lse


def naive_join(out_a, lse_a, out_b, lse_b):
    a, b = lse_a.exp(), lse_b.exp()
    return (a[..., None] * out_a + b[..., None] * out_b) / (a + b)[..., None], (a + b).log()


def empty_is_nan(out_a, lse_a, out_b, lse_b):
    lse = torch.logaddexp(lse_a, lse_b)
    return (lse_a - lse).exp()[..., None] * out_a + (lse_b - lse).exp()[..., None] * out_b, lse


def wrong_lse(out_a, lse_a, out_b, lse_b):
    return right_join(out_a, lse_a, out_b, lse_b)[0], torch.maximum(lse_a, lse_b)


@pytest.mark.parametrize(
    ("join", "hint"),
    [
        (naive_join, "scores around 1,000"),
        (empty_is_nan, "neither part has a key"),
        (wrong_lse, "the log-sum-exp is"),
        (lambda a, b, c, d: (a, b), "ordinary scores"),
        (lambda a, b: a, "TypeError"),
    ],
)
def test_join_hints(join, hint, capsys):
    assert not check_join(join)
    assert hint in capsys.readouterr().out


def test_join_solution():
    assert check_join(right_join)


def test_cache_tokens(capsys):
    latent, int4 = 60_000_000_000 // (61 * 1152), 60_000_000_000 // (61 * 1152)
    assert check_cache_tokens(latent=latent, int4=int4)
    assert not check_cache_tokens(latent=latent, int4=60_000_000_000 // (61 * 8 * 128))
    assert "grids" in capsys.readouterr().out
    assert not check_cache_tokens(latent=latent + 1, int4=int4)
    assert not check_cache_tokens(latent=latent, int4=0)


@pytest.mark.parametrize(
    ("config", "hint"),
    [
        ({"block": 16, "num_warps": 4}, "the needed work"),
        ({"block": 64, "num_warps": 4}, "wave per SIMD"),
        ({"block": 128, "num_warps": 4}, "LDS|spill"),
        ({"block": 32}, "num_warps=None"),
    ],
)
def test_mla_tile_hints(config, hint, capsys):
    import re

    assert not check_mla_tile(config)
    assert re.search(hint, capsys.readouterr().out)


def test_mla_tile_solution():
    assert check_mla_tile({"block": 32, "num_warps": 4})
