"""The mistakes that calculators make with hardware, each as a law that a profile must keep."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from ringplan import api
from ringplan.costs import attention, masks
from ringplan.errors import SpecError
from ringplan.estimation.core import estimate
from ringplan.io import library
from ringplan.io.documents import read_document
from ringplan.io.profiles import read_profile
from ringplan.specs.hardware import HardwareProfile, Source, source_of
from ringplan.units import parse

if TYPE_CHECKING:
    from ringplan.estimation.results import Estimate

ROOT = Path(__file__).parent.parent
SHELF = ROOT / "hardware_profiles"
DEVICES = sorted(path.stem for path in SHELF.glob("*.yaml"))
NODES = sorted(path.stem for path in SHELF.glob("nodes/*.yaml"))
GB, TERA, GIB, MIB = 1e9, 1e12, 2**30, 2**20

device = pytest.mark.parametrize("name", DEVICES)
node = pytest.mark.parametrize("name", NODES)


def profile(name: str) -> HardwareProfile:
    values = read_profile(library.find("hardware", name)).values
    return HardwareProfile.model_validate(values)


def known(value: float | None) -> float:
    """Take a number that the profile must have."""
    assert value is not None
    return value


def estimated(name: str, cp_size: int, **fields: Any) -> Estimate:
    given = {"model": "llama-3.1-8b", "hardware": name, "seq_len": "128K", "cp_size": cp_size}
    return estimate(api.load(**{**given, **fields}).scenario)


def ring_rate(name: str, cp_size: int) -> float:
    """Bytes a second of one hop, with its latency."""
    ring = estimated(name, cp_size).ring
    return float(ring.hop_bytes / ring.hop_time)


def one_flow(whole: HardwareProfile) -> float:
    """What one device that sends alone has of its node's network: its share, or a whole card."""
    out = whole.scale_out
    shared = max(out.devices_per_node / (out.cards_per_node or out.devices_per_node), 1)
    return known(out.bandwidth_per_direction) * shared


# What is there


def test_there_are_many_devices_and_node_types() -> None:
    assert len(DEVICES) >= 35
    assert len(NODES) == 15
    assert not set(DEVICES) & set(NODES)


def test_names_are_devices_and_then_node_types() -> None:
    assert library.names("hardware") == [*DEVICES, *NODES]


@node
def test_node_type_says_what_differs_from_a_device_and_who_says_so(name: str) -> None:
    """Its device has the rest; each number has a source of its own, and no price."""
    values = read_document(SHELF / "nodes" / f"{name}.yaml").values
    sources = {key: Source.model_validate(each) for key, each in values["sources"].items()}

    assert set(values) <= {"name", "title", "base", "efficiency", "scale_out", "sources"}
    assert values["name"] == name
    assert values["base"] in DEVICES
    assert set(values.get("efficiency", {})) <= {"scale_out"}
    for block in ("efficiency", "scale_out"):
        for field in values.get(block, {}):
            assert source_of(f"{block}.{field}", sources) is not None, field
    for source in sources.values():
        assert source.url is None or source.url.startswith("https://")
        assert source.url or ".com" in source.title
        assert source.retrieved
    assert profile(name).price_per_hour is None


@node
def test_node_type_can_be_planned_with(name: str) -> None:
    """A ring over two nodes runs on the network of the node type."""
    whole = profile(name)
    domain = whole.scale_up.domain_size

    ring = estimated(name, 2 * domain, seq_len="4M").ring

    assert ring.link == "scale_out"
    assert ring.hop_time > ring.hop_bytes / one_flow(whole)


# 1. Sparse instead of dense

#: Dense bf16 in TFLOP/s; vendors print twice of it where they count 2:4 sparsity.
DENSE = {
    "a100-sxm-80gb": 312,
    "h100-sxm-80gb": 989,
    "h100-pcie-80gb": 756,
    "h200-sxm-141gb": 989,
    "h20-96gb": 148,
    "b200-sxm-180gb": 2250,
    "b300-sxm-288gb": 2250,
    "gb200-nvl72": 2500,
    "l40s": 362,
    "l4": 121,
    "mi300x": 1307.4,
    "mi355x": 2500,
    "trainium2": 667,
}


