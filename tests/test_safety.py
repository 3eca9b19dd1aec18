# SPDX-License-Identifier: MIT
"""Shared and hostile places: what another user planted is not loaded, what is no file is not replaced or read."""

import ast
import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rocm_guide.common.base import GuideError, check_private, own_folder, shown, whole_file, write_bytes, write_text

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, TOOLKIT = ROOT / "rocm_guide", ROOT / "cdna" / "cdna"
AS_ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not AS_ROOT, reason="only root can give a file to another user")


def guide(*arguments, **more):
    command = [sys.executable, "-m", "rocm_guide.cli.main", *map(str, arguments)]
    more.setdefault("timeout", 240)
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, **more)


def one_line(done, *words):
    assert done.returncode == 2, (done.returncode, done.stderr[-600:])
    assert len(done.stderr.splitlines()) == 1 and "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def as_user(number, function):
    """What ``function()`` returns or the text of its GuideError, in a child with another user's rights."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(number)
            os.setuid(number)
            answer = str(function())
        except GuideError as e:
            answer = f"GuideError: {e}"
        except BaseException as e:  # noqa: BLE001 - told to the parent, which fails
            answer = repr(e)
        os.write(theirs, answer.encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as f:
        answer = f.read()
    os.waitpid(child, 0)
    return answer


# ---- writing --------------------------------------------------------------------------------------------------------


def test_mode_and_link_of_the_old_file_stay(tmp_path):
    target, link = tmp_path / "real.txt", tmp_path / "link.txt"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to("real.txt")
    write_text(link, "new")
    assert link.is_symlink() and target.read_text() == "new" and stat.S_IMODE(target.stat().st_mode) == 0o600
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.txt", "real.txt"]


def test_a_link_to_nothing_gets_its_target(tmp_path):
    (tmp_path / "link").symlink_to("later/file")
    write_text(tmp_path / "link", "x")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "later" / "file").read_text() == "x"


def test_pipe_is_written_to_and_stays_a_pipe(tmp_path):
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_bytes(pipe, b"through")
    reader.join(30)
    assert got == [b"through"] and stat.S_ISFIFO(pipe.stat().st_mode)


def device(folder, name, minor):
    """A device of our own like /dev/null (3) or /dev/full (7), so that a mistake destroys no real one."""
    try:
        os.mknod(folder / name, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
        with (folder / name).open("wb"):
            return folder / name
    except PermissionError:
        pytest.skip("device files cannot be made or opened here: needs root, and a file system without nodev")


def test_devices_are_written_to_and_stay_devices(tmp_path):
    null, full = device(tmp_path, "null", 3), device(tmp_path, "full", 7)
    write_text(null, "x")
    with pytest.raises(GuideError, match=r"full: cannot be written .No space left on device.") as caught:
        write_text(full, "x")
    assert "\n" not in str(caught.value)
    with whole_file(null) as part:
        part.write_bytes(b"for a library that wants a name")
    assert stat.S_ISCHR(null.stat().st_mode) and stat.S_ISCHR(full.stat().st_mode)
    one_line(guide("copy", "common.device.seed_all", "-o", full), "No space left")
    assert guide("copy", "common.device.seed_all", "-o", null).returncode == 0
    assert stat.S_ISCHR(null.stat().st_mode) and stat.S_ISCHR(full.stat().st_mode)


def test_an_error_while_a_file_is_filled_leaves_the_old_one(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), whole_file(tmp_path / "a.bin") as part:
        part.write_bytes(b"half")
        1 / 0
    assert (tmp_path / "a.bin").read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["a.bin"]


def test_a_kill_while_writing_leaves_the_old_file(tmp_path):
    (tmp_path / "a.txt").write_text("old")
    code = f"""
import os, signal
from rocm_guide.common.base import whole_file
with whole_file({str(tmp_path / "a.txt")!r}) as part:
    part.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT)
    assert done.returncode == -9 and (tmp_path / "a.txt").read_text() == "old"


def test_out_that_names_nothing_is_one_line():
    one_line(guide("copy", "common.device.seed_all", "-o", ""), "no file named")


def test_a_full_disk_at_standard_output_is_one_line(tmp_path):
    full = device(tmp_path, "full", 7)
    for words in (["list"], ["copy", "common.device.seed_all"], ["faults", "env"], ["--help"]):
        with full.open("w") as out:
            command = [sys.executable, "-m", "rocm_guide.cli.main", *words]
            done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, cwd=ROOT, timeout=120)
        one_line(done, "No space left on device")


