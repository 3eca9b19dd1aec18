# SPDX-License-Identifier: MIT
"""The samples that an optimizer step sees: a function of the seed and the step, whatever the number of processes is."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocm_guide.common.base import GuideError
from rocm_guide.models.course_data import pad_right

if TYPE_CHECKING:
    import torch

__all__ = ["read_losses", "read_processes", "rows_of_step"]

Sample = tuple[list[int], list[int]]


def rows_of_step(step: int, batch: int, rows: int, seed: int = 0) -> list[int]:
    """Return the ``batch`` rows that step ``step`` (from 0) trains on.

    The data is shuffled afresh for every epoch, and the epochs are laid end to end. There is no state to save: a run
    that goes on at step 40 computes what an uninterrupted one would have taken, on any number of processes.

    Raises:
        GuideError: fewer rows than one batch, or a negative step.

    >>> one, two = rows_of_step(0, 4, 6), rows_of_step(1, 4, 6)
    >>> sorted(one + two[:2]) == list(range(6)), rows_of_step(1, 4, 6) == two
    (True, True)
    """
    import torch

    if step < 0 or not 0 < batch <= rows:
        raise GuideError(f"step={step}, batch={batch} of {rows} rows: the batch is 1 to {rows}, the step 0 or more")
    chosen: list[int] = []
    for k in range(step * batch, (step + 1) * batch):
        epoch, place = divmod(k, rows)
        if not chosen or place == 0:
            order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed * 1_000_003 + epoch)).tolist()
        chosen.append(order[place])
    return chosen


def share_of_rank(batch: Sequence[int], rank: int, world: int, at_a_time: int) -> list[list[int]]:
    """Return the rows of one process, cut into pieces of ``at_a_time``; every process gets the same number of pieces.

    Equal numbers matter: sharded processes meet in every forward pass, and one that has nothing to do would leave the
    others waiting for ever. A piece may be empty; it is then filled with padding that the loss ignores.

    Raises:
        GuideError: rank, world or at_a_time out of range.

    >>> share_of_rank([7, 8, 9], rank=1, world=2, at_a_time=1)
    [[8], []]
    """
    if not 0 <= rank < world or at_a_time < 1:
        raise GuideError(f"rank={rank} of {world}, at_a_time={at_a_time}: ranks count from 0, at_a_time from 1")
    mine = list(batch[rank::world])
    pieces = math.ceil(math.ceil(len(batch) / world) / at_a_time)
    return [mine[i * at_a_time : (i + 1) * at_a_time] for i in range(pieces)]


def tokenize_rows(rows: Sequence[Mapping[str, str]], tokenizer: Any, max_length: int = 256) -> list[Sample]:
    """Return (token ids, labels) of each row; the labels of a prompt are -100, which the loss ignores.

    Args:
        rows: with ``prompt`` and ``completion``, or with ``text``, all of which is learnt.

    Raises:
        GuideError: a row has neither, or nothing is left to learn.

    >>> from rocm_guide.models.load import load_tokenizer
    >>> row = {"prompt": "[INST] Hi [/INST]", "completion": " Hello. </s>"}
    >>> ids, labels = tokenize_rows([row], load_tokenizer())[0]
    >>> labels[0], labels[-1] == ids[-1] == 2
    (-100, True)
    """
    samples = []
    for i, row in enumerate(rows):
        if "text" not in row and not {"prompt", "completion"} <= set(row):
            raise GuideError(f"row {i} has {', '.join(row)}; wanted are prompt and completion, or text")
        prompt = tokenizer(row["prompt"]).input_ids if "prompt" in row else []
        whole = tokenizer(row["prompt"] + row["completion"] if prompt else row["text"]).input_ids[:max_length]
        samples.append((whole, [-100] * min(len(prompt), len(whole)) + whole[len(prompt) :]))
    if not any(label != -100 for _, labels in samples for label in labels[1:]):
        raise GuideError(f"max_length={max_length}: nothing is left to learn; the prompts alone are longer")
    return samples


def pad(samples: Sequence[Sample], width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the ids and labels of shape (max(1, samples), ``width``), padded on the right,
    where causal attention never looks.

    >>> pad([([1, 5], [-100, 5])], 3)
    (tensor([[1, 5, 0]]), tensor([[-100,    5, -100]]))
    """
    filled = list(samples) or [([0], [-100])]
    return pad_right([ids for ids, _ in filled], 0, width), pad_right([labels for _, labels in filled], -100, width)


def learning_rate(step: int, steps: int, peak: float, warm_up: int = 10) -> float:
    """Return the learning rate of a step: a straight climb to ``peak``, then half a cosine down to zero at ``steps``:
    again no state, only the step.

    >>> [round(learning_rate(s, 20, 1.0), 2) for s in (0, 9, 10, 15, 20)]
    [0.1, 1.0, 1.0, 0.5, 0.0]
    """
    if step < warm_up:
        return peak * (step + 1) / warm_up
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up)))


def read_losses(output: str | Path) -> tuple[list[int], list[float]]:
    """Read the steps and losses that a run has logged, a half-written last line left out.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as d:
    ...     _ = Path(d, "metrics.jsonl").write_text('{"step": 1, "loss": 2.5}\\n{"step": 2, "lo')
    ...     read_losses(d)
    ([1], [2.5])
    """
    rows = _logged(output)
    return [r["step"] for r in rows], [r["loss"] for r in rows]


def read_processes(output: str | Path) -> list[int]:
    """Read how many processes computed each step that a run has logged.

    >>> read_processes("no/such/run")
    []
    """
    return [r["processes"] for r in _logged(output)]


def _logged(output: str | Path) -> list[dict[str, Any]]:
    path = Path(output) / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.is_file() else []
    return [json.loads(line) for line in lines]