@pytest.mark.parametrize("name", DENSE)
def test_peak_is_the_dense_one(name: str) -> None:
    """2:4 sparsity doubles what is printed and no attention kernel has it."""
    assert profile(name).peak.bf16 == pytest.approx(DENSE[name] * TERA)


@pytest.mark.parametrize("name", [*(n for n in DENSE if n != "a100-sxm-80gb"), "rtx-6000-ada"])
def test_fp8_is_twice_bf16(name: str) -> None:
    """Both dense: 4 would be a sparse fp8 over a dense bf16, 1 a sparse bf16."""
    peak = profile(name).peak

    assert peak.fp8 == pytest.approx(2 * known(peak.bf16), rel=0.03)


# 2. The wrong format or the wrong variant


def test_matrix_rates_are_those_of_the_variant() -> None:
    """An A10G is no A10 (125), an H100 PCIe no SXM (989), an L4 no L40S (362)."""
    assert profile("a10g").peak.bf16 == 70 * TERA
    assert profile("h100-pcie-80gb").peak.bf16 == 756 * TERA
    assert profile("h100-nvl-94gb").peak.bf16 == 835.5 * TERA
    assert profile("l4").peak.bf16 == 121 * TERA


def test_geforce_is_counted_with_fp32_accumulation() -> None:
    """With fp16 accumulation a 4090 has 330 and a 5090 419, which attention cannot use."""
    assert profile("rtx-4090").peak.bf16 == 165.2 * TERA
    assert profile("rtx-5090").peak.bf16 == 209.5 * TERA


def test_fp16_is_not_always_bf16() -> None:
    """Gaudi3 runs fp16 at the rate of tf32; V100 has no bf16 at all."""
    gaudi = profile("gaudi3").peak

    assert (gaudi.bf16, gaudi.fp16) == (1677 * TERA, 459 * TERA)
    assert profile("v100-sxm2-32gb").peak.bf16 is None


@device
def test_tf32_is_never_taken_for_bf16(name: str) -> None:
    """On GPUs with tf32 it is half of bf16; Neuron devices run both at one rate."""
    peak = profile(name).peak

    if peak.tf32 and peak.bf16 and profile(name).device_type == "gpu":
        assert peak.tf32 == pytest.approx(peak.bf16 / 2, rel=0.02)


@pytest.mark.parametrize("figure", ["int8", "fp4"])
@pytest.mark.parametrize("name", ["b300-sxm-288gb", "gb300-nvl72"])
def test_disputed_figure_is_left_out_and_told(name: str, figure: str) -> None:
    """Int8 of Blackwell Ultra is 4500 to one source and 153.5 to another."""
    found = profile(name)

    assert getattr(found.peak, figure) is None
    assert figure in (found.sources["peak"].note or "")


# 3. Both directions added

#: What vendors print for all links of a device, GB/s in both directions.
MARKETED = {
    "v100-sxm2-32gb": 300,
    "a100-sxm-80gb": 600,
    "a800-sxm-80gb": 400,
    "h100-sxm-80gb": 900,
    "h100-nvl-94gb": 600,
    "h800-sxm-80gb": 400,
    "h20-96gb": 900,
    "b200-sxm-180gb": 1800,
    "gb300-nvl72": 1800,
    "mi300x": 896,
    "mi355x": 1071,
    "tpu-v5e": 400,
    "tpu-v5p": 1200,
    "tpu-v6e": 800,
    "tpu-v7x": 1200,
    "trainium1": 384,
    "trainium2": 1024,
    "gaudi2": 525,
    "gaudi3": 1050,
}


@pytest.mark.parametrize("name", MARKETED)
def test_link_is_half_of_what_is_marketed(name: str) -> None:
    """A ring sends one way while it receives the other: duplex helps it no further."""
    assert profile(name).scale_up.bandwidth_per_direction == MARKETED[name] / 2 * GB


@pytest.mark.parametrize("name", ["h100-sxm-80gb", "b200-sxm-180gb", "mi300x", "tpu-v5p"])
def test_hop_is_no_faster_than_one_way_of_one_pair(name: str) -> None:
    assert ring_rate(name, 8) < known(profile(name).scale_up.pair_bandwidth_per_direction)


# 4. The rate of a node taken for that of a device

