# SPDX-License-Identifier: MIT
"""A LoRA fine-tune that outlives its machines: `torchrun … -m rocm_guide.finetune.elastic --output FOLDER`.

One process or many, one machine or many: every step trains on the same rows, and the gradient is that of the whole
batch. So the curve is the same for any number of processes, and a run that loses a machine goes on with the rest from
the last checkpoint as if nothing had happened. The output folder must be one that all machines see.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from rocm_guide.common.base import GuideError, write_text
from rocm_guide.finetune.batches import learning_rate, pad, rows_of_step, share_of_rank, tokenize_rows
from rocm_guide.finetune.checkpoints import load_checkpoint, newest_checkpoint, save_checkpoint

__all__ = ["ElasticSettings", "train"]


@dataclass(frozen=True)
class ElasticSettings:
    """The settings of a run; two runs with equal settings give equal curves, on any number of processes.

    Attributes:
        output: folder for metrics, checkpoints and the adapter, seen by all machines.
        model, data: as :func:`rocm_guide.models.load.load_model` and ``load_data`` take them.
        rank: of the adapter (all seven kinds of matrices).
        steps, batch: optimizer steps, and rows of each over all processes.
        at_a_time: rows that one process holds at a time; the others wait their turn.
        peak_rate: learning rate after the warm-up.
        save_every: steps between two checkpoints: the work that a lost machine can cost.
        shard: split weights, gradients and optimizer state over the processes (FSDP2) instead of copying them (DDP).
        patience: seconds after which a silent peer counts as lost.
    """

    output: str
    model: str = "tiny"
    data: str = "tiny"
    rank: int = 16
    steps: int = 60
    batch: int = 16
    at_a_time: int = 16
    peak_rate: float = 5e-3
    save_every: int = 10
    max_length: int = 256
    seed: int = 0
    shard: bool = False
    patience: int = 300


def train(settings: ElasticSettings) -> Path:
    """Train, going on from the newest checkpoint in the output folder if there is one; returns the adapter's folder.

    torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, …) say which process this is; without them it is
    the only one.

    Raises:
        GuideError: settings that cannot be, or a checkpoint of another run in the folder.
    """
    import torch
    import torch.distributed as dist

    gpu = torch.cuda.is_available()
    device = torch.device(f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if gpu else "cpu")
    if gpu:
        torch.cuda.set_device(device)
    alone = "MASTER_ADDR" not in os.environ
    where = {"store": dist.HashStore(), "rank": 0, "world_size": 1} if alone else {}
    dist.init_process_group("nccl" if gpu else "gloo", timeout=timedelta(seconds=settings.patience), **where)
    try:
        return _train(settings, device)
    finally:
        dist.destroy_process_group()


def _train(s: ElasticSettings, device: Any) -> Path:
    import torch
    import torch.distributed as dist

    from rocm_guide.models.columns import held_out_pair, training_rows
    from rocm_guide.models.load import load_data, load_tokenizer

    rank, world = dist.get_rank(), dist.get_world_size()
    tokenizer = load_tokenizer(s.model)
    rows = list(training_rows(load_data(s.data)["train"], tokenizer))
    if "completion" in rows[0]:  # turns of a conversation become text
        pairs = (held_out_pair(row, tokenizer) for row in rows)
        rows = [{"prompt": prompt, "completion": completion} for prompt, completion in pairs]
    samples = tokenize_rows(rows, tokenizer, s.max_length)
    model, wrapped = _model(s, device)
    trained = [p for p in wrapped.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=s.peak_rate, weight_decay=0.0)
    first = _resume(s, model, optimizer)
    for step in range(first, s.steps):
        torch.manual_seed(hash((s.seed, step, rank)))  # dropout, if any, depends on these three and on nothing else
        rows = rows_of_step(step, s.batch, len(samples), s.seed)
        wanted = sum(label != -100 for r in rows for label in samples[r][1][1:])
        width = max(len(samples[r][0]) for r in rows)
        pieces = share_of_rank(rows, rank, world, s.at_a_time)
        total = torch.zeros((), device=device)
        for i, piece in enumerate(pieces):
            ids, labels = (t.to(device) for t in pad([samples[r] for r in piece], width))
            with _sync(wrapped, i == len(pieces) - 1):
                logits = wrapped(input_ids=ids).logits[:, :-1].float()
                loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), reduction="sum")
                (loss * world / wanted).backward()  # DDP and FSDP divide the sum of all gradients by the world size
            total += loss.detach()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, s.steps, s.peak_rate)
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        dist.all_reduce(total)
        if rank == 0:
            line = {"step": step + 1, "loss": float(total) / wanted, "processes": world, "time": time.time()}
            with (Path(s.output) / "metrics.jsonl").open("a", encoding="utf-8") as log:
                log.write(json.dumps(line) + "\n")
        if (step + 1) % s.save_every == 0 and step + 1 < s.steps:
            _save(s, step + 1, model, optimizer)
    return _finish(s, model, tokenizer)


def _model(s: ElasticSettings, device: Any) -> tuple[Any, Any]:
    """Return the model with its adapter, and the same ready to be trained by all processes together."""
    import torch
    from peft import LoraConfig, get_peft_model
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    from rocm_guide.models.load import load_model
    from rocm_guide.models.sizes import LORA_TARGETS

    base, _ = load_model(s.model, device=str(device), seed=s.seed)
    torch.manual_seed(s.seed)  # the adapter's first values, the same everywhere
    adapter = LoraConfig(r=s.rank, lora_alpha=2 * s.rank, target_modules=list(LORA_TARGETS))
    model = get_peft_model(base, adapter).train()
    if not s.shard:
        return model, DistributedDataParallel(model)
    for layer in model.base_model.model.model.layers:
        fully_shard(layer)
    return model, fully_shard(model)


def _sync(wrapped: Any, last: bool) -> Any:
    """Exchange gradients after the last piece of a step only."""
    if hasattr(wrapped, "no_sync"):
        return nullcontext() if last else wrapped.no_sync()
    wrapped.set_requires_gradient_sync(last)
    return nullcontext()


def _whole() -> Any:
    """Return everything trained as ordinary tensors, for a file that any number of processes can go on from."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions

    return StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=True, strict=False)


