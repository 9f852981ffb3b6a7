"""``--explain``: the derivations that were asked for, as text or as trees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ringplan.cli.options import Format
from ringplan.errors import SpecError, nearest
from ringplan.estimation.metrics import metrics

if TYPE_CHECKING:
    from ringplan.assess import Assessment
    from ringplan.costs.formula import Known
    from ringplan.io.scenarios import Loaded

ExplainOption = Annotated[
    str | None,
    typer.Option(
        metavar="all|METRIC",
        help="Show the work: equation, inputs, sources; of all, or of one as memory.rank.kv_bytes.",
    ),
]


class Work(NamedTuple):
    """Derivations by metric; of a null, why it is one."""

    derivations: dict[str, Known | str]
    assessment: Assessment

    def text(self) -> str:
        """Write the derivations."""
        from ringplan.render.explain import explanation  # noqa: PLC0415 - only --explain needs it

        units = {m.name: m.declared.unit for m in metrics(self.assessment.estimate)}
        return explanation(self.derivations, units)

    def trees(self) -> dict[str, Any]:
        """Return the derivations as nested dictionaries."""
        from ringplan.render.explain import tree  # noqa: PLC0415 - only --explain needs it

        return {
            name: known if isinstance(known, str) else tree(known)
            for name, known in self.derivations.items()
        }


def work(
    loaded: Loaded, assessment: Assessment, wanted: str | None, format_: Format, *, block: str = ""
) -> Work | None:
    """
    Derive a metric or all below a name; nothing if nothing is asked for.

    Parameters
    ----------
    loaded, assessment
        The scenario, and what was estimated of it.
    wanted
        ``all``, a metric, or the name that several begin with.
    format_
        How it will be printed.
    block
        The block of the estimate that a command prints; "" is all of them.
    """
    if wanted is None:
        return None
    if format_ is Format.CSV:
        raise SpecError("--explain has no CSV form", hint="--format table, json or markdown")
    from ringplan.api import explained  # noqa: PLC0415 - only --explain derives

    every: dict[str, Known | str] = {**explained(loaded), **assessment.estimate.not_counted}
    known = {name: value for name, value in every.items() if not block or _below(name, block)}
    found = known if wanted == "all" else {n: v for n, v in known.items() if _below(n, wanted)}
    if not found:
        raise _no_metric(wanted, list(every), list(known))
    return Work(found, assessment)


def _below(name: str, wanted: str) -> bool:
    return name == wanted or name.startswith((f"{wanted}.", f"{wanted}["))


def _no_metric(wanted: str, every: list[str], known: list[str]) -> SpecError:
    """Say that a name has no derivation here, and which has, or where it has one."""
    if any(_below(name, wanted) for name in every):
        return SpecError(
            f"'{wanted}' is no metric of this command",
            hint=f"ringplan estimate --explain {wanted}",
        )
    hint = nearest(wanted, known, noun="metrics")
    return SpecError(f"there is no metric '{wanted}' to explain", hint=hint)
