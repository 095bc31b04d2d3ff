"""The only place where randomness meets private data: budgets, units, noise, selection, accounting, ledger.

Nothing in here knows about maps, tables or trips.
"""
