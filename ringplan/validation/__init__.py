"""
The reference ring against the estimate: small scenarios that really run, counted and predicted.

A prediction is what `ringplan estimate` says of the scenario, taken from the same code; a count is
what the ledgers of `ringplan.reference` hold after the run.
"""
