# SPDX-License-Identifier: MIT
"""Activations that checkpointing leaves on the device, and those while a layer, or half of one, is computed again."""

from __future__ import annotations

from rocm_guide.models.activations import layer_saved, layer_transient, without_mlp
from rocm_guide.models.layer import Layer
from rocm_guide.models.norm_activations import fused
from rocm_guide.models.sizes import Sizes
from rocm_guide.models.work import Workload

__all__ = []

#: Tensors that TRL's offloading keeps on the device until their copies have arrived: ``max_fwd_stash_size`` of
#: ``OffloadActivations`` (trl 1.16, ``trl/models/activation_offloading.py``).
IN_FLIGHT = 5


def kept_streams(sizes: Sizes, work: Workload) -> int:
    """Return how many tensors of (tokens, hidden) are kept on the device from the forward to the backward pass.

    >>> from rocm_guide.models.shapes import SHAPES
    >>> from rocm_guide.models.sizes import sizes_of
    >>> sizes = sizes_of(SHAPES["llama-2-7b"])
    >>> changes = [{}, {"offloading": True}, {"tiles": 4}, {"tiles": 4, "offloading": True}]
    >>> [kept_streams(sizes, Workload("lora", checkpointing=True, **c)) for c in changes]
    [32, 5, 64, 5]
    """
    streams = sizes.layers * (2 if work.tiles else 1)
    return min(IN_FLIGHT, streams) if work.offloading else streams


def largest_half(sizes: Sizes, work: Workload, layer: Layer) -> int:
    """Return the bytes at the largest moment of one layer's backward pass by halves, the kept streams not counted.

    The MLP: the gradients of its result and of its input, whole, and for one tile what it keeps and holds. Attention:
    what it keeps, the gradient of its result, and those of the output projection's input or of queries, keys and
    values, in bf16; an adapter in fp32 on the output projection makes the former by two ways, one through fp32. At its
    end torch's RMSNorm goes back through its fp32 input and four more tensors of that size; Liger's is one kernel.

    >>> from rocm_guide.models.shapes import SHAPES
    >>> from rocm_guide.models.sizes import sizes_of
    >>> sizes = sizes_of(SHAPES["llama-2-7b"])
    >>> one, four = (Workload("lora", seq=2048, checkpointing=True, tiles=tiles) for tiles in (1, 4))
    >>> [round(largest_half(sizes, work, sizes.groups[0][0]) / 1e6) for work in (one, four)]
    [401, 236]
    """
    width = 4 if work.wide else 2
    stream = width * work.tokens * sizes.hidden
    # A layer without its MLP has one norm less.
    parts = layer_saved(sizes, work, without_mlp(layer))
    attention = sum(parts.values()) - parts["norms"] // 2
    mlp = sum(layer_saved(sizes, work, layer).values()) - attention
    held = layer_transient(sizes, work, layer) - stream
    targets = work.targets or sizes.lora_targets()
    twice = work.method == "lora" and work.adapter_fp32 and "o_proj" in targets
    to_output = (8 if twice else 2) * work.tokens * layer.q
    to_inputs = 2 * work.tokens * (layer.q + layer.q + layer.k + layer.v)
    to_norm = 0 if fused(sizes, work) else 20 * work.tokens * sizes.hidden
    moments = (mlp + held) // max(1, work.tiles), attention + max(to_output, to_inputs) - stream, to_norm
    return 2 * stream + max(moments)