#: GB/s of a node's backend cards together.
NODE_RATE = {
    "aws-p4d-24xlarge": 50,
    "aws-p5-48xlarge": 400,
    "aws-p5en-48xlarge": 400,
    "aws-p6-b200-48xlarge": 400,
    "aws-p6-b300-48xlarge": 800,
    "aws-p6e-gb200-36xlarge": 400,
    "aws-trn2-48xlarge": 400,
    "gcp-a3-high": 100,
    "gcp-a3-mega": 200,
    "gcp-a3-ultra": 400,
    "gcp-a4": 400,
    "azure-nd-h100-v5": 400,
    "azure-nd-mi300x-v5": 400,
    "dgx-b300": 800,
    "alps-gh200": 100,
}


@node
def test_device_has_its_share_of_the_node(name: str) -> None:
    """Headlines count a node, and at Google (1000 and 1800 Gb/s) the frontend card with it."""
    network = profile(name).scale_out
    share = network.bandwidth_per_direction

    assert share is not None
    assert share * network.devices_per_node == NODE_RATE[name] * GB


@node
def test_cards_are_of_a_size_that_is_sold(name: str) -> None:
    """100, 200, 400 or 800 Gb/s: a frontend card or a lost one would show."""
    network = profile(name).scale_out
    cards = network.cards_per_node or network.devices_per_node

    assert NODE_RATE[name] / cards in (12.5, 25, 50, 100)


# 5. The generation of the network card


@pytest.mark.parametrize(
    ("name", "gbits"),
    [
        ("a100-sxm-80gb", 200),
        ("h100-sxm-80gb", 400),
        ("h200-sxm-141gb", 400),
        ("b200-sxm-180gb", 400),
        ("gb200-nvl72", 400),
        ("b300-sxm-288gb", 800),
        ("gb300-nvl72", 800),
        ("aws-p6e-gb200-36xlarge", 800),
    ],
)
def test_card_is_of_the_generation_that_ships(name: str, gbits: int) -> None:
    """DGX B200 and GB200 have ConnectX-7; only B300 and GB300 have ConnectX-8."""
    assert profile(name).scale_out.bandwidth_per_direction == gbits / 8 * GB


# 6. GB and GiB

#: MiB that nvidia-smi shows.
SHOWN = {
    "a100-sxm-40gb": 40_960,
    "a100-sxm-80gb": 81_920,
    "h100-sxm-80gb": 81_559,
    "h200-sxm-141gb": 143_771,
    "b200-sxm-180gb": 183_359,
    "b300-sxm-288gb": 275_040,
    "gb200-nvl72": 189_471,
    "gb300-nvl72": 284_208,
    "l40s": 46_068,
    "l4": 23_034,
    "a10g": 23_028,
    "rtx-pro-6000": 97_887,
}


@pytest.mark.parametrize("name", SHOWN)
def test_capacity_is_what_the_driver_shows(name: str) -> None:
    """A label of 288 GB is 268.6 GiB on a B300 and 277.5 on a GB300: labels follow no rule."""
    assert profile(name).memory.capacity == SHOWN[name] * MIB


def test_prefixes_of_rates_are_decimal() -> None:
    """Reading TFLOP/s as 2^40 adds 10 %, GB/s as 2^30 7 %."""
    assert parse("989 TFLOP/s", "FLOP/s") == 989 * TERA
    assert parse("450 GB/s", "B/s") == 450 * GB
    assert parse("80 GiB", "B") == 80 * GIB
    assert parse("80 GB", "B") == 80 * GB
    assert parse("400 Gb/s", "B/s") == 50 * GB


# 7. Stale memory bandwidth


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("b200-sxm-180gb", 7700),
        ("h100-sxm-80gb", 3350),
        ("h100-pcie-80gb", 2000),
        ("a100-sxm-80gb", 2039),
        ("a100-sxm-40gb", 1555),
        ("a100-pcie-80gb", 1935),
        ("h200-sxm-141gb", 4800),
    ],
)
def test_memory_is_of_the_variant_and_the_last_revision(name: str, rate: float) -> None:
    """B200 was announced with 8.0 TB/s; an H100 SXM has neither 3072 nor the PCIe card's rate."""
    assert profile(name).memory.bandwidth == rate * GB