def _identity(s: ElasticSettings) -> str:
    """Return what must be equal for a checkpoint to belong to this run; how it is spread over machines need not be."""
    names = ("model", "data", "rank", "steps", "batch", "peak_rate", "max_length", "seed")
    return json.dumps({n: getattr(s, n) for n in names})


def _resume(s: ElasticSettings, model: Any, optimizer: Any) -> int:
    """Load the newest checkpoint, if any, and return the step to go on with. Process 0 chooses; the others follow."""
    import torch.distributed as dist
    from torch.distributed.checkpoint.state_dict import set_state_dict

    chosen = [str(newest_checkpoint(Path(s.output) / "checkpoints") or "") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(chosen)
    state: dict[str, Any] = load_checkpoint(chosen[0]) if chosen[0] else {"step": 0, "run": _identity(s)}
    if state["run"] != _identity(s):
        raise GuideError(f"{s.output}: holds checkpoints of another run ({state['run']}); take a new output folder")
    if chosen[0]:
        wanted = {"model_state_dict": state["model"], "optim_state_dict": state["optimizer"], "options": _whole()}
        set_state_dict(model, optimizer, **wanted)
    if dist.get_rank() == 0:  # lines after the checkpoint will be written again
        path = Path(s.output) / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines()[: state["step"]] if path.is_file() else []
        write_text(path, "".join(line + "\n" for line in lines))
    dist.barrier()
    return int(state["step"])


def _save(s: ElasticSettings, step: int, model: Any, optimizer: Any) -> None:
    """Gather and write a checkpoint: every process takes part in the gathering, process 0 writes."""
    import torch.distributed as dist
    from torch.distributed.checkpoint.state_dict import get_state_dict

    weights, moments = get_state_dict(model, optimizer, options=_whole())
    if dist.get_rank() == 0:
        state = {"step": step, "run": _identity(s), "model": weights, "optimizer": moments}
        save_checkpoint(Path(s.output) / "checkpoints", step, state)


def _finish(s: ElasticSettings, model: Any, tokenizer: Any) -> Path:
    """Write the adapter beside its final name and rename it: a folder of that name is a finished run."""
    import torch.distributed as dist
    from torch.distributed.checkpoint.state_dict import get_model_state_dict

    final = Path(s.output) / "adapter"
    weights = get_model_state_dict(model, options=_whole())
    if dist.get_rank() == 0:
        work = final.with_name("adapter.tmp")
        for old in (work, final):
            shutil.rmtree(old, ignore_errors=True)
        model.save_pretrained(work, state_dict=weights)
        tokenizer.save_pretrained(work)
        work.rename(final)
    dist.barrier()
    return final


def main() -> int:
    """Run the command line: one option for each field of :class:`ElasticSettings`."""
    parser = argparse.ArgumentParser(prog="rocm_guide.finetune.elastic", description=__doc__.splitlines()[0])
    for name, default in {f: getattr(ElasticSettings, f, None) for f in ElasticSettings.__annotations__}.items():
        option = "--" + name.replace("_", "-")
        if isinstance(default, bool):
            parser.add_argument(option, action="store_true")
        else:
            parser.add_argument(option, type=type(default or ""), default=default, required=default is None)
    try:
        train(ElasticSettings(**vars(parser.parse_args())))
    except GuideError as e:
        print(e, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
