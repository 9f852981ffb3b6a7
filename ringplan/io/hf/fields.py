"""The fields of a config.json, read with care and with their origins."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from ringplan.errors import SpecError
from ringplan.io.origins import Origin

if TYPE_CHECKING:
    from ringplan.io.origins import Tree

MOST: Final = 10**9
_FLAGS: Final = {"true": True, "false": False}
#: The origin of a stand-in for a number that the config does not give.
MISSING: Final = Origin("model", "missing")


class Sourced(NamedTuple):
    """A whole number and who gave it."""

    value: int
    origin: Origin

    @property
    def known(self) -> bool:
        """Whether the config gives it, or what it follows from."""
        return self.origin is not MISSING


class Text(NamedTuple):
    """A word and who gave it."""

    value: str
    origin: Origin


@dataclass(slots=True)
class Fields:
    """
    What a config says, field by field.

    What is wrong is noted rather than raised, and a stand-in returned, so that `stop` can say
    all of it at once; whoever reads fields calls `stop` before using them. What is missing is
    noted in `lacking`: caches may be known all the same.

    Attributes
    ----------
    config
        The config; values from ``--set`` are already in it.
    name
        The model, for messages about what has no line of its own.
    problems
        What was wrong so far, a line each.
    lacking
        Fields that are missing.
    needed
        Fields that the family needs for the whole bill.
    keys
        Every key that was asked for, whether the config has it or not.
    """

    config: Tree
    name: str
    problems: list[str] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)
    needed: list[str] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)

    def has(self, key: str) -> bool:
        """Whether the config has the key; null counts."""
        self.keys.add(key)
        return key in self.config.values

    def integer(self, *keys: str, least: int = 1, most: int = MOST) -> Sourced:
        """Read a whole number that must be there, under the first spelling that is."""
        self.needed.append(keys[0])
        return self.optional(*keys, least=least, most=most) or self.missing(keys[0])

    def optional(self, *keys: str, least: int = 1, most: int = MOST) -> Sourced | None:
        """Read a whole number that may be absent or null."""
        key = self._first(keys)
        if key is None:
            return None
        given = self.config.values[key]
        value = whole_number(given)
        if value is None or not least <= value <= most:
            self.wrong(key, f"must be a whole number from {least:,} to {most:,}")
            return Sourced(1, self.origin(key))
        return Sourced(value, self.origin(key))

    def flag(self, key: str, *, default: bool) -> bool:
        """Read true or false."""
        if self._first((key,)) is None:
            return default
        given = self.config.values[key]
        value = _FLAGS.get(str(given).lower())
        if value is None:
            self.wrong(key, "must be true or false")
        return bool(value)

    def decisive(self, key: str) -> bool:
        """Read true or false of which tensors depend, as models of the family differ in it."""
        self.needed.append(key)
        if self._first((key,)) is None:
            self.missing(key)
        return self.flag(key, default=False)

    def text(self, *keys: str) -> Text | None:
        """Read a word that may be absent."""
        key = self._first(keys)
        if key is None:
            return None
        given = self.config.values[key]
        if not isinstance(given, str):
            self.wrong(key, "must be a word in quotes")
        return Text(str(given), self.origin(key))

    def words(self, key: str) -> tuple[str, ...] | None:
        """Read a list that may be absent, its items as text."""
        if self._first((key,)) is None:
            return None
        given = self.config.values[key]
        if not isinstance(given, list):
            self.wrong(key, "must be a list in brackets")
            return None
        return tuple(str(item) for item in given)

    def integers(self, key: str, *, least: int = 1, most: int = MOST) -> list[Sourced] | None:
        """Read a list of whole numbers that may be absent."""
        items = self.words(key)
        if items is None:
            return None
        values = [whole_number(item) for item in items]
        if any(value is None or not least <= value <= most for value in values):
            self.wrong(key, f"must be a list of whole numbers from {least:,} to {most:,}")
            return [Sourced(least, self.origin(key)) for _ in values]
        return [Sourced(value or least, self.origin(key)) for value in values]

    def block(self, key: str) -> Fields | None:
        """Read a block of fields that may be absent; its problems are added to these."""
        if self._first((key,)) is None:
            return None
        if not isinstance(self.config.values[key], dict):
            self.wrong(key, "must be a block of keys in braces")
            return None
        return Fields(self.config.branch(key), f"{self.name} {key}", self.problems)

    def derived(self, value: int, rule: str, *inputs: Sourced) -> Sourced:
        """Return a number that follows from others, with the rule and their origins."""
        if not all(each.known for each in inputs):
            return Sourced(1, MISSING)
        if value > MOST:
            self.note(f"{self.name}: {rule} is {value:,}, but must be at most {MOST:,}")
        sources = " and ".join(str(each.origin) for each in inputs)
        return Sourced(min(value, MOST), Origin("derived", rule, sources or self.name))

    def origin(self, key: str) -> Origin:
        """Who gave the value of a key, and the key unless it is told already."""
        known = self.config.origins.get(key, Origin("model", self.name))
        source = known.source or ("" if key in known.where else key)
        return Origin(known.kind, known.where, source)

    def place(self, key: str) -> str:
        """Where a key stands: file and line, or the option that set it."""
        known = self.config.origins.get(key)
        return known.where if known else self.name

    def vital(self, key: str) -> None:
        """Note that a field is missing without which even the caches are not known."""
        self.needed.append(key)
        self.note(f"{self.name}: {key} is missing")

    def wrong(self, key: str, cure: str) -> None:
        """Note that the value of a key is not what it must be."""
        self.note(f"{self.place(key)}: {key} is {_shown(self.config.values[key])}, but {cure}")

    def missing(self, key: str) -> Sourced:
        """Note that a field is missing, and return a stand-in."""
        if key not in self.lacking:
            self.lacking.append(key)
        return Sourced(1, MISSING)

    def conflict(self, problem: str, *inputs: Sourced) -> None:
        """Note what is wrong between fields that are right one by one, if they are known."""
        if not self.problems and all(each.known for each in inputs):
            self.note(f"{self.name}: {problem}")

    def count(self, key: str, items: int, layers: int) -> None:
        """Note a list that has fewer items than there are layers."""
        if items < layers:
            self.conflict(f"{key} has {items} items for {layers} layers")

    def note(self, problem: str) -> None:
        """Note a problem, once: a field may be read in several places."""
        if problem not in self.problems:
            self.problems.append(problem)

    def stop(self, family: str, *, complete: bool) -> None:
        """
        Raise what was noted.

        Parameters
        ----------
        family
            Whose fields these are.
        complete
            Whether enough is there to count the caches; if not, say what is missing, and all that
            the family needs.
        """
        missing = [] if complete else [f"{self.name}: {key} is missing" for key in self.lacking]
        if not self.problems and not missing:
            return
        needs = f"a {family} config needs {', '.join(dict.fromkeys(self.needed))}"
        told = [*self.problems, *missing]
        lacking = any(problem.endswith("is missing") for problem in told)
        raise SpecError("\n".join(dict.fromkeys(told)), hint=needs if lacking else "")

    def _first(self, keys: tuple[str, ...]) -> str | None:
        self.keys.update(keys)
        return next((key for key in keys if self.config.values.get(key) is not None), None)


def whole_number(given: object) -> int | None:
    """
    Read a whole number, or digits in quotes as ``--set`` may give them; None for anything else.

    >>> [whole_number(given) for given in (8, "8", "eight", 1.5, True)]
    [8, 8, None, None, None]
    """
    if isinstance(given, str) and given.isascii() and given.isdigit() and len(given) < 20:
        return int(given)
    return given if isinstance(given, int) and not isinstance(given, bool) else None


def _shown(given: object) -> str:
    """Quote what was given, cut short."""
    text = str(given).lower() if isinstance(given, bool) else str(given)
    return f"'{text}'" if len(text) <= 40 else f"'{text[:37]}...'"
