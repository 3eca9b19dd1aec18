# SPDX-License-Identifier: MIT
"""Running notebooks: results, report, resume, stopping, full disks. Kernels are real."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from course.cpu_time import busy_note, cpu_time
from course.pool import Job, Pool, child_environment
from course.run import run_course
from rocm_guide.cli.lessons import catalogue
from rocm_guide.common.base import GuideError
from rocm_guide.models.load import load_model

COMMAND = [sys.executable, "-m", "rocm_guide.cli.main"]


def cli(*arguments, **more):
    """Run the command as a user would; output captured."""
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **more)


def report_of(out):
    return json.loads((out / "report.json").read_text())


def no_temporary_files(folder):
    return [p for p in folder.rglob("*") if p.suffix == ".tmp"] == []


@pytest.mark.slow
def test_results_report_and_resume(make_notebook, tmp_path):
    make_notebook(
        "01_good", "print('rank', RANK)\nblock = bytearray(200 << 20)", parameters="SCALE = 'auto'\nRANK = 16"
    )
    folder = make_notebook("02_bad", "good = 1", "1 / 0", "print('never')").parent
    out = tmp_path / "out"
    done = cli("run", "--notebooks", folder, "--out", out, "--jobs", "2", "-p", "RANK", "8")
    assert done.returncode == 1
    assert "notebook 02, cell 5 (Work): ZeroDivisionError: division by zero" in done.stderr
    assert "1 / 0" in done.stderr and "\x1b" not in done.stderr + done.stdout
    assert {p.name for p in out.iterdir()} == {
        "01_good.ipynb",
        "01_good.html",
        "02_bad.ipynb",
        "02_bad.html",
        "report.json",
        "report.html",
    }
    assert (out / "01_good.html").read_text().count('rel="next" href="02_bad.html"') == 2
    assert (out / "02_bad.html").read_text().count('rel="prev" href="01_good.html"') == 2
    report = report_of(out)
    good, bad = report["notebooks"]["01"], report["notebooks"]["02"]
    assert good["status"] == "ok" and 200 < good["peak_mib"] < 2000 and good["seconds"] > 0
    assert good["parameters"] == {"RANK": 8} and "rank 8" in (out / "01_good.ipynb").read_text()
    assert "rank 8" in (out / "01_good.html").read_text()
    assert (bad["status"], bad["failure"]["cell"], bad["failure"]["error"]) == ("failed", 5, "ZeroDivisionError")
    assert report["hardware"] and report["versions"]["papermill"]
    page = (out / "report.html").read_text()
    assert (
        "1 failed, 1 ok" in page
        and "<details open><summary>cell 5" in page
        and "ZeroDivisionError" in page
        and 'href="01_good.html"' in page
    )

    before = (out / "01_good.ipynb").stat().st_mtime_ns
    make_notebook("02_bad", "good = 2")
    done = cli("run", "--notebooks", folder, "--out", out, "--resume", "-p", "RANK", "8")
    assert done.returncode == 0, done.stderr
    assert "01 good: kept from the earlier run" in done.stdout and "02 bad: ok" in done.stdout
    assert (out / "01_good.ipynb").stat().st_mtime_ns == before

    done = cli("run", "1", "--notebooks", folder, "--out", out, "--resume", "-p", "RANK", "4")
    assert done.returncode == 0 and "01 good: started" in done.stdout, "other parameters make a result stale"
    assert report_of(out)["notebooks"]["02"]["status"] == "ok", "results of other notebooks stay in the report"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["99"], "notebook 99: there is none with that number; choose from 01"),
        (["-p", "RNAK", "8"], "parameter RNAK: no chosen notebook has it; they have SCALE"),
        (["-p", "SCALE"], "parameter SCALE: no value given; write -p SCALE VALUE"),
        (["--jobs", "two"], "Invalid value for '--jobs'"),
        (["-p", "SCALE", "huge"], "parameter SCALE=huge: notebook 01 accepts auto, tiny"),
        (["--jobs", "0"], "0: give a number from 1"),
        (["--out", "{file}/out"], "is a file, not a folder; choose another path"),
        (["--notebooks", "{file}"], "no such folder"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(make_notebook, tmp_path, arguments, message):
    folder = make_notebook("01_good", "x = 1").parent
    (tmp_path / "file").write_text("")
    before = set(tmp_path.rglob("*"))
    words = [a.format(file=tmp_path / "file") for a in arguments]
    if "--notebooks" not in words:
        words += ["--notebooks", str(folder)]
    if "--out" not in words:
        words += ["--out", str(tmp_path / "out")]
    done = cli("run", *words)
    assert done.returncode == 2
    assert re.search(message, done.stderr.strip()) and "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert set(tmp_path.rglob("*")) == before


@pytest.mark.slow
def test_a_refusal_inside_a_notebook_is_exit_code_2(make_notebook, tmp_path):
    code = "from rocm_guide.observe.doctor import PreflightError\n"
    code += "raise PreflightError(f'MODEL={MODEL}: no such model; use tiny')"
    folder = make_notebook("01_good", code, parameters="MODEL = 'tiny'").parent
    done = cli("run", "--notebooks", folder, "--out", tmp_path / "out", "-p", "MODEL", "nobody/nothing")
    assert done.returncode == 2
    line = "notebook 01, cell 4 (Work): PreflightError: MODEL=nobody/nothing: no such model; use tiny"
    assert done.stderr.strip() == line
    assert report_of(tmp_path / "out")["notebooks"]["01"]["status"] == "refused"
    assert "<details><summary>cell 4" in (tmp_path / "out" / "report.html").read_text(), "a refusal needs no traceback"


@pytest.mark.slow
def test_a_wrong_model_or_data_set_is_one_line_with_its_fix(make_notebook, tmp_path):
    # A model and a data set in notebooks; what else can be wrong with a name is refused by the same functions here.
    model = "from rocm_guide.models.load import load_model\nload_model(MODEL)"
    data = "from rocm_guide.models.load import load_data\nload_data(DATASET)"
    make_notebook("01_hub", model, parameters="MODEL = 'nobody/no-such'\nSCALE = 'auto'")
    folder = make_notebook("02_file", data, parameters="DATASET = 'mine.json'\nSCALE = 'auto'").parent
    env = dict(os.environ, HF_HUB_OFFLINE="1")
    done = cli("run", "--notebooks", folder, "--out", tmp_path / "out", "--jobs", "2", env=env)
    assert done.returncode == 2
    hub, file = (line.split("Error: ")[1] for line in done.stderr.strip().splitlines())
    assert hub.startswith("nobody/no-such: not in the local cache") and "hf download nobody/no-such" in hub
    assert file == "mine.json: no such file; check the path, or use 'tiny'"
    for name, said in (
        ("llama2", r"'llama2': neither a model or data set that the course knows .*give 'tiny'"),
        ("random:llama-9", r"'llama-9': no such shape; choose one of .*llama-2-7b"),
    ):
        with pytest.raises(GuideError, match=said) as refused:
            load_model(name)
        assert "\n" not in str(refused.value)
    assert {e["status"] for e in report_of(tmp_path / "out")["notebooks"].values()} == {"refused"}
    assert no_temporary_files(tmp_path / "out")


@pytest.mark.slow
def test_a_dead_kernel_is_named(make_notebook, tmp_path):
    folder = make_notebook("01_dies", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)").parent
    done = cli("run", "--notebooks", folder, "--out", tmp_path / "out")
    assert done.returncode == 1 and "the kernel died" in done.stderr
    assert not (tmp_path / "out" / "01_dies.ipynb").exists()


def limit_file_size():
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))


@pytest.mark.slow
def test_a_disk_that_fills_up_is_one_line_and_leaves_nothing_half_written(make_notebook, tmp_path):
    folder = make_notebook("01_good", "x = 1").parent
    done = cli("run", "--notebooks", folder, "--out", tmp_path / "out", preexec_fn=limit_file_size)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 and "01_good.html: cannot be written" in done.stderr
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"report.json", "report.html"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "write",
    [
        "tempfile.TemporaryFile().write(bytes(100_000))",
        # Written in Rust, it has an exception of its own, which is no OSError.
        "import torch; from safetensors.torch import save_file\n"
        "save_file({'x': torch.zeros(50_000)}, tempfile.mkdtemp() + '/x')",
    ],
    ids=["python", "safetensors"],
)
def test_a_disk_that_fills_up_inside_a_notebook(make_notebook, tmp_path, write):
    code = f"import resource, tempfile\nresource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))\n{write}"
    folder = make_notebook("01_good", code).parent
    done = cli("run", "--notebooks", folder, "--out", tmp_path / "out")
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1
    assert "File too large" in done.stderr and "free some space, or set TMPDIR" in done.stderr


# A child in a session of its own: killing the kernel's process group alone would miss it.
STUBBORN = """
import os, pathlib, subprocess, signal, time
if pathlib.Path(PIDS).exists():
    print("second time")
else:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    pathlib.Path(PIDS + ".new").write_text(f"{os.getpid()} {child.pid}")
    os.rename(PIDS + ".new", PIDS)
    time.sleep(600)
"""


def wait_for(condition):
    while not condition():  # pytest's own limit ends it
        time.sleep(0.05)


def gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopping_kills_kernels_keeps_results_and_can_be_resumed(make_notebook, tmp_path, number):
    pids, out, scratch = tmp_path / "pids", tmp_path / "out", tmp_path / "tmp"
    scratch.mkdir()
    make_notebook("01_quick", "x = 1")
    make_notebook("02_stubborn", STUBBORN, parameters=f"SCALE = 'auto'\nPIDS = {str(pids)!r}")
    folder = make_notebook("03_waits", "x = 1").parent
    arguments = ["run", "--notebooks", str(folder), "--out", str(out), "--jobs", "1"]
    env = dict(os.environ, TMPDIR=str(scratch))
    process = subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, text=True, env=env)
    wait_for(pids.exists)
    process.send_signal(number)
    errors = process.communicate()[1]
    assert process.returncode == 130
    assert all(gone(int(pid)) for pid in pids.read_text().split())
    assert "not done: 02, 03" in errors and "--resume" in errors
    assert list(scratch.iterdir()) == [] and no_temporary_files(out)
    found = {n: e["status"] for n, e in report_of(out)["notebooks"].items()}
    assert found == {"01": "ok", "02": "stopped", "03": "missing"} and (out / "01_quick.ipynb").is_file()

    done = cli(*arguments, "--resume")
    assert done.returncode == 0, done.stderr
    assert "01 quick: kept" in done.stdout and "02 stubborn: ok" in done.stdout and "03 waits: ok" in done.stdout


@pytest.mark.slow
def test_nothing_survives_a_killed_command(make_notebook, tmp_path):
    pids = tmp_path / "pids"
    folder = make_notebook("01_long", STUBBORN, parameters=f"SCALE = 'auto'\nPIDS = {str(pids)!r}").parent
    process = subprocess.Popen([*COMMAND, "run", "--notebooks", str(folder), "--out", str(tmp_path / "out")])
    wait_for(pids.exists)
    process.kill()
    process.wait()
    wait_for(lambda: all(gone(int(pid)) for pid in pids.read_text().split()))


@pytest.mark.slow
def test_the_notebook_runs_beside_its_file_and_cannot_see_our_streams(make_notebook, tmp_path):
    code = "import os, sys\nassert os.getcwd().endswith('notebooks'), os.getcwd()\n"
    code += "os.write(1, b'{\"event\": \"done\"}\\n')\nassert os.read(0, 10) == b''"
    folder = make_notebook("01_good", code).parent
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".01_good.html.x1.tmp").write_text("what a worker leaves that was killed while it wrote")
    report = run_course(catalogue(folder), tmp_path / "out")
    assert no_temporary_files(tmp_path / "out")
    assert report["notebooks"]["01"]["status"] == "ok", report["notebooks"]["01"]["failure"]
    assert [p.name for p in folder.iterdir()] == ["01_good.ipynb"], "nothing is left beside the notebook"


@pytest.mark.slow
@pytest.mark.parametrize("depth", [0, 120])
def test_needs_no_network_and_bears_long_temporary_paths(make_notebook, tmp_path, depth):
    alone = ["unshare", "--net", "--map-root-user"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("this system does not allow a network namespace of one's own")
    scratch = tmp_path / ("x" * depth)
    scratch.mkdir(exist_ok=True)
    folder = make_notebook("01_good", "x = 1").parent
    command = [*alone, *COMMAND, "run", "--notebooks", str(folder), "--out", str(tmp_path / "out")]
    env = dict(os.environ, TMPDIR=str(scratch)) if depth else None
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_closing_the_iterator_stops_the_pool(make_notebook, tmp_path):
    path = make_notebook("01_long", "import time; time.sleep(600)")
    pool = Pool(1)
    events = pool.run([Job("01", path, tmp_path / "o.ipynb", None, {})])
    while next(events)[1]["event"] != "cell":
        continue
    assert pool._marked()
    events.close()
    assert pool._marked() == []


def test_the_longest_notebook_starts_first(make_notebook, tmp_path, monkeypatch):
    for number, seconds in (("01", 5), ("02", 50), ("03", None), ("04", 20)):
        path = make_notebook(f"{number}_work", "x = 1")
        nb = json.loads(path.read_text())
        nb["metadata"] = {"rocm_guide": {"seconds": seconds}} if seconds else {}
        path.write_text(json.dumps(nb))
    orders = []

    def nothing(pool, todo):
        return orders.append([job.number for job in todo]) or (x for x in ())

    monkeypatch.setattr(Pool, "run", nothing)
    for jobs in (2, 1):
        run_course(catalogue(path.parent), tmp_path / "out", jobs=jobs)
    assert orders == [["03", "02", "04", "01"], ["01", "02", "03", "04"]]


@pytest.mark.parametrize("jobs", [1, 3])
def test_what_goes_on_with_a_fine_tuned_model_waits_for_it(make_notebook, tmp_path, monkeypatch, jobs):
    """Side by side they would train it, too, and 02 would skip what it is about."""
    for number, source in (("01", "x = 1"), ("02", "open_run(RUN)"), ("03", "open_run(RUN)"), ("18", "open_run(RUN)")):
        path = make_notebook(f"{number}_work", source)
    said = []

    def start(pool, job, scratch):
        pool._workers[job.number] = None, scratch
        pool._events.put((job.number, {"event": "done", "status": "ok"}))

    monkeypatch.setattr(Pool, "_start", start)
    monkeypatch.setattr(Pool, "_finish", lambda pool, number: pool._workers.pop(number))
    run_course(catalogue(path.parent), tmp_path / "out", jobs=jobs, listener=lambda n, e: said.append((n, e["event"])))
    done = said.index(("02", "done"))
    assert done < said.index(("03", "start")) and done < said.index(("18", "start"))
    assert {n for n, event in said if event == "done"} == {"01", "02", "03", "18"}
    assert jobs == 1 or (said[0] == ("02", "start") and said.index(("01", "start")) < done)


@pytest.mark.slow
def test_the_report_says_where_the_time_went(make_notebook, tmp_path):
    folder = make_notebook("01_work", "sum(i * i for i in range(3_000_000))").parent
    env = dict(os.environ, ROCM_GUIDE_INSTALLED_IN="95")
    done = cli("run", "--notebooks", folder, "--out", tmp_path / "out", env=env)
    assert done.returncode == 0, done.stderr
    report = report_of(tmp_path / "out")
    assert all(e["cpu_seconds"] > 0.1 and e["waited_seconds"] >= 0 for e in report["notebooks"].values())
    told = f"installed in 95 s, ran in {report['ran_in']:.0f} s; the notebooks were "
    page = (tmp_path / "out" / "report.html").read_text()
    assert told in done.stdout and told in page and "waiting for one" in page


def test_a_starved_process_is_noticed(tmp_path):
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "schedstat").write_text("2000000000 8000000000 55\n")
    found = cpu_time(7, tmp_path)
    assert (found.ran, found.waited) == (2.0, 8.0) and "the notebooks got 20 % of" in busy_note(found)
    assert busy_note(cpu_time(8, tmp_path)) == "", "a system that does not say is not accused"


def test_notebooks_share_what_inductor_compiles(tmp_path, monkeypatch):
    """One folder in the cache for all, another for another kind of processor, and none where nothing can be kept."""
    monkeypatch.setenv("ROCM_GUIDE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    first, second = (
        child_environment(tmp_path / name, "m", one_thread=True)["TORCHINDUCTOR_CACHE_DIR"] for name in ("a", "b")
    )
    assert first == second and first.startswith(str(tmp_path / "cache" / "inductor"))
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    narrow = child_environment(tmp_path / "n", "m", one_thread=True)["TORCHINDUCTOR_CACHE_DIR"]
    assert narrow != first, "inductor takes what was compiled for wider vectors, and computes nonsense"
    monkeypatch.delenv("ATEN_CPU_CAPABILITY")
    # Torch's own folder is in the environment of whoever has imported inductor; a reader's choice is another one.
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    for told, wanted in ((default_cache_dir(), first), (str(tmp_path / "mine"), str(tmp_path / "mine"))):
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", told)
        assert child_environment(tmp_path / "t", "m", one_thread=True)["TORCHINDUCTOR_CACHE_DIR"] == wanted
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert child_environment(tmp_path / "c", "m", one_thread=True)["TORCHINDUCTOR_CACHE_DIR"] != first
    cold = child_environment(tmp_path / "d", "m", one_thread=True, fresh=True)["TORCHINDUCTOR_CACHE_DIR"]
    assert cold.startswith(str(tmp_path / "d"))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ROCM_GUIDE_CACHE", str(tmp_path / "file" / "cache"))
    assert "TORCHINDUCTOR_CACHE_DIR" not in child_environment(tmp_path / "e", "m", one_thread=True)
    # Inductor loads libraries from there: a folder that others can write to is not offered to it.
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setenv("ROCM_GUIDE_CACHE", str(tmp_path / "open"))
    assert "TORCHINDUCTOR_CACHE_DIR" not in child_environment(tmp_path / "f", "m", one_thread=True)


HEADERS = """import os
from torch._inductor.runtime.cache_dir_utils import default_cache_dir
print(os.path.realpath(os.path.join(default_cache_dir(), "precompiled_headers")))"""


def test_notebooks_share_the_header_that_inductor_precompiles(tmp_path, monkeypatch):
    """Inductor looks for it below TMPDIR, which goes away with each notebook, and builds it in ten seconds."""
    monkeypatch.setenv("ROCM_GUIDE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    env = child_environment(tmp_path / "a", "m", one_thread=True)
    kept = Path(env["TORCHINDUCTOR_CACHE_DIR"]) / "precompiled_headers"
    asked = subprocess.run([sys.executable, "-c", HEADERS], env=env, capture_output=True, text=True, check=True)
    assert asked.stdout.strip() == str(kept.resolve()), "torch of today looks elsewhere"
    assert kept.stat().st_mode & 0o077 == 0, "libraries are compiled from what lies there"
    # What a killed compiler left is built anew, what another one is writing at this moment is left alone.
    for name, head, age in (("done", b"gpch+014", 9999), ("killed", b"gpcWrite", 9999), ("running", b"gpcWrite", 0)):
        (kept / f"{name}.h.gch").write_bytes(head)
        os.utime(kept / f"{name}.h.gch", (time.time() - age,) * 2)
    child_environment(tmp_path / "b", "m", one_thread=True)
    assert {p.name for p in kept.glob("*.gch")} == {"done.h.gch", "running.h.gch"}
    child_environment(tmp_path / "c", "m", one_thread=True, fresh=True)
    assert not any((tmp_path / "c" / "tmp").iterdir()), "the time of a reader's first run holds that of the header"
    kept.chmod(0o777)
    child_environment(tmp_path / "d", "m", one_thread=True)
    assert not any((tmp_path / "d" / "tmp").iterdir()), "others could write there"


def test_a_notebook_that_compiles_for_a_cpu_starts_no_helpers(tmp_path, monkeypatch):
    monkeypatch.delenv("TORCH_WARM_POOL", raising=False)
    for nodes, one_thread, wanted in (([], True, "0"), ([], False, None), ([Path("/dev/kfd")], True, None)):
        monkeypatch.setattr("course.pool.gpu_nodes", lambda nodes=nodes: nodes)
        env = child_environment(tmp_path, "m", one_thread=one_thread, fresh=True)
        assert env.get("TORCH_WARM_POOL") == wanted


def test_a_worker_does_not_wait_for_a_library_that_it_does_not_need(tmp_path):
    """jsonschema imports JupyterLab's checker of web addresses where it is installed: three seconds a notebook; and
    papermill pyarrow, half a second."""
    for name in ("rfc3987_syntax", "pyarrow"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w').close()\n")
    job = {"notebook": str(tmp_path / "none.ipynb"), "parameters": {}, "cwd": str(tmp_path), "out": "", "html": None}
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-m", "course.worker"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, env=env, text=True, **pipes) as worker:
        worker.stdin.write(json.dumps(job) + "\n")
        worker.stdin.flush()  # and not closed: that would end it
        said = worker.stderr.read()
    assert "none.ipynb" in said, "it came as far as the notebook"
    assert not (tmp_path / "imported").exists()


def test_memory_of_a_grandchild_counts():
    # In a process of its own: this one may keep children of other tests (inductor's compile workers).
    code = """
