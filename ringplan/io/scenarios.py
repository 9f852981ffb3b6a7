"""From file, ``--set`` and flags to a scenario in which every value knows who gave it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic import BaseModel

from ringplan.errors import RingplanError, SpecError, nearest, quote
from ringplan.io import library
from ringplan.io.documents import read_document, read_value
from ringplan.io.hf import read_config
from ringplan.io.origins import DEFAULT, Origin, Tree, leaves
from ringplan.io.policies import default_of, engine_of, rivals, schedule_of
from ringplan.io.profiles import read_profile
from ringplan.io.validation import Problems
from ringplan.specs.engine import Engine
from ringplan.specs.hardware import HardwareProfile, Source
from ringplan.specs.mesh import Mesh
from ringplan.specs.scenario import Scenario
from ringplan.specs.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pydantic.fields import FieldInfo

    from ringplan.specs.model import ModelSpec

DEEPEST: Final = 8  # no path of a scenario has more dots
BLOCKS: Final = ("model", "hardware", "mesh", "workload", "engine")
_WHOLE: Final = ("mesh", "workload")  # which have no shipped files to name


_PATHS: Final = [
    f"{block}.{name}"
    for block, spec in (("mesh", Mesh), ("workload", Workload), ("engine", Engine))
    for name in spec.model_fields
]


class Loaded(NamedTuple):
    """A scenario, the origin of each of its values by dotted path, and the files it is from."""

    scenario: Scenario
    origins: dict[str, Origin]
    files: tuple[Path, ...]

    def origin(self, path: str) -> Origin:
        """Who gave the value at a path; a value that nobody gave is a default."""
        return self.origins.get(path, DEFAULT)

    def inputs(self) -> list[dict[str, Any]]:
        """List every value of the scenario: path, value, unit, origin and source."""
        scenario = self.scenario
        rows: list[dict[str, Any]] = []
        blocks = {
            "hardware": scenario.hardware,
            "mesh": scenario.mesh,
            "workload": scenario.workload,
            "engine": scenario.engine,
        }
        rows = [
            self._input(f"model.{name}", getattr(scenario.model, name), "1")
            for name in ("hidden_size", "num_hidden_layers", "vocab_size", "weights_dtype")
        ]
        for index, kind in enumerate(scenario.model.kinds):
            rows += self._block(f"model.kinds.{index}", kind)
        for name, block in blocks.items():
            rows += self._block(name, block)
        return rows

    def _block(self, prefix: str, block: BaseModel) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for name, field in type(block).model_fields.items():
            value, path = getattr(block, name), f"{prefix}.{name}"
            if isinstance(value, BaseModel):
                rows += self._block(path, value)
            elif value is not None and name != "sources":
                rows.append(self._input(path, value, _unit(field)))
        return rows

    def _input(self, path: str, value: object, unit: str) -> dict[str, Any]:
        origin = self.origin(path)
        shown = {"path": path, "value": value, "unit": unit, "origin": origin.where}
        return {**shown, "source": origin.source or None}


def _unit(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    return str(extra.get("unit", "1")) if isinstance(extra, dict) else "1"


def load(
    file: Path | None = None,
    *,
    sets: Iterable[str] = (),
    flags: Mapping[str, tuple[Any, str]] | None = None,
) -> Loaded:
    """
    Read a scenario: profile < file < ``--set`` < flag.

    Parameters
    ----------
    file
        A YAML file with the blocks model, hardware, mesh, workload; None for none.
    sets
        Texts ``PATH=VALUE``.
    flags
        Path to (value, flag as typed); values of None are left out.

    Raises
    ------
    RingplanError
        Anything that cannot be read as a scenario, all problems at once.

    Examples
    --------
    >>> sets = ["model=llama-3.1-8b", "hardware=h100-sxm-80gb", "workload.seq_len=128K"]
    >>> loaded = load(sets=sets)
    >>> loaded.scenario.workload.seq_len, str(loaded.origin("workload.seq_len"))
    (131072, '--set workload.seq_len=128K')
    """
    tree = read_document(file) if file else Tree({}, {})
    _check_blocks(tree, file)
    for path, value, origin in _command_line(sets, flags or {}):
        _put(tree, path, value, origin)
    beside = file.parent if file else None

    problems = Problems()
    model_file, model, model_origins = _model(tree, beside, problems)
    hardware_file, hardware, hardware_origins = _hardware(tree, beside, problems)
    mesh_tree, workload_tree = tree.branch("mesh"), tree.branch("workload")
    schedule, schedule_origins = schedule_of(mesh_tree, problems)
    mesh = problems.validate(Mesh, mesh_tree, "mesh")
    workload = problems.validate(Workload, workload_tree, "workload")
    engine, engine_origins = engine_of(tree, workload, workload_tree, problems)
    problems.stop()
    assert model and hardware and mesh and workload and schedule and engine  # noqa: S101, PT018 - stopped above
    if workload.engine is None and engine.name != default_of("engines"):
        workload = workload.model_copy(update={"engine": engine.name})
    scenario = Scenario.model_construct(  # its parts were just validated
        model=model,
        hardware=hardware,
        mesh=mesh,
        workload=workload,
        schedule=schedule,
        engine=engine,
        rivals=rivals(mesh, schedule),
    )
    blocks = {
        "model": model_origins,
        "hardware": hardware_origins,
        "mesh": mesh_tree.origins,
        "workload": workload_tree.origins,
        "schedule": schedule_origins,
        "engine": engine_origins,
    }
    origins = {f"{b}.{path}": o for b, known in blocks.items() for path, o in known.items()}
    files = tuple(path for path in (file, model_file, hardware_file) if path)
    return Loaded(scenario, origins, files)


def _check_blocks(tree: Tree, file: Path | None) -> None:
    for block, value in tree.values.items():
        if block not in BLOCKS:
            hint = nearest(block, BLOCKS, noun="blocks")
            raise SpecError(f"{tree.origins[block].where}: unknown block '{block}'", hint=hint)
        if not isinstance(value, (dict, str)) or (isinstance(value, str) and block in _WHOLE):
            raise SpecError(
                f"{tree.origins[block].where}: {block} is '{value}', but must be a block of keys",
                hint=f"write '{block}:' and its keys below, indented ({file})",
            )


def _command_line(
    sets: Iterable[str], flags: Mapping[str, tuple[Any, str]]
) -> list[tuple[str, Any, Origin]]:
    """List what the command line gives; one path twice is an error."""
    given: list[tuple[str, Any, Origin]] = []
    for text in sets:
        path, equals, value = text.partition("=")
        if not equals or not path.strip():
            raise SpecError(f"--set {text} has no path and value", hint="--set mesh.cp_size=8")
        origin = Origin("set", f"--set {text[:300]}")
        given.append((path.strip(), read_value(value.strip()), origin))
    given += [
        (path, value, Origin("flag", flag))
        for path, (value, flag) in flags.items()
        if value is not None
    ]
    seen: dict[str, Origin] = {}
    for path, _, origin in given:
        name = f"{path}.base" if path in BLOCKS[:2] else path
        if name in seen:
            raise SpecError(
                f"{path} is given twice: {seen[name].where} and {origin.where}", hint="keep one"
            )
        seen[name] = origin
    return sorted(given, key=lambda each: each[0] not in BLOCKS[:2])  # a base, then its changes


def _put(tree: Tree, path: str, value: object, origin: Origin) -> None:
    """Set a path; a base given as a word becomes a block, so that its fields can be set."""
    block, _, rest = path.partition(".")
    if block not in BLOCKS or not all(path.split(".")) or path.count(".") > DEEPEST:
        whole = [p for p in _PATHS if p.rpartition(".")[2] == path]
        hint = (
            f"did you mean {whole[0]}?"
            if whole
            else nearest(block, BLOCKS, noun="paths start with")
        )
        raise SpecError(f"{origin.where[:200]}: there is no {quote(path)} in a scenario", hint=hint)
    if path == "engine":
        path, rest = "engine.base", "base"
    if not rest and block in BLOCKS[2:]:
        hint = f"{'mesh.cp_size=8' if block == 'mesh' else 'workload.seq_len=128K'}"
        raise SpecError(f"{origin.where}: {block} is a block; set one of its keys", hint=hint)
    if block in BLOCKS[:2]:
        current = tree.values.get(block)
        if not rest:
            tree.put(block, {}, origin)
            tree.put(f"{block}.base", value, origin)
            return
        if isinstance(current, str):
            base_origin = tree.origins[block]
            tree.put(block, {}, base_origin)
            tree.put(f"{block}.base", current, base_origin)
    tree.put(path, value, origin)


def _base(tree: Tree, block: str, beside: Path | None) -> tuple[Path | None, Tree]:
    """Split a model or hardware block into the file it builds on and what it changes."""
    value = tree.values.get(block)
    changes = tree.branch(block)
    if isinstance(value, str):
        changes = Tree({"base": value}, {"base": tree.origins[block]})
    base = changes.values.pop("base", None)
    origin = changes.origins.pop("base", DEFAULT)
    if base is None:
        return None, changes
    if not isinstance(base, str):
        raise SpecError(
            f"{origin.where}: {block}.base is {quote(base)}", hint="write a name or a path"
        )
    from_file = origin.kind == "file"
    shelf = "models" if block == "model" else block
    try:
        return library.find(shelf, base, beside=beside if from_file else None), changes
    except RingplanError as error:
        place = f"{origin.where}: " if from_file else ""
        raise SpecError(f"{place}{error.message}", hint=error.hint) from error


def _without_curves(profile: Tree, changes: Tree) -> None:
    """Let an efficiency that a scenario gives stand alone: a curve is of the profile's plateau."""
    given = changes.values.get("efficiency")
    for way in ("forward", "backward"):
        own, curve = f"efficiency.attention_{way}", f"efficiency.{way}_curve"
        alone = isinstance(given, dict) and f"{way}_curve" not in given
        if own in changes.origins and alone:
            profile.put(curve, None, changes.origins[own])


