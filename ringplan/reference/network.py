"""
Ranks that hold only their own arrays, the network between them, and the ledger of each.

`Network.send` copies what is sent, counts the bytes of the copy and overwrites what the sender
gave away with NaN, so that a rank that uses what it no longer has gets a wrong answer at once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ringplan.reference.blocks import Work

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ringplan.reference.dense import Array


@dataclass
class Step:
    """
    What a rank did between one begin and the next.

    Attributes
    ----------
    work
        Pairs and FLOPs that it computed.
    read_bytes
        Bytes of keys and values that it computed on.
    sent, received
        Bytes by what they were: ``kv``, ``gradients``, ``queries``, ...
    exchanges
        Times it waited for the network.
    held
        Bytes by name of array, at every moment something was added.
    """

    work: Work = field(default_factory=Work)
    read_bytes: int = 0
    sent: Counter[str] = field(default_factory=Counter)
    received: Counter[str] = field(default_factory=Counter)
    exchanges: int = 0
    held: list[Counter[str]] = field(default_factory=list)


class Ledger:
    """What one rank sent, received, computed and held, step by step."""

    def __init__(self) -> None:
        self.steps: list[Step] = [Step()]

    @property
    def now(self) -> Step:
        """The step that is being written."""
        return self.steps[-1]

    def begin(self) -> None:
        """Begin the next step."""
        self.steps.append(Step())

    def sent(self, *what: str) -> int:
        """Bytes sent, of these kinds or of all."""
        return sum(_some(step.sent, what) for step in self.steps)

    def received(self, *what: str) -> int:
        """Bytes received, of these kinds or of all."""
        return sum(_some(step.received, what) for step in self.steps)

    def hops(self, what: str) -> int:
        """Steps in which something of this kind was sent."""
        return sum(step.sent[what] > 0 for step in self.steps)

    @property
    def exchanges(self) -> int:
        """Times the rank waited for the network, one after another."""
        return sum(step.exchanges for step in self.steps)

    @property
    def work(self) -> Work:
        """All that was computed."""
        return sum((step.work for step in self.steps), Work())

    def peak(self, *names: str) -> int:
        """Most bytes that arrays of these names took up at one moment."""
        return max(
            (_some(held, names) for step in self.steps for held in step.held),
            default=0,
        )


def _some(counts: Mapping[str, int], names: tuple[str, ...]) -> int:
    return sum(number for name, number in counts.items() if not names or name in names)


class Rank:
    """
    One rank: its own arrays by name, and its ledger.

    The ledger knows an array by the first word of its name: ``gathered 3`` is ``gathered``.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.ledger = Ledger()
        self._arrays: dict[str, tuple[Array, ...]] = {}
        self._held: Counter[str] = Counter()
        self._scope = ""

    def __getitem__(self, name: str) -> tuple[Array, ...]:
        """Arrays that the rank holds under a name."""
        return self._arrays[self._scope + name]

    def __setitem__(self, name: str, arrays: tuple[Array, ...]) -> None:
        """Hold arrays under a name, in place of what was held there."""
        name = self._scope + name
        self._release(name)
        self._arrays[name] = arrays
        self._held[name.partition(" ")[0]] += sum(array.nbytes for array in arrays)
        self.ledger.now.held.append(self._held.copy())

    def __contains__(self, name: str) -> bool:
        """Whether the rank holds something under a name."""
        return self._scope + name in self._arrays

    def drop(self, *names: str) -> None:
        """Let go of arrays."""
        for name in names:
            self._release(self._scope + name)
            del self._arrays[self._scope + name]

    def scope(self, prefix: str) -> Rank:
        """Return the same rank, for a dataflow inside another: it sees names with a prefix."""
        inner = Rank(self.number)
        inner.ledger, inner._scope = self.ledger, f"{prefix}."
        inner._arrays, inner._held = self._arrays, self._held
        return inner

    def _release(self, name: str) -> None:
        for array in self._arrays.get(name, ()):
            self._held[name.partition(" ")[0]] -= array.nbytes


class Message(NamedTuple):
    """Arrays on their way: to whom, and under which name they will be held."""

    target: Rank
    name: str
    arriving: str


class Network:
    """
    Carries arrays between ranks; what is sent in one exchange travels at the same time.

    Parameters
    ----------
    kv_dtype
        Format of K and V on the wire of a ring or an all-gather; None is the arrays' own.
    """

    def __init__(self, kv_dtype: np.dtype[Any] | None = None) -> None:
        self._kv_dtype = kv_dtype
        self._messages: list[Message] = []
        self._waiting: dict[int, Rank] = {}

    def send(
        self,
        source: Rank,
        target: Rank,
        name: str,
        *,
        into: str,
        what: str,
        keep: bool = False,
    ) -> None:
        """
        Put arrays of the source on the wire.

        Parameters
        ----------
        source, target
            Who sends, who will hold the copy.
        name, into
            Under which name the source holds the arrays, and the target will.
        what
            What the bytes are, for the ledger.
        keep
            Whether the source keeps its arrays; otherwise they are overwritten with NaN.
        """
        arrays = source[name]
        dtype = self._kv_dtype if what.startswith("kv") else None
        copies = tuple(np.array(array, dtype=dtype or array.dtype) for array in arrays)
        num_bytes = sum(copy.nbytes for copy in copies)
        source.ledger.now.sent[what] += num_bytes
        target.ledger.now.received[what] += num_bytes
        arriving = f"{into} arriving"
        target[arriving] = copies
        if not keep:
            for array in arrays:
                array.fill(np.nan)
        self._messages.append(Message(target, into, arriving))
        self._waiting |= {source.number: source, target.number: target}

    def deliver(self) -> None:
        """Wait until everything on the wire has arrived."""
        for target, name, arriving in self._messages:
            arrays = target[arriving]
            target.drop(arriving)
            target[name] = arrays
        for rank in self._waiting.values():
            rank.ledger.now.exchanges += 1
        self._messages, self._waiting = [], {}

    def shift(
        self,
        ranks: Sequence[Rank],
        name: str,
        *,
        into: str,
        what: str,
        by: int = 1,
        keep: bool = False,
    ) -> None:
        """Let every rank send to the one ``by`` places further; the last is before the first."""
        for i, rank in enumerate(ranks):
            target = ranks[(i + by) % len(ranks)]
            self.send(rank, target, name, into=into, what=what, keep=keep)


def begin(ranks: Iterable[Rank]) -> None:
    """Begin the next step of every rank."""
    for rank in ranks:
        rank.ledger.begin()
