# SPDX-License-Identifier: MIT
"""Will it fit? The memory of one GPU at the peak of training, generating or serving, and the largest batch."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cdna.predict.specs import HardwareError, gpu
from rocm_guide.common.plots import PALETTE, stacked_bars
from rocm_guide.models.families import FAMILIES
from rocm_guide.models.layer import Layer
from rocm_guide.models.sizes import Sizes, sizes_of
from rocm_guide.models.step import frozen_bytes, sharded_moments, step_moments
from rocm_guide.models.work import FitError, Workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["FRAGMENTED", "RANKS", "SHARE", "Fit", "draw_fit", "fit", "served_cache", "trains"]

#: More than any machine has today: a slip of the keyboard is not to be answered with a plan.
MOST_GPUS = 100_000


def budget_of(name: str, memory_gb: float | None = None) -> tuple[str, int]:
    """Return (name of the GPU, bytes of one of its devices); ``memory_gb`` in 10^9 bytes goes before the table.

    >>> budget_of("mi250x"), budget_of("W7900", 48)
    (('MI250X', 68702699520), ('W7900', 48000000000))
    """
    if memory_gb is None:
        spec = gpu(name)
        return spec.name, spec.memory_bytes // spec.devices
    if not 0 < memory_gb < 1e6:
        fix = f"give the memory of one {name} in GB, more than 0 and less than a million"
        raise FitError(f"memory={memory_gb:g} GB: {fix}")
    with suppress(HardwareError):  # of a card that is not in the table, its memory is all that a plan needs
        name = gpu(name).name
    return name, round(memory_gb * 1e9)


def check_split(sizes: Sizes, work: Workload, count: int, fsdp: bool) -> None:
    """Refuse what cannot run, whatever the memory.

    Raises:
        FitError: no GPU; more tokens than the model has positions for; FSDP without training or a second GPU; a tensor
            parallelism that the heads do not divide by; quantised weights that should be trained; a family whose
            training is not counted.
    """
    if not isinstance(count, int) or not 1 <= count <= MOST_GPUS:
        raise FitError(f"count={count}: a plan is for one GPU or more, up to {MOST_GPUS:,}")
    if sizes.positions is not None and work.seq > sizes.positions:
        said = f"this model ({sizes.family}) has learned {sizes.positions:,} positions, and a longer text cannot run"
        raise FitError(f"seq={work.seq}: {said}; give {sizes.positions} or less")
    training = work.method in ("full", "lora", "qlora")
    if fsdp and (count < 2 or not training):
        said = f"fsdp with count={count}, method={work.method}"
        raise FitError(f"{said}: sharding is planned for training on 2 or more GPUs")
    if fsdp and work.offloading:
        raise FitError(f"offloading={work.offloading} with fsdp: not counted here; leave it out")
    if work.method == "serve" and not _divides(sizes, count):
        others = ", ".join(str(n) for n in range(1, 129) if _divides(sizes, n))
        heads = f"the {sizes.heads} heads and {sizes.kv_heads} KV heads of this model"
        raise FitError(f"count={count}: tensor parallelism has to divide {heads}; serve it on {others}")
    if work.method == "full" and sizes.quantised:
        fix = "they cannot be trained; take lora, or the bf16 model"
        raise FitError(f"method=full with weights stored as {sizes.stored_as}: {fix}")
    if training and not trains(sizes):
        why = "its attention keeps all scores (softcapping)" if sizes.family == "gemma2" else "it has layers of its own"
        fix = "what they keep for the backward pass is not counted here; plan inference or serve"
        raise FitError(f"{sizes.family}: {why}; {fix}")


def trains(sizes: Sizes) -> bool:
    """Return whether the activations of a training step are counted for this family."""
    return sizes.family in FAMILIES and sizes.family != "gemma2"


def _divides(sizes: Sizes, count: int) -> bool:
    """Return whether every GPU gets whole heads; KV heads are copied where there are fewer of them than GPUs (vLLM)."""
    kv = sizes.kv_heads
    return sizes.heads % count == 0 and (kv % count == 0 or count % kv == 0)


#: Outside torch's allocator: the driver's context, loaded kernels, libraries. 0.8 GB for one process on an H100 with
#: torch 2.11 (benchmarks/results/fit_cases.md); NCCL's buffers come on top with several GPUs.
CONTEXT_BYTES, NCCL_BYTES = 800_000_000, 900_000_000
#: The matrix library keeps a workspace for the forward and one for the backward thread, 32 MiB each on Hopper.
WORKSPACE_BYTES = 2 * 32 * 2**20
#: Room that a plan must leave over its peak, as a share of it: the caching allocator holds free pieces that are too
#: small for what is asked. A safety margin, not a formula. Near the limit of an H100 a run failed that had 5.1 % of
#: room, and another passed with 6.2 %; before that the margin was 3 %. What these few runs show, and what they do not,
#: stands in benchmarks/results/fit_cases.md.
FRAGMENTED = 0.08
#: The share of the memory that vLLM 0.32 takes unless told, the tokens of a block of its cache, and those of a prompt
#: that it reads at once (``--gpu-memory-utilization``, ``--block-size``, ``--max-num-batched-tokens``).
SHARE, BLOCK, PIECE = 0.92, 16, 8192
#: Ranks for which vLLM sets room aside: an adapter takes that of the next one.
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)


@dataclass(frozen=True)
class Fit:
    """The answer of :func:`fit`, per GPU and in bytes.

    Attributes:
        parts: what makes up the peak that torch's allocator reports, by part.
        overhead: what the device holds besides: context, fragmentation.
        moments: peak at each moment of the step; ``moment`` is the name of the largest.
        budget: memory of one GPU.
        largest_batch: the largest batch that fits, 0 if not even one row does.
        fsdp: whether parameters, gradients and states are sharded.
        stored_as: how the weights are stored: "bf16", or the format of a quantised checkpoint.
        share: of the budget that may be taken; less than 1 for a server.
    """

    work: Workload
    parts: dict[str, int]
    overhead: dict[str, int]
    moments: dict[str, int]
    moment: str
    budget: int
    gpu: str
    count: int
    largest_batch: int
    fsdp: bool = False
    stored_as: str = "bf16"
    share: float = 1.0

    @property
    def peak(self) -> int:
        """Return what ``torch.cuda.max_memory_allocated()`` would report."""
        return sum(self.parts.values())

    @property
    def total(self) -> int:
        """Peak and overhead: what the device must have."""
        return self.peak + sum(self.overhead.values())

    @property
    def reserved(self) -> int:
        """Return what ``torch.cuda.max_memory_reserved()`` will report: the peak, and pieces that nobody can use."""
        return self.peak + self.overhead["fragmentation"]

    @property
    def fits(self) -> bool:
        return self.total <= self.allowed

    @property
    def allowed(self) -> int:
        return round(self.budget * self.share)


def fit(
    config: Any,
    work: Workload,
    *,
    gpu: str = "MI300X",
    count: int = 1,
    fsdp: bool = False,
    memory_gb: float | None = None,
) -> Fit:
    """Plan one GPU's memory.

    Several GPUs without ``fsdp`` train as data-parallel copies: each holds everything, and DDP's buckets hold every
    gradient once more (PyTorch documentation, DistributedDataParallel, ``gradient_as_bucket_view``). With ``fsdp``
    parameters, gradients and states are sharded. For inference the layers and their cache are split evenly (a device
    map); a server splits every layer over the GPUs (tensor parallelism), which has to divide the attention heads.

    Args:
        config: a transformers configuration, or the fields of a config.json.
        work: method, batch and sequence per GPU.
        gpu: a name in :data:`cdna.predict.specs.GPUS`, in any case of letters; the budget is what its driver
            shows of its memory, 206.1 x 10^9 bytes (191.98 GiB) for an MI300X. An MI250X is two devices of half its
            memory.
        count: number of such devices.
        memory_gb: memory of one GPU in 10^9 bytes, instead of the table's: ``torch.cuda.mem_get_info()[1] / 1e9``.
            With it, ``gpu`` may be any name.

    Raises:
        FitError, SizesError, HardwareError: an unknown GPU or family, no GPU, no memory, a layer larger than a device,
            a split that the heads do not allow, or quantised weights that cannot be trained.

    >>> from rocm_guide.models.shapes import SHAPES
    >>> plan = fit(SHAPES["llama-2-7b"], Workload("full", batch=4, seq=512))
    >>> plan.fits, plan.moment, round(plan.peak / 2**30, 1)
    (True, 'optimizer', 50.3)
    """
    shape = sizes_of(config)
    name, budget = budget_of(gpu, memory_gb)
    check_split(shape, work, count, fsdp)
    per_weight = 4.0 if work.wide and not fsdp else 2.0
    if work.method != "full":
        per_weight = frozen_bytes(shape, work) / shape.parameters
    layer = round(shape.largest_layer * per_weight / (count if work.method == "serve" else 1))
    if layer > budget:
        have = f"one {name} has {budget / 1e9:.4g}"
        raise FitError(f"one layer needs {layer / 1e9:.2f} GB and {have}: no split of layers can fit")
    serve = work.method == "serve"
    share_of_memory = (SHARE if work.share is None else work.share) if serve else 1.0
    moments = _moments(shape, work, count, fsdp)
    top = max(moments, key=lambda name: sum(moments[name].values()))
    parts = {name: size for name, size in moments[top].items() if size}
    return Fit(
        work=work,
        parts=parts,
        overhead=_overhead(sum(parts.values()), count, work),
        moments={name: sum(sizes.values()) for name, sizes in moments.items()},
        moment=top,
        budget=budget,
        gpu=name,
        count=count,
        largest_batch=largest_batch(shape, work, round(budget * share_of_memory), count, fsdp),
        fsdp=fsdp,
        share=share_of_memory,
        stored_as="NF4" if work.method == "qlora" and not shape.quantised else shape.stored_as,
    )


def largest_batch(shape: Sizes, work: Workload, budget: int, count: int = 1, fsdp: bool = False) -> int:
    """Return the largest batch whose total stays within ``budget`` bytes; 0 if there is none.

    The total grows with the batch, so doubling and then halving the interval finds it.
    """

    def total(batch: int) -> int:
        moments = _moments(shape, replace(work, batch=batch), count, fsdp)
        peak = max(sum(sizes.values()) for sizes in moments.values())
        return peak + sum(_overhead(peak, count, work).values())

    low, high = 0, 1
    while total(high) <= budget:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if total(middle) <= budget else (low, middle)
    return low


def generate_moments(shape: Sizes, work: Workload, count: int = 1) -> dict[str, dict[str, int]]:
    """Return the bytes by part while the prompt is read ("prefill") and while the last token is made ("decode").

    Keys and values are 2 x layers x K numbers a token in bf16. Reading the prompt holds, in one layer at a time, the
    gate, its activation, and their product's other factor, 6TI, and three streams of 2TH (residual, norm, attention);
    only the last position is turned into logits, BV in fp32. transformers' growing cache copies one layer's keys as
    it appends. A server reads prompts in pieces of 8,192 tokens whatever the number of texts, and measures one such
    step before it makes blocks of what is left (vLLM's ``max_num_batched_tokens``).

    A server splits every head's cache; where there are fewer KV heads than GPUs, each GPU holds a copy of one.
    Experts hold the same for top_k rows a token. Source: notebook 03 and
    :meth:`rocm_guide.models.sizes.Sizes.kv_cache_bytes`.
    """
    weights = frozen_bytes(shape, work) // count
    serve = work.method == "serve"
    cache = served_cache(shape, work, count) if serve else shape.kv_cache_bytes(work.seq, batch=work.batch) // count
    rows = -(-PIECE // work.seq) if serve else work.batch
    prefill = (PIECE if serve else work.tokens) * shape.most(lambda layer: _widest(shape, layer))
    logits = 4 * rows * shape.vocab
    append = 0 if serve else shape.most(lambda layer: layer.cached) * work.tokens
    # A quantised matrix is unpacked for a product of many rows; the largest one is what counts.
    unpacked = 2 * shape.most(lambda layer: max(a * b for a, b in layer.matrices.values())) if shape.quantised else 0
    base = {"parameters": weights, "KV cache": cache, "unpacked weights": unpacked // (count if serve else 1)}
    if work.adapters:
        rank = next((r for r in RANKS if r >= work.rank), work.rank)
        base["adapters"] = 2 * work.adapters * shape.lora_parameters(shape.lora_targets(), rank) // count
    return {
        "prefill": {**base, "activations": prefill, "logits": logits},
        "decode": {**base, "activations": append, "logits": 2 * logits},
    }


def served_cache(shape: Sizes, work: Workload, count: int, block: int = BLOCK) -> int:
    """Return the bytes of one GPU's cache for ``work.batch`` texts in whole blocks; a common prefix is there once.

    >>> from rocm_guide.models.shapes import SHAPES
    >>> from rocm_guide.models.sizes import sizes_of
    >>> texts = [Workload("serve", batch=4, seq=4096, prefix=prefix) for prefix in (0, 4000)]
    >>> [served_cache(sizes_of(SHAPES["llama-3-8b"]), work, 1) / 2**20 for work in texts]
    [2048.0, 548.0]
    """
    each = {"bytes_per_number": work.kv_bytes or shape.kv_bytes}
    common = work.prefix // block * block
    shared = shape.kv_cache_bytes(common, **each) - shape.kv_cache_bytes(0, **each)
    text = shape.kv_cache_bytes(-(-work.seq // block) * block, **each) - shared
    return (shared + work.batch * text) // min(count, shape.kv_heads)


def _widest(sizes: Sizes, layer: Layer) -> int:
    """Return the bytes a token that one layer holds while it reads the prompt."""
    dense = 6 * layer.inner + 6 * sizes.hidden
    experts = layer.top_k * (6 * layer.expert_inner + 6 * sizes.hidden) + 4 * sizes.hidden
    return max(dense, experts if layer.experts else 0)


def _moments(shape: Sizes, work: Workload, count: int, fsdp: bool) -> dict[str, dict[str, int]]:
    if work.method in ("inference", "serve"):
        moments = generate_moments(shape, work, count)
    elif fsdp:
        moments = sharded_moments(shape, work, count)
    else:
        moments = step_moments(shape, work)
        if count > 1:
            buckets = moments["optimizer"].get("gradients", 0)
            moments = {name: {**sizes, "DDP buckets": buckets} for name, sizes in moments.items()}
    workspace = WORKSPACE_BYTES // (2 if work.method in ("inference", "serve") else 1)
    return {name: {**sizes, "workspace": workspace} for name, sizes in moments.items()}


def _overhead(peak: int, count: int, work: Workload) -> dict[str, int]:
    context = CONTEXT_BYTES + (NCCL_BYTES if count > 1 else 0)
    return {"context": context, "fragmentation": 0 if work.method == "serve" else round(FRAGMENTED * peak)}


#: Kinds of memory in a plot -> the parts of a plan; one colour for each kind, whichever of them a plot has.
_KINDS = {
    "parameters": ("parameters", "adapter"),
    "gathered by FSDP": ("gathered",),
    "gradients": ("gradients", "DDP buckets"),
    "optimizer": ("optimizer",),
    "activations": ("activations", "weight casts", "unpacked weights"),
    "logits and loss": ("loss", "logits"),
    "KV cache": ("KV cache",),
}
_GROUPS = {part: kind for kind, parts in _KINDS.items() for part in parts}
_COLOURS = dict(zip([*_KINDS, "overhead"], (PALETTE[i] for i in (0, 6, 1, 2, 3, 4, 7, 5)), strict=True))


def draw_fit(plans: Mapping[str, Fit], *, title: str = "Memory of one GPU at its peak", ax: Axes | None = None) -> Axes:
    """Draw one column for each plan, stacked by part, with the GPU's memory as a line.

    All plans must be for the same GPU; the total that stands on a column is what the device must have.
    """
    parts: dict[str, dict[str, float]] = {}
    for label, plan in plans.items():
        column = dict.fromkeys([*_KINDS, "overhead"], 0.0)
        for name, size in {**plan.parts, **plan.overhead}.items():
            column[_GROUPS.get(name, "overhead")] += size / 1e9
        parts[label] = column
    used = [kind for kind in next(iter(parts.values())) if any(column[kind] for column in parts.values())]
    parts = {label: {kind: column[kind] for kind in used} for label, column in parts.items()}
    plan = next(iter(plans.values()))
    limit = (f"one {plan.gpu}: {plan.budget / 1e9:.0f} GB", plan.budget / 1e9)
    ax = stacked_bars(parts, unit="GB", title=title, limit=limit, hardware="computed", ax=ax)
    for kind, container in zip(used, ax.containers, strict=True):
        for patch in container:
            patch.set_facecolor(_COLOURS[kind])
    # Room for the legend above the columns and the line.
    highest = max(plan.budget / 1e9, *(sum(column.values()) for column in parts.values()))
    ax.set(ylim=(0, 1.32 * highest), xlim=(-0.55, max(len(parts), 3) - 0.45))
    ax.legend(ncols=4, fontsize=8, loc="upper left")
    return ax
