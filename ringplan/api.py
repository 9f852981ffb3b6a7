"""The library: the same numbers as the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringplan.assess import Assessment, assess, lacking
from ringplan.errors import SpecError, nearest
from ringplan.estimation import core
from ringplan.estimation.metrics import metrics
from ringplan.io import scenarios
from ringplan.io.documents import read_value
from ringplan.specs.mesh import Mesh
from ringplan.specs.workload import Workload
from ringplan.units import parse_tokens

if TYPE_CHECKING:
    from ringplan.costs.formula import Known
    from ringplan.io.scenarios import Loaded
    from ringplan.validation.selection import Plan, Row


def load(
    scenario: str | Path | None = None,
    *,
    model: str | Path | None = None,
    hardware: str | Path | None = None,
    set: dict[str, Any] | None = None,  # noqa: A002 - named like the option
    **fields: Any,
) -> Loaded:
    """
    Read a scenario.

    Parameters
    ----------
    scenario
        A scenario file; None to give everything here.
    model, hardware
        A shipped name or the path of a file.
    set
        Values by dotted path, as ``--set`` takes them: ``{"model.num_key_value_heads": 8}``,
        ``{"engine.page_tokens": 64}``.
    **fields
        Fields of the mesh and the workload: ``seq_len="1M"``, ``cp_size=16``, ``engine="vllm"``.

    Returns
    -------
    Loaded
        The scenario, and the origin of each of its values.

    Raises
    ------
    RingplanError
        Anything that cannot be read as a scenario.

    Examples
    --------
    >>> load(model="llama-3.1-8b", hardware="h100-sxm-80gb", seq_len="128K").scenario.mesh.cp_size
    1
    """
    given: dict[str, tuple[Any, str]] = {}
    for name, value in {"model": model, "hardware": hardware}.items():
        given[name] = (None if value is None else str(value), f"argument {name}")
    for name, value in fields.items():
        block = _block(name)
        given[f"{block}.{name}"] = (value, f"argument {name}")
    for path, value in (set or {}).items():
        value = read_value(value) if isinstance(value, str) else value  # noqa: PLW2901
        given[path] = (value, f"argument set {path}")
    return scenarios.load(Path(scenario) if scenario else None, flags=given)


def _block(name: str) -> str:
    for block, spec in (("mesh", Mesh), ("workload", Workload)):
        if name in spec.model_fields:
            return block
    known = [*Mesh.model_fields, *Workload.model_fields]
    raise SpecError(f"unknown field '{name}'", hint=nearest(name, known, noun="fields"))


def estimate(
    scenario: str | Path | None = None,
    *,
    model: str | Path | None = None,
    hardware: str | Path | None = None,
    set: dict[str, Any] | None = None,  # noqa: A002 - named like the option
    timeline: bool = False,
    **fields: Any,
) -> Assessment:
    """
    Estimate a scenario; arguments are those of `load`.

    With ``timeline``, ``estimate.timeline_ranks`` says where the time of each rank goes.

    Returns
    -------
    Assessment
        ``summary``, ``estimate`` (base units: bytes, seconds, FLOP, tokens) and ``findings``.

    Raises
    ------
    RingplanError
        Anything that cannot be read as a scenario. A layout that cannot work is no error: its
        ``works`` is False and its findings say why.

    Examples
    --------
    >>> made = estimate(model="article-mha", hardware="h100-sxm-80gb", seq_len="1M", cp_size=64)
    >>> made.estimate.memory.kv_bytes_per_layer
    17179869184
    """
    loaded = load(scenario, model=model, hardware=hardware, set=set, **fields)
    return assess(loaded.scenario, timeline=timeline)


def explain(
    scenario: str | Path | None = None,
    *,
    model: str | Path | None = None,
    hardware: str | Path | None = None,
    set: dict[str, Any] | None = None,  # noqa: A002 - named like the option
    **fields: Any,
) -> dict[str, Known]:
    """
    Derive every number of a scenario; arguments are those of `load`.

    Returns
    -------
    dict
        Dotted metric to a `Known`: value, formula and inputs, down to leaves with their origin.

    Examples
    --------
    >>> made = explain(model="article-mha", hardware="h100-sxm-80gb", seq_len="1M", cp_size=64)
    >>> made["ring.hop_bytes"].formula.equation
    'U = B n g (d_k e_k + d_v e_v)'
    """
    return explained(load(scenario, model=model, hardware=hardware, set=set, **fields))


def explained(loaded: Loaded) -> dict[str, Known]:
    """Derive every number of a loaded scenario."""
    from ringplan.costs.formula import Known  # noqa: PLC0415 - a name for isinstance

    made = core.estimate(loaded.scenario, lambda path: str(loaded.origin(path)))
    return {m.name: m.value for m in metrics(made) if isinstance(m.value, Known)}


def validate(
    scenario: str | Path | None = None,
    *,
    full: bool = False,
    seq_len: int | str | None = None,
    dtype: str = "fp32",
) -> list[Row]:
    """
    Run small rings of NumPy ranks and compare them with what `estimate` predicts.

    Parameters
    ----------
    scenario
        A scenario file, which is scaled down: same ranks, partition, heads and ratios. None runs
        a readable selection.
    full
        Run every partition, mask, head layout and degree instead of the selection.
    seq_len
        Tokens of the context of each run, about; None is a few for each rank.
    dtype
        ``fp64``, ``fp32``, ``bf16`` or ``fp16``.

    Returns
    -------
    list of Row
        One a pass: its error against dense attention in fp64, and each count beside its
        prediction. ``passed`` says whether all agree.

    Raises
    ------
    RingplanError
        Anything that cannot be read as a scenario; a mesh that cannot run.

    Examples
    --------
    >>> all(row.passed for row in validate())
    True
    """
    plan = planned(scenario, full=full, seq_len=seq_len, dtype=dtype)
    if plan.blocked or not plan.cases:
        raise SpecError("; ".join((*plan.blocked, *plan.notes)), hint="ringplan estimate says more")
    return [row for rows in plan.rows() for row in rows]


def planned(
    scenario: str | Path | None, *, full: bool, seq_len: int | str | None, dtype: str
) -> Plan:
    """Plan what `validate` runs."""
    from ringplan.reference.blocks import DTYPES  # noqa: PLC0415 - it needs NumPy
    from ringplan.validation import selection  # noqa: PLC0415

    if dtype not in DTYPES:
        known = list(DTYPES)
        raise SpecError(f"unknown dtype '{dtype}'", hint=nearest(dtype, known, noun="dtypes"))
    tokens = None if seq_len is None else parse_tokens(str(seq_len))
    if scenario is not None and full:
        raise SpecError("--full runs ringplan's own cases", hint="a scenario, or --full")
    if scenario is not None:
        own = load(scenario).scenario
        if own.model.unknown:
            hint = "name a config that has the rest; ringplan memory counts what is known"
            raise SpecError(f"{own.model.name} cannot be run: {lacking(own.model)}", hint=hint)
        return selection.own(own, dtype, tokens)
    base = load(model="article-mha", hardware="h100-sxm-80gb", seq_len="1M").scenario
    choose = selection.full if full else selection.readable
    return choose(base, dtype, tokens)