# Writers that are none of ours: (module, what it writes).
ALLOWED = {
    "cdna/base.py": "the one place",
    "cdna/children.py": "a call for a child, in a temporary folder",
    "cdna/cli/program.py": "/dev/null, where standard error is closed",
    "common/device.py": "/proc/self/clear_refs",
    "finetune/nodes.py": "a child's output, as it comes",
    "finetune/watched.py": "gradients, in the folder of the call that looks at them",
    "exercises/evaluate_and_export.py": "files to judge an exercise by, in a temporary folder",
    "course/pool.py": "a worker's stderr, below its own scratch folder",
    "models/tiny.py": "a lock, which stays empty",
    "finetune/run_folder.py": "a lock, which stays empty",
    "finetune/torchtune/run.py": "what tune prints, as it runs",
    "finetune/passport.py": "a lock, which stays empty",
    "cdna/grade/limits.py": "/proc/self/uid_map and its kin",
    "cdna/grade/worker.py": "what a judge and its worker tell each other, in a temporary folder",
    "hub/pretend.py": "a pretended machine in a temporary folder",
    "observe/system/apply.py": "a lock, which stays empty",
    "observe/system/pretend.py": "a pretended machine in a temporary folder",
    "observe/debugging/faults/code_objects.py": "a code object in a temporary folder, for llvm-objdump",
}


def writes(tree):
    """Calls that write a file under a name: Path.write_text, open(…, "w"), torch.save to a path, …"""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        texts = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        mode = texts + [k.value.value for k in node.keywords if k.arg == "mode" and isinstance(k.value, ast.Constant)]
        if name == "open" and any(re.fullmatch(r"[rwaxbt+]{1,3}", m) and set(m) & set("wax+") for m in mode):
            yield node.lineno, name
        if name in ("write_text", "write_bytes") and isinstance(node.func, ast.Attribute):
            yield node.lineno, name
        if isinstance(node.func, ast.Attribute) and name == "save_model":
            continue  # of a trainer, into a folder of its own
        if name in ("to_csv", "save_file", "save_model", "export_chrome_trace", "copyfile", "copy2") and "part" not in [
            n.id for a in node.args for n in ast.walk(a) if isinstance(n, ast.Name)
        ]:
            yield node.lineno, name


def test_every_writer_goes_through_base():
    found = {}
    beside = (p for room in ("course", "hub") for p in (PACKAGE.parent / room).glob("*.py") if "config" not in p.name)
    for path in (*PACKAGE.rglob("*.py"), *TOOLKIT.rglob("*.py"), *beside):
        package = next(p for p in (PACKAGE, TOOLKIT.parent, PACKAGE.parent) if p in path.parents)
        found[path.relative_to(package).as_posix()] = [*writes(ast.parse(path.read_text()))]
    odd = {name: where for name, where in found.items() if where and name not in ALLOWED}
    assert not odd, odd
    assert not [name for name in ALLOWED if not found.get(name) and name != "cdna/base.py"], (
        "an exception without a cause"
    )
    assert list(writes(ast.parse("path.write_text(x)\nopen(p, 'wb')\nframe.to_csv(p)\nopen(p)\nopen(p, 'r')"))) == [
        (1, "write_text"),
        (2, "open"),
        (3, "to_csv"),
    ]


# ---- text from outside ----------------------------------------------------------------------------------------------


def test_errors_are_one_printable_line_of_bounded_length():
    for text in ("a\nb", "x\x1b[31mred", "\ud800", "‮reversed", "k" * 100_000, "\r[OK]   fine"):
        said = str(GuideError(f"name={text}: bad; mend it"))
        assert said.isprintable() and len(said) < 2_000 and said.endswith("mend it"), said[:100]
    assert shown("plain ✓ é") == "plain ✓ é"


FORGED = "gemm\x1b[2K\r\n[OK]   all is well\x07"


@pytest.mark.parametrize("kind", ["trace", "csv", "log", "report"])
def test_a_name_cannot_forge_a_line_of_ours(kind, tmp_path):
    file, name = tmp_path / f"x.{'csv' if kind == 'csv' else 'json'}", json.dumps(FORGED + "\ud800")
    if kind == "trace":
        event = f'{{"ph": "X", "cat": "kernel", "name": {name}, "ts": 1, "dur": 5, "args": {{"stream": 1}}}}'
        file.write_text(f'{{"traceEvents": [{event}]}}')
        words = ["trace", "summary", file]
    elif kind == "csv":
        file.write_text(f'"Kind","Kernel_Name","Start_Timestamp","End_Timestamp"\n"K","{FORGED}",1000,1700\n')
        words = ["trace", "kernels", file]
    elif kind == "log":
        begin = "[ 1.0] amdgpu 0000:c1:00.0: amdgpu: "
        file.write_text(f"{begin}[gfxhub0] page fault\n{begin} Process \x1b[2K\x07evil pid 12 thread x\n")
        words = ["faults", "log", file]
    else:
        file.write_text("wave_0: pc=0x10 (kernel_code_entry=0x8 <k\x1b[2K\x07>) (stopped, reason: MEMORY_VIOLATION)\n")
        words = ["faults", "read", file]
    done = guide(*words)
    assert done.returncode == 0, done.stderr
    assert "\\x1b[2K" in done.stdout and "\x1b" not in done.stdout and "\x07" not in done.stdout
    assert not any(line.startswith("[OK]") for line in done.stdout.splitlines())


