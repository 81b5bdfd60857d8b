"""Types of command line arguments; what is wrong is said in words."""

import math
from argparse import ArgumentTypeError


def seconds(text: str) -> float:
    """Return a number of seconds, 0 or more."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise ArgumentTypeError(f"{text!r} is no number of seconds, 0 or more")
    return number


def positive(text: str) -> int:
    """Return a whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is no whole number from 1")
    return int(text)


def numbers(text: str) -> tuple[int, ...]:
    """Return whole numbers with commas between them, in order and each once."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise ArgumentTypeError(f"{text!r} is no list of whole numbers such as 1,4,16")
    return tuple(sorted(set(map(int, parts))))