# 8. Bus bandwidth is not the rate of a wire

#: GB/s that a copy engine moves between two GPUs: no message of a library is faster.
COPIED = {
    "a100-sxm-80gb": 274,
    "h100-sxm-80gb": 376,
    "h200-sxm-141gb": 396.4,
    "gb200-nvl72": 746,
}


@pytest.mark.parametrize("name", COPIED)
def test_no_share_exceeds_what_a_copy_reaches(name: str) -> None:
    """In-switch reductions report 480 "GB/s" on the 450 of an H200; that is not a wire."""
    found = profile(name)
    shares = [share for _, share in found.efficiency.scale_up]

    assert max(shares) * known(found.scale_up.bandwidth_per_direction) <= COPIED[name] * GB


def test_bus_bandwidth_over_the_network_is_not_divided_by_the_card() -> None:
    """Two A4 nodes report 683 GB/s over 400 GB/s of cards: most hops never leave the node."""
    found = profile("gcp-a4")

    assert found.efficiency.scale_out[-1][1] <= 0.9
    assert ring_rate("gcp-a4", 16) < 50 * GB


# 9. A mesh or a torus taken for a switch


@device
def test_pair_of_a_mesh_has_one_link(name: str) -> None:
    """All peers together have the whole; a ring's neighbour has one part of it."""
    links = profile(name).scale_up
    irregular = {"v100-sxm2-32gb", "mi250x"}  # some pairs have two links and some none

    if links.topology == "full_mesh" and links.pair_bandwidth_per_direction:
        whole = (links.domain_size - 1) * links.pair_bandwidth_per_direction
        if name in irregular:
            assert links.pair_bandwidth_per_direction < known(links.bandwidth_per_direction) / 2
        else:
            assert whole == pytest.approx(links.bandwidth_per_direction)


@device
def test_pair_of_a_torus_has_one_link(name: str) -> None:
    """Two neighbours along each axis."""
    links = profile(name).scale_up
    axes = {"torus_2d": 2, "torus_3d": 3}.get(links.topology)

    if axes:
        axes = 1 if name == "inferentia2" else axes  # a ring: a torus of one axis
        whole = 2 * axes * known(links.pair_bandwidth_per_direction)
        assert whole == pytest.approx(links.bandwidth_per_direction)


@pytest.mark.parametrize(
    ("name", "link"), [("mi300x", 64), ("gaudi3", 75), ("tpu-v5p", 100), ("trainium2", 128)]
)
def test_ring_on_a_mesh_or_torus_hops_over_one_link(name: str, link: float) -> None:
    """The aggregate would be 7 times too fast on MI300X and Gaudi3, 6 times on TPU v5p."""
    assert ring_rate(name, 8) < link * GB


@pytest.mark.parametrize(
    ("name", "multiple"),
    [("tpu-v3", None), ("tpu-v4", 4), ("tpu-v5e", 16), ("tpu-v5p", 4), ("tpu-v6e", 16)],
)
def test_torus_closes_only_where_the_vendor_has_links(name: str, multiple: int | None) -> None:
    """A slice of 8 chips of a v5e is a line; where nothing was found an axis never closes."""
    assert profile(name).scale_up.wrap_multiple == multiple


@device
def test_only_a_torus_wraps(name: str) -> None:
    links = profile(name).scale_up

    assert links.topology.startswith("torus") or links.wrap_multiple is None


# 10. A package taken for a device


def test_device_is_what_the_scheduler_sees() -> None:
    """A package MI250X is two devices, a GB200 superchip two GPUs."""
    half, one = profile("mi250x"), profile("gb200-nvl72")

    assert (half.memory.capacity, half.peak.bf16) == (64 * GIB, 191.5 * TERA)
    assert half.memory.bandwidth == 1638.4 * GB
    assert (half.scale_up.domain_size, half.scale_out.devices_per_node) == (8, 8)
    assert one.peak.bf16 == 2500 * TERA
    assert one.memory.capacity < 200 * GB
    assert (one.scale_up.domain_size, one.scale_out.devices_per_node) == (72, 4)


