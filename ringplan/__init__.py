"""
Plan ring attention and context parallelism: memory, traffic, overlap, and why.

>>> import ringplan
>>> made = ringplan.estimate(
...     model="llama-3.1-70b", hardware="h100-sxm-80gb", seq_len="1M", cp_size=16, tp_size=8
... )
>>> made.summary.fits, made.estimate.ring.block_tokens
(True, 65536)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringplan.api import estimate, explain, load, validate
    from ringplan.assess import Assessment
    from ringplan.errors import RingplanError

__version__ = "0.1.0"
__all__ = ["Assessment", "RingplanError", "__version__", "estimate", "explain", "load", "validate"]

_HOMES = {
    "estimate": "ringplan.api",
    "explain": "ringplan.api",
    "load": "ringplan.api",
    "validate": "ringplan.api",
    "Assessment": "ringplan.assess",
    "RingplanError": "ringplan.errors",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is asked for, so that the command line starts fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'ringplan' has no attribute '{name}'")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(_HOMES[name]), name)
