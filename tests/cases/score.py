"""What ringplan and the naive formula say to each number of the public logs and questions."""

from __future__ import annotations

from functools import cache, reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from ringplan import api
from ringplan.io import library
from ringplan.io.documents import read_document
from tests.cases.numbers import Number, numbers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringplan.costs.formula import Known
    from tests.cases.numbers import Question

#: Bytes of an element for whoever counts no scales; 16 bits are not listed.
NAIVE_BYTES = {
    "fp32": 4.0, "fp8": 1.0, "q8_0": 1.0, "q5_1": 0.625, "q5_0": 0.625, "q4_1": 0.5, "q4_0": 0.5,
    "iq4_nl": 0.5,
}  # fmt: skip
RANK_KV, KV, KV_TOKEN = (
    f"estimate.memory.{name}" for name in ("rank.kv_bytes", "kv_bytes", "kv_bytes_per_token")
)
CACHES = (RANK_KV, KV, KV_TOKEN)


class Score(NamedTuple):
    """
    A number, what ringplan says to it, and what the naive formula says.

    Attributes
    ----------
    number
        What was asked and seen.
    value
        ringplan's answer in base units.
    naive
        The naive formula's, where it has one.
    """

    number: Number
    value: float
    naive: float | None

    @property
    def cache(self) -> bool:
        """Whether it is a KV cache, or a ratio of two."""
        return self.number.question.metric in CACHES

    @property
    def error(self) -> float:
        """Error of ringplan, of what was seen."""
        return abs(self.value / self.number.seen - 1)

    @property
    def naive_error(self) -> float:
        """Error of the naive formula, of what was seen."""
        return abs((self.naive or 0) / self.number.seen - 1)

    @property
    def passed(self) -> bool:
        """Whether ringplan is within the tolerance."""
        return agrees(self.number, self.value)

    @property
    def naive_passed(self) -> bool:
        """Whether the naive formula is."""
        return self.naive is not None and agrees(self.number, self.naive)


def agrees(number: Number, value: float) -> bool:
    """Whether a value is what was seen, within the tolerance, or on its side of a bound."""
    if number.bound:
        return value < number.seen if number.bound == "below" else value > number.seen
    return abs(value - number.seen) <= number.allowed


@cache
def scores() -> tuple[Score, ...]:
    """Score every number."""
    return tuple(map(score, numbers()))


def score(number: Number) -> Score:
    """Ask ringplan and the naive formula."""
    first, second = number.question, number.other
    value, naive = answer(first), naive_kv(first)
    if second is None:
        return Score(number, value, naive)
    other, naive_other = answer(second), naive_kv(second)
    if number.relation == "less":
        return Score(number, value - other, None)
    found = naive / naive_other if naive is not None and naive_other else None
    return Score(number, value / other, found)


def answer(question: Question) -> float:
    """What the library says."""
    arguments: dict[str, Any] = {
        "model": question.model,
        "hardware": question.hardware,
        "set": question.changes,
        **question.given,
    }
    if question.term is None:
        made = api.estimate(**arguments)
        value: Any = reduce(getattr, question.metric.split("."), made)
        return float(value)
    known = api.explain(**arguments)[question.metric.removeprefix("estimate.")]
    return float(next(node.value for node in _nodes(known) if node.name == question.term))


def _nodes(known: Known) -> Iterator[Known]:
    """Walk through the derivation of a number."""
    yield known
    for _, given in known.inputs:
        yield from _nodes(given)


def naive_kv(question: Question) -> float | None:
    """
    Bytes of the KV cache as many calculators count them.

    Every layer keeps every token of as many heads of hidden_size / num_attention_heads as there
    are KV heads, formats have no scales, and tp divides it; None for any other number, and where
    the row does not give those sizes.
    """
    if question.metric not in CACHES:
        return None
    config, given = _config(question), question.given
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    if heads is None or hidden is None:
        return None
    k, v = (
        NAIVE_BYTES.get(given.get(f"{part}_dtype", given.get("kv_dtype", "bf16")), 2.0)
        for part in "kv"
    )
    row = config.get("num_key_value_heads", heads) * hidden / heads * (k + v)
    tokens = given["seq_len"] * given.get("batch_size", 1) if question.metric != KV_TOKEN else 1
    ranks = given.get("tp_size", 1) if question.metric == RANK_KV else 1
    return float(config["num_hidden_layers"] * row * tokens / ranks)


def _config(question: Question) -> dict[str, Any]:
    """Read the model's config.json, without ringplan's understanding of it."""
    document = read_document(library.find("models", question.model)).values
    changes = {
        path.removeprefix("model."): value
        for path, value in question.changes.items()
        if path.startswith("model.")
    }
    config = document.get("config", document)
    text: dict[str, Any] = config.get("text_config", config)
    return text | changes
