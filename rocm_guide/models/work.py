# SPDX-License-Identifier: MIT
"""The work asked of a model: how it is trained or run, and on how much text."""

from __future__ import annotations

from dataclasses import dataclass

from rocm_guide.common.base import GuideError
from rocm_guide.models.sizes import LORA_TARGETS

__all__ = ["FitError", "Workload"]

#: Rows, tokens, rank: beyond any use, and the arithmetic stays within what a JSON reader takes.
LARGEST = 1_000_000_000
METHODS = ("full", "lora", "qlora", "inference", "serve")
#: Linear layers of all families: Llama's first, then what Phi-3, DeepSeek, GPT-2 and OPT have instead.
_OTHERS = "qkv_proj gate_up_proj q_a_proj q_b_proj kv_a_proj_with_mqa kv_b_proj c_attn c_proj c_fc out_proj fc1 fc2"
_TARGETS = (*LORA_TARGETS, *_OTHERS.split())


class FitError(GuideError):
    """A plan that cannot be computed, or that no such machine can run."""


@dataclass(frozen=True)
class Workload:
    """The work asked of the model, per GPU; sizes in rows and tokens.

    Attributes:
        method: "full", "lora", "qlora", "inference" or "serve".
        batch: rows of one forward pass on one GPU (sequences held at once, when serving).
        seq: tokens of a row; for inference the prompt and the answer together.
        precision: "bf16" (weights, gradients and AdamW states in bf16) or "mixed" (all three in fp32, arithmetic in
            bf16 under autocast). Only for full fine-tuning; frozen weights are bf16.
        checkpointing: keep only each layer's input and compute the rest again in the backward pass.
        offloading: with checkpointing, what is kept waits in the host's memory (``activation_offloading`` of TRL).
        kernels: "liger" (fused RMSNorm and SwiGLU) or "torch" (the model's own modules).
        accumulation: forward passes for each optimizer step; with two or more, gradients stay during the forward pass.
        rank, dropout: of LoRA; ``targets`` the matrices that it adapts, all of the model's linear layers if empty.
        share: of the memory that a server takes; None for vLLM's default, 0.92. The next three are of a server too.
        kv_bytes: bytes of a number in its cache; None for what the checkpoint asks for (2, or 1 with scales for FP8).
        adapters: LoRA adapters of ``rank`` that it keeps loaded beside the base.
        prefix: tokens at the beginning that all texts have in common, and that the cache holds once.
        adapter_fp32: adapters in fp32, as PEFT makes them under a bf16 model; TRL turns those of QLoRA to bf16.
    """

    method: str = "full"
    batch: int = 1
    seq: int = 2048
    precision: str = "bf16"
    checkpointing: bool = False
    kernels: str = "liger"
    accumulation: int = 1
    rank: int = 16
    targets: tuple[str, ...] = ()
    dropout: float = 0.0
    adapter_fp32: bool = True
    offloading: bool = False
    share: float | None = None
    kv_bytes: int | None = None
    adapters: int = 0
    prefix: int = 0

    def __post_init__(self) -> None:
        choices = {"method": METHODS, "precision": ("bf16", "mixed"), "kernels": ("liger", "torch")}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise FitError(f"{name}={getattr(self, name)!r}: choose one of {', '.join(allowed)}")
        for name in ("batch", "seq", "rank", "accumulation"):
            if not isinstance(getattr(self, name), int) or not 1 <= getattr(self, name) <= LARGEST:
                raise FitError(f"{name}={getattr(self, name)!r}: give a whole number from 1 to {LARGEST:,}")
        if self.offloading and not self.checkpointing:
            raise FitError(f"offloading={self.offloading!r} without checkpointing: switch that on too")
        self._check_server()
        if not 0 <= self.dropout < 1:
            raise FitError(f"dropout={self.dropout}: give 0 or more and less than 1")
        if unknown := [t for t in self.targets if t not in _TARGETS]:
            raise FitError(f"targets={unknown}: choose from {', '.join(_TARGETS)}")
        if len(set(self.targets)) < len(self.targets):
            raise FitError(f"targets={list(self.targets)}: name at least one matrix, and each of them once")

    def _check_server(self) -> None:
        if self.share is not None and not 0 < self.share <= 1:
            raise FitError(f"share={self.share}: the part of the memory that the server may take, as 0.9")
        if self.kv_bytes not in (None, 1, 2, 4):
            raise FitError(f"kv_bytes={self.kv_bytes}: a number in the cache has 1, 2 or 4 bytes")
        if not isinstance(self.adapters, int) or not 0 <= self.adapters <= LARGEST:
            raise FitError(f"adapters={self.adapters!r}: give a whole number, 0 for none")
        if not isinstance(self.prefix, int) or not 0 <= self.prefix < max(2, self.seq):
            raise FitError(f"prefix={self.prefix!r}: give fewer tokens than the text has, {self.seq:,}")
        for name, unset in (("share", None), ("kv_bytes", None), ("adapters", 0), ("prefix", 0)):
            if self.method != "serve" and getattr(self, name) != unset:
                raise FitError(f"{name}={getattr(self, name)!r} with method={self.method}: of a server; leave it out")

    @property
    def tokens(self) -> int:
        return self.batch * self.seq

    @property
    def wide(self) -> bool:
        """Return whether the weights, and with them the residual stream, are fp32."""
        return self.method == "full" and self.precision == "mixed"
