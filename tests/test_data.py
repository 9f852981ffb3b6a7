"""What ringplan ships is sourced, valid and plausible: profiles, models, schedules."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ringplan.io.documents import read_document
from ringplan.io.hf import read_config
from ringplan.io.origins import leaves
from ringplan.io.profiles import read_profile
from ringplan.io.scenarios import read_model
from ringplan.specs.hardware import HardwareProfile, Source, source_of
from ringplan.specs.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent
PROFILES = sorted(ROOT.glob("hardware_profiles/*.yaml"))
FAMILIES = sorted(ROOT.glob("hardware_profiles/families/*.yaml"))
MODELS = sorted(ROOT.glob("ringplan/data/models/*.yaml"))
SCHEDULES = sorted(ROOT.glob("ringplan/data/schedules/*.yaml"))
KINDS = {"datasheet", "measured", "derived", "assumed"}
#: Fields of a profile that say what it is; all others are numbers or facts that need a source.
NAMES = ("name", "title", "base", "device_type", "sources")
#: GeForce halves its rate for fp32 accumulation of floats, but not for integers.
UNHALVED = {("rtx-4090", "int8"), ("rtx-5090", "int8")}
#: Marketed gigabytes of the devices whose name does not say them.
LABELS = {
    "a10g": 24,
    "cpu-25gbe": 1536,
    "gaudi2": 96,
    "gaudi3": 128,
    "gb200-nvl72": 186,
    "gb300-nvl72": 288,
    "inferentia2": 32,
    "l4": 24,
    "l40s": 48,
    "mi250x": 64,
    "mi300x": 192,
    "mi325x": 256,
    "mi355x": 288,
    "rtx-4090": 24,
    "rtx-5090": 32,
    "rtx-6000-ada": 48,
    "rtx-pro-6000": 96,
    "tpu-v3": 32,
    "tpu-v4": 32,
    "tpu-v5e": 16,
    "tpu-v5p": 95,
    "tpu-v6e": 32,
    "tpu-v7x": 192,
    "trainium1": 32,
    "trainium2": 96,
}

profile = pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
model = pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)


def unsourced(values: dict[str, Any]) -> list[str]:
    """Paths of a profile that no source covers."""
    fields = [path for path, _ in leaves(values) if path.partition(".")[0] not in NAMES]
    return [path for path in fields if source_of(path, values.get("sources", {})) is None]


def stray(values: dict[str, Any]) -> list[str]:
    """Sources of fields that the profile does not have."""
    fields = [path for path, _ in leaves(values)]
    return [
        key
        for key in values.get("sources", {})
        if not any(path == key or path.startswith(f"{key}.") for path in fields)
    ]


def read(path: Path) -> HardwareProfile:
    return HardwareProfile.model_validate(read_profile(path).values)


@pytest.mark.parametrize("path", [*PROFILES, *FAMILIES], ids=lambda path: path.stem)
def test_every_number_of_a_profile_has_a_source(path: Path) -> None:
    values = read_document(path).values

    assert unsourced(values) == []
    assert stray(values) == []


@pytest.mark.parametrize(
    ("doctor", "found"),
    [
        (lambda v: v["sources"].pop("memory.capacity"), ["memory.capacity"]),
        (lambda v: v["scale_up"].update(price=3), []),  # covered by its block
        (lambda v: v.update(price_per_hour=2.5), ["price_per_hour"]),
        (lambda v: v.pop("sources"), None),
    ],
)
def test_profile_with_an_unsourced_number_is_refused(
    doctor: Callable[[dict[str, Any]], object], found: list[str] | None
) -> None:
    values = copy.deepcopy(read_profile(PROFILES[0]).values)
    assert unsourced(values) == []

    doctor(values)

    everything = [p for p, _ in leaves(values) if p.partition(".")[0] not in NAMES]
    assert unsourced(values) == (everything if found is None else found)


@profile
def test_profile_is_valid_and_named_like_its_file(path: Path) -> None:
    device = read(path)

    assert device.name == path.stem
    assert device.title
    assert device.price_per_hour is None, "prices are the user's"


@profile
def test_source_of_a_profile_can_be_looked_up(path: Path) -> None:
    for key, source in read(path).sources.items():
        assert source.kind in KINDS, key
        assert len(source.title) > 10, key
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", source.retrieved or ""), key
        assert source.url is None or source.url.startswith("https://"), key
        told = re.search(r"\w\.com\b|\bown reading\b.*20\d\d-\d\d", source.title)
        assert source.url or told or source.kind == "assumed", key


@profile
def test_efficiencies_are_shares_of_the_peak(path: Path) -> None:
    efficiency = read(path).efficiency
    tables = (
        efficiency.matmul,
        efficiency.attention_forward,
        efficiency.attention_backward,
        efficiency.scale_up,
        efficiency.scale_out,
    )
    shares = [share for table in tables for _, share in table]
    shares += [efficiency.memory, efficiency.beside_communication]

    assert all(0 < share <= 1 for share in shares)


@profile
def test_efficiency_tables_start_low_and_name_each_size_once(path: Path) -> None:
    efficiency = read(path).efficiency
    for table in (efficiency.matmul, efficiency.attention_forward, efficiency.attention_backward):
        sizes, shares = zip(*table, strict=True)

        assert list(sizes) == sorted(set(sizes))
        assert shares[0] == min(shares)


@profile
def test_pair_uses_no_more_than_the_whole(path: Path) -> None:
    links = read(path).scale_up

    if links.pair_bandwidth_per_direction is not None:
        assert links.bandwidth_per_direction is not None
        assert links.pair_bandwidth_per_direction <= links.bandwidth_per_direction
        if links.topology == "switch":
            assert links.pair_bandwidth_per_direction == links.bandwidth_per_direction


@profile
def test_network_is_no_faster_than_the_fast_domain(path: Path) -> None:
    device = read(path)
    inside, outside = device.scale_up, device.scale_out

    if inside.bandwidth_per_direction and outside.bandwidth_per_direction:
        assert outside.bandwidth_per_direction <= inside.bandwidth_per_direction
        assert inside.latency is not None
        assert outside.latency is not None
        assert inside.latency <= outside.latency


@profile
def test_peaks_are_dense_and_rise_as_formats_shrink(path: Path) -> None:
    """A marketing peak with sparsity is twice the dense one: fp8 over bf16 would be 4."""
    peak = read(path).peak

    for wide, narrow in (("fp32", "bf16"), ("bf16", "fp8"), ("fp8", "fp4"), ("bf16", "int8")):
        slow, fast = getattr(peak, wide), getattr(peak, narrow)
        if slow and fast:
            most = 4.1 if (path.stem, narrow) in UNHALVED else 2.1
            assert fast >= slow, (wide, narrow)
            assert wide == "fp32" or fast <= most * slow, (wide, narrow)
    assert peak.bf16 or path.stem == "v100-sxm2-32gb", "its tensor cores take fp16 only"
    if path.stem != "gaudi3" and peak.bf16:
        assert peak.fp16 in (None, peak.bf16)


@profile
def test_capacity_is_near_what_the_name_says(path: Path) -> None:
    capacity = read(path).memory.capacity
    match = re.search(r"-(\d+)gb$", path.stem)

    named = int(match[1]) if match else LABELS[path.stem]

    assert 0.99 * named * 1e9 < capacity <= named * 2**30


@profile
def test_overhead_leaves_room(path: Path) -> None:
    """The 3.9 GiB of an NVIDIA GPU are a quarter of the smallest device, 16 GiB."""
    memory = read(path).memory

    assert 0 < memory.overhead < 0.25 * memory.capacity


@model
def test_model_is_read_and_named_like_its_file(path: Path) -> None:
    name, config = read_model(path)

    spec = read_config(config, name=name).spec

    assert spec.name == path.stem
    assert len(spec.pattern) == spec.num_hidden_layers
    assert spec.num_parameters > 1e9
    assert read_document(path).values["title"]


@model
def test_every_field_of_a_model_has_a_source(path: Path) -> None:
    values = read_document(path).values
    sources = {key: Source.model_validate(given) for key, given in values["sources"].items()}

    covered = set(values["config"]) if "config" in sources else set()

    assert set(values["config"]) <= covered | set(sources)
    assert set(sources) <= {"config", *values["config"]}
    for key, source in sources.items():
        assert source.url or source.kind == "assumed" or "article" in source.title.lower(), key
        assert source.retrieved, key


@pytest.mark.parametrize("path", SCHEDULES, ids=lambda path: path.stem)
def test_schedule_is_valid_and_named_like_its_file(path: Path) -> None:
    schedule = Schedule.model_validate(read_document(path).values)

    assert schedule.name == path.stem
    assert schedule.source.title


def test_default_schedule_is_one_that_is_shipped() -> None:
    default = (ROOT / "ringplan/data/schedules/DEFAULT").read_text(encoding="utf-8").strip()

    assert default in [path.stem for path in SCHEDULES]
