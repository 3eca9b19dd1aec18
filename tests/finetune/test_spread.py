# SPDX-License-Identifier: MIT
"""Training through a device map: no two numbers on different GPUs meet, and the loss comes out on the first one."""

import pytest
import torch

from rocm_guide.finetune.sft import across_devices, sft_settings
from rocm_guide.models.load import load_data, load_model

SENTENCE = "Expected all tensors to be on the same device"


class First(torch.Tensor):
    """A tensor on a GPU that is not there; arithmetic with one on another GPU is refused, as torch refuses it."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if {First, Second} <= set(types):
            raise RuntimeError(f"{SENTENCE}, but found at least two devices, cuda:1 and cuda:0!")
        if func is torch.Tensor.to and isinstance(args[1], torch.device):
            return args[0].as_subclass(First)
        return super().__torch_function__(func, types, args, kwargs or {})


class Second(First):
    """The same, on the second GPU, where the output layer lies."""


@pytest.fixture
def batch(tmp_path):
    """(make, inputs, count): a trainer of a class, whose model answers on the second GPU, and a batch on the first."""
    from trl import SFTTrainer

    def make(kind):
        model, tokenizer = load_model("tiny", device="cpu")
        rows = load_data("tiny")["train"].select(range(4)).select_columns(["prompt", "completion"])
        settings = sft_settings(tmp_path, device="cpu", max_steps=1, max_length=64)
        trainer = kind(model=model, args=settings, train_dataset=rows, processing_class=tokenizer)
        inputs = next(iter(trainer.get_train_dataloader()))
        count = (inputs["labels"][:, 1:] != -100).sum()
        here = trainer.compute_loss(trainer.model, dict(inputs), num_items_in_batch=count)
        forward = trainer.model.forward

        def elsewhere(*args, **kwargs):
            found = forward(*args, **kwargs)
            for name in ("log_probs", "entropy", "is_top1", "label_mask"):
                setattr(found, name, getattr(found, name).as_subclass(Second))
            return found

        trainer.model.forward = elsewhere
        return here, lambda: trainer.compute_loss(
            trainer.model, dict(inputs), num_items_in_batch=count.as_subclass(First)
        )

    return make, SFTTrainer


def test_the_loss_of_a_model_on_two_gpus(batch):
    make, trainer = batch
    here, spread = make(across_devices(trainer))
    loss = spread()
    assert type(loss) is First, "transformers adds up the losses on the first device"
    assert loss.item() == pytest.approx(here.item(), rel=1e-6)


def test_the_installed_trl_still_needs_it(batch):
    """When this fails, TRL has mended it: ``across_devices`` can go."""
    make, trainer = batch
    with pytest.raises(RuntimeError, match=SENTENCE):
        make(trainer)[1]()


def test_fine_tune_takes_it_for_a_model_that_is_spread(tmp_path, monkeypatch):
    from rocm_guide.finetune import sft

    asked = []

    def remember(kind):
        asked.append(kind)
        return across_devices(kind)

    monkeypatch.setattr(sft, "across_devices", remember)
    losses = []
    for devices in ({"": "cpu"}, {"model": 0, "lm_head": 1}):
        model, tokenizer = load_model("tiny", device="cpu")
        model.hf_device_map = devices
        settings = sft_settings(tmp_path, device="cpu", max_steps=1, max_length=64)
        losses.append(sft.fine_tune(model, tokenizer, load_data("tiny")["train"].select(range(8)), settings).losses)
    assert len(asked) == 1 and losses[0] == losses[1]
