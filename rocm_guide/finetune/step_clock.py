# SPDX-License-Identifier: MIT
"""The moments when training began, was warm, and ended: the clock behind :func:`rocm_guide.finetune.sft.fine_tune`."""

from __future__ import annotations

from typing import Any

from rocm_guide.common.device import clock

__all__ = []

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
