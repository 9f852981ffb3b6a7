"""Turn Pydantic's complaints into lines that name the place, the text and the cure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from ringplan.errors import SpecError, nearest, quote

if TYPE_CHECKING:
    from ringplan.io.origins import Origin, Tree

    ErrorDetails = dict[str, Any]

S = TypeVar("S", bound=BaseModel)

_COMPARISONS = {
    "greater_than": ("gt", "must be more than"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be less than"),
    "less_than_equal": ("le", "must be at most"),
}


#: What to type for a field that is missing.
CURES = {"seq_len": "give --seq-len 128K, or workload.seq_len in the file"}


#: What a list looks like.
LISTS = {
    "offload": "[activations]",
    "outside_budget": "[graphs]",
    "pp_layers": "[20, 12]",
    "pp_memory": '["80 GiB", "48 GiB"]',
}


class Problems:
    """Collects what is wrong in several blocks, so that all of it is said at once."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def validate(self, spec: type[S], tree: Tree, block: str) -> S | None:
        """Validate a block; note its problems and return None if it has any."""
        try:
            return spec.model_validate(tree.values)
        except ValidationError as error:
            self.lines += [_line(spec, details, tree, block) for details in error.errors()]
            return None

    def stop(self) -> None:
        """Raise what was collected."""
        if self.lines:
            raise SpecError("\n".join(self.lines))


def _line(spec: type[BaseModel], details: Any, tree: Tree, block: str) -> str:
    loc = [str(part) for part in details["loc"]]
    path = ".".join([block, *(part for part in loc if not part.isdigit())])
    origin = _origin(tree, loc)
    place = f"{origin.where}: " if origin else ""
    return f"{place}{path}: {_message(spec, loc, details)}"


def _origin(tree: Tree, loc: list[str]) -> Origin | None:
    """Who gave a value, or the nearest thing above it, or something below it."""
    for end in range(len(loc), 0, -1):
        path = ".".join(loc[:end])
        below = (known for known in tree.origins if known.startswith(f"{path}."))
        found = path if path in tree.origins else next(below, None)
        if found is not None:
            return tree.origins[found]
    return None


def _message(  # noqa: C901, PLR0911 - one answer a kind
    spec: type[BaseModel], loc: list[str], details: Any
) -> str:
    kind, given, context = details["type"], details.get("input"), details.get("ctx", {})
    if kind == "extra_forbidden":
        return f"unknown key ({nearest(loc[-1], _keys(spec, loc[:-1]), noun='keys')})"
    if kind == "missing":
        return f"is missing ({CURES.get(loc[-1], 'give it in the file, or with --set')})"
    if kind in ("value_error", "assertion_error"):
        return str(context["error"])
    if kind in _COMPARISONS:
        bound, words = _COMPARISONS[kind]
        return f"is {quote(given)}, but {words} {context[bound]:,}"
    if kind == "literal_error":
        return f"is {quote(given)}, but must be one of {context['expected']}"
    if kind in ("int_type", "int_parsing", "int_from_float"):
        return f"is {quote(given)}, but must be a whole number"
    if kind in ("float_type", "float_parsing", "finite_number"):
        return f"is {quote(given)}, but must be a finite number"
    if kind in ("bool_type", "bool_parsing"):
        return f"is {quote(given)}, but must be true or false"
    if kind == "tuple_type":
        return f"is {quote(given)}, but must be a list, like {LISTS.get(loc[-1], '[tp, ring]')}"
    if kind in ("model_type", "model_attributes_type"):
        return f"is {quote(given)}, but must be a block of keys"
    return f"is {quote(given)}: {details['msg'].lower()}"


def _keys(spec: type[BaseModel], parents: list[str]) -> list[str]:
    """Fields of the spec at a path below the given one."""
    for parent in parents:
        field = spec.model_fields.get(parent)
        annotation = field.annotation if field else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        spec = annotation
    return list(spec.model_fields)
