# SPDX-License-Identifier: MIT
"""The new names of modules that had another one before 2026-11-27: importing an old name says the new one in a line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["new_name"]

# Old name below rocm_guide -> new name. Of several that fit, the longest counts; what comes after it is kept.
MOVED = {
    "attention": "rocm_guide.tune.attention",
    "base": "rocm_guide.common.base",
    "checks": "cdna.checks",
    "ck": "rocm_guide.tune.ck",
    "cli.copying.names": "rocm_guide.cli.copying.scan",
    "cli.course": "course",
    "cli.fit.advice": "rocm_guide.cli.fit",
    "cli.fit.command": "rocm_guide.cli.fit",
    "cli.introductions": "rocm_guide.cli.lessons",
    "cli.serving.bench": "rocm_guide.cli.bench",
    "cli.serving.passport": "rocm_guide.cli.passport",
    "cli.serving.serve": "rocm_guide.cli.serve",
    "common.checks": "cdna.checks",
    "common.drawn_devices": "rocm_guide.common.drawn_models",
    "common.drawn_heads": "rocm_guide.common.drawn_models",
    "common.drawn_layers": "rocm_guide.common.drawn_models",
    "common.drawn_machine_code": "rocm_guide.common.drawn_gpus",
    "common.drawn_programs": "rocm_guide.common.drawn_gpus",
    "compilation": "rocm_guide.tune.compilation",
    "copying": "rocm_guide.cli.copying",
    "course": "course",
    "course.introductions": "rocm_guide.cli.lessons",
    "course.lessons": "rocm_guide.cli.lessons",
    "debugging": "rocm_guide.observe.debugging",
    "device": "rocm_guide.common.device",
    "distributed": "rocm_guide.finetune",
    "doctor": "rocm_guide.observe.doctor",
    "dojo.judge": "cdna.grade.judge",
    "dojo.puzzle": "cdna.grade.puzzle",
    "dojo.structure": "cdna.grade.structure",
    "dojo.worker": "cdna.grade.worker",
    "exercises.executed": "rocm_guide.exercises.common",
    "finetune.launch_options": "rocm_guide.finetune.nodes",
    "finetune.loopback": "rocm_guide.finetune.all_reduce",
    "finetune.resident": "rocm_guide.finetune.nodes",
    "finetune.run_picture": "rocm_guide.finetune.passport",
    "finetune.spread": "rocm_guide.finetune.sft",
    "finetune.step_clock": "rocm_guide.finetune.sft",
    "finetune.torchtune.resident": "rocm_guide.finetune.torchtune.run",
    "finetune.torchtune.results": "rocm_guide.finetune.torchtune.run",
    "hardware": "rocm_guide.common",
    "hardware.drawings": "rocm_guide.common.drawn_gpus",
    "hardware.executed": "cdna.predict",
    "hardware.gemm_prediction": "cdna.predict.gemm_prediction",
    "hardware.limits": "cdna.predict",
    "hardware.loops": "cdna.predict",
    "hardware.machine_drawings": "rocm_guide.common.drawn_gpus",
    "hardware.specs": "cdna.predict.specs",
    "hip": "cdna.hip",
    "host": "rocm_guide.common.host",
    "hub": "hub",
    "inference": "rocm_guide.serve",
    "inference.cost": "rocm_guide.serve.generate",
    "installation": "rocm_guide.common.installation",
    "kernels.attention.autograd": "rocm_guide.kernels.attention",
    "kernels.attention.backward": "rocm_guide.kernels.attention",
    "kernels.attention.forward": "rocm_guide.kernels.attention",
    "kernels.attention.quantized": "rocm_guide.kernels.attention_fp8",
    "kernels.attention.reference": "rocm_guide.kernels.attention",
    "kernels.attention.show": "rocm_guide.kernels.attention_show",
    "kernels.decode.decode": "rocm_guide.kernels.decode",
    "kernels.decode.integer": "rocm_guide.kernels.decode_int4",
    "kernels.decode.kv_quant": "rocm_guide.kernels.decode_int4",
    "kernels.decode.mla": "rocm_guide.kernels.mla_decode",
    "kernels.decode.mla_prefill": "rocm_guide.kernels.mla_prefill",
    "kernels.decode.paged": "rocm_guide.kernels.paged",
    "kernels.fp8.formats": "rocm_guide.kernels.fp8",
    "kernels.fp8.ladder": "rocm_guide.kernels.fp8_ladder",
    "kernels.fp8.rmsnorm": "rocm_guide.kernels.rmsnorm_fp8",
    "kernels.fp8.swiglu": "rocm_guide.kernels.swiglu_fp8",
    "kernels.gemm.multiply_reduce": "rocm_guide.kernels.gemm_multiply_reduce",
    "kernels.gemm.skinny": "rocm_guide.kernels.gemm_skinny",
    "kernels.gemm.split_k": "rocm_guide.kernels.gemm_split_k",
    "kernels.gemm.stream_k": "rocm_guide.kernels.gemm_stream_k",
    "kernels.gemm.tiled": "rocm_guide.kernels.gemm",
    "kernels.int8": "rocm_guide.kernels.int8_gemm",
    "kernels.int8.operators": "rocm_guide.kernels.int8_gemm",
    "kernels.int8.reference": "rocm_guide.kernels.int8_gemm",
    "measure": "rocm_guide.observe.predict",
    "memory": "rocm_guide.models",
    "memory.planner": "rocm_guide.models.memory_planner",
    "memory.plot": "rocm_guide.models.memory_planner",
    "mi300x": "cdna",
    "models.activations": "rocm_guide.models.step",
    "models.config_json": "rocm_guide.models.sources",
    "models.limits": "rocm_guide.models.memory_planner",
    "models.memory_plot": "rocm_guide.models.memory_planner",
    "models.norm_activations": "rocm_guide.models.sizes",
    "models.placement_reasons": "rocm_guide.models.placement",
    "models.sharded": "rocm_guide.models.step",
    "models.trust": "rocm_guide.models.hub",
    "models.weightless": "rocm_guide.models.described",
    "observe.debugging.faults.lanes": "rocm_guide.observe.debugging.faults.verdict",
    "observe.debugging.faults.model": "rocm_guide.observe.debugging.faults.agent_log",
    "observe.debugging.wrong.capture": "rocm_guide.observe.debugging.wrong.compare",
    "observe.doctor.resources": "rocm_guide.observe.doctor.software",
    "observe.measure": "rocm_guide.observe.predict",
    "observe.profiling.amd.perfetto": "rocm_guide.observe.profiling.amd.reader",
    "observe.profiling.amd.rocpd": "rocm_guide.observe.profiling.amd.reader",
    "observe.profiling.amd.rocprof_json": "rocm_guide.observe.profiling.amd.reader",
    "observe.profiling.amd.rows": "rocm_guide.observe.profiling.amd.rocprof_csv",
    "observe.profiling.torch_trace.expected": "rocm_guide.observe.profiling.torch_trace.summary",
    "observe.profiling.torch_trace.guard": "rocm_guide.observe.profiling.torch_trace.recording",
    "observe.system.saved": "rocm_guide.observe.system.apply",
    "observe.system.settings": "rocm_guide.observe.system.machine",
    "placement": "rocm_guide.models",
    "placement.planner": "rocm_guide.models.placement",
    "placement.reasons": "rocm_guide.models.placement",
    "placement.schedules": "rocm_guide.models.pipeline_schedules",
    "plots": "rocm_guide.common.plots",
    "profiling": "rocm_guide.observe.profiling",
    "quantization": "rocm_guide.quantize",
    "quantize.formats": "rocm_guide.quantize.int8",
    "quantize.smoothquant.checkpoint": "rocm_guide.quantize.smoothquant.linear",
    "runs": "rocm_guide.finetune",
    "runs.folder": "rocm_guide.finetune.run_folder",
    "runs.measure": "rocm_guide.finetune.run_measurements",
    "runs.picture": "rocm_guide.finetune.passport",
    "runs.stages": "rocm_guide.finetune.run_stages",
    "schematics": "rocm_guide.common",
    "schematics.devices": "rocm_guide.common.drawn_models",
    "schematics.heads": "rocm_guide.common.drawn_models",
    "schematics.layers": "rocm_guide.common.drawn_models",
    "serve.bench": "rocm_guide.serve.load_test",
    "serve.gateway": "rocm_guide.serve.door",
    "serve.load_results": "rocm_guide.serve.load_test",
    "serving": "rocm_guide.serve",
    "serving.checkpoints": "rocm_guide.serve.served_checkpoints",
    "serving.load": "rocm_guide.serve.load_test",
    "serving.results": "rocm_guide.serve.load_test",
    "smoothquant": "rocm_guide.quantize.smoothquant",
    "system": "rocm_guide.observe.system",
    "torchtune": "rocm_guide.finetune.torchtune",
    "training": "rocm_guide.finetune",
    "training.evaluation": "rocm_guide.models.evaluation",
    "tune.ck.headers": "rocm_guide.tune.ck.build",
    "tune.ck.matrix": "rocm_guide.tune.ck.instance",
    "tune.ck.memory_rules": "rocm_guide.tune.ck.rules",
    "tune.ck.refusal": "rocm_guide.tune.ck.rules",
    "tune.compilation.divergence": "rocm_guide.tune.compilation.decoder",
    "tune.tunableop.attention": "rocm_guide.tune.tunableop.recorder",
    "tune.tunableop.cost": "rocm_guide.tune.tunableop.tuning",
    "tune.tunableop.experts": "rocm_guide.tune.tunableop.recorder",
    "tune.tunableop.file_tools": "rocm_guide.tune.tunableop.files",
    "tune.tunableop.in_words": "rocm_guide.tune.tunableop.gemm",
    "tune.tunableop.matrices": "rocm_guide.tune.tunableop.blas_calls",
    "tunableop": "rocm_guide.tune.tunableop",
    "zoo": "rocm_guide.models",
    "zoo.data": "rocm_guide.models.course_data",
}


def new_name(old: str) -> str | None:
    """Return the name now of a module or name that was ``old``, which is written without ``rocm_guide.``.

    >>> new_name("zoo.load.load_model"), new_name("kernels")
    ('rocm_guide.models.load.load_model', None)
    """
    parts = old.split(".")
    for length in range(len(parts), 0, -1):
        if new := MOVED.get(".".join(parts[:length])):
            return ".".join([new, *parts[length:]])
    return None


class OldNames:
    """The last that Python asks where a module is: it finds none, and says of an old name which is the new one."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Raise ModuleNotFoundError for an old name."""
        room, _, rest = name.partition(".")
        if room == "rocm_guide" and (new := new_name(rest)):
            raise ModuleNotFoundError(f"{name} is {new} now: change the import", name=name)
        return None


if OldNames not in sys.meta_path:
    sys.meta_path.append(OldNames)