def test_a_file_name_cannot_forge_a_line_of_ours(tmp_path, monkeypatch, capsys):
    """The names that commands repeat: files read and written, a model's folder, words passed on."""
    from rocm_guide.cli.main import main

    samples, name = ROOT / "tests" / "samples", "x\x1b[2K\n[OK]   all is well\x07\x9b2J"

    def linked(target, suffix):
        (tmp_path / f"{name}{suffix}").symlink_to(target)
        return f"{name}{suffix}"

    results = linked(samples / "tunableop" / "results_torch2.11_blaslog.csv", ".csv")
    trace = linked(ROOT / "notebooks" / "recorded" / "decode_b32.json.gz", ".json.gz")
    (tmp_path / name).mkdir()
    small = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 64}
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 64, **small}
    (tmp_path / name / "config.json").write_text(json.dumps(config))
    monkeypatch.chdir(tmp_path)
    for words in (
        ["tunable", "check", results],
        ["tunable", "merge", results, "-o", f"{name}.out"],
        ["trace", "summary", trace],
        ["copy", "common.device.seed_all", "-o", f"{name}.py"],
        ["launch", "slurm", "-o", f"{name}.sh", "--", f"{name}.py"],
        ["fit", name],
        ["fit", f"./{name}/config.json"],
        ["system", "reset", "--state", f"{name}.state", "--root", str(tmp_path)],
        ["faults", "read", f"{name}.txt"],
    ):
        monkeypatch.setattr(sys, "argv", ["rocm-guide", *words])
        with pytest.raises(SystemExit):
            main()
        seen = capsys.readouterr()
        said = seen.out + seen.err
        assert "\\x1b[2K" in said, (words, said)
        assert not any(line.startswith("[OK]   all") for line in said.splitlines()), (words, said)
        assert all(line.isprintable() for line in said.split("\n")), (words, said)


def test_what_goes_to_a_terminal_is_escaped_and_what_goes_to_a_pipe_is_not(monkeypatch, capsys):
    from cdna.cli.output import say, write_or_print

    text = "tab\there\n\x1b[2Jgone\n"
    write_or_print(text, None)
    assert capsys.readouterr().out == text
    say(f"{'x' * 500}\t{text}", err=True)
    assert capsys.readouterr().err == "x" * 500 + " " * 4 + "tab     here\n\\x1b[2Jgone\n\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    write_or_print(text, None)
    assert capsys.readouterr().out == "tab     here\n\\x1b[2Jgone\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_titles_of_notebooks_are_text_while_they_run(terminal):
    import io
    from types import SimpleNamespace

    from rich.console import Console

    from course.progress import RunDisplay

    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=120)
    lesson = SimpleNamespace(number="01", title="a [/red]\x1b[2K\n[OK]")
    with RunDisplay([lesson], console) as display:
        display("01", {"event": "start"})
        display("01", {"event": "cell", "index": 1, "heading": "h[/b]\x1b[2Kx"}) if terminal else None
    assert "a [/red]\\x1b[2K\\n[OK]" in screen.getvalue()


def test_markup_in_a_title_is_text(make_notebook):
    path = make_notebook("01_topic", "x = 1")
    nb = json.loads(path.read_text())
    nb["cells"][0]["source"] = nb["cells"][0]["source"].replace("01 · topic", "01 · a [/red] title")
    path.write_text(json.dumps(nb))
    done = guide("list", "--notebooks", path.parent)
    assert done.returncode == 0 and "a [/red] title" in done.stdout


# ---- reading --------------------------------------------------------------------------------------------------------

READERS = (
    ["faults", "log"],
    ["faults", "read"],
    ["trace", "summary"],
    ["trace", "kernels"],
    ["tunable", "check"],
)