@pytest.mark.parametrize(
    ("name", "tflops", "gib"),
    [("tpu-v3", 123, 32), ("tpu-v5p", 459, 95), ("tpu-v7x", 2307, 192), ("trainium1", 190, 32)],
)
def test_tpu_and_neuron_profiles_are_chips(name: str, tflops: float, gib: int) -> None:
    """v5p-8 counts eight cores and is four chips; links belong to chips, so profiles do too."""
    found = profile(name)

    assert "one chip" in found.title
    assert (found.peak.bf16, found.memory.capacity) == (tflops * TERA, gib * GIB)


# 11. The FLOPs of a causal mask


def test_causal_kernel_counts_visible_pairs_only() -> None:
    """Half of the square and half of the diagonal: shares of the peak are of those."""
    pairs = masks.diagonal_pairs(query_tokens=4096, block_tokens=4096)
    square = masks.full_pairs(query_tokens=4096, block_tokens=4096)

    assert pairs == (4096 * 4097) / 2
    assert pairs == pytest.approx(square / 2, rel=1e-3)


def test_share_above_the_peak_is_refused() -> None:
    """A causal time over the FLOPs of the full square gave 1.19 on A100 in one simulator."""
    values = read_document(SHELF / "a100-sxm-80gb.yaml").values
    values["efficiency"]["attention_forward"] = 1.19

    with pytest.raises(ValidationError, match="attention_forward"):
        HardwareProfile.model_validate(values)


@device
def test_backward_is_counted_as_two_and_a_half_forwards(name: str) -> None:
    """Counted so, no measured backward beats its forward, but on MI300X at one size."""
    efficiency = profile(name).efficiency

    assert efficiency.attention_backward[-1][1] <= efficiency.attention_forward[-1][1]


# 12. A point-to-point message is no collective

#: Share of a link in nccl-tests: an exchange of two GPUs (4 on NVL72), a hop of a ring of 8 (4).
REACHED = {
    "a100-sxm-80gb": (0.54, 0.69),
    "h100-sxm-80gb": (0.62, 0.76),
    "h200-sxm-141gb": (0.64, 0.76),
    "b200-sxm-180gb": (0.36, 0.81),
    "b300-sxm-288gb": (0.37, 0.81),
    "gb200-nvl72": (0.54, 0.69),
    "gb300-nvl72": (0.57, 0.70),
}


@pytest.mark.parametrize("name", REACHED)
def test_large_messages_lie_between_an_exchange_and_a_ring(name: str) -> None:
    """A hop of ring attention is a send and a receive, and all-reduce is faster than both."""
    exchange, ring = REACHED[name]

    assert exchange <= profile(name).efficiency.scale_up[-1][1] <= ring + 0.005


@pytest.mark.parametrize(
    ("name", "microseconds"),
    [
        ("a100-sxm-80gb", 10.5),
        ("h100-sxm-80gb", 6.5),
        ("h200-sxm-141gb", 6.4),
        ("b200-sxm-180gb", 9.2),
        ("b300-sxm-288gb", 8.9),
    ],
)
def test_latency_is_that_of_a_send_and_a_receive(name: str, microseconds: float) -> None:
    """A kernel of a library starts for each hop: not the 1.4 us of a hop inside a collective."""
    found = profile(name)

    assert found.scale_up.latency == pytest.approx(microseconds * 1e-6)
    assert found.sources["scale_up.latency"].kind == "measured"


def measurements() -> list[dict[str, str]]:
    with (ROOT / "tests/data/nccl_all_gather.csv").open(encoding="utf-8") as lines:
        return list(csv.DictReader(line for line in lines if not line.startswith("#")))


