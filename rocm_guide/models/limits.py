# SPDX-License-Identifier: MIT
"""The limits of a plan: the memory of one device, and the ways in which a model can be split at all."""

from __future__ import annotations

from contextlib import suppress

from cdna.predict.specs import HardwareError, gpu
from rocm_guide.models.families import FAMILIES
from rocm_guide.models.sizes import Sizes
from rocm_guide.models.work import FitError, Workload

__all__ = ["trains"]

#: More than any machine has today: a slip of the keyboard is not to be answered with a plan.
MOST_GPUS = 100_000


def budget_of(name: str, memory_gb: float | None = None) -> tuple[str, int]:
    """Return (name of the GPU, bytes of one of its devices); ``memory_gb`` in 10^9 bytes goes before the table.

    Raises:
        FitError, HardwareError: a GPU that is not known and no memory given, or a memory that means nothing.

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
        raise FitError(
            f"seq={work.seq}: this model ({sizes.family}) has learned {sizes.positions:,} positions, and a longer text "
            f"cannot run; give {sizes.positions} or less"
        )
    training = work.method in ("full", "lora", "qlora")
    if fsdp and (count < 2 or not training):
        said = f"fsdp with count={count}, method={work.method}"
        raise FitError(f"{said}: sharding is planned for training on 2 or more GPUs")
    if fsdp and work.offloading:
        raise FitError(f"offloading={work.offloading} with fsdp: not counted here; leave it out")
    if work.method == "serve" and not _divides(sizes, count):
        others = ", ".join(str(n) for n in range(1, 129) if _divides(sizes, n))
        raise FitError(
            f"count={count}: tensor parallelism has to divide the {sizes.heads} heads and {sizes.kv_heads} KV heads of "
            f"this model; serve it on {others}"
        )
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