@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_devices_and_pipes_are_not_read(words, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", tmp_path / "pipe"):
        one_line(guide(*words, path, timeout=60), "not a regular file")


def test_what_is_read_counts_and_not_the_size(tmp_path):
    from rocm_guide.common.base import read_regular

    assert Path("/proc/self/status").stat().st_size == 0 and read_regular("/proc/self/status", 100_000)
    with pytest.raises(OSError, match="larger than"):
        read_regular("/proc/self/status", 10)


def test_a_fault_report_opens_nothing_that_was_not_named(tmp_path):
    from rocm_guide.observe.debugging.faults.agent_log import FaultError
    from rocm_guide.observe.debugging.faults.code_objects import extract_code

    named, other = tmp_path / "named", tmp_path / "other"
    for folder in (named, other):
        folder.mkdir()
        (folder / "app").write_bytes(b"\x7fELFcode")
    (other / "secret").write_bytes(b"Xy:7:0:0")
    (named / "link").symlink_to(other / "app")
    assert extract_code(f"file://{named}/app", folder=named, only_below=True) == b"\x7fELFcode"
    for path in (other / "app", named / "link", named / ".." / "other" / "app"):
        with pytest.raises(FaultError, match="not opened"):
            extract_code(f"file://{path}", folder=named, only_below=True)
        with pytest.raises(FaultError, match="not opened"):
            extract_code(f"file://{path}", only_below=True)
    with pytest.raises(FaultError, match="only process self had it"):
        extract_code("memory://self#offset=4096&size=64", only_below=True)
    with pytest.raises(FaultError, match="no ELF file") as caught:
        extract_code(f"file://{other}/secret")
    assert "Xy" not in str(caught.value)
    for path in ("/dev/zero", "/dev/null"):
        with pytest.raises(FaultError, match="not a regular file"):
            extract_code(f"file://{path}")


def test_a_report_names_no_file_for_us_to_open(tmp_path):
    (tmp_path / "app").write_bytes(b"\x7fELF not really")
    report = tmp_path / "report.txt"
    report.write_text(f"""wave_0: pc=0x1010 (stopped, reason: MEMORY_VIOLATION)
Disassembly for function k:
    code object: file://{tmp_path}/app
    loaded at: [0x1000-0x2000]
End of disassembly.
""")
    done = guide("faults", "read", report)
    assert done.returncode == 0 and "not opened" in done.stdout and "--code" in done.stdout


# ---- what others could have written ---------------------------------------------------------------------------------


def test_a_folder_of_ours_in_a_sticky_one_is_fine(tmp_path):
    common = tmp_path / "tmp"
    common.mkdir()
    common.chmod(0o1777)
    folder = own_folder(common / "cache" / "deep")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700 == stat.S_IMODE(folder.parent.stat().st_mode)
    (folder / "lib.so").write_bytes(b"x")
    assert check_private(folder / "lib.so") == folder / "lib.so"


def test_a_folder_that_all_can_write_is_refused(tmp_path):
    (tmp_path / "open" / "cache").mkdir(parents=True)
    (tmp_path / "open" / "cache" / "lib.so").write_bytes(b"x")
    (tmp_path / "open").chmod(0o777)
    for path in ("open", "open/cache", "open/cache/lib.so", "open/cache/not-yet"):
        with pytest.raises(GuideError, match=r"open: other users can write to it .mode 777."):
            check_private(tmp_path / path)
    (tmp_path / "open").chmod(0o755)
    (tmp_path / "open" / "cache" / "lib.so").chmod(0o666)
    with pytest.raises(GuideError, match=r"lib.so: other users"):
        check_private(tmp_path / "open" / "cache" / "lib.so")
    (tmp_path / "link.so").symlink_to(tmp_path / "open" / "cache" / "lib.so")
    with pytest.raises(GuideError, match=r"lib.so: other users"):
        check_private(tmp_path / "link.so")


@needs_root
def test_what_belongs_to_another_user_is_refused(tmp_path):
    common = tmp_path / "tmp"
    common.mkdir()
    common.chmod(0o1777)
    (common / "planted.so").write_bytes(b"x")
    os.chown(common / "planted.so", 12345, 12345)
    with pytest.raises(GuideError, match=r"planted.so: belongs to another user .number 12345."):
        check_private(common / "planted.so")
    (common / "theirs").mkdir(mode=0o755)
    (common / "theirs" / "ours").write_text("x")
    os.chown(common / "theirs", 12345, 12345)
    with pytest.raises(GuideError, match="theirs: belongs to another user"):
        check_private(common / "theirs" / "ours")


@needs_root
def test_a_group_with_other_members_counts_as_others(tmp_path, monkeypatch):
    from cdna import base

    (tmp_path / "team").mkdir()
    (tmp_path / "team").chmod(0o2775)
    os.chown(tmp_path / "team", 0, 54321)
    base._others_in.cache_clear()
    with pytest.raises(GuideError, match="team: other users"):
        check_private(tmp_path / "team")
    os.chown(tmp_path / "team", 0, 0)  # the group of root
    check_private(tmp_path / "team")


@needs_root
def test_a_planted_library_is_never_opened(tmp_path, monkeypatch):
    from cdna.hip import cpu_library, on_cpu

    opened = []
    planted = tmp_path / "hip" / "ladder-0000.so"
    planted.parent.mkdir()
    planted.write_bytes(b"\x7fELF planted")
    os.chown(planted, 12345, 12345)
    monkeypatch.setattr(cpu_library, "build_cpu", lambda _: planted)
    monkeypatch.setattr(cpu_library.ctypes, "CDLL", lambda path, **_: opened.append(path))
    on_cpu._library.cache_clear()
    with pytest.raises(GuideError, match="belongs to another user"):
        on_cpu.load_counts("ladder")
    assert not opened


def test_an_open_cache_is_refused_by_everything_that_loads_from_it(tmp_path, monkeypatch):
    from cdna.hip.cpu_library import build_cpu
    from rocm_guide.models.tiny import tiny_folder
    from rocm_guide.observe.doctor.own_folders import OWN_FOLDERS
    from rocm_guide.observe.doctor.software import check_cache

    cache = tmp_path / "cache"
    for name in ("ROCM_GUIDE_CACHE", "CDNA_CACHE"):
        monkeypatch.setenv(name, str(cache))
    monkeypatch.delenv("ROCM_GUIDE_TORCHTUNE", raising=False)
    own = OWN_FOLDERS["torchtune"]
    for name in own.requirements:
        (own.path / (name.replace("-", "_").replace("==", "-") + ".dist-info")).mkdir(parents=True)
    own.environment()
    cache.chmod(0o777)
    for load in (tiny_folder, own.environment, lambda: build_cpu("ladder")):
        with pytest.raises(GuideError, match="cache: other users can write to it"):
            load()
    assert check_cache(cache).status == "FAIL" and "other users" in check_cache(cache).found
    assert not (cache / "hip").exists() and not (cache / "zig").exists()


@needs_root
def test_a_read_only_cache_with_the_tiny_model_will_do(tmp_path):
    from rocm_guide.observe.doctor.software import check_cache

    for folder in [tmp_path, *list(tmp_path.parents)[:3]]:  # pytest's folders are for root alone
        if folder.stat().st_uid == 0 and folder.name.startswith(("pytest", "popen")):
            folder.chmod(0o755)
    tmp_path.chmod(0o755)
    cache = tmp_path / "cache"
    (cache / "tiny-seed0-abc").mkdir(parents=True)
    check_cache(cache)  # whatever it imports is imported now: the other user may not read this Python
    assert "FAIL" in as_user(23456, lambda: check_cache(cache))
    (cache / "tiny-seed0-abc" / "manifest.json").write_text("{}")
    assert (
        as_user(23456, lambda: check_cache(cache))
        == f"[OK]   cache        {cache} is read-only, and holds the tiny model"
    )


# ---- a model's own Python -------------------------------------------------------------------------------------------

LOADERS = ("from_pretrained", "from_config")


def unguarded(tree, notebook=False):
    """Calls of transformers' Auto classes and pipelines by name without trust_remote_code=False.

    A notebook loads what it saved itself a cell before (``folder / "full"``) as a reader would write it; what a
    parameter or a text names is another matter.
    """
    given = {}  # name of a dict -> what it says of trust_remote_code, where its last literal is one
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AugAssign) and isinstance(node.value, ast.Dict):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            keys = {getattr(k, "value", None): v for k, v in zip(node.value.keys, node.value.values, strict=True)}
            if "trust_remote_code" in keys:
                given[getattr(target, "id", "")] = keys["trust_remote_code"]
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function, owner = node.func, getattr(getattr(node.func, "value", None), "id", "")
        automatic = isinstance(function, ast.Attribute) and function.attr in LOADERS and owner.startswith("Auto")
        automatic = automatic and owner not in ("AutoHfQuantizer", "AutoPeftModelForCausalLM")
        automatic |= isinstance(function, ast.Attribute) and owner == "GPTQModel" and function.attr == "load"
        if isinstance(function, ast.Name) and function.id == "pipeline":
            automatic = not any(k.arg == "model" and isinstance(k.value, ast.Name) for k in node.keywords)
        source = node.args[0] if node.args else None
        if notebook and not isinstance(source, ast.Constant) and not getattr(source, "id", "x").isupper():
            continue
        said = [k.value for k in node.keywords if k.arg == "trust_remote_code"]
        spread = {getattr(k.value, "id", "") for k in node.keywords if k.arg is None}  # **more
        said += [given[name] for name in spread if name in given]
        if automatic and not any(isinstance(v, ast.Constant) and v.value is False for v in said):
            yield node.lineno, ast.unparse(node)[:90]


