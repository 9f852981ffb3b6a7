"""The errors that a user can cause and a user can fix."""


class RingplanError(Exception):
    """
    Base of all errors a user can cause; the command line prints them and exits with 2.

    Anything else that escapes is a bug of ours and keeps its traceback.

    Parameters
    ----------
    message
        What was wrong and where, quoting the user's text; lower case, no full stop.
    hint
        What to type instead.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UnitError(RingplanError, ValueError):
    """A quantity without a unit, with a wrong one, or out of range."""


class SpecError(RingplanError):
    """A scenario, profile or model that does not say what it must."""


class FileError(RingplanError):
    """A file that cannot be read or written."""


def quote(given: object, most: int = 60) -> str:
    """
    Quote what the user wrote, shortened where it is long.

    >>> quote("1" * 100)
    "'1111111111111111111111111111111111111111...' (100 characters)"
    """
    text = str(given).lower() if isinstance(given, bool) else str(given)
    return f"'{text}'" if len(text) <= most else f"'{text[:40]}...' ({len(text)} characters)"


def nearest(word: str, choices: "list[str] | tuple[str, ...]", *, noun: str = "") -> str:
    """
    Say which of the choices the word probably meant.

    >>> nearest("lama-3.1-8b", ["llama-3.1-8b", "qwen3-8b"])
    'did you mean llama-3.1-8b?'
    >>> nearest("xyz", ["llama-3.1-8b", "qwen3-8b"], noun="models")
    'models: llama-3.1-8b, qwen3-8b'
    """
    from difflib import get_close_matches  # noqa: PLC0415 - only errors need it

    small = word.lower()
    holding = [choice for choice in choices if small and small in choice.lower()]
    matches = get_close_matches(small, choices, n=3, cutoff=0.6) or holding[:3]
    if matches:
        return f"did you mean {' or '.join(matches)}?"
    more = ", ..." if len(choices) > 12 else ""
    return f"{noun or 'choices'}: {', '.join(choices[:12])}{more}"