def _model(
    tree: Tree, beside: Path | None, problems: Problems
) -> tuple[Path | None, ModelSpec | None, dict[str, Origin]]:
    path, changes = _base(tree, "model", beside)
    if path is None and not changes.values:
        problems.lines.append(
            "no model: give --model NAME or the path of a config.json"
            f" ({', '.join(library.names('models')[:4])}, ...: ringplan list models)"
        )
        return None, None, {}
    config = Tree({}, {})
    name = shown = "model"
    if path is not None:
        name, config = read_model(path)
        shown = library.shown(path)
    config.overlay(changes)
    weights = tree.branch("workload")
    if "weights_dtype" in weights.values:
        config.put(
            "weights_dtype", weights.values["weights_dtype"], weights.origins["weights_dtype"]
        )
    read = read_config(config, name=name, where=shown)
    for key, _ in leaves(changes.values):
        if key not in read.keys:
            where = changes.origins[key].where
            hint = nearest(key, sorted(read.keys), noun="fields")
            problems.lines.append(f"{where}: model.{key}: unknown key ({hint})")
    return path, read.spec, read.origins


def read_model(path: Path) -> tuple[str, Tree]:
    """Read a shipped model, one in its form, or a config.json: the name and the config's tree."""
    document = read_document(path, kind="model")
    if path.suffix == ".json":
        name = document.values.get("_name_or_path")
        here = path.resolve()
        name = str(name or (here.parent.name if here.stem == "config" else here.stem))
        return "".join(letter for letter in name if letter.isprintable()), document
    if not isinstance(document.values.get("config"), dict):
        raise SpecError(
            f"{path} has no 'config' block", hint="see ringplan/data/models for the form"
        )
    sources = _sources(document, path)
    tree = document.branch("config")
    tree.origins = {
        key: Origin("model", origin.where, _source(sources, key))
        for key, origin in tree.origins.items()
    }
    return str(document.values.get("name", path.stem)), tree


