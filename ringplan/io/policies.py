"""What a scenario names rather than describes: the schedule and the engine."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from ringplan.errors import RingplanError, SpecError
from ringplan.io import library
from ringplan.io.documents import read_document
from ringplan.io.origins import Origin
from ringplan.io.profiles import read_profiled
from ringplan.specs.engine import Engine
from ringplan.specs.mesh import DEFAULT_PARTITION
from ringplan.specs.schedule import Schedule

if TYPE_CHECKING:
    from pathlib import Path

    from ringplan.io.origins import Tree
    from ringplan.io.validation import Problems
    from ringplan.specs.mesh import Mesh
    from ringplan.specs.workload import Workload


def schedule_of(tree: Tree, problems: Problems) -> tuple[Schedule | None, dict[str, Origin]]:
    """Read the schedule that a mesh names, and let it fill what the mesh leaves open."""
    name = tree.values.get("schedule")
    document = _named(
        "schedules", None if name is None else str(name), tree.origins.get("schedule")
    )
    schedule = problems.validate(Schedule, document, "schedule")
    if schedule is None:
        return None, {}
    source = str(schedule.source)
    origins = {key: o._replace(source=source) for key, o in document.origins.items()}
    _fill(tree, schedule, origins)
    return schedule, origins


def _fill(tree: Tree, schedule: Schedule, origins: dict[str, Origin]) -> None:
    """Give a mesh the partition, and Ulysses all ranks, where the schedule knows no other."""
    filled: dict[str, tuple[str, Any]] = {}
    if DEFAULT_PARTITION not in schedule.partitions:
        filled["partition"] = "partitions", schedule.partitions[0]
    if schedule.comm_types == ("a2a",) and "cp_size" in tree.values:
        filled["ulysses_size"] = "comm_types", tree.values["cp_size"]
    for name, (field, value) in filled.items():
        if name not in tree.values:
            tree.values[name] = value
            tree.origins[name] = origins.get(field, Origin("default", f"schedule {schedule.name}"))


def rivals(mesh: Mesh, schedule: Schedule) -> tuple[Schedule, ...]:
    """Read the other shipped schedules, for an estimate to compare, where ranks share tokens."""
    if max(mesh.cp_size, mesh.dcp_size) == 1:
        return ()
    shipped = map(schedule_from, library.files("schedules").values())
    return tuple(each for each in shipped if each.implementation and each.name != schedule.name)


@cache
def schedule_from(path: Path) -> Schedule:
    """Read a shipped schedule."""
    return Schedule.model_validate(read_document(path).values)


def engine_of(
    tree: Tree, workload: Workload | None, workload_tree: Tree, problems: Problems
) -> tuple[Engine | None, dict[str, Origin]]:
    """Read the memory policy that the workload names, and what the scenario changes of it."""
    name, origin = workload.engine if workload else None, workload_tree.origins.get("engine")
    changes, given = tree.branch("engine"), tree.values.get("engine")
    base = given if isinstance(given, str) else changes.values.pop("base", None)
    where = tree.origins.get("engine") or changes.origins.get("base")
    changes.origins.pop("base", None)
    if base is not None and name is not None and base != name:
        raise SpecError(f"two engines: {base} ({where}) and {name} ({origin})", hint="keep one")
    name = name if base is None else str(base)
    if workload and workload.phase == "train" and (name is not None or changes.values):
        problems.lines.append(f"{origin or where or 'engine'}: an engine serves (leave it out)")
    document = _named("engines", name, origin or where)
    engine = read_profiled(document)
    engine.values.pop("sources", None)  # the origins have them
    engine.overlay(changes)
    return problems.validate(Engine, engine, "engine"), engine.origins


def default_of(shelf: str) -> str:
    """Return the name that a shelf takes where none is given."""
    return (library.folder(shelf) / "DEFAULT").read_text(encoding="utf-8").strip()


def _named(shelf: str, name: str | None, origin: Origin | None) -> Tree:
    """Read a shipped file, by default the one that its shelf names."""
    try:
        return read_document(library.find(shelf, default_of(shelf) if name is None else name))
    except RingplanError as error:
        place = f"{origin.where}: " if origin else ""
        raise SpecError(f"{place}{error.message}", hint=error.hint) from error
