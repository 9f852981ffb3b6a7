"""An assessment as JSON or CSV: versioned keys, base units."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import TYPE_CHECKING, Any

from ringplan import __version__
from ringplan.estimation.metrics import metrics, nested
from ringplan.units import show

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringplan.assess import Assessment

FORMAT_VERSION = 1


def document(
    assessment: Assessment,
    inputs: Iterable[dict[str, Any]],
    explained: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Assemble the JSON document; ``explained`` adds derivations by metric."""
    scenario = assessment.scenario
    made = {
        "format_version": FORMAT_VERSION,
        "ringplan_version": __version__,
        "summary": nested(assessment.summary),
        "scenario": {
            "model": scenario.model.model_dump(exclude={"tensors", "pattern"}),
            "hardware": scenario.hardware.model_dump(exclude={"sources"}),
            "mesh": scenario.mesh.model_dump(),
            "workload": scenario.workload.model_dump(),
            "schedule": scenario.schedule.model_dump(exclude={"source"}),
        },
        "inputs": list(inputs),
        "estimate": nested(assessment.estimate),
        "findings": nested(assessment.findings),
    }
    if explained is not None:
        made["explain"] = explained
    return made


def to_json(made: Any) -> str:
    """Write a document as JSON; NaN and infinity have no place in it."""
    return json.dumps(made, indent=2, allow_nan=False) + "\n"


def finite(value: Any) -> Any:
    """Return the value, or None for one that JSON cannot say."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_csv(assessment: Assessment) -> str:
    """Write one row a metric: name, value, unit, scope."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["metric", "value", "unit", "scope"])
    for metric in metrics(assessment.estimate):
        value = (
            "; ".join(map(str, metric.value)) if isinstance(metric.value, tuple) else metric.value
        )
        writer.writerow([metric.name, value, metric.declared.unit, metric.declared.scope])
    return out.getvalue()


def cell(value: Any, unit: str) -> str:
    """Show a number, or a dash where there is none."""
    if value is None:
        return "-"
    return str(value) if isinstance(value, (str, bool)) else show(value, unit)
