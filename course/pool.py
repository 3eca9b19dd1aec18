# SPDX-License-Identifier: MIT
"""Execute notebooks, several at a time, each in processes of its own that can be stopped without a trace."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import platform
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocm_guide.common.base import GuideError, cache_folder, own_folder
from rocm_guide.observe.doctor.software import gpu_nodes

__all__ = []

_MARK = "ROCM_GUIDE_RUN"
_COMPILING = 900  # seconds after which nobody is writing a header any more
_NOT_IN_NAMES = r'[\\/:*?"<>|]'  # as torch/_inductor/runtime/cache_dir_utils.py of torch 2.13 makes the folder's name


@dataclass(frozen=True)
class Job:
    """One notebook to execute: where it is, what it is given, and where the results go (``html`` may be left out).

    It starts once the notebook numbered ``after`` is done, if that is to be executed too.
    """

    number: str
    notebook: Path
    out: Path
    html: Path | None
    parameters: dict[str, Any]
    after: str = ""


# (notebook number, event of the worker); see course_worker for the events. "start" is added here.
Event = tuple[str, dict[str, Any]]


def default_jobs(notebooks: int) -> int:
    """Return how many notebooks to run at once:
    one per core, or one in all where they would share a GPU that they time.

    >>> default_jobs(1)
    1
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 1 if gpu_nodes() else max(1, min(cores, notebooks))


def child_environment(
    scratch: Path, mark: str, *, one_thread: bool, fresh: bool = False, models: Path | None = None
) -> dict[str, str]:
    """Return the environment of one notebook's processes.

    Its temporary files, Jupyter's connection files and IPython's history all go below ``scratch``, which is deleted
    afterwards, so that even a killed notebook leaves nothing behind. ``fresh``: as on a CPU machine that has run
    nothing before, GPUs hidden and the compilers' caches empty, so that the time is that of a reader's first run.
    ``models``: where a model travels from notebook to notebook, beside the results; two calls with result folders of
    their own, as tests make them, do not meet there.
    """
    env = dict(os.environ, **{_MARK: mark})
    for name, folder in (("TMPDIR", "tmp"), ("JUPYTER_RUNTIME_DIR", "j"), ("IPYTHONDIR", "ipython")):
        (scratch / folder).mkdir(parents=True, exist_ok=True)
        env[name] = str(scratch / folder)
    # The kernel must be this Python, not a "python3" kernel that the user once installed for another one.
    env["JUPYTER_PREFER_ENV_PATH"] = "1"
    if one_thread:
        # Models this small lose more to waiting threads than they gain, and several notebooks share the cores.
        env.setdefault("OMP_NUM_THREADS", "1")
        if not gpu_nodes():
            # Inductor's helper processes compile Triton's kernels alone, and cost each notebook the import of torch.
            # Kernels for a CPU are left to the C++ compiler, several at a time, by threads of the notebook itself.
            env.setdefault("TORCH_WARM_POOL", "0")
    if kept := inductor_folder():
        # A process that has imported inductor, as tests do, hands down torch's own folder, which nobody has chosen.
        if env.get("TORCHINDUCTOR_CACHE_DIR") in (None, str(Path(tempfile.gettempdir(), _inductor_name()))):
            env["TORCHINDUCTOR_CACHE_DIR"] = str(kept)
        if not fresh:
            _share_headers(kept, scratch / "tmp")
    if models is not None and (fresh or not env.get("ROCM_GUIDE_RUNS")):
        env["ROCM_GUIDE_RUNS"] = str(models)
    if fresh:
        env.update(CUDA_VISIBLE_DEVICES="", HIP_VISIBLE_DEVICES="", ROCR_VISIBLE_DEVICES="")
        env.update(TRITON_CACHE_DIR=str(scratch / "triton"), TORCHINDUCTOR_CACHE_DIR=str(scratch / "inductor"))
    return env


def _inductor_name() -> str:
    # torch calls inductor's folder below TMPDIR so.
    return f"torchinductor_{re.sub(_NOT_IN_NAMES, '_', getpass.getuser())}"


