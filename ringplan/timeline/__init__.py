"""
The event timeline: ranks of a ring, coupled to their neighbours, step by step.

It is exact where the closed forms of ``costs`` assume lock-step and equal ranks. It needs NumPy,
so nothing imports it before somebody asks for it.
"""
