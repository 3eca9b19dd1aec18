# SPDX-License-Identifier: MIT
"""Sizes of a Llama-like model from its configuration: matrices, parameters, and what one training run looks like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .base import GuideError

__all__ = ["SEVEN", "FitError", "Shape", "Work", "shape_of"]

#: The matrices of a layer that LoRA can adapt.
SEVEN = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
METHODS = ("full", "lora", "qlora", "inference", "serve")
FAMILIES = ("llama", "mistral", "qwen2", "gemma")


class FitError(GuideError):
    """A plan that cannot be computed, or that no such machine can run."""


@dataclass(frozen=True)
class Shape:
    """The sizes that memory depends on; make one with :func:`shape_of`.

    ``q`` and ``kv`` are the widths of the query and key projections (heads x head size), ``inner`` that of the MLP,
    ``bias`` the number of bias elements of a layer, ``tied`` whether the output layer is the embedding.
    """

    hidden: int
    layers: int
    heads: int
    q: int
    kv: int
    inner: int
    vocab: int
    tied: bool
    bias: int

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """(inputs, outputs) of the seven matrices of a layer."""
        h, i = self.hidden, self.inner
        sizes = [(h, self.q), (h, self.kv), (h, self.kv), (self.q, h), (h, i), (h, i), (i, h)]
        return dict(zip(SEVEN, sizes, strict=True))

    @property
    def layer_matrices(self) -> int:
        """Elements of a layer's seven matrices."""
        return sum(a * b for a, b in self.matrices.values())

    @property
    def layer(self) -> int:
        """Parameters of a layer: matrices, biases, and two norms."""
        return self.layer_matrices + self.bias + 2 * self.hidden

    @property
    def outside(self) -> int:
        """Parameters outside the layers: embedding, output layer, last norm."""
        return (1 if self.tied else 2) * self.vocab * self.hidden + self.hidden

    @property
    def parameters(self) -> int:
        """All parameters."""
        return self.layers * self.layer + self.outside


@dataclass(frozen=True)
class Work:
    """What is asked of the model, per GPU; sizes in rows and tokens.

    Attributes:
        method: "full", "lora", "qlora", "inference" or "serve".
        batch: rows of one forward pass on one GPU (sequences held at once, when serving).
        seq: tokens of a row; for inference the prompt and the answer together.
        precision: "bf16" (weights, gradients and AdamW states in bf16) or "mixed" (all three in fp32, arithmetic in
            bf16 under autocast). Only for full fine-tuning; frozen weights are bf16.
        checkpointing: keep only each layer's input and compute the rest again in the backward pass.
        kernels: "liger" (fused RMSNorm and SwiGLU) or "torch" (the model's own modules).
        accumulation: forward passes for each optimizer step; with two or more, gradients stay during the forward pass.
        rank, targets, dropout: of LoRA.
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
    targets: tuple[str, ...] = SEVEN
    dropout: float = 0.0
    adapter_fp32: bool = True

    def __post_init__(self) -> None:
        choices = {"method": METHODS, "precision": ("bf16", "mixed"), "kernels": ("liger", "torch")}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise FitError(f"{name}={getattr(self, name)!r}: choose one of {', '.join(allowed)}")
        for name in ("batch", "seq", "rank", "accumulation"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise FitError(f"{name}={getattr(self, name)!r}: give a whole number, 1 or more")
        if not 0 <= self.dropout < 1:
            raise FitError(f"dropout={self.dropout}: give 0 or more and less than 1")
        if unknown := [t for t in self.targets if t not in SEVEN]:
            raise FitError(f"targets={unknown}: choose from {', '.join(SEVEN)}")
        if not self.targets or len(set(self.targets)) < len(self.targets):
            raise FitError(f"targets={list(self.targets)}: name at least one matrix, and each of them once")

    @property
    def tokens(self) -> int:
        """Tokens of one forward pass."""
        return self.batch * self.seq

    @property
    def wide(self) -> bool:
        """Whether the weights, and with them the residual stream, are fp32."""
        return self.method == "full" and self.precision == "mixed"


def shape_of(config: Any) -> Shape:
    """The sizes of a transformers configuration of the Llama family (Llama, Mistral, Qwen2, Gemma).

    Introduced in notebook 04.

    Raises:
        FitError: another family, whose layers hold other tensors than these formulae count.

    >>> from rocm_guide.zoo_shapes import config_of
    >>> shape_of(config_of("llama-2-7b")).parameters
    6738415616
    """
    family = getattr(config, "model_type", None)
    if family not in FAMILIES:
        raise FitError(
            f"model type {family!r}: these formulae count the tensors of {', '.join(FAMILIES)}; choose one of them"
        )
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    q, kv = head * config.num_attention_heads, head * config.num_key_value_heads
    bias = q + 2 * kv if family == "qwen2" or getattr(config, "attention_bias", False) else 0
    if family == "llama" and bias:
        bias += config.hidden_size  # Llama's attention_bias covers the output projection too, Qwen2's does not
    tied = bool(getattr(config, "tie_word_embeddings", False))
    sizes = (config.hidden_size, config.num_hidden_layers, config.num_attention_heads)
    return Shape(*sizes, q, kv, config.intermediate_size, config.vocab_size, tied, bias)