def inductor_folder() -> Path | None:
    """Return where torch.compile keeps its results for all notebooks;
    its own choice is TMPDIR, which goes away with each.

    Triton and zig keep theirs in the user's folder anyway, by a digest of source, target and compiler; all three write
    to a temporary file and rename it, so notebooks may share them while they run. Inductor compiles C++ for the
    processor at hand, and a home folder may be served to several machines: each kind has a folder of its own. Each
    ATEN_CPU_CAPABILITY has one too: what inductor wrote for the vectors of one is wrong, without an error, in those of
    another (seen with torch 2.13), and its own keys do not tell them apart.

    None where the cache cannot be written, or others can write to it: libraries are loaded from there.
    """
    try:
        told = re.search(r"^(flags|Features)\b.*$", Path("/proc/cpuinfo").read_text(), re.M)
        limit = os.environ.get("ATEN_CPU_CAPABILITY", "")
        this = f"{platform.machine()} {told[0] if told else platform.node()} {limit}"
        kind = hashlib.sha256(this.encode()).hexdigest()[:12]
        folder = own_folder(cache_folder() / "inductor" / kind)
    except (OSError, GuideError):
        return None
    return folder if os.access(folder, os.W_OK) else None


def _share_headers(kept: Path, temporary: Path) -> None:
    """Let inductor find its precompiled header, ten seconds of compilation, in ``kept``: it looks below TMPDIR alone.

    Its name is a digest of the header's text, the compiler and all options, and a lock beside it makes one process wait
    for another. A compiler that was killed leaves a header that gcc takes for none and inductor for ready; it goes.
    """
    try:
        headers = own_folder(kept / "precompiled_headers")
        for path in headers.glob("*.gch"):
            with path.open("rb") as file:
                unfinished = not file.read(4).startswith(b"gpch")  # gcc writes these four bytes last
            if unfinished and time.time() - path.stat().st_mtime > _COMPILING:
                path.unlink()
        place = temporary / _inductor_name()
        place.mkdir(mode=0o700, exist_ok=True)
        (place / headers.name).symlink_to(headers)
    except (OSError, KeyError, GuideError):
        return  # it is then made below TMPDIR, once more for each notebook


def _short_folder(scratch: Path) -> Path | None:
    """Return a folder for the kernels' sockets where ``scratch`` lies too deep:
    a socket's name has room for 107 characters.

    None where it does not, or where no shorter place can be written to; the kernels then talk over loopback.
    """
    if len(os.fsencode(scratch.resolve())) <= 80:
        return None
    for place in ("/tmp", "/dev/shm"):
        with suppress(OSError):
            return Path(tempfile.mkdtemp(prefix="rocm-guide-", dir=place))
    return None


