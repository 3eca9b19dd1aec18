# SPDX-License-Identifier: MIT
import os
import resource
import subprocess
import sys

import pytest

from cdna.base import InputError, write_bytes, write_text


def test_replaces_whole_file_and_leaves_no_temporary(tmp_path):
    write_text(tmp_path / "a" / "b.txt", "old")
    write_text(tmp_path / "a" / "b.txt", "new ✓")
    assert (tmp_path / "a" / "b.txt").read_text(encoding="utf-8") == "new ✓"
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["b.txt"]


def test_mode_follows_umask(tmp_path):
    before = os.umask(0o027)
    try:
        assert write_bytes(tmp_path / "x", b"1").stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(before)


def test_a_file_in_the_way_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written") as caught:
        write_text(tmp_path / "file" / "x.txt", "1")
    assert "\n" not in str(caught.value) and "choose a folder" in str(caught.value)


def test_full_disk_keeps_the_old_file(tmp_path):
    target = tmp_path / "kept.txt"
    target.write_text("old")
    code = f"from cdna.base import write_text; write_text({str(target)!r}, 'x' * 100_000)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
    )
    assert done.returncode == 1 and "InputError" in done.stderr
    assert target.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["kept.txt"]
