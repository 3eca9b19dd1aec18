# SPDX-License-Identifier: MIT
"""vLLM on MI300X in words: the flags that matter, the container, a Kubernetes manifest, and TGI's names for the same.

Read off vLLM's documentation and source (0.32, 2026-11); nothing here was run on an MI300X.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rocm_guide.serve.served_checkpoints import ServingError

__all__ = ["FLAGS", "FROM_TGI", "Flag", "container_command", "flag_table", "manifest", "manifest_text"]

IMAGE = "vllm/vllm-openai-rocm:TAG"


@dataclass(frozen=True)
class Flag:
    """An option of ``vllm serve``, or a variable that it reads: what it is today, and what it changes."""

    name: str
    default: str
    changes: str


FLAGS = (
    Flag("--tensor-parallel-size N", "1", "splits every matrix and the KV heads over N GPUs; two all-reduces a layer"),
    Flag("--gpu-memory-utilization F", "0.92", "share of the memory for weights, activations and KV cache together"),
    Flag("--max-model-len N", "the model's", "longest prompt and answer; the cache must hold at least one such text"),
    Flag("--max-num-seqs N", "by device", "texts in one step; more is throughput, and time between tokens"),
    Flag("--max-num-batched-tokens N", "by device", "tokens of one step; large: prompts fast; small: even answers"),
    Flag("--enable-chunked-prefill", "on", "a long prompt is read in pieces between the steps of the others"),
    Flag("--enable-prefix-caching", "on", "blocks of a prompt's common beginning are computed once and shared"),
    Flag("--quantization fp8", "from config.json", "weights rounded to FP8 while loading: half the bytes"),
    Flag("--kv-cache-dtype fp8", "auto (bf16)", "keys and values in 8 bits: twice the texts; measure the accuracy"),
    Flag("--enable-lora --lora-modules n=DIR", "off", "adapters beside one base, chosen by the request's model name"),
    Flag("--attention-backend NAME", "by device", "ROCM_ATTN, TRITON_ATTN or ROCM_AITER_FA"),
    Flag("--enforce-eager", "off", "no graph capture: starts sooner, each step pays for its launches"),
    Flag("--api-key KEY", "none", "401 without it; better from a secret: VLLM_API_KEY"),
    Flag("VLLM_ROCM_USE_AITER=1", "0", "AMD's AITER kernels; its sub-switches are on, so this one decides"),
    Flag("VLLM_ROCM_USE_AITER_MOE=0", "1", "leaves the experts out, where AITER faults on them"),
)

#: What one wrote for Text Generation Inference, and today's words of vLLM.
FROM_TGI = (
    ("text-generation-launcher --model-id M", "vllm serve M"),
    ("--num-shard 8", "--tensor-parallel-size 8"),
    ("--max-total-tokens 8192", "--max-model-len 8192"),
    ("--max-batch-prefill-tokens 8192", "--max-num-batched-tokens 8192"),
    ("--max-concurrent-requests 128", "--max-num-seqs 128, and a limit in front of it"),
    ("--cuda-memory-fraction 0.9", "--gpu-memory-utilization 0.9"),
    ("--quantize fp8", "--quantization fp8"),
    ("POST /generate {inputs, parameters}", "POST /v1/completions {prompt, max_tokens, …}"),
    ("POST /generate_stream", 'POST /v1/completions with "stream": true'),
    ("text-generation-benchmark", "vllm bench serve, vllm bench latency"),
)


def flag_table() -> str:
    """Return :data:`FLAGS` as lines for a terminal."""
    wide, narrow = max(len(f.name) for f in FLAGS), max(len(f.default) for f in FLAGS)
    return "\n".join(f"{f.name:<{wide}}  {f.default:<{narrow}}  {f.changes}" for f in FLAGS)


def container_command(folder: str, *options: str) -> str:
    """Return a docker command line that serves a folder of this machine on its loopback, port 8000.

    >>> print(container_command("runs/my-model", "--max-model-len", "8192").splitlines()[-1].strip())
    --model /model --max-model-len 8192
    """
    flags = (
        "--device /dev/kfd --device /dev/dri --group-add video",
        "--ipc=host --security-opt seccomp=unconfined",
        "-p 127.0.0.1:8000:8000 -e VLLM_ROCM_USE_AITER=1",
        f'-v "$PWD/{folder}:/model:ro"',
    )
    return " \\\n  ".join(["docker run --rm", *flags, IMAGE, " ".join(["--model /model", *options])])


def manifest(
    name: str, *, claim: str, gpus: int = 1, replicas: int = 2, options: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """Return a Kubernetes Deployment and a Service for vLLM on AMD GPUs; :func:`manifest_text` makes a file of them.

    Readiness and liveness ask /health; a slow start is the startup probe's. On SIGTERM vLLM finishes what it has begun,
    for which the pod gets two minutes. The key comes from a Secret; GPUs from AMD's device plugin (amd.com/gpu).

    Args:
        claim: a PersistentVolumeClaim that holds the model's folder ``name``.

    Raises:
        ServingError: a name that Kubernetes would refuse.
    """
    if not (name.isascii() and name.replace("-", "a").isalnum() and name == name.lower() and name.strip("-") == name):
        raise ServingError(f"{name!r}: a name in Kubernetes has small letters, digits and inner hyphens")
    labels = {"app": name}
    probe = {"httpGet": {"path": "/health", "port": 8000}}
    container = {
        "name": "vllm",
        "image": IMAGE,
        "args": ["--model", f"/models/{name}", "--served-model-name", name, *options],
        "env": [
            {"name": "VLLM_ROCM_USE_AITER", "value": "1"},
            {"name": "VLLM_API_KEY", "valueFrom": {"secretKeyRef": {"name": f"{name}-key", "key": "key"}}},
        ],
        "ports": [{"containerPort": 8000}],
        "resources": {"limits": {"amd.com/gpu": gpus}},
        "startupProbe": {**probe, "periodSeconds": 10, "failureThreshold": 90},
        "readinessProbe": {**probe, "periodSeconds": 5},
        "livenessProbe": {**probe, "periodSeconds": 10, "failureThreshold": 6},
        "volumeMounts": [
            {"name": "models", "mountPath": "/models", "readOnly": True},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }
    if gpus > 1:
        container["args"] = [*container["args"], "--tensor-parallel-size", str(gpus)]
    volumes = [
        {"name": "models", "persistentVolumeClaim": {"claimName": claim}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
    ]
    pod = {"terminationGracePeriodSeconds": 120, "containers": [container], "volumes": volumes}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": labels}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}}
    ports = [{"port": 80, "targetPort": 8000}]
    return [{**deployment, "spec": spec}, {**service, "spec": {"selector": labels, "ports": ports}}]


def manifest_text(objects: Sequence[dict[str, Any]]) -> str:
    """Return what ``kubectl apply -f FILE.yaml`` reads: one document for each object, in JSON, which is YAML.

    A JSON list of objects would be refused ("invalid object to validate"). A validator reads the same text: what
    :func:`manifest` writes passes ``kubernetes-validate --strict`` 1.37 for Kubernetes 1.28, 1.33 and 1.37.
    """
    return "".join(f"---\n{json.dumps(one, indent=1)}\n" for one in objects)
