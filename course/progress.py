# SPDX-License-Identifier: MIT
"""The progress of a run in the terminal: one bar per notebook, or plain lines where there is no terminal."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from rocm_guide.cli.lessons import Lesson
from rocm_guide.common.base import shown

__all__ = ["RunDisplay"]

_MARKS = {"ok": "[green]ok[/]", "failed": "[red]failed[/]", "refused": "[red]refused[/]"}


class RunDisplay:
    """A display of the events of :func:`course.run.run_course`; call it with (number, event)."""

    def __init__(self, lessons: Sequence[Lesson], console: Console) -> None:
        self.console = console
        self.titles = {x.number: shown(x.title) for x in lessons}
        self.live = console.is_terminal
        self.tasks: dict[str, TaskID] = {}
        self.progress = Progress(
            TextColumn("{task.fields[label]}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[heading]}", markup=True),
            console=console,
        )

    def __enter__(self) -> RunDisplay:
        """Start drawing."""
        if self.live:
            for number, title in self.titles.items():
                label = f"{number} {title[:34]:<34}"
                self.tasks[number] = self.progress.add_task(label, label=label, heading="", total=None, start=False)
            self.progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Leave the last state on the screen."""
        if self.live:
            self.progress.stop()

    def __call__(self, number: str, event: dict[str, Any]) -> None:
        """Take one event."""
        if self.live:
            self._draw(self.tasks[number], event)
        else:
            self._say(number, event)

    def _draw(self, task: TaskID, event: dict[str, Any]) -> None:
        match event["event"]:
            case "start":
                self.progress.start_task(task)
                self.progress.update(task, heading="starting a kernel")
            case "plan":
                self.progress.update(task, total=event["total"], completed=0)
            case "cell":
                heading = shown(event["heading"], 40).replace("[", "(")
                self.progress.update(task, completed=event["index"], heading=heading)
            case "kept":
                self.progress.update(task, total=1, completed=1, heading="kept from the earlier run")
            case "done":
                total = self.progress.tasks[task].total
                ok = event["status"] == "ok"
                self.progress.update(task, heading=f"{_MARKS[event['status']]}, {event['peak_mib']:,} MiB")
                if ok and total:
                    self.progress.update(task, completed=total)
                self.progress.stop_task(task)

    def _say(self, number: str, event: dict[str, Any]) -> None:
        name = f"{number} {self.titles[number]}"
        match event["event"]:
            case "start":
                self.console.print(f"{name}: started", markup=False)
            case "kept":
                self.console.print(f"{name}: kept from the earlier run", markup=False)
            case "done":
                measured = f"{event['seconds']:.0f} s, {event['peak_mib']:,} MiB"
                self.console.print(f"{name}: {event['status']}, {measured}", markup=False)
