"""The memory bill of a rank: names of its parts, and bars that pile up to the total."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ringplan.estimation.memory import PARTS
from ringplan.render.documents import cell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringplan.assess import Assessment
    from ringplan.estimation.growth import MemoryReport
    from ringplan.estimation.results import RankMemory
    from ringplan.estimation.tensors import Listed
    from ringplan.remedies import Remedy


class Bill(NamedTuple):
    """
    What ``ringplan memory`` prints.

    Attributes
    ----------
    assessment, report
        The bill, and how it grows.
    smallest_mesh
        The fewest devices that fit; None if none do, or the config does not tell.
    tensors
        The tensors, if asked for.
    """

    assessment: Assessment
    report: MemoryReport
    smallest_mesh: Remedy | None
    tensors: tuple[Listed, ...] | None = None


#: Parts of every bill, which are told even where they are not known.
_ALWAYS: Final = {"weights_bytes", "activation_bytes", "logits_bytes"}
_OF_TRAINING: Final = {"gradient_bytes", "optimizer_bytes"}

WIDTH: Final = 32


def parts(rank: RankMemory, *, training: bool) -> Iterator[tuple[str, float | None]]:
    """List the parts that are not zero; those that are not known are None."""
    told = _ALWAYS | _OF_TRAINING if training else _ALWAYS
    for field, name in PARTS.items():
        value = getattr(rank, field)
        if value or (value is None and field in told):
            yield name, value


def columns_of(rank: RankMemory, *names: str) -> list[str]:
    """Show some bytes of a rank."""
    return [cell(getattr(rank, name), "B") for name in names]


def bar(start: float, value: float, scale: float) -> str:
    """
    Draw a part of a scale where it begins; what is not zero has at least one block.

    >>> bar(8e9, 8e9, 32e9)
    '········████████················'
    >>> bar(32e9, 1, 32e9)
    '·······························█'
    """
    before = min(round(WIDTH * start / scale), WIDTH - 1)
    blocks = max(round(WIDTH * (start + value) / scale) - before, int(value > 0))
    return f"{'·' * before}{'█' * blocks}".ljust(WIDTH, "·")