def sources():
    for folder in (PACKAGE, TOOLKIT, ROOT / "benchmarks"):
        for path in folder.rglob("*.py"):
            yield path.name, path.read_text()
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        for cell in json.loads(path.read_text())["cells"]:
            if cell["cell_type"] == "code":
                text = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
                yield path.name, re.sub(r"^\s*[%!].*$", "pass", text, flags=re.M)


def test_every_load_says_trust_remote_code_false():
    found = [
        (name, *place) for name, text in sources() for place in unguarded(ast.parse(text), name.endswith(".ipynb"))
    ]
    assert not found, found
    assert list(unguarded(ast.parse("AutoConfig.from_pretrained(x, trust_remote_code=True)")))
    assert list(unguarded(ast.parse("AutoModel.from_pretrained(MODEL)"), notebook=True))
    spread = 'more = {"trust_remote_code": %s}\nAutoModel.from_pretrained(MODEL, **more)'
    assert list(unguarded(ast.parse(spread % True), notebook=True))
    assert list(unguarded(ast.parse("more = {}\nAutoModel.from_pretrained(MODEL, **more)"), notebook=True))
    assert not list(unguarded(ast.parse(spread % False), notebook=True))
    assert list(unguarded(ast.parse("pipeline('text-generation', model='hub/id')")))


