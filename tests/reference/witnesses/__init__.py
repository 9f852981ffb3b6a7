"""A run for every formula, by subject; importing a module registers its witnesses."""

from tests.reference.witnesses import decode, exchanges, hiding, masks, rank, ring

__all__ = ["decode", "exchanges", "hiding", "masks", "rank", "ring"]
