# SPDX-License-Identifier: MIT
"""Fine-tune with TRL's SFTTrainer on whatever device is there, and measure the run."""

from __future__ import annotations

import gc
import logging
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from rocm_guide.common.base import GuideError
from rocm_guide.common.device import accelerator, clock, peak_memory, pick_dtype, seed_all
from rocm_guide.models.columns import TRAINED_ON, kind_of, training_rows

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["across_devices", "fine_tune", "folder_bytes", "recipe", "sft_settings", "trainable_parameters"]

#: Optimizer steps that are left out of a throughput: the first ones allocate memory and choose kernels.
WARM_UP = 5


def step_meter() -> Any:
    """Return a ``TrainerCallback`` that notes when training began, was warm, and ended, and moves a progress bar.

    Its attributes ``began``, ``warm`` and ``ended`` are seconds of one clock. It waits for the device at these moments
    only, so that the processor can prepare a step while the device works.

    >>> from types import SimpleNamespace as State
    >>> meter = step_meter()
    >>> meter.on_train_begin(None, State(max_steps=1, global_step=0), None)
    >>> meter.on_train_end(None, State(max_steps=1, global_step=1), None)
    >>> meter.began <= meter.ended
    True
    """
    from tqdm.auto import tqdm
    from transformers import TrainerCallback

    class Meter(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.bar = tqdm(total=state.max_steps, initial=state.global_step, desc="training", unit="step", leave=False)
            self.began = self.warm = clock()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == WARM_UP:
                self.warm = clock()
            self.bar.update()

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.ended = clock()
            self.bar.close()

    return Meter()


def across_devices(trainer: type) -> type:
    """Return a subclass of TRL's ``SFTTrainer`` that trains a model with layers on several devices (``device_map``).

    TRL 1.15 and 1.16 compute the loss where the output layer lies, and divide it by the number of learnt tokens, which
    transformers puts on the first device: "Expected all tensors to be on the same device". (TRL 1.13 still moved the
    number.) transformers then adds up the losses of the steps on the first device, and refuses one from elsewhere. So
    the number goes in as a plain integer, which lies on no device, and the loss comes out on the first one. Nothing
    else changes; with the model on one device the two lines do nothing.

    Source: trl 1.16.0, ``SFTTrainer.compute_loss``; transformers 5.23, ``Trainer._get_num_items_in_batch``.
    """

    class AcrossDevices(trainer):
        def compute_loss(
            self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
        ) -> Any:
            count = None if num_items_in_batch is None else int(num_items_in_batch)
            found = super().compute_loss(model, inputs, return_outputs, num_items_in_batch=count)
            loss, *outputs = found if return_outputs else (found,)
            loss = loss.to(self.args.device)
            return (loss, *outputs) if return_outputs else loss

    return AcrossDevices


@dataclass
class FineTuned:
    """The result of :func:`fine_tune`.

    Attributes:
        model: the trained model; wrapped by PEFT when an adapter was trained.
        losses, loss_steps: training loss, and the optimizer steps at which it was logged.
        seconds: wall-clock time of training, without loading or evaluation.
        tokens: tokens that went through the model, padding not counted.
        tokens_per_second: tokens over seconds of the steps after the fifth (of all, when there are fewer).
        peak_bytes, peak_what: highest memory use while training, and what it is a measure of.
        trainable, total: numbers of parameters.
    """

    model: Any
    losses: list[float] = field(default_factory=list)
    loss_steps: list[int] = field(default_factory=list)
    seconds: float = 0.0
    tokens: int = 0
    tokens_per_second: float = 0.0
    peak_bytes: int = 0
    peak_what: str = ""
    trainable: int = 0
    total: int = 0


def trainable_parameters(model: Any) -> tuple[int, int]:
    """Return (trainable, total) numbers of parameters of a torch module. Works on the meta device. Notebook 01.

    >>> layer = torch.nn.Linear(4, 3)
    >>> _ = layer.bias.requires_grad_(False)
    >>> trainable_parameters(layer)
    (12, 15)
    """
    parameters = list(model.parameters())
    return sum(p.numel() for p in parameters if p.requires_grad), sum(p.numel() for p in parameters)


def sft_settings(folder: str | Path, *, device: str | None = None, **changes: Any) -> Any:
    """Return an ``SFTConfig`` with what the course wants to be explicit about; ``changes`` replaces any field.

    TRL's defaults are made for large models on GPUs: bfloat16, slow on a CPU, and activation checkpointing, which
    recomputes for nothing when the model fits easily.

    Args:
        folder: where checkpoints go (none are written unless ``save_strategy`` is changed).
        device: "cpu" or "cuda"; this machine's accelerator when None.

    Source: TRL documentation, SFTConfig.
    """
    from trl import SFTConfig

    device = device or accelerator().device
    gpu = device.startswith("cuda")
    values: dict[str, Any] = {
        "output_dir": str(folder),
        "use_cpu": not gpu,
        "bf16": pick_dtype(device) is torch.bfloat16,
        "optim": "adamw_torch_fused" if gpu else "adamw_torch",
        "lr_scheduler_type": "cosine",
        "warmup_steps": 0.05,  # a share of all steps, so that a short run warms up too
        "weight_decay": 0.0,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "dataloader_pin_memory": gpu,
        "dataloader_num_workers": 2 if gpu else 0,
        "use_liger_kernel": gpu and find_spec("liger_kernel") is not None,
    }
    # Renamed in transformers 5.2x: the old name warns there, and the new one is unknown before.
    names = SFTConfig.__dataclass_fields__
    values["activation_checkpointing" if "activation_checkpointing" in names else "gradient_checkpointing"] = False
    values |= changes
    if 0 < values.get("max_steps", 0) < values["logging_steps"]:
        values["logging_steps"] = 1  # a run that ends before its first log would have no loss to show
    return SFTConfig(**values)


def recipe(spec: str, method: str) -> dict[str, Any]:
    """Return hyper-parameters that were seen to work, as fields of ``SFTConfig``: pass them to :func:`sft_settings`.

    A large model gets 4 rows of 512 tokens, packed so that no token is padding, and 20 steps: enough to measure speed
    and memory; raise ``max_steps`` to train for real.

    Args:
        spec: the model, as :func:`rocm_guide.models.load.load_model` takes it.
        method: "full" or "lora". LoRA takes a larger step: its matrices start near zero and are few.

    Raises:
        GuideError: another method.

    >>> recipe("tiny", "lora")["learning_rate"], recipe("random:llama-2-7b", "full")["max_length"]
    (0.005, 512)
    """
    if method not in ("full", "lora"):
        raise GuideError(f"method={method!r}: choose 'full' or 'lora'")
    full = method == "full"
    if spec == "tiny":
        rate, epochs = (1e-3, 2) if full else (5e-3, 3)
        size: dict[str, Any] = {"per_device_train_batch_size": 16, "max_length": 64, "num_train_epochs": epochs}
    else:
        rate = 1e-5 if full else 2e-4
        size = {"per_device_train_batch_size": 4, "max_length": 512, "max_steps": 20}
        size["logging_steps"] = 5  # reading the loss waits for the device
        # "wrapped" joins samples end to end and cuts every 512 tokens. TRL's default keeps samples whole and apart,
        # which without FlashAttention's variable-length kernels needs a mask that rules out the fast ones.
        size |= {"packing": True, "packing_strategy": "wrapped"}
    return {"learning_rate": rate, **size}


@contextmanager
def _quiet_preparation() -> Iterator[None]:
    """Silence the progress bars of datasets, and two warnings that a reader can do nothing about.

    peft 0.21 asks transformers 5.23 by an old name, and TRL 2 will take kernels from the hub in Liger's place.
    """
    import datasets

    shown = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        with warnings.catch_warnings():
            for old in ("`is_gradient_checkpointing`", "`use_liger_kernel=True`"):
                warnings.filterwarnings("ignore", message=f"{old} is deprecated")
            yield
    finally:
        if shown:
            datasets.enable_progress_bars()


@contextmanager
def _quiet_liger() -> Iterator[None]:
    """Keep back what Liger says of its kernels for other makers' chips, each of which it tries to import."""

    def ours(record: logging.LogRecord) -> bool:
        return not any(f"backends.{name}." in record.getMessage() for name in ("_ascend", "_cutedsl", "_cutile"))

    log = logging.getLogger("liger_kernel.backends.registry")
    log.addFilter(ours)
    try:
        yield
    finally:
        log.removeFilter(ours)


def fine_tune(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Dataset,
    settings: Any,
    *,
    adapter: Any = None,
    adapter_dtype: torch.dtype | None = None,
    callbacks: Sequence[Any] = (),
) -> FineTuned:
    """Run SFTTrainer once and measure it.

    Args:
        model: a freshly loaded model. It is trained in place, so comparing two methods takes two loads.
        rows: columns ``prompt`` and ``completion`` (only the completion is learnt), ``text``, ``messages``, or others
            that :func:`rocm_guide.models.columns.training_rows` maps to these.
        settings: an ``SFTConfig``, for example from :func:`sft_settings`.
        adapter: a PEFT configuration such as ``LoraConfig``; None trains every weight.
        adapter_dtype: type of the adapter's weights; PEFT's choice (float32 under a 16-bit model) when None. Adapters
            of the model's own type, with ``bf16=False`` in ``settings``, need no casts around every product: faster,
            and updates smaller than the type's resolution are lost.

    Raises:
        GuideError: the model is wrapped by PEFT already, it has none of the layers that the adapter names, there is
            nothing to train on, or ``adapter_dtype`` without an adapter.
    """
    from transformers.trainer import DEFAULT_PROGRESS_CALLBACK
    from transformers.trainer_callback import PrinterCallback
    from trl import SFTTrainer

    if hasattr(model, "peft_config"):
        raise GuideError("this model carries an adapter already; load it afresh before training another one")
    if adapter_dtype is not None and adapter is None:
        raise GuideError(f"adapter_dtype={adapter_dtype} without an adapter; pass adapter=LoraConfig(…) with it")
    targets = getattr(adapter, "target_modules", None)
    names = [name for name, _ in model.named_modules()]
    if isinstance(targets, set | list | tuple) and not any(n.endswith(tuple(targets)) for n in names):
        wanted = ", ".join(sorted(targets))
        raise GuideError(f"target_modules={wanted}: {type(model).__name__} has none; see model.named_modules()")
    if not len(rows):
        raise GuideError("the training data has 0 rows; check the split and the filter that made it")
    gc.collect()  # an earlier trainer holds reference cycles, and through them gigabytes on the device
    seed_all(settings.seed)
    meter = step_meter()
    library = sys.modules[type(model).__module__]
    before = dict(vars(library))
    with _quiet_preparation():
        rows = training_rows(rows, tokenizer)
        columns = TRAINED_ON[kind_of(rows.column_names)]
        # Layers on several GPUs: TRL 1.16 divides two numbers that lie on different ones.
        spread = len(set(getattr(model, "hf_device_map", {}).values())) > 1
        trainer = (across_devices(SFTTrainer) if spread else SFTTrainer)(
            model=model,
            args=settings,
            train_dataset=rows.select_columns(list(columns)),
            processing_class=tokenizer,
            peft_config=adapter,
            callbacks=[meter, *callbacks],
        )
    if adapter_dtype is not None:
        for parameter in trainer.model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.to(adapter_dtype)
    # Which progress bar it is depends on where this runs; that of a notebook can be imported only where IPython is.
    for reporter in (PrinterCallback, DEFAULT_PROGRESS_CALLBACK):
        trainer.remove_callback(reporter)
    device = "cpu" if settings.use_cpu else "cuda"
    with peak_memory(device) as peak, _put_back(library, before), _quiet_liger():
        began = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - began
    result = FineTuned(trainer.model, seconds=seconds, peak_bytes=peak.bytes, peak_what=peak.what)
    result.trainable, result.total = trainable_parameters(trainer.model)
    logged = [row for row in trainer.state.log_history if "loss" in row and "num_tokens" in row]
    result.losses, result.loss_steps = [row["loss"] for row in logged], [row["step"] for row in logged]
    tokens = {row["step"]: int(row["num_tokens"]) for row in logged}
    result.tokens = max(tokens.values(), default=0)
    warm, began = (WARM_UP, meter.warm) if WARM_UP in tokens and len(tokens) > 1 else (0, meter.began)
    result.tokens_per_second = (result.tokens - tokens.get(warm, 0)) / (meter.ended - began)
    trainer.model.eval()
    return result


@contextmanager
def _put_back(module: ModuleType, before: dict[str, Any]) -> Iterator[None]:
    """Put back at the end what was replaced in ``module`` since it held ``before``.

    Liger changes the model that is trained, and with it the rotary embedding of every model of that family in this
    process: one on a CPU would call a Triton kernel from then on.
    """
    try:
        yield
    finally:
        for name, value in before.items():
            if vars(module).get(name) is not value:
                setattr(module, name, value)


def folder_bytes(folder: str | Path) -> dict[str, int]:
    """Return the bytes of every file below ``folder``, by its relative name.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as d:
    ...     _ = (Path(d) / "a.txt").write_text("1234")
    ...     folder_bytes(d)
    {'a.txt': 4}
    """
    root = Path(folder)
    return {str(p.relative_to(root)): p.stat().st_size for p in sorted(root.rglob("*")) if p.is_file()}