import subprocess, sys
from course.memory_meter import MemoryMeter
inner = "x = bytearray(300 << 20); import time; time.sleep(1)"
outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
with MemoryMeter() as meter:
    subprocess.run([sys.executable, "-c", outer], check=True)
print(meter.peak)
"""
    peak = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert 300 << 20 < peak < 450 << 20


def test_pages_that_a_fork_has_in_common_count_once_until_it_writes_to_them():
    """When it does, its resident memory stays what it was: shares are asked for all the same, if not at each look."""
    code = """
import subprocess, sys
from course.memory_meter import MemoryMeter
inner = '''
import os, sys, time
pages = bytearray(b"x") * (200 << 20)
if os.fork() == 0:
    time.sleep(1)
    for at in range(0, len(pages) if sys.argv[1:] else 0, 4096):
        pages[at] = 1
    time.sleep(3)
    os._exit(0)
os.wait()
'''
for words in ([], ["write"]):
    with MemoryMeter() as meter:
        subprocess.run([sys.executable, "-c", inner, *words], check=True)
    print(meter.peak)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    shared, written = map(int, done.stdout.split())
    assert 200 << 20 < shared < 300 << 20 and 400 << 20 < written < 500 << 20


def test_a_model_that_travels_lies_beside_the_results(tmp_path, monkeypatch):
    """Two runs with result folders of their own, as tests make them, do not meet; a reader's own choice counts."""

    def folder(**options):
        scratch = tmp_path / str(len(list(tmp_path.iterdir())))
        return child_environment(scratch, "m", one_thread=True, models=tmp_path / "out", **options).get(
            "ROCM_GUIDE_RUNS"
        )

    monkeypatch.delenv("ROCM_GUIDE_RUNS", raising=False)
    assert folder() == str(tmp_path / "out")
    monkeypatch.setenv("ROCM_GUIDE_RUNS", "/elsewhere")
    assert folder() == "/elsewhere"
    assert folder(fresh=True) == str(tmp_path / "out")  # what is stored begins with an empty folder