@pytest.mark.parametrize("row", measurements(), ids=lambda row: row["profile"])
def test_share_by_message_is_what_the_start_leaves_of_a_measured_hop(row: dict[str, str]) -> None:
    """
    The share is of the time that remains of a hop when its start is taken off.

    So a hop is latency + bytes / (bandwidth x share), and no start is counted twice.
    """
    found = profile(row["profile"])
    gpus, link = int(row["gpus"]), known(found.scale_up.pair_bandwidth_per_direction)
    start = float(row["us_512b"]) * 1e-6 / (gpus - 1)

    def left(mib: int) -> float:
        size = mib * MIB / gpus
        return size / (size / (float(row[f"gbps_{mib}"]) * GB) - start) / link

    table = dict(found.efficiency.scale_up)
    largest = found.efficiency.scale_up[-1][1]
    measured = {mib * MIB // gpus: left(mib) for mib in (1, 4, 16, 64, 256, 512)}

    assert set(table) <= set(measured)
    for size, share in table.items():
        assert share == pytest.approx(measured[size] / left(512) * largest, abs=6e-4), size


@pytest.mark.parametrize("name", [*DEVICES, *NODES])
def test_larger_messages_are_never_slower(name: str) -> None:
    """Dips of one protocol are left out, and the profile says so."""
    for table in (profile(name).efficiency.scale_up, profile(name).efficiency.scale_out):
        sizes, shares = zip(*table, strict=True)
        assert list(sizes) == sorted(set(sizes))
        assert list(shares) == sorted(shares)


@pytest.mark.parametrize("name", ["b200-sxm-180gb", "b300-sxm-288gb"])
def test_dip_of_a_protocol_is_told(name: str) -> None:
    assert "dip" in (profile(name).sources["efficiency.scale_up"].note or "")


# 13. One card paces a ring


@pytest.mark.parametrize(
    "name",
    ["h100-sxm-80gb", "aws-p5-48xlarge", "aws-p4d-24xlarge", "gcp-a3-high", "b200-sxm-180gb"],
)
def test_ring_that_leaves_a_node_has_one_card_of_its_network(name: str) -> None:
    """One hop of a contiguous ring leaves each node: all of its cards would be 8 times too fast."""
    assert ring_rate(name, 16) <= one_flow(profile(name))


# 14. An unknown device


@pytest.mark.parametrize(
    "name",
    ["h100", "H100-SXM-80GB", "h200", "h20", "a100", "a10", "l40", "b200", "tpu", "NVIDIA L40S"],
)
def test_unknown_device_is_refused(name: str) -> None:
    """No part of a name stands for one: l40s holds l4, h200 h20, and a default would be wrong."""
    with pytest.raises(SpecError, match="unknown hardware profile"):
        api.load(model="llama-3.1-8b", hardware=name, seq_len="8K")


@pytest.mark.parametrize(
    ("asked", "tflops"), [("l4", 121), ("l40s", 362), ("a10g", 70), ("h20-96gb", 148)]
)
def test_name_inside_another_is_its_own_device(asked: str, tflops: float) -> None:
    loaded = api.load(model="llama-3.1-8b", hardware=asked, seq_len="8K")

    assert loaded.scenario.hardware.name == asked
    assert loaded.scenario.hardware.peak.bf16 == tflops * TERA


# 15. Tables without a sanity check


@device
def test_no_kernel_beats_the_peak(name: str) -> None:
    """Measured tables hold 75,682 TFLOP/s on an H200; what a profile says stays below the peak."""
    shares = profile(name).efficiency
    tables = (shares.matmul, shares.attention_forward, shares.attention_backward)

    for _, share in (pair for table in tables for pair in table):
        rate = attention.achieved_rate(peak=1, efficiency=share)
        assert 0 < rate <= 1


@device
def test_figures_lie_where_devices_are(name: str) -> None:
    """Between a CPU and the fastest package of 2026, with room: a slip of a prefix shows."""
    found = profile(name)
    peak = known(found.peak.bf16 or found.peak.fp16)
    least = 0.5 if found.device_type == "cpu" else 50

    assert least * TERA <= peak <= 2500 * TERA
    assert 300 * GB <= found.memory.bandwidth <= 8000 * GB
    assert 16 * GB <= found.memory.capacity <= 1600 * GB
    assert (found.scale_up.bandwidth_per_direction or 0) <= 900 * GB
    assert (found.scale_out.bandwidth_per_direction or 0) <= 100 * GB


@device
def test_communication_leaves_most_of_the_device(name: str) -> None:
    """A margin of 4 to 8 multiprocessors is under a tenth of a large GPU."""
    assert profile(name).efficiency.beside_communication == 1 or (
        0.9 < profile(name).efficiency.beside_communication < 0.97
    )


def test_readme_names_every_profile() -> None:
    told = set(re.findall(r"`([\w.-]+)`", (SHELF / "README.md").read_text(encoding="utf-8")))

    assert set(DEVICES) | set(NODES) <= told
