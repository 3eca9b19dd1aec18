# SPDX-License-Identifier: MIT
"""Back ends of attention, their reasons and comparison; our kernel in a process of its own."""

from __future__ import annotations

import pytest
import torch

from rocm_guide.common.base import GuideError
from rocm_guide.tune.attention.backends import Backend, attention_backends, compare_backends


def test_every_backend_says_why():
    found = {b.name: b for b in attention_backends("cpu")}
    assert found["SDPA math"].available and found["SDPA flash"].available
    for name in (
        "SDPA cuDNN",
        "SDPA memory-efficient",
        "FlashAttention-2 (CK)",
        "FlashAttention-2 (Triton)",
        "xFormers",
    ):
        assert not found[name].available and found[name].why, name
    assert "TRITON_INTERPRET" in found["rocm_guide"].why or found["rocm_guide"].available


@pytest.mark.parametrize(("enabled", "tried"), [("TRUE", "Triton"), ("", "CK")])
def test_flash_attention_flavour(monkeypatch, enabled, tried):
    """On ROCm one of the two implementations is tried, the other one says which switch chooses it."""
    from rocm_guide.tune.attention import backends as module

    monkeypatch.setenv("FLASH_ATTENTION_TRITON_AMD_ENABLE", enabled)
    rows = {name: (run, why) for name, run, _, why in module._candidates(True, True)}
    other = {"CK": "Triton", "Triton": "CK"}[tried]
    assert rows[f"FlashAttention-2 ({tried})"][0] is not None
    assert rows[f"FlashAttention-2 ({other})"][0] is None
    assert "FLASH_ATTENTION_TRITON_AMD_ENABLE=" in rows[f"FlashAttention-2 ({other})"][1]


def test_compare_checks_before_it_times(monkeypatch):
    from rocm_guide.tune.attention import backends as module

    inner, shapes = module.reference_attention, []

    def noted(q, *rest, **options):
        shapes.append(tuple(q.shape))
        return inner(q, *rest, **options)

    monkeypatch.setattr(module, "reference_attention", noted)
    x = torch.randn(3, 4, 33, 16)
    wrong = Backend("wrong", lambda q, k, v, causal: q * 0, "")
    rows = compare_backends(x, x[:, :2], x[:, :2], backends=[*attention_backends("cpu"), wrong], runs=2)
    errors = {r.name: r.error for r in rows}
    assert errors["wrong"] == 1.0 and all(e < 1e-5 for n, e in errors.items() if n != "wrong")
    assert [r.timing.median for r in rows] == sorted(r.timing.median for r in rows)
    assert shapes == [(1, 4, 33, 16)] * 3, "the yardstick stores its scores: one sequence at a time"


def test_compare_without_backends():
    x = torch.randn(1, 1, 2, 16)
    with pytest.raises(GuideError, match="no attention implementation"):
        compare_backends(x, x, x, backends=[Backend("none", None, "")])
