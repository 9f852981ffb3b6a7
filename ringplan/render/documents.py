"""An assessment as JSON or CSV: versioned keys, base units."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import TYPE_CHECKING, Any

from ringplan import __version__
from ringplan.estimation.metrics import fields_of, metrics, nested
from ringplan.estimation.results import RankMemory
from ringplan.units import show

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ringplan.assess import Assessment
    from ringplan.estimation.metrics import Metric
    from ringplan.render.bill import Bill
    from ringplan.specs.scenario import Scenario

FORMAT_VERSION = 1


def document(
    assessment: Assessment,
    inputs: Iterable[dict[str, Any]],
    explained: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Assemble the JSON document; ``explained`` adds derivations by metric."""
    made = {
        **_head(assessment, inputs),
        "estimate": nested(assessment.estimate),
        "findings": nested(assessment.findings),
    }
    if explained is not None:
        made["explain"] = explained
    return made


def memory_document(
    bill: Bill, inputs: Iterable[dict[str, Any]], explained: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Assemble the JSON document of ``ringplan memory``; ``explained`` adds derivations."""
    estimate = bill.assessment.estimate
    why = {name: why for name, why in estimate.not_counted.items() if name.startswith("memory.")}
    made = {
        **_head(bill.assessment, inputs),
        "estimate": {"memory": nested(estimate.memory), "not_counted": why},
        "growth": nested(bill.report.growth),
        "lengths": nested(bill.report.lengths),
        "smallest_mesh": nested(bill.smallest_mesh),
        "findings": nested(bill.assessment.findings),
    }
    if bill.tensors is not None:
        made["tensors"] = nested(bill.tensors)
    if explained is not None:
        made["explain"] = explained
    return made


def _head(assessment: Assessment, inputs: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return {
        "format_version": FORMAT_VERSION,
        "ringplan_version": __version__,
        "summary": nested(assessment.summary),
        "scenario": _scenario(assessment.scenario),
        "inputs": list(inputs),
    }


def _scenario(scenario: Scenario) -> dict[str, Any]:
    return {
        "model": scenario.model.model_dump(exclude={"tensors", "pattern"}),
        "hardware": scenario.hardware.model_dump(exclude={"sources"}),
        "mesh": scenario.mesh.model_dump(),
        "workload": scenario.workload.model_dump(),
        "schedule": scenario.schedule.model_dump(exclude={"source"}),
        "engine": scenario.engine.model_dump(exclude={"sources"}),
    }


def to_json(made: Any) -> str:
    """Write a document as JSON; NaN and infinity have no place in it."""
    return json.dumps(made, indent=2, allow_nan=False) + "\n"


def finite(value: Any) -> Any:
    """Return the value, or None for one that JSON cannot say."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


Line = tuple[str, Any, str, str]


def to_csv(assessment: Assessment) -> str:
    """Write one row a metric: name, value, unit, scope."""
    return _csv(map(_line, metrics(assessment.estimate)))


def memory_csv(bill: Bill) -> str:
    """Write one row a number of ``ringplan memory``: name, value, unit, scope."""
    return _csv(_memory_lines(bill))


def _memory_lines(bill: Bill) -> Iterator[Line]:
    for metric in metrics(bill.assessment.estimate):
        if metric.name.startswith("memory."):
            yield _line(metric)
    for part in bill.report.growth:
        for name in part._fields[1:]:
            yield f"growth[{part.part}].{name}", getattr(part, name), "B", "rank"
    for length in bill.report.lengths:
        name = f"lengths[{length.seq_len}]"
        for field in fields_of(RankMemory):
            value, (_, unit, scope, _) = getattr(length.rank, field.name), field.declared
            yield f"{name}.rank.{field.name}", value, unit, scope
        yield f"{name}.max_concurrency", length.max_concurrency, "1", "job"
    for index, tensor in enumerate(bill.tensors or ()):
        for name, unit, scope in _OF_TENSOR:
            yield f"tensors[{index}].{name}", getattr(tensor, name), unit, scope


#: Fields of a tensor, each with unit and scope.
_OF_TENSOR = (
    ("name", "", "job"),
    ("copies", "1", "job"),
    ("parameters", "1", "job"),
    ("active_parameters", "1", "job"),
    ("rank_bytes", "B", "rank"),
)


def _line(metric: Metric) -> Line:
    value = metric.value
    shown = "; ".join(map(str, value)) if isinstance(value, tuple) else value
    return metric.name, shown, metric.declared.unit, metric.declared.scope


def _csv(lines: Iterable[Line]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["metric", "value", "unit", "scope"])
    writer.writerows(lines)
    return out.getvalue()


def cell(value: Any, unit: str) -> str:
    """Show a number, or a dash where there is none."""
    if value is None:
        return "-"
    return str(value) if isinstance(value, (str, bool)) else show(value, unit)
