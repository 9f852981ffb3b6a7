"""
An honest do-nothing: what a command line with ringplan's libraries costs before it does anything.

A Typer app with twenty options, one Pydantic model, a little YAML, one QuantiPhy quantity, one Rich
table. `startup.py` times it against ``ringplan estimate``.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer
import yaml
from pydantic import BaseModel, ConfigDict, Field
from quantiphy import Quantity
from rich.console import Console
from rich.table import Table

TEXT = """\
name: h100-sxm-80gb
kind: gpu
memory_gb: 80
efficiency: 0.75
bandwidth: 450 GB/s
tags: [nvlink, sxm]
"""


class Device(BaseModel):
    """What the YAML says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1)
    kind: Literal["gpu", "tpu", "cpu"]
    memory_gb: int = Field(gt=0)
    efficiency: float = Field(gt=0, le=1)
    bandwidth: str
    tags: tuple[str, ...] = ()


class Format(StrEnum):
    """How to print the result."""

    TABLE = "table"
    JSON = "json"


app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def run(
    *,
    model: Annotated[str | None, typer.Option(help="A name.")] = None,
    hardware: Annotated[str | None, typer.Option(help="A name.")] = None,
    seq_len: Annotated[str | None, typer.Option(help="A text.")] = None,
    phase: Annotated[str, typer.Option(help="A text.")] = "prefill",
    partition: Annotated[str, typer.Option(help="A text.")] = "zigzag",
    schedule: Annotated[str | None, typer.Option(help="A text.")] = None,
    dtype: Annotated[str, typer.Option(help="A text.")] = "bf16",
    batch_size: Annotated[int, typer.Option(help="A count.")] = 1,
    cp: Annotated[int, typer.Option(help="A count.")] = 1,
    tp: Annotated[int, typer.Option(help="A count.")] = 1,
    pp: Annotated[int, typer.Option(help="A count.")] = 1,
    dp: Annotated[int, typer.Option(help="A count.")] = 1,
    share: Annotated[float, typer.Option(help="A share.")] = 0.5,
    margin: Annotated[float, typer.Option(help="A factor.")] = 1.25,
    causal: Annotated[bool, typer.Option(help="A switch.")] = True,
    timeline: Annotated[bool, typer.Option("--timeline", help="A flag.")] = False,
    scenario: Annotated[Path | None, typer.Option(help="A file.")] = None,
    output: Annotated[Path | None, typer.Option(help="A file.")] = None,
    sets: Annotated[list[str] | None, typer.Option("--set", help="Repeat it.")] = None,
    format_: Annotated[Format, typer.Option("--format", help="A choice.")] = Format.TABLE,
) -> None:
    """Print a table."""
    device = Device.model_validate(yaml.load(TEXT, Loader=yaml.CSafeLoader))
    bandwidth = Quantity(device.bandwidth)
    table = Table("what", "value")
    table.add_row("device", device.name)
    table.add_row("memory", f"{device.memory_gb} GB")
    table.add_row("bandwidth", bandwidth.render(prec=2))
    table.add_row("model", f"{model} on {hardware}")
    table.add_row("length", f"{seq_len} {phase} {partition} {schedule} {dtype}")
    table.add_row("ranks", f"{cp} x {tp} x {pp} x {dp}")
    table.add_row("batch", f"{batch_size:,}")
    table.add_row("share", f"{share:.1%} {margin:.2f}x")
    table.add_row("flags", f"{causal} {timeline} {format_}")
    table.add_row("files", f"{scenario} {output} {sets}")
    Console().print(table)


def main() -> None:
    """Run the command line."""
    app(prog_name="floor")


if __name__ == "__main__":
    main()
