"""
The witness: ranks of NumPy arrays that really pass blocks, and count what they do.

It is slow on purpose and shares no line with `ringplan.costs`: nothing here knows how many hops a
ring has or how many pairs a mask lets through. Blocks are sent, masks are laid over scores, and a
ledger writes down what happened. Where the ledger and a formula differ, one of them is wrong.

Shapes: ``B`` sequences, ``H`` query heads, ``G`` key/value heads, ``N`` query tokens, ``K`` key
tokens, ``D`` size of a query or key head, ``E`` size of a value head.
"""
