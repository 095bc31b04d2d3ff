"""Trips over time: admitting each trip once, counting batches on what was released before, borrowing."""