@pytest.fixture
def remote(tmp_path):
    """A model folder whose configuration names Python that leaves a mark when it runs."""
    folder, mark = tmp_path / "remote", tmp_path / "ran"
    folder.mkdir()
    code = {"AutoConfig": "theirs.Config", "AutoModelForCausalLM": "theirs.Model"}
    (folder / "config.json").write_text(json.dumps({"model_type": "theirs", "auto_map": code}))
    (folder / "theirs.py").write_text(f"open({str(mark)!r}, 'w')\nclass Config: pass\nclass Model: pass\n")
    return folder, mark


def test_a_model_with_code_of_its_own_is_refused_by_the_commands(remote):
    folder, mark = remote
    done = guide("fit", folder, input="y\ny\ny\n")
    one_line(done, "auto_map", "never run")
    assert not mark.exists()


def test_a_hub_model_of_a_known_class_is_loaded_with_that_class(remote, monkeypatch):
    """Many models of the hub still name the code that they came with, from before transformers had their class."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from rocm_guide.models import load

    folder, mark = remote
    small = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    LlamaForCausalLM(LlamaConfig(vocab_size=16, **small)).save_pretrained(folder)
    code = {"AutoConfig": "theirs.Config", "AutoModelForCausalLM": "theirs.Model"}
    fields = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(fields | {"auto_map": code}))
    with pytest.raises(GuideError, match="auto_map: theirs"):
        load.load_model(str(folder))
    # What a hub id leads to: files that nobody looked at before.
    monkeypatch.setattr(load, "checked_source", lambda spec, wanted="": str(folder))
    monkeypatch.setattr(load, "load_tokenizer", lambda spec: None)
    model, _ = load.load_model("someone/model")
    assert type(model) is LlamaForCausalLM and not mark.exists()
    (folder / "config.json").write_text(json.dumps({"model_type": "theirs", "auto_map": code}))
    with pytest.raises(GuideError, match="someone/model: needs Python code of its own"):
        load.load_model("someone/model")
    assert not mark.exists()


def test_a_model_with_code_of_its_own_is_refused_by_every_loader(remote):
    from rocm_guide.finetune.torchtune.config import model_on_disk
    from rocm_guide.models.load import load_model, load_tokenizer, meta_model
    from rocm_guide.tune.tunableop.planner import plan

    folder, mark = remote
    for load in (load_model, load_tokenizer, meta_model, plan, lambda f: model_on_disk(f, "unused")):
        with pytest.raises(GuideError, match=r"auto_map: theirs.Config"):
            load(str(folder))
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["theirs.Tokenizer", null]}}')
    with pytest.raises(GuideError, match=r"tokenizer_config.json names"):
        load_tokenizer(str(folder))
    with pytest.raises(GuideError, match="trust_remote_code=True"):
        load_model("tiny", trust_remote_code=True)
    assert not mark.exists()


# ---- words on the command line --------------------------------------------------------------------------------------

WORDS = [
    "e",
    "tl.float\x04",
    "tl.",
    "*fp3:16",
    "9999999999999999999999999",
    "9223372036854775808",
    "a\nb",
    "fp32[-1]",
    "fp16[4294967295,4294967295]",
    "fp16[1024,9223372036854775808]",
    "x" * 5000,
    "{[]}",
    "fp16[" + "9" * 5000 + "]",
]


@pytest.mark.parametrize("word", WORDS, ids=lambda w: ascii(w[:24]))
def test_odd_arguments_of_inspect_are_one_line(word):
    from cdna.cli.inspect.python_file import HowTo, compile_typed
    from cdna.examples.tuning import scale_rows

    names = [p.name for p in scale_rows.params]
    good = [f"{names[0]}=*fp16:16", f"{names[1]}=*fp16:16", "n=4096"]
    for how in (
        HowTo("", [f"{names[0]}={word}", *good[1:]], [f"{names[-1]}=2048"]),
        HowTo("", [*good[:1], f"{names[1]}={word}"], [f"{names[-1]}={word}"]),
    ):
        with pytest.raises(GuideError) as caught:
            list(compile_typed(scale_rows, how, "gfx942"))
        assert str(caught.value).isprintable() and len(str(caught.value)) < 1_600


@pytest.mark.parametrize(
    "word",
    [
        "waves_per_eu=abc",
        "waves_per_eu=-1",
        "matrix_instr_nonkdim=17",
        "arch=gfx90a",
        "no_such=1",
        "kpack=True",
        "num_stages=-1",
        "=",
        "waves_per_eu",
    ],
)
def test_options_that_mean_nothing_are_refused(word):
    from cdna.cli.inspect.arguments import InspectError, compile_option

    with pytest.raises(InspectError, match="--option"):
        compile_option(word)
    assert compile_option("matrix_instr_nonkdim=16") == ("matrix_instr_nonkdim", 16)


def test_the_compiler_refuses_what_it_would_take_without_effect():
    from cdna.compile import CompileError, compile_kernel
    from cdna.examples.tuning import scale_rows

    for options in ({"num_stages": -1}, {"num_warps": 3}, {"waves_per_eu": "abc"}, {"matrix_instr_nonkdim": 17}):
        with pytest.raises(CompileError, match=next(iter(options))):
            compile_kernel(scale_rows, ["*fp16", "*fp16", "fp32", "i32"], {"BLOCK": 64}, **options)


def test_waves_beyond_the_workgroup_of_a_dump_are_questioned():
    from cdna.inspection import inspect_assembly

    text = (ROOT / "cdna" / "tests" / "samples" / "softmax_t39.amdgcn").read_text()
    most = int(re.search(r"\.max_flat_workgroup_size:\s*(\d+)", text)[1]) // 64
    assert inspect_assembly(text, waves=most)[0].threads == most * 64
    for waves in (most * 2, 0, -1):
        with pytest.raises(GuideError, match=f"{waves} waves per workgroup"):
            inspect_assembly(text, waves=waves)


SHADOWS = """
import sys
from pathlib import Path
from cdna.cli.inspect.python_file import load_module
for name in ("types", "torch", "inspect", "mine"):
    module = load_module(Path(sys.argv[1]) / f"{name}.py")
    assert module.WHO == name and module.neighbour.WHO == "neighbour", name
