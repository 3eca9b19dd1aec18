# SPDX-License-Identifier: MIT
"""TRL's trainer for a model whose layers lie on several GPUs. Notebook 04."""

from __future__ import annotations

from typing import Any

__all__ = ["across_devices"]


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
