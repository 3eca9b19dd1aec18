# SPDX-License-Identifier: MIT
"""Our kernels in a transformers model: ``use_guide_kernels(model)`` swaps norms, SwiGLU, attention and loss."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any

from rocm_guide.tune.attention.in_transformers import NAME, AttentionError, register_attention

if TYPE_CHECKING:
    import torch

__all__ = ["GuideKernels", "use_guide_kernels"]

#: Families whose RMSNorm, MLP and loss are those of Llama. Gemma's norm multiplies by 1 + weight, for one.
FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


def _norm(module: Any, hidden_states: torch.Tensor) -> torch.Tensor:
    import torch

    from rocm_guide.kernels.api import rms_norm

    y = rms_norm(hidden_states, module.weight, module.variance_epsilon)
    # Under autocast a weight in fp32 meets rows in 16 bits: transformers then gives fp32.
    return y.to(torch.promote_types(y.dtype, module.weight.dtype))


def _mlp(module: Any, x: torch.Tensor) -> torch.Tensor:
    from rocm_guide.kernels.rows.silu_mul import swiglu

    result: torch.Tensor = module.down_proj(swiglu(module.gate_proj(x), module.up_proj(x)))
    return result


def causal_loss(
    logits: torch.Tensor,
    labels: torch.Tensor,
    vocab_size: int,
    num_items_in_batch: torch.Tensor | int | None = None,
    ignore_index: int = -100,
    shift_labels: torch.Tensor | None = None,
    **_: Any,
) -> torch.Tensor:
    """Return the loss of transformers' ForCausalLMLoss, without its copy of the logits in fp32.

    Args:
        logits: (batch, tokens, vocabulary).
        labels: (batch, tokens); the logits of a token are judged by the label of the next one.
        num_items_in_batch: what the sum is divided by; None: labels that are not ``ignore_index``.
        shift_labels: labels that are shifted already.
    """
    import torch

    from rocm_guide.kernels.rows.cross_entropy import cross_entropy

    if shift_labels is None:
        shift_labels = torch.nn.functional.pad(labels, (0, 1), value=ignore_index)[..., 1:]
    flat, target = logits.view(-1, vocab_size), shift_labels.reshape(-1).to(logits.device)
    mean = cross_entropy(flat, target, ignore_index)
    if num_items_in_batch is None:
        return mean
    count = (target != ignore_index).sum()
    # The mean of no labels is NaN, their sum is 0.
    return torch.where(count > 0, mean, mean.new_zeros(())) * count / num_items_in_batch


class GuideKernels:
    """The changes of :func:`use_guide_kernels` in a model; ``undo()``, or the end of ``with``, puts everything back."""

    def __init__(self) -> None:
        self.swapped: dict[str, int] = {}
        self._back: list[Callable[[], None]] = []

    def undo(self) -> None:
        """Put back what was there. Calling it twice is harmless."""
        while self._back:
            self._back.pop()()

    def __enter__(self) -> GuideKernels:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()

    def set(self, kind: str, owner: Any, name: str, value: Any) -> None:
        """Give ``owner`` an attribute of its own, over its class's or in place of the one that it has."""
        had, old = name in vars(owner), vars(owner).get(name)
        object.__setattr__(owner, name, value)
        self._back.append(lambda: object.__setattr__(owner, name, old) if had else object.__delattr__(owner, name))
        self.swapped[kind] = self.swapped.get(kind, 0) + 1

    def then(self, kind: str, back: Callable[[], None]) -> None:
        """Note a change that was made elsewhere, and how it is undone."""
        self._back.append(back)
        self.swapped[kind] = self.swapped.get(kind, 0) + 1


def use_guide_kernels(
    model: Any, *, norms: bool = True, mlp: bool = True, attention: bool = True, loss: bool = True
) -> GuideKernels:
    """Let a transformers model compute with the kernels of this course; ``.undo()`` of the result puts it back.

    The weights, names of modules, saved checkpoints and PEFT adapters stay what they are: only ``forward`` of RMSNorm
    and MLP modules, the attention implementation and the loss function are other ones.

    Args:
        model: a causal language model of the families llama, mistral, qwen2 or qwen3, on a GPU (or in the interpreter).
        norms, mlp, attention, loss: which of them to swap.

    Returns:
        what was swapped (``swapped``: kind -> how many), with ``undo``; also a context manager.

    Raises:
        AttentionError: another family, or an activation other than SiLU.

    >>> from transformers import AutoModelForCausalLM
    >>> from rocm_guide.models.shapes import config_of
    >>> small = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 32, "vocab_size": 64}
    >>> model = AutoModelForCausalLM.from_config(config_of("llama-2-7b", **small), trust_remote_code=False)
    >>> with use_guide_kernels(model) as ours:
    ...     print(ours.swapped, model.config._attn_implementation)
    {'mlp': 2, 'norms': 5, 'attention': 1, 'loss': 1} rocm_guide
    >>> model.config._attn_implementation
    'sdpa'
    """
    if hasattr(model, "get_base_model"):  # PEFT's wrapper
        model = model.get_base_model()
    kind = getattr(getattr(model, "config", None), "model_type", type(model).__name__)
    if kind not in FAMILIES:
        raise AttentionError(f"a model of type {kind!r}: give one of {', '.join(FAMILIES)}")
    activation = getattr(model.config, "hidden_act", None)
    if mlp and activation not in ("silu", "swish"):
        raise AttentionError(f"hidden_act={activation!r}: the MLP kernel computes silu; pass mlp=False")
    done = GuideKernels()
    for module in model.modules():
        name = type(module).__name__
        if norms and name.endswith("RMSNorm") and hasattr(module, "variance_epsilon"):
            done.set("norms", module, "forward", MethodType(_norm, module))
        elif mlp and name.endswith("MLP") and hasattr(module, "gate_proj"):
            done.set("mlp", module, "forward", MethodType(_mlp, module))
    if attention:
        before = model.config._attn_implementation
        model.set_attn_implementation(register_attention())
        if model.config._attn_implementation != NAME:
            done.undo()
            raise AttentionError(f"transformers keeps attention {before!r} in this model: pass attention=False")
        done.then("attention", lambda: model.set_attn_implementation(before))
    if loss and hasattr(type(model), "loss_function"):
        done.set("loss", model, "_loss_function", causal_loss)
    return done