import inspect, types
import torch
assert inspect.signature and types.FunctionType and torch.Tensor and sys.modules["mine"].WHO == "mine"
"""


def test_a_kernel_file_may_bear_the_name_of_a_library(tmp_path):
    for name in ("types", "torch", "inspect", "mine"):
        (tmp_path / f"{name}.py").write_text(f"import neighbour\nWHO = {name!r}\n")
    (tmp_path / "neighbour.py").write_text("WHO = 'neighbour'\n")
    done = subprocess.run(
        [sys.executable, "-c", SHADOWS, str(tmp_path)], capture_output=True, text=True, cwd=ROOT, timeout=120
    )
    assert done.returncode == 0, done.stderr[-600:]


@pytest.mark.parametrize("text", ["1:99999999999", "0:5", "5:1", "-3", "99999999999", "", "1,0", "1:" + "9" * 5000])
def test_prompt_lengths_are_checked_before_a_list_is_made(text):
    from rocm_guide.cli.tunable import lengths_of

    with pytest.raises(GuideError, match="--prompt") as caught:
        lengths_of(text)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("name", ["../../etc/passwd", "base.", ".base", "base.write_text\n", "a b", "/etc/passwd", ""])
def test_copy_takes_names_only(name):
    from rocm_guide.cli.copying.writer import copy_source

    with pytest.raises(GuideError):
        copy_source(name)


# ---- damaged files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("latex", [r"\frac{1}", r"\left(", r"\begin{matrix} a", r"a^", r"\\", "{", "}", r"\sqrt[", "&"])
def test_a_slip_in_a_formula_leaves_it_readable(latex):
    from course.html import math_to_markup

    assert math_to_markup(f"so ${latex}$ it is")


def test_a_damaged_notebook_is_named(tmp_path):
    from rocm_guide.cli.lessons import catalogue

    for text in (
        '{"cells": [3]}',
        '{"cells": [{"source": 5}]}',
        '{"cells": [], "metadata": []}',
        "[" * 100_000,
        '{"cells": [{"metadata": {"tags": [{}]}}]}',
        '{"cells": [], "metadata": {"rocm_guide": {"seconds": "x"}}}',
    ):
        (tmp_path / "01_topic.ipynb").write_text(text)
        with pytest.raises(GuideError, match=r"01_topic.ipynb: not a notebook"):
            catalogue(tmp_path)


# ---- poor places ----------------------------------------------------------------------------------------------------


def test_a_closed_standard_output_is_one_line():
    command = f"exec {sys.executable} -m rocm_guide.cli.main list >&-"
    one_line(subprocess.run(["bash", "-c", command], stderr=subprocess.PIPE, text=True, cwd=ROOT), "output is closed")


def test_a_current_folder_that_is_gone_is_one_line(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f"rmdir {gone} && exec {sys.executable} -m rocm_guide.cli.main list"
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/cdna"}
    done = subprocess.run(["bash", "-c", command], stderr=subprocess.PIPE, text=True, cwd=gone, env=env)
    one_line(done, "has been removed")


def test_kernels_are_compiled_without_a_home_that_can_be_written(tmp_path, monkeypatch):
    from cdna.compiler_key import writable_compiler_cache

    (tmp_path / "file").touch()
    for name in ("TRITON_HOME", "TRITON_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    with writable_compiler_cache():
        folder = Path(os.environ["TRITON_CACHE_DIR"])
        (folder / "written").touch()
    assert not folder.exists() and "TRITON_CACHE_DIR" not in os.environ
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "file" / "below"))
    with writable_compiler_cache():
        assert Path(os.environ["TRITON_CACHE_DIR"]).is_dir()
    assert os.environ["TRITON_CACHE_DIR"] == str(tmp_path / "file" / "below")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "mine"))
    with writable_compiler_cache():
        assert os.environ["TRITON_CACHE_DIR"] == str(tmp_path / "mine")


def test_the_cache_has_a_place_without_a_home(monkeypatch):
    from rocm_guide.common.base import cache_folder

    for name in ("HOME", "ROCM_GUIDE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    done = as_user(23457, cache_folder) if AS_ROOT else str(cache_folder())
    assert Path(done).is_absolute() and "rocm-guide" in done


def test_eight_cold_processes_make_one_folder(tmp_path):
    code = "from rocm_guide.common.base import own_folder, write_text; import sys\n"
    code += "write_text(own_folder(sys.argv[1] + '/a/b/c') / 'x', 'whole' * 1000)"
    command = [sys.executable, "-c", code, str(tmp_path)]
    children = [subprocess.Popen(command, cwd=ROOT) for _ in range(8)]
    assert [c.wait(120) for c in children] == [0] * 8
    assert [p.name for p in (tmp_path / "a/b/c").iterdir()] == ["x"]
    assert (tmp_path / "a/b/c/x").read_text() == "whole" * 1000


def test_a_builder_that_is_killed_leaves_nothing_and_the_others_go_on(tmp_path):
    """The tiny model's folder, three processes at once on an empty cache; what is trained is replaced by two words."""
    code = """
import os, sys, time
from pathlib import Path
from rocm_guide.models import tiny

root = Path(sys.argv[1])

class Stand:
    def __init__(self, name):
        self.name = name

    def save_pretrained(self, folder):
        (Path(folder) / self.name).write_text("half")
        try:
            with open(root / "first", "x") as f:
                f.write(str(os.getpid()))
        except FileExistsError:
            (Path(folder) / self.name).write_text("whole")
        else:
            time.sleep(600)

tiny._train_tokenizer = lambda: Stand("tokenizer.json")
tiny._train_model = lambda *_: Stand("model.safetensors")
print(tiny.tiny_folder(root=root))
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    children = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    first = tmp_path / "first"
    while not (first.exists() and first.read_text()):
        assert any(c.poll() is None for c in children)
        time.sleep(0.05)
    victim = next(c for c in children if c.pid == int(first.read_text()))
    victim.send_signal(signal.SIGKILL)
    said = {c.communicate(timeout=300)[0].strip() for c in children if c is not victim}
    assert victim.wait(60) == -signal.SIGKILL and [c.returncode for c in children].count(0) == 2
    (folder,) = said
    assert {p.name for p in tmp_path.iterdir()} == {"first", Path(folder).name, f"{Path(folder).name}.lock"}
    assert {p.name: p.read_text() for p in Path(folder).iterdir() if p.name != "manifest.json"} == {
        "tokenizer.json": "whole",
        "model.safetensors": "whole",
    }
