# SPDX-License-Identifier: MIT
"""Rows of a profiler's table, with errors that name the line."""

from __future__ import annotations

import csv
import zlib
from collections.abc import Iterator
from pathlib import Path

from rocm_guide.common.base import shown
from rocm_guide.observe.profiling.torch_trace.events import TraceError, open_text

__all__ = []

#: Characters of a line that are read at once; a row of a profiler has a few thousand, with all counters.
LONGEST_LINE = 1 << 22


class Row:
    """A row with its place in the file, so that an error can name it.

    >>> row = Row("run.csv", 2, {"Calls": "3", "Name": "gemm"})
    >>> row.number(("Count", "Calls")), row.first(("Kernel_Name", "Name"))
    (3.0, 'gemm')
    """

    def __init__(self, file: str, line: int, cells: dict[str, str]) -> None:
        self.file, self.line, self.cells = file, line, cells

    def first(self, names: tuple[str, ...]) -> str | None:
        """Return the cell under the first of these names that the header has."""
        for name in names:
            if name in self.cells:
                return self.cells[name]
        return None

    def number(self, names: tuple[str, ...], default: float | None = None) -> float:
        """Return that cell as a number; ``default`` when there is none."""
        text = self.first(names)
        if text is None or text == "":
            if default is not None:
                return default
            raise TraceError(f"{self.file}, line {self.line}: no value for {names[0]}; the file is cut short or edited")
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if value != value or abs(value) > 1e30:
            raise TraceError(f"{self.file}, line {self.line}: {names[0]} is {text[:40]!r}, not a number")
        return value

    def integer(self, names: tuple[str, ...]) -> int | None:
        """Return that cell as an integer, None when there is none."""
        text = self.first(names)
        return None if text in (None, "") else int(self.number(names))

    def nanoseconds(self, names: tuple[str, ...]) -> int:
        """Return that cell as an exact integer."""
        # Timestamps have 16 digits and more: a float would round them.
        text = (self.first(names) or "").strip()
        return int(text) if text.isascii() and text.isdigit() and len(text) < 30 else int(self.number(names))

    def product(self, whole: tuple[str, ...], kind: str) -> int | None:
        """Return a size given whole, or as the product of its X, Y and Z columns."""
        size = self.integer(whole)
        axes = [n for axis in "XYZ" if (n := self.integer((f"{kind}_Size_{axis}",))) is not None]
        if size is None and len(axes) == 3:
            size = axes[0] * axes[1] * axes[2]
        return size


def table_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a CSV with a header line, one at a time.

    Raises:
        TraceError: missing, not a table, or a row that has more or fewer cells than the header.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as d:
    ...     file = Path(d) / "a.csv"
    ...     _ = file.write_text("Name,Calls\\ngemm,3\\n")
    ...     [row.cells for row in table_rows(file)]
    [{'Name': 'gemm', 'Calls': '3'}]
    """
    name = str(path)
    with open_text(path) as stream:
        # In pieces: a damaged or hostile file may be one line without end.
        reader = csv.reader(iter(lambda: stream.readline(LONGEST_LINE), ""))
        try:
            header = [cell.strip() for cell in next(reader, [])]
            if len(header) < 2 or len(set(header)) != len(header):
                raise TraceError(f"{name}: the first line is not a header of a profiler's table ({str(header)[:60]})")
            for cells in reader:
                if not cells:
                    continue
                if len(cells) != len(header):
                    if "Dispatch_ID" in header and len(header) - len(cells) == 2:
                        raise TraceError(
                            f"{name}, line {reader.line_num}: two cells short of the header, a known slip of rocprofv2 "
                            "(ROCm/rocprofiler issue 144): no cell can be told for sure; record again with rocprofv3"
                        )
                    raise TraceError(
                        f"{name}, line {reader.line_num}: {len(cells)} cells, the header has {len(header)}; "
                        "the file is cut short or edited"
                    )
                # Names come from the profiled program, and are printed.
                cells = [c if c.isprintable() else shown(c, len(c)) for c in cells]
                yield Row(name, reader.line_num, dict(zip(header, cells, strict=True)))
        except (csv.Error, OSError, EOFError, zlib.error) as e:
            raise TraceError(f"{name}: not a readable table ({e}); copy the file again") from e
