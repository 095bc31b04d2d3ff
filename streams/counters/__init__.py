"""Banks of private counters: many streams counted at once, each with its own clock.

``make_bank`` makes one by name, ``expected_rmse`` says how good it will be, ``bank_from_state`` reads a saved
one.
"""

from streams.counters.base import CounterBank
from streams.counters.choose import BANKS, KINDS, LAPLACE_KINDS, bank_from_state, expected_rmse, make_bank

__all__ = ["BANKS", "KINDS", "LAPLACE_KINDS", "CounterBank", "bank_from_state", "expected_rmse", "make_bank"]
