# SPDX-License-Identifier: MIT
"""The reader's predictions, kept beside what came out: a guess first makes a result surprising, or not."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

from rocm_guide.common.base import GuideError

__all__ = ["Predictions"]

Value = float | int | str | bool


@dataclass(frozen=True)
class Prediction:
    """One question with the guess (None: the reader gave none), what came out, and whether the guess was right."""

    question: str
    guess: Value | None
    found: Value
    right: bool


class Predictions:
    """The predictions of one notebook; call it where a result is known, and ask for the score at the end.

    A number is right within a share of what came out (``within``); a word and a yes or no must agree, whatever the
    case of the letters. Without a guess nothing is judged, so a run without a reader has no score. A cell that is run
    again replaces its own prediction.

    >>> predict = Predictions()
    >>> predict("H100 that hold as much as one MI300X", guess=2, found=2.4, within=0.25)
    H100 that hold as much as one MI300X: 2.4; your guess 2 is right
    >>> predict("needs the fewest directions", guess="W", found="the update")
    needs the fewest directions: the update; your guess W
    >>> predict("graphs compiled at the second call", guess=None, found=0)
    graphs compiled at the second call: 0; no guess
    >>> predict.score()
    1 of 2 guesses right
      [OK] H100 that hold as much as one MI300X: 2.4; your guess 2
      [--] needs the fewest directions: the update; your guess W
    1 without a guess: write one in place of None, and run its cell again
    """

    def __init__(self) -> None:
        self.kept: dict[str, Prediction] = {}

    def __call__(self, question: str, *, guess: Value | None, found: Value, within: float = 0.1) -> None:
        """Keep one prediction, and say how it went.

        Args:
            question: what was asked, in some words; it also tells one prediction from another.
            guess: the reader's; None for none.
            found: what came out, a number, a word, True or False.
            within: for numbers, how far the guess may be off, as a share of ``found``.

        Raises:
            GuideError: a guess of another kind than what was found, or ``within`` below 0.
        """
        if within < 0:
            raise GuideError(f"within={within}: give a share of the result, 0 or more")
        right = guess is not None and _agree(question, guess, found, within)
        self.kept[question] = Prediction(question, guess, found, right)
        said = "no guess" if guess is None else f"your guess {_shown(guess)}" + (" is right" if right else "")
        print(f"{question}: {_shown(found)}; {said}")

    def score(self) -> None:
        """Print how many guesses were right, and each beside what came out."""
        made = [p for p in self.kept.values() if p.guess is not None]
        if made:
            print(f"{sum(p.right for p in made)} of {len(made)} guesses right")
        for p in made:
            sign = "[OK]" if p.right else "[--]"
            print(f"  {sign} {p.question}: {_shown(p.found)}; your guess {_shown(p.guess)}")
        if without := len(self.kept) - len(made):
            print(f"{without} without a guess: write one in place of None, and run its cell again")


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _agree(question: str, guess: Value, found: Value, within: float) -> bool:
    if _is_number(guess) and _is_number(found):
        return abs(float(guess) - float(found)) <= within * abs(float(found)) + 1e-12
    if isinstance(guess, bool) and isinstance(found, bool):
        return guess == found
    if isinstance(guess, str) and isinstance(found, str):
        return guess.strip().casefold() == found.strip().casefold()
    wanted = "a number" if _is_number(found) else "True or False" if isinstance(found, bool) else "a word in quotes"
    raise GuideError(f"guess={guess!r} for {question!r}: give {wanted}, or None")


def _shown(value: Value | None) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if _is_number(value) else str(value)