class Pool:
    """A pool that executes jobs, at most ``jobs`` at a time, and yields their events as they come.

    Leaving :meth:`run` early, by an exception or by closing the iterator, kills every process that was started for
    this pool, kernels and their children included, and does not return before they are gone.
    """

    def __init__(self, jobs: int, *, one_thread: bool = True, fresh: bool = False) -> None:
        if jobs < 1:
            raise GuideError(f"jobs={jobs}: run at least one notebook at a time")
        self.jobs, self.one_thread, self.fresh = jobs, one_thread, fresh
        self.mark = uuid.uuid4().hex
        self._events: queue.Queue[tuple[str, dict[str, Any] | None]] = queue.Queue()
        self._workers: dict[str, tuple[subprocess.Popen[str], Path]] = {}
        self._sockets: Path | None = None

    def run(self, todo: Sequence[Job]) -> Generator[Event]:
        """Execute ``todo`` and yield (number, event); every job ends with exactly one "done" event."""
        try:
            scratch = Path(tempfile.mkdtemp(prefix="rocm-guide-"))
        except OSError as e:
            raise GuideError(f"{tempfile.gettempdir()}: {e.strerror}; free some space or set TMPDIR") from e
        waiting = list(todo)
        self._sockets = _short_folder(scratch)
        try:
            while waiting or self._workers:
                while len(self._workers) < self.jobs:
                    open_ones = {job.number for job in waiting} | self._workers.keys()
                    job = next((job for job in waiting if job.after not in open_ones), None)
                    if job is None:
                        break
                    waiting.remove(job)
                    self._start(job, scratch / job.number)
                    yield job.number, {"event": "start"}
                try:
                    number, event = self._events.get(timeout=0.5)
                except queue.Empty:
                    continue
                if event is None:
                    yield number, self._crashed(number)
                    self._finish(number)
                else:
                    yield number, event
                    if event["event"] == "done":
                        self._finish(number)
        finally:
            self.stop()
            shutil.rmtree(scratch, ignore_errors=True)
            if self._sockets:
                shutil.rmtree(self._sockets, ignore_errors=True)

    def _start(self, job: Job, scratch: Path) -> None:
        models = job.out.resolve().parent
        env = child_environment(scratch, self.mark, one_thread=self.one_thread, fresh=self.fresh, models=models)
        if self._sockets:
            env["JUPYTER_RUNTIME_DIR"] = str(self._sockets / job.number)
            Path(env["JUPYTER_RUNTIME_DIR"]).mkdir()
        with open(scratch / "stderr", "wb") as log:
            worker = subprocess.Popen(
                [sys.executable, "-m", "course.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=env,
                # In a session of its own, Ctrl-C in the terminal reaches only us, and we decide what stops.
                start_new_session=True,
            )
        self._workers[job.number] = worker, scratch
        order = {
            "notebook": str(job.notebook.resolve()),
            "cwd": str(job.notebook.resolve().parent),
            "parameters": job.parameters,
            "out": str(job.out.resolve()),
            "html": str(job.html.resolve()) if job.html else None,
        }
        assert worker.stdin is not None  # a pipe, see above
        try:
            worker.stdin.write(json.dumps(order) + "\n")
            worker.stdin.flush()
        except BrokenPipeError:
            pass  # it died at once; the reader below sees its end and reports it
        threading.Thread(target=self._listen, args=(job.number, worker), daemon=True).start()

    def _listen(self, number: str, worker: subprocess.Popen[str]) -> None:
        done = False
        assert worker.stdout is not None  # a pipe, see _start
        for line in worker.stdout:
            event = json.loads(line)
            done = done or event["event"] == "done"
            self._events.put((number, event))
        if not done:
            self._events.put((number, None))

    def _crashed(self, number: str) -> dict[str, Any]:
        worker, scratch = self._workers[number]
        worker.wait()
        log = (scratch / "stderr").read_text(errors="replace").strip()
        message = (log.splitlines() or ["no message"])[-1]
        if worker.returncode and worker.returncode < 0:
            message = f"killed by {signal.Signals(-worker.returncode).name}; if memory ran out, use --jobs 1"
        failure = {"error": "WorkerDied", "message": message, "traceback": log}
        return {"event": "done", "status": "failed", "seconds": 0, "peak_mib": 0, "failure": failure}

    def _finish(self, number: str) -> None:
        worker, scratch = self._workers.pop(number)
        assert worker.stdin is not None  # a pipe, see _start
        worker.stdin.close()
        worker.wait()
        shutil.rmtree(scratch, ignore_errors=True)

    def stop(self, patience: float = 10) -> None:
        """Kill everything that carries this pool's mark, and wait until it is gone."""
        deadline = time.monotonic() + patience
        while alive := self._marked():
            if time.monotonic() > deadline:
                names = ", ".join(str(p.pid) for p in alive)
                raise GuideError(f"processes {names} do not die; kill them by hand")
            for process in alive:
                with _gone_is_fine():
                    process.kill()
            for worker, _ in self._workers.values():
                worker.poll()
            time.sleep(0.05)
        for worker, _ in self._workers.values():
            worker.wait()
        self._workers.clear()

    def _marked(self) -> list[Any]:
        """Return the living processes of this pool.
        The mark is inherited, so it also finds those whose parent has died.
        """
        import psutil

        found = []
        for process in psutil.process_iter():
            with _gone_is_fine():
                if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(_MARK) == self.mark:
                    found.append(process)
        return found


def _gone_is_fine() -> AbstractContextManager[None]:
    """Pass over processes that end while we look at them, and those of other users, which do not let us look."""
    import psutil

    return suppress(psutil.Error, OSError)
