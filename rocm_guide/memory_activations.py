# SPDX-License-Identifier: MIT
"""Activations: what the forward pass keeps for the backward pass, tensor by tensor, and what is held for a moment.

Symbols: T tokens (batch x sequence), H hidden size, Q and K widths of the query and key projections, I inner size of
the MLP, V vocabulary, h heads, r rank. Arithmetic is bf16 (2 bytes). The way of counting is that of Korthikanti et al.,
"Reducing Activation Recomputation in Large Transformer Models", arXiv:2205.05198, section 4.1, applied to Llama's
layer as transformers, Liger-Kernel (Hsu et al., arXiv:2410.10989) and TRL compute it; checked against the live bytes of
real steps (tests) and against the peaks of real runs (benchmarks/results/fit_cases.md).
"""

from __future__ import annotations

from .memory_shapes import Shape, Work

__all__ = ["head_bytes", "layer_saved", "layer_transient", "loss_tile"]

#: TRL's output layer and loss work on tiles of this many tokens and words, so that the logits never exist as a whole.
LOSS_TOKENS, LOSS_WORDS = 4096, 32768
_SHARED_INPUT = (("q_proj", "k_proj", "v_proj"), ("o_proj",), ("gate_proj", "up_proj"), ("down_proj",))


def layer_saved(shape: Shape, work: Work) -> dict[str, int]:
    """Bytes that one layer keeps from its forward to its backward pass, by part.

    - norms: each keeps its input. Liger: 2TH. torch: an fp32 copy, 4TH, and, to train the norm's own weight, the
      normalised input, 2TH. Under mixed precision the residual stream is fp32: 4TH, and 4TH more.
    - attention: rotated queries, keys, values and the output, 2T(2Q + 2K), and one fp32 number a head and token.
      FlashAttention never keeps the T x T scores (Dao et al., arXiv:2205.14135).
    - MLP: gate and up, 4TI; with torch's kernels also silu(gate), 2TI.
    - inputs of trained matrices: 2T x in, once where matrices share the input and the type is already bf16. The cast
      of a float32 tensor is made anew for each matrix: three times for q, k, v. An adapter in fp32 casts its input to
      fp32 and autocast casts it back, so each target keeps a copy of its own. Dropout adds a mask of 1 byte a number.
    - weight casts: autocast's bf16 copies of fp32 weights, 2 bytes each, kept until their backward pass.

    Introduced in notebook 04.

    >>> from rocm_guide.zoo_shapes import config_of
    >>> from rocm_guide.memory_shapes import shape_of
    >>> saved = layer_saved(shape_of(config_of("llama-2-7b")), Work("full", batch=1, seq=2048))
    >>> round(sum(saved.values()) / 2048 / 4096, 1)  # bytes per token and unit of hidden size
    32.2
    """
    t, full = work.tokens, work.method == "full"
    torch_kernels, size = work.kernels == "torch", 4 if work.wide else 2
    norm = (4 if torch_kernels else size) + (size if torch_kernels and full else 0)
    parts = {
        "norms": 2 * t * (norm * shape.hidden + 4),
        "attention": t * (4 * shape.q + 4 * shape.kv + 4 * shape.heads),
        "MLP": t * shape.inner * (6 if torch_kernels else 4),
    }
    inputs = casts = 0
    for group in _SHARED_INPUT:
        wide_input = work.wide and group[0] in ("q_proj", "gate_proj")  # the norms' outputs are fp32
        trained = [m for m in group if full or m in work.targets]
        width = shape.matrices[group[0]][0]
        copies = len(trained) if wide_input else min(1, len(trained))
        if not full:
            own_copies = _casts_adapters(work) or work.dropout
            copies = len(trained) if own_copies else copies
            inputs += round(t * width * len(trained)) if work.dropout else 0
            inputs += 2 * t * work.rank * len(trained)
            if _casts_adapters(work):
                casts += sum(2 * work.rank * sum(shape.matrices[m]) for m in trained)
        if group == ("o_proj",) and (full or not (_casts_adapters(work) or work.dropout)):
            copies = 0  # the attention's own output, counted above
        inputs += 2 * t * width * copies
    if work.wide:
        casts = 2 * (shape.layer_matrices + shape.bias)
    return parts | {"inputs of trained matrices": inputs, "weight casts": casts}


