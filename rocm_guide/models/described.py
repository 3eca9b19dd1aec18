# SPDX-License-Identifier: MIT
"""The description of any model that transformers knows: its own class, built on the meta device, and what that holds.

The layers are read off the modules, and what a token leaves in the cache is read off the cache after two forward
passes without weights. It takes seconds, where the formulae of
:mod:`rocm_guide.models.families` take none; a test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rocm_guide.common.base import GuideError
from rocm_guide.models.layer import Layer, SizesError, reason_of

if TYPE_CHECKING:
    import torch

__all__ = ["describe", "without_weights"]


def without_weights(watch: Callable[[Any, Any, Any], None] | None = None, where: Callable[[], str] = lambda: "") -> Any:
    """Return a context manager in which a model on the meta device runs.

    Args:
        watch: called with (operation, args, kwargs) before every one of ATen's operations.
        where: the name of the module at work, for the message.

    Raises:
        GuideError: inside, where the model decides on a number that only real weights give.

    >>> import torch
    >>> with without_weights():
    ...     torch.nn.Linear(8, 16, device="meta")(torch.empty(4, 8, device="meta")).argmax(-1).tolist()
    [0, 0, 0, 0]
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

    aten = torch.ops.aten
    # What chooses a token: its result is a number that nothing in the shapes depends on, so zeros will do.
    chooses = {aten.argmax, aten.argmin, aten.multinomial, aten.topk, aten.sort}
    decides = {aten._local_scalar_dense, aten.is_nonzero, aten.equal}

    def real(t: torch.Tensor) -> torch.Tensor:
        """Give zeros to an integer or boolean without a value: control flow needs numbers to run."""
        plain = not (t.is_floating_point() or t.is_complex())
        return torch.zeros(t.shape, dtype=t.dtype) if plain and t.is_meta else t

    def unknown(t: torch.Tensor) -> torch.Tensor:
        """Mark the zeros that stand for a comparison of numbers that we do not have."""
        out = real(t)
        if not out.is_meta:
            out.made_up = True
        return out

    class Weightless(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            packet = func.overloadpacket
            if packet is aten.histc and not args[0].is_floating_point():
                args = (args[0].float(), *args[1:])  # a CPU counts no integers
            if watch is not None:
                watch(packet, args, kwargs)
            # Taken apart once: this runs for every operation of a model with eighty layers.
            leaves, spec = tree_flatten((args, kwargs))
            places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
            seen = [real(leaves[i]) for i in places]
            if any(t is not leaves[i] for i, t in zip(places, seen, strict=True)):
                for i, t in zip(places, seen, strict=True):
                    leaves[i] = t
                args, kwargs = tree_unflatten(leaves, spec)
            without_weights = any(t.is_meta for t in seen)
            guessed = any(getattr(t, "made_up", False) for t in seen)
            if packet in decides and (without_weights or guessed):
                said = f"{where() or 'the model'}: it decides on a value that only real weights give"
                raise GuideError(f"{said}; trace it on a small real model instead")
            if without_weights:
                if func._schema.is_mutable and isinstance(args[0], torch.Tensor) and not args[0].is_meta:
                    return args[0]
                if not all(t.is_meta for t in seen):
                    for i, t in zip(places, seen, strict=True):
                        leaves[i] = t if t.is_meta else t.to("meta")
                    args, kwargs = tree_unflatten(leaves, spec)
                if "device" in kwargs:
                    kwargs["device"] = torch.device("meta")
                mark = real if packet in chooses else unknown
                out = func(*args, **kwargs)
                return mark(out) if isinstance(out, torch.Tensor) else tree_map_only(torch.Tensor, mark, out)
            out = func(*args, **kwargs)
            if isinstance(out, torch.Tensor) and out.is_meta and real(out) is not out:
                out = func(*args, **{**kwargs, "device": torch.device("cpu")})
            if guessed:
                out = tree_map_only(torch.Tensor, unknown, out)
            return out

    return Weightless()


#: What configurations call the number of experts that a token passes.
_TOP_K = ("top_k", "num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k", "top_k_experts")
_TOKENS = (3, 5)  # of the two passes: a window or a convolution of four tokens is seen in its own size


def describe(fields: Mapping[str, Any]) -> tuple[str, dict[str, Any], list[Layer], dict[str, Any]]:
    """Return (family, sizes, layers, what lies outside them) as :func:`rocm_guide.models.families.read` does.

    Raises:
        SizesError: a type that transformers does not know, or one that cannot be built or run without weights; the
            message gives its reason.
    """
    import torch

    family = str(fields.get("model_type"))
    model = _built(fields, family)
    text = model.config.get_text_config(decoder=True)
    name, modules = _layers(model, text)
    seen: set[int] = set()
    caches = _caches(model, family, len(modules))
    layers = [_layer(module, text, seen, family, **cache) for module, cache in zip(modules, caches, strict=True)]
    embedding = model.get_input_embeddings()
    table = _new(embedding.parameters(), seen)
    head = model.get_output_embeddings()
    output = 0 if head is None else _new(head.parameters(), seen)
    matrices = {n: size for n, size, weight in _linears(model) if id(weight) not in seen}
    if output:
        matrices["lm_head"] = (head.weight.shape[1], head.weight.shape[0])
    beside = _new(model.parameters(), seen)
    heads = _attribute(text, "num_attention_heads", "num_heads") or 1
    sizes = {
        "hidden": _attribute(text, "hidden_size", "d_model", "n_embd") or embedding.weight.shape[-1],
        "heads": heads,
        "kv_heads": _attribute(text, "num_key_value_heads", "num_kv_heads") or heads,
        "vocab": _attribute(text, "vocab_size") or embedding.weight.shape[0],
        "layers_at": name,
    }
    tables = [n for n, m in model.named_modules() if isinstance(m, torch.nn.Embedding) and ("pos" in n or "wpe" in n)]
    if tables:
        sizes["positions"] = _attribute(text, "max_position_embeddings", "n_positions") or None
    if _attribute(text, "kv_lora_rank"):
        sizes["kv_heads"] = 1
    return family, sizes, layers, {"embedding": table, "output": output, "beside": beside, "matrices": matrices}


def _built(fields: Mapping[str, Any], family: str) -> Any:
    from rocm_guide.models.load import config_from, meta_model

    try:
        return meta_model(config_from(fields), dtype="bfloat16").eval()
    except GuideError:
        raise
    except Exception as e:  # transformers refuses a configuration with whatever its code meets first
        raise SizesError(f"{family}: transformers cannot build it ({reason_of(e)}); give it what it names") from e


def _attribute(config: Any, *names: str) -> int:
    """Return the first of these fields that is a whole number, the largest of one that has a number for each layer."""
    for name in names:
        try:
            value = getattr(config, name, None)
        except Exception:  # noqa: BLE001 - transformers refuses to give one value where each layer has its own
            value = [getattr(one, name) for one in config.per_layer_config]
        if isinstance(value, list | tuple):
            value = max((n for n in value if isinstance(n, int)), default=None)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return 0


def _new(parameters: Any, seen: set[int]) -> int:
    """Return the elements of those that were not seen before, and mark them: a shared weight counts once."""
    total = 0
    for p in parameters:
        if id(p) not in seen:
            seen.add(id(p))
            total += p.numel()
    return total


def _layers(model: Any, text: Any) -> tuple[str, list[Any]]:
    """Return (name, modules) of the decoder's layers: the list of so many modules, else the one with most weights."""
    import torch

    decoder = model.get_decoder() if hasattr(model, "get_decoder") else None
    count = _attribute(text, "num_hidden_layers", "n_layer", "num_layers")
    for part in (decoder, model):
        if part is None:
            continue
        found: list[tuple[str, Any]] = []
        for name, module in model.named_modules():
            inside = part is model or any(module is m for m in part.modules())
            nested = any(name.startswith(f"{other}.") for other, _ in found)
            if isinstance(module, torch.nn.ModuleList) and len(module) and inside and not nested:
                found.append((name, module))
        exact = [one for one in found if len(one[1]) == count]
        if exact or found:
            name, modules = max(exact or found, key=lambda one: sum(p.numel() for p in one[1].parameters()))
            return name, list(modules)
    raise SizesError(f"{text.model_type}: no list of layers is found in it; its layers are not counted here")


def _linears(module: Any) -> Iterator[tuple[str, tuple[int, int], Any]]:
    """Yield (name, (inputs, outputs), weight) of its linear layers, Conv1D among them."""
    import torch
    from transformers.pytorch_utils import Conv1D

    for name, one in module.named_modules():
        if isinstance(one, Conv1D):
            yield name, (one.weight.shape[0], one.weight.shape[1]), one.weight
        elif isinstance(one, torch.nn.Linear):
            yield name, (one.in_features, one.out_features), one.weight


def _layer(module: Any, text: Any, seen: set[int], family: str, **cache: Any) -> Layer:
    hidden = _attribute(text, "hidden_size", "d_model", "n_embd")
    experts = _experts(module, hidden, seen)
    matrices: dict[str, tuple[int, int]] = {}
    router = 0
    for name, size, weight in _linears(module):
        if id(weight) in seen:
            continue
        seen.add(id(weight))
        if experts and size[1] == experts["experts"]:
            router += size[0] * size[1]
        else:
            matrices[name or "linear"] = size
    bias = _new((p for n, p in module.named_parameters() if n.split(".")[-1] == "bias" and "norm" not in n), seen)
    norms = _new((p for m in module.modules() if "norm" in type(m).__name__.lower() for p in m.parameters()), seen)
    if experts:
        router += _new((p for p in module.parameters() if p.dim() == 2 and p.shape[0] == experts["experts"]), seen)
        experts["top_k"] = _top_k(module, text, family)
    heads = _attribute(text, "num_attention_heads", "num_heads") or 1
    width = _attribute(text, "head_dim") or max(1, hidden // heads)
    kv = width * (_attribute(text, "num_key_value_heads", "num_kv_heads") or heads)
    rest = _new(module.parameters(), seen) + experts.pop("rest", 0)
    inner = _inner(matrices, hidden, bool(experts))
    sizes: dict[str, Any] = {"q": heads * width, "k": kv, "v": kv, "inner": inner, "rest": rest, "router": router}
    return Layer(matrices, bias=bias, norms=norms, **sizes, **cache, **experts)


def _inner(matrices: Mapping[str, tuple[int, int]], hidden: int, experts: bool) -> int:
    """Return the width of the MLP, or of a mixer in its place: the inputs of what comes back to the residual stream."""
    back = {n: a for n, (a, b) in matrices.items() if b == hidden}
    mlp = [a for n, a in back.items() if "att" not in n]
    return max(mlp or ([] if experts else back.values()), default=0)


def _experts(module: Any, hidden: int, seen: set[int]) -> dict[str, Any]:
    """Return the routed experts of a layer: their number, the matrices of one, and its other elements."""
    import torch

    for name, one in module.named_modules():
        kind = type(one).__name__
        if "expert" not in f"{name} {kind}".lower() or "shared" in name.lower():
            continue
        spare = 0  # elements of experts that only one of the tensors has (LongCat's, which pass a token through)
        if isinstance(one, torch.nn.ModuleList):
            count, first = len(one), one[0]
            matrices = {n: size for n, size, _ in _linears(first)}
            size = sum(p.numel() for p in first.parameters())
        else:
            own = {n: p for n, p in one.named_parameters() if p.dim() > 1}
            three = [p for p in own.values() if p.dim() == 3]
            asked = _attribute(one, "num_experts", "moe_num_experts", "num_local_experts")
            count = min(p.shape[0] for p in three) if three else asked
            if count < 2 or not own or not (three or "Expert" in kind):
                continue
            if not three and any(p.shape[0] % count for p in own.values()):
                continue
            matrices = {}
            size = sum(p.numel() // (p.shape[0] if p.dim() == 3 else count) for p in one.parameters())
            spare = sum(p.numel() for p in one.parameters()) - size * count
            for n, p in own.items():
                shape = (p.shape[1], p.shape[2]) if p.dim() == 3 else (p.shape[0] // count, p.shape[1])
                if min(shape) > 1:
                    matrices[n.removesuffix(".weight")] = _orientation(n, shape, hidden)
        elements = sum(a * b for a, b in matrices.values())
        _new(one.parameters(), seen)
        inner = max((a for a, b in matrices.values() if b == hidden), default=0)
        more = {"expert_rest": size - elements, "expert_inner": inner, "experts_at": name, "rest": spare}
        return {"experts": count, "expert": matrices, **more}
    return {}


def _orientation(name: str, shape: tuple[int, int], hidden: int) -> tuple[int, int]:
    """Return (inputs, outputs) of an expert's tensor, which libraries lay either way."""
    down = any(word in name for word in ("down", "w2", "output"))
    a, b = shape
    if a == b or (a != hidden and b != hidden):
        return a, b
    other = b if a == hidden else a
    return (other, hidden) if down else (hidden, other)


def _top_k(module: Any, text: Any, family: str) -> int:
    found = next((k for m in module.modules() if (k := _attribute(m, *_TOP_K))), 0) or _attribute(text, *_TOP_K)
    if not found:
        raise SizesError(f"{family}: how many experts a token passes is not found; such a model is not counted here")
    return found


def _caches(model: Any, family: str, layers: int) -> list[dict[str, int]]:
    """Return what a token, and a text whatever its length, leaves in the cache of each layer."""
    before = {key for key, _ in _own_tensors(model)}
    short, long = (_run(model, family, tokens, before) for tokens in _TOKENS)
    found = [{"cached": 0, "state": 0, "window": 0} for _ in range(layers)]
    for i, (few, many) in enumerate(zip(short, long, strict=True)):
        one = found[i % layers]
        for key, (size, window) in many.items():
            grown, odd = divmod(size - few.get(key, (0, 0))[0], _TOKENS[1] - _TOKENS[0])
            if odd or grown < 0:
                raise SizesError(f"{family}: its cache ({key}) does not grow by the token; it is not counted here")
            one["cached"] += grown // 2
            one["state"] += size - grown * _TOKENS[1]
            one["window"] = max(one["window"], window if grown else 0)
    return found


def _run(model: Any, family: str, tokens: int, before: set[str]) -> list[dict[str, tuple[int, int]]]:
    """Return for each layer of the cache {tensor: (bytes, window or 0)} after one pass over so many tokens."""
    import torch

    ids = torch.full((1, tokens), 4)
    try:
        with torch.no_grad(), without_weights():
            out = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=True)
    except Exception as e:  # a model's own code, with arguments that it may not take
        raise SizesError(f"{family}: a pass without weights ends with {reason_of(e)}; it is not counted here") from e
    names = ("past_key_values", "cache_params", "state")
    cache = next((c for name in names if (c := getattr(out, name, None)) is not None), None)
    if cache is None and (own := [key for key, _ in _own_tensors(model) if key not in before]):
        raise SizesError(f"{family}: it keeps its state in its modules ({own[0]}), in no cache; it is not counted here")
    if cache is None:  # one that reads the whole text anew for each token
        return []
    if isinstance(cache, list | tuple):
        parts = list(cache)
    else:
        parts = [*getattr(cache, "layers", ()), {k: v for k, v in vars(cache).items() if k != "layers"}]
    return [{key: (t.nbytes, window) for key, t, window in _tensors(part)} for part in parts]


def _own_tensors(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield (name, tensor) of what lies in the modules and is neither parameter nor buffer."""
    import torch

    for name, module in model.named_modules():
        for key, value in vars(module).items():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                yield f"{name}.{key}", value


def _tensors(part: Any) -> Iterator[tuple[str, torch.Tensor, int]]:
    """Yield (name, tensor, window) of what one layer's cache holds."""
    import torch
    from torch.utils._pytree import tree_flatten

    get = getattr(part, "get_max_length", None)
    longest = get() if get is not None else -1
    window = longest if isinstance(longest, int) and longest > 0 else 0
    bare = isinstance(part, torch.Tensor | list | tuple | dict)
    held = {"": part} if bare else {k: v for k, v in vars(part).items() if not k.startswith("_")}
    for key, value in held.items():
        for i, t in enumerate(tree_flatten(value)[0]):
            if isinstance(t, torch.Tensor) and t.is_floating_point():
                yield f"{key}.{i}", t, window
