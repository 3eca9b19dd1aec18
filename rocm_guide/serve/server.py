# SPDX-License-Identifier: MIT
"""A server with an OpenAI-compatible address for a saved model, as a child process: started, waited for, always ended.

vLLM where it is installed; else ``transformers serve``, which is in the course's pinned set and runs on a CPU too.
Notebook 18.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cdna.children import ChildError, Service
from rocm_guide.common.base import shown
from rocm_guide.models.memory_planner import RANKS
from rocm_guide.serve.door import KEY, is_loopback, run_transformers
from rocm_guide.serve.served_checkpoints import Checkpoint, ServingError, as_one_model, as_ready_model, read_checkpoint

__all__ = ["ENGINES", "Server", "free_port", "server_command", "start_server"]

ENGINES = ("auto", "vllm", "transformers")
#: Tokens of one block of the KV cache in transformers' continuous batching here.
BLOCK = 32


@dataclass(frozen=True)
class Server:
    """A running server.

    Attributes:
        url: its address, without /v1.
        model: what a client asks for.
        engine: "vllm" or "transformers".
        command: the command line that started it.
        seconds: from start to the first answer of its health check.
        key: whether it asks for one.
    """

    url: str
    model: str
    engine: str
    command: tuple[str, ...]
    seconds: float
    service: Service
    key: bool = False

    @property
    def running(self) -> bool:
        return self.service.running

    def curl(self) -> str:
        """Return a request that can be pasted into a terminal."""
        body = json.dumps({"model": self.model, "prompt": "In short: an MI300X has", "max_tokens": 24})
        key = f' -H "Authorization: Bearer ${KEY}"' if self.key else ""
        return f"curl {self.url}/v1/completions{key} -H 'Content-Type: application/json' -d {shlex.quote(body)}"


def free_port(host: str = "127.0.0.1", port: int | None = None) -> int:
    """Return a port on which nobody listens: ``port`` itself, or one that the system picks.

    Raises:
        ServingError: ``port`` is taken, or ``host`` is none of this machine's addresses.

    >>> 1024 < free_port() < 65536
    True
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that have ended do not count
        try:
            s.bind((host, port or 0))
        except OSError as e:
            if port and e.errno not in (99, -2, -5):  # 99: no such address
                fix = "choose another, or none for a free one"
                raise ServingError(f"port {port} on {host}: {e.strerror}; {fix}") from e
            raise ServingError(f"host {shown(host)}: {e.strerror}; 127.0.0.1 is this machine alone, 0.0.0.0 all") from e
        return int(s.getsockname()[1])


def pick_engine(engine: str = "auto") -> str:
    """Return the engine that will be used: the one asked for, or the best that is installed.

    Raises:
        ServingError: unknown, or not installed.
    """
    if engine not in ENGINES:
        raise ServingError(f"engine={engine!r}: choose from {', '.join(ENGINES)}")
    there = {
        "vllm": shutil.which("vllm") is not None,
        "transformers": all(find_spec(name) is not None for name in ("transformers", "fastapi", "uvicorn", "openai")),
    }
    if engine == "auto":
        engine = next((name for name, found in there.items() if found), "none")
    if not there.get(engine, False):
        fix = "vLLM's container has it" if engine == "vllm" else "pip install transformers fastapi uvicorn openai"
        raise ServingError(f"engine {engine}: not installed here; {fix}")
    return engine