def layer_transient(shape: Shape, work: Work) -> int:
    """Bytes held for a moment in the backward pass of a layer, on top of what it saved, at its largest: in the MLP.

    The gradient of the residual stream (as wide as the stream) and of the MLP's product, 2TI, are always there. Where
    the product itself was kept (full fine-tuning) it is let go by then. torch's kernels then make the gradients of both
    factors, 4TI; Liger's write them over gate and up. A LoRA target makes the gradient of its input by two ways that
    are summed, and in fp32 adapters through an fp32 copy: 2 and 4 bytes more per input number. A 4-bit matrix is
    unpacked to bf16 for its product. Introduced in notebook 04.

    >>> from rocm_guide.zoo_shapes import config_of
    >>> from rocm_guide.memory_shapes import shape_of
    >>> shape = shape_of(config_of("llama-2-7b"))
    >>> layer_transient(shape, Work("full", batch=1, seq=1)) == 2 * shape.hidden + 2 * shape.inner
    True
    """
    t, full = work.tokens, work.method == "full"
    stream = (4 if work.wide else 2) * t * shape.hidden
    wide = t * shape.inner
    held = 2 * wide
    if work.kernels == "torch":
        held = max(held, (4 if full else 6) * wide)
    if not full and "down_proj" in work.targets:
        held = max(held, (2 + 2 + 4 if _casts_adapters(work) else 2 + 2 + 2) * wide)
    if work.method == "qlora":
        held += 2 * shape.hidden * shape.inner
    return stream + held


def head_bytes(shape: Shape, work: Work) -> tuple[int, int]:
    """(kept, moment): bytes of the last norm and the loss kept for the backward pass, and those of its largest moment.

    Kept: the norm's input and output, and the rows that are scored, 2TH each. In the backward pass: a tile of logits
    (at most 4,096 tokens x 32,768 words in bf16), the gradient of the rows in fp32 and bf16, 6TH, and of the output
    layer's weight if it is trained, 4VH and then also 2VH. Without such tiles the logits alone would be TV numbers,
    in bf16 and as fp32 probabilities. Source: trl 1.16, ``trl/kernels/chunked_logprob.py``. Introduced in notebook 04.

    >>> from rocm_guide.zoo_shapes import config_of
    >>> from rocm_guide.memory_shapes import shape_of
    >>> shape = shape_of(config_of("llama-2-7b"))
    >>> tile = head_bytes(shape, Work("lora", batch=1, seq=1))[1] - 6 * shape.hidden
    >>> tile == 2 * 32768
    True
    """
    t, size = work.tokens, 4 if work.wide else 2
    stream = t * shape.hidden
    extra = (4 if work.kernels == "torch" else size) + (size if work.method == "full" else 0)
    kept = stream * (extra + size)
    weight = shape.vocab * shape.hidden if work.method == "full" else 0
    moment = loss_tile(shape, work) + stream * (4 + (0 if work.wide else 2)) + weight * (4 + (0 if work.wide else 2))
    return kept, moment


def loss_tile(shape: Shape, work: Work) -> int:
    """Bytes of one tile of logits and, under mixed precision, of the bf16 casts of what is multiplied for it.

    >>> from rocm_guide.zoo_shapes import config_of
    >>> from rocm_guide.memory_shapes import shape_of
    >>> loss_tile(shape_of(config_of("llama-2-7b")), Work("full", batch=8, seq=2048)) / 2**20
    256.0
    """
    rows = min(work.tokens, LOSS_TOKENS)
    casts = 2 * (min(LOSS_WORDS, shape.vocab) + rows) * shape.hidden if work.wide else 0
    return 2 * rows * LOSS_WORDS + casts


def _casts_adapters(work: Work) -> bool:
    return work.method == "lora" and work.adapter_fp32
