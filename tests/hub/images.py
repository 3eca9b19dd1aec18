# SPDX-License-Identifier: MIT
"""Images built and run without an engine: Debian's buildah, whose containers are folders that it changes its root to.

Needs root, buildah, and either debootstrap or a root file system of Debian in the folder ``ROCM_GUIDE_IMAGES_BASE``.
``ROCM_GUIDE_IMAGES_MOUNTS`` holds what a network asks for, as ``SOURCE:TARGET:ro`` with spaces between: certificates, a
pip.conf, wheels. They are there while an image is built, and are no part of it.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SUITE, MIRROR = "bookworm", "http://deb.debian.org/debian"


def why_not() -> str:
    """What an image cannot be built without, in one line; empty if all is there."""
    if os.geteuid():
        return "building without an engine needs root"
    if shutil.which("buildah") is None:
        return "buildah is not installed; on Debian: apt-get install --no-install-recommends buildah"
    if "ROCM_GUIDE_IMAGES_BASE" not in os.environ and shutil.which("debootstrap") is None:
        return "neither debootstrap is installed nor ROCM_GUIDE_IMAGES_BASE set; apt-get install debootstrap"
    return ""


def bytes_on_disk(folder: Path) -> int:
    """Bytes of the files in a folder, as du counts them; one that has several names is counted once."""
    done = subprocess.run(["du", "-s", "-x", "--block-size=1", str(folder)], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[0])


class Builder:
    """Images and containers in one folder, which is all that they leave behind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.volumes = [f"--volume={v}" for v in os.environ.get("ROCM_GUIDE_IMAGES_MOUNTS", "").split()]

    def words(self, *words: str) -> list[str]:
        own = [f"--root={self.folder}/storage", f"--runroot={self.folder}/run", "--storage-driver=vfs"]
        return ["buildah", *own, *words]

    def buildah(self, *words: str) -> str:
        """What buildah prints; its last lines if it fails."""
        done = subprocess.run(self.words(*words), capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            said = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
            raise AssertionError(f"buildah {words[0]} ended with {done.returncode}:\n{said}")
        return done.stdout.strip()

    def base(self, name: str) -> int:
        """A plain Debian, without a Python, as the image ``name``; gives its bytes."""
        given = os.environ.get("ROCM_GUIDE_IMAGES_BASE")
        root = Path(given) if given else self.folder / "base"
        if not given:
            command = ["debootstrap", "--variant=minbase", "--include=ca-certificates", SUITE, str(root), MIRROR]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            for archive in (root / "var/cache/apt/archives").glob("*.deb"):
                archive.unlink()
        container = self.buildah("from", "scratch")
        self.buildah("copy", container, str(root), "/")
        size = bytes_on_disk(self.mounted(container))
        self.buildah("commit", "--quiet", "--rm", container, name)
        if not given:
            shutil.rmtree(root)
        return size

    def build(self, dockerfile: Path, context: Path, name: str, **arguments: str) -> None:
        """The image ``name`` of a file, in one layer: every further one would be a copy of all below it."""
        given = [f"--build-arg={k}={v}" for k, v in arguments.items()]
        options = ["--isolation=chroot", "--pull-never", "--format=docker", "--layers=false", *self.volumes, *given]
        self.buildah("bud", *options, f"--tag={name}", f"--file={dockerfile}", str(context))

    def settings(self, image: str) -> dict[str, Any]:
        """What an image says of itself: its user, its command, its health check."""
        found = json.loads(self.buildah("inspect", "--type=image", image))["Docker"]["config"]
        return dict(found)

    def mounted(self, container: str) -> Path:
        return Path(self.buildah("mount", container))

    @contextlib.contextmanager
    def container(self, image: str) -> Iterator[str]:
        """A container of an image; every process in it is ended with it."""
        name = self.buildah("from", "--pull-never", image)
        try:
            yield name
        finally:
            for entry in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    if self.mark(name).encode() in (entry / "environ").read_bytes().split(b"\0"):
                        os.kill(int(entry.name), signal.SIGKILL)
            self.buildah("rm", name)

    def mark(self, container: str) -> str:
        """What the environment of every process in a container holds, except of learners' servers."""
        return f"ROCM_GUIDE_IMAGES_RUN={self.folder}/{container}"

    def inside(self, container: str, *command: str, user: str = "") -> list[str]:
        """The words that run a command in a container, as its image's user if no other is named."""
        # The name of the host must be one that the container can look up: a hub reaches its proxy by it.
        options = ["--isolation=chroot", "--hostname=localhost", f"--env={self.mark(container)}"]
        options += [f"--user={user}"] if user else []
        return self.words("run", *options, container, "--", *command)

    def run(self, container: str, *command: str, user: str = "", text: str = "") -> str:
        """What a command in a container prints; its last lines if it fails."""
        words = self.inside(container, *command, user=user)
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", input=text, check=False)
        if done.returncode:
            said = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
            raise AssertionError(f"{' '.join(command)} ended with {done.returncode}:\n{said}")
        return done.stdout.strip()

    @contextlib.contextmanager
    def started(self, container: str, image: str, log: Path, seconds: float = 300) -> Iterator[None]:
        """The image's own command, until the image's own health check finds it well."""
        found = self.settings(image)
        check = found["Healthcheck"]["Test"]
        assert check[0] == "CMD", check
        with log.open("w") as out:
            process = subprocess.Popen(self.inside(container, *found["Cmd"]), stdout=out, stderr=out)
        try:
            deadline = time.monotonic() + seconds
            while subprocess.run(self.inside(container, *check[1:]), capture_output=True, check=False).returncode:
                said = log.read_text(errors="replace")[-3000:]
                assert process.poll() is None, f"{found['Cmd']} ended with {process.returncode}:\n{said}"
                assert time.monotonic() < deadline, f"not well after {seconds:g} s:\n{said}"
                time.sleep(2)
            yield
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60)

    def end(self) -> None:
        """Leave nothing behind."""
        with contextlib.suppress(AssertionError):
            self.buildah("rm", "--all")
        shutil.rmtree(self.folder, ignore_errors=True)