def _source(sources: dict[str, Source], key: str) -> str:
    """Name the source of a config's field: its own, or that of the whole config."""
    return str(sources.get(key.partition(".")[0]) or sources.get("config") or "")


def _sources(document: Tree, path: Path) -> dict[str, Source]:
    """Read the sources of a shipped file."""
    problems = Problems()
    branch = document.branch("sources")
    found: dict[str, Source] = {}
    for key, value in branch.values.items():
        source = problems.validate(Source, Tree(value, {}), f"{path}: sources.{key}")
        if source is not None:
            found[key] = source
    problems.stop()
    return found


def _hardware(
    tree: Tree, beside: Path | None, problems: Problems
) -> tuple[Path | None, HardwareProfile | None, dict[str, Origin]]:
    path, changes = _base(tree, "hardware", beside)
    if path is None and not changes.values:
        problems.lines.append(
            "no hardware: give --hardware NAME or the path of a profile"
            f" ({', '.join(library.names('hardware')[:4])}, ...: ringplan list hardware)"
        )
        return None, None, {}
    profile = read_profile(path) if path else Tree({"name": "hardware"}, {})
    profile.values.pop("sources", None)  # the origins have them
    profile.overlay(changes)
    _without_curves(profile, changes)
    return path, problems.validate(HardwareProfile, profile, "hardware"), profile.origins