def server_command(
    found: Checkpoint,
    engine: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    device: str = "auto",
    cache_tokens: int | None = None,
    share: float | None = None,
    options: Sequence[str] = (),
) -> list[str]:
    """Return the command line that serves a checkpoint under the name of its folder.

    ``transformers serve`` knows no other name than the path that it was given: it runs in the folder above.

    Args:
        engine: "vllm" or "transformers".
        device: of ``transformers serve``: auto, cpu, cuda:0.
        cache_tokens: tokens in the KV cache of all requests together. ``transformers serve`` on a CPU takes 4,096
            where this is None: left alone it would take most of the machine's memory. On a GPU the engine decides, and
            vLLM always does.
        share: of a GPU's memory; None for the engine's default. vLLM takes it of the whole memory, and does not start
            where less is free; ``transformers serve`` takes it of what the weights leave, for the cache.
        options: appended as they are.

    >>> server_command(Checkpoint(Path("/runs/mine")), "vllm", port=9000)
    ['vllm', 'serve', '/runs/mine', '--host', '127.0.0.1', '--port', '9000', '--served-model-name', 'mine']
    """
    where = ["--host", host, "--port", str(port)]
    if engine == "vllm":
        called = ["--served-model-name", found.name]
        if found.base:
            # vLLM sets room aside for these ranks, and for no others.
            room = next((r for r in RANKS if r >= max(8, found.rank)), found.rank)
            called = ["--enable-lora", "--max-lora-rank", str(room)]
            called += ["--lora-modules", f"{found.name}={found.folder}"]
            if found.tokenizer:  # it was trained with this one
                called += ["--tokenizer", str(found.folder)]
            if found.template:
                called += ["--chat-template", str(found.folder / "chat_template.jinja")]
        memory = [] if share is None else ["--gpu-memory-utilization", str(share)]
        return ["vllm", "serve", found.base or str(found.folder), *where, *called, *memory, *options]
    cache: list[str] = []
    if cache_tokens is None and device == "cpu":
        cache_tokens = 4096
    if cache_tokens is not None:
        blocks = max(1, -(-cache_tokens // BLOCK))
        cache = ["--cb-num-blocks", str(blocks), "--cb-block-size", str(BLOCK), "--cb-max-batch-tokens", "256"]
    elif share is not None:
        cache = ["--cb-max-memory-percent", str(share)]
    # By the name of this function's module, which another project may have renamed (`rocm-guide copy`).
    code = f"import sys, {run_transformers.__module__} as m; m.{run_transformers.__name__}(sys.argv[1:])"
    return [
        *(sys.executable, "-P", "-W", "ignore", "-c", code, found.name, *where),
        *("--device", device, "--continuous-batching", *cache, *options),
    ]


def _environment(found: Checkpoint, engine: str, hub: str, key: str) -> dict[str, str]:
    """Return an environment in which nothing is fetched or reported and libraries for quantised weights are found."""
    settings = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "PYTHONUNBUFFERED": "1"}
    if engine == "vllm":
        return settings | {"VLLM_NO_USAGE_STATS": "1"} | ({"VLLM_API_KEY": key} if key else {})
    settings[KEY] = key
    if found.quantised:
        settings["PYTHONPATH"] = _library_folder(found)
        settings["GPTQMODEL_DISABLE_PACK_EXT"] = "1"  # as add_libraries: half a minute of compiling for nothing
    settings["HF_HUB_CACHE"] = hub  # an empty one: nothing but the served folder is at hand
    if os.environ.get("OMP_NUM_THREADS") is None and (os.cpu_count() or 1) <= 4:
        settings["OMP_NUM_THREADS"] = "1"  # the client and the event loop need a core, too
    return settings


def _library_folder(found: Checkpoint) -> str:
    """Return the folder with the libraries for quantised weights; refuse where this checkpoint's is not installed.

    The server would die of it after seconds of loading. Of a method that the course does not use, transformers decides.
    """
    from rocm_guide.observe.doctor.own_folders import OWN_FOLDERS, QUANTISED_READERS

    folder = OWN_FOLDERS["quantization"]
    library = QUANTISED_READERS.get(found.quantised)
    if library and not (folder.path / library).is_dir() and find_spec(library) is None:
        reads = f"transformers serve reads {found.quantised} with {library}, which is not installed"
        raise ServingError(f"{shown(found.name)}: {reads}; {folder.fix}")
    return str(folder.path)


def answers_health(url: str) -> bool:
    """Return whether ``url``/health answers with 200.

    Asked twenty times a second while a server loads, on cores that the server needs: httpx would read its certificates
    each time, which takes longer than the pause between two questions.
    """
    parts = urlsplit(url)
    connection = HTTPConnection(str(parts.hostname), parts.port, timeout=2.0)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


@contextmanager
def start_server(
    folder: str | Path,
    *,
    engine: str = "auto",
    host: str = "127.0.0.1",
    port: int | None = None,
    device: str = "auto",
    cache_tokens: int | None = None,
    share: float | None = None,
    options: Sequence[str] = (),
    seconds: float = 300.0,
    key: str = "",
) -> Iterator[Server]:
    """Serve what lies in ``folder`` for the length of a ``with`` block.

    The server listens on this machine alone unless ``host`` says otherwise, and then it asks for a key. In front of
    ``transformers serve`` stands :class:`rocm_guide.serve.door.Door`; vLLM has the key alone.

    It ends with the block and also when this process ends in any other way (:class:`cdna.children.Service`).
    ``transformers serve`` takes no bare adapter: it gets a merged copy. vLLM gets the base and the adapter, and a
    merged copy of what it refuses (DoRA, modules_to_save, several ranks). On a GPU
    ``transformers serve`` multiplies GPTQ's and AWQ's weights with torch operations, which need no compiler and no
    network; vLLM has kernels of its own.

    Args:
        folder: a model, a quantised model, or a LoRA adapter whose base is at hand, with its tokenizer.
        share: of a GPU's memory, above 0 and at most 1; see :func:`server_command`.
        options: of the server, appended to its command line; host and port are not among them.
        seconds: when to give up waiting.
        key: what clients have to send as a bearer token: 16 to 200 visible ASCII characters; needed where ``host`` can
            be reached from other machines.

    Raises:
        ServingError: no key for a host that others reach, or one that is none;
            nothing to serve, no such engine, a port that is taken, no such share, or a server that ended or
            was not ready in time; then with its last lines.
    """
    if share is not None and not 0 < share <= 1:
        raise ServingError(f"share={share}: the part of the GPU's memory that the server may take, as 0.85")
    _check_door(host, key, options)
    found, engine = read_checkpoint(folder), pick_engine(engine)
    port = free_port(host, port)
    device = _device() if device == "auto" and engine == "transformers" else device
    with contextmanager(_served)(found, engine, device) as (found, hub):
        command = server_command(
            found, engine, host=host, port=port, device=device, cache_tokens=cache_tokens, share=share, options=options
        )
        reach = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
        url = f"http://{reach}:{port}"
        # vLLM has an environment of its own, with another transformers.
        settings: dict[str, Any] = {"same_modules": engine != "vllm", "folder": found.folder.parent}
        with Service(command, environment=_environment(found, engine, hub, key), **settings) as service:
            try:
                took = service.wait_until(lambda: answers_health(url), seconds)
            except ChildError as e:
                reason = str(e).split(" ", 1)[1]  # without the name of the program
                raise ServingError(f"{shown(found.name)}: the server of {engine} {reason}") from e
            yield Server(url, found.name, engine, tuple(command), took, service, bool(key))


def _check_door(host: str, key: str, options: Sequence[str]) -> None:
    """Refuse what would open the server to others by mistake; the key itself is never shown."""
    if key and not (16 <= len(key) <= 200 and key.isascii() and key.isprintable() and " " not in key):
        raise ServingError(f"the key in {KEY}: give 16 to 200 visible ASCII characters, as `openssl rand -hex 16` does")
    if not key and not is_loopback(host):
        fix = f"set a key: export {KEY}=$(openssl rand -hex 16)"
        raise ServingError(f"host={host}: whoever reaches this address could use the server; {fix}")
    for word in options:
        if word.partition("=")[0] in ("--host", "--port", "--enable-cors"):
            raise ServingError(f"-- {word}: opens the server past its checks; --host and --port stand before the --")


def _served(found: Checkpoint, engine: str, device: str) -> Iterator[tuple[Checkpoint, str]]:
    """Give what the engine loads, and an empty folder that stands for the hub's cache."""
    with tempfile.TemporaryDirectory(prefix="rocm-guide-hub-") as hub:
        if engine == "vllm":
            why = found.merge or (f"a rank of {found.rank}" if found.rank > RANKS[-1] else "")
            if why:
                print(f"{shown(found.name)}: merged into its base first, because vLLM takes no {why}", file=sys.stderr)
            with as_one_model(found) if why else nullcontext(found) as ready:
                yield ready, hub
            return
        with as_one_model(found) as one, as_ready_model(one) if device != "cpu" else nullcontext(one) as ready:
            yield ready, hub


def _device() -> str:
    """Return the accelerator of this machine; "auto" where only torch could tell, whose loading takes seconds."""
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        return "cuda:0" if torch.cuda.is_available() else "cpu"
    if not any(Path(node).exists() for node in ("/dev/kfd", "/dev/nvidia0")):
        return "cpu"
    return "auto"
