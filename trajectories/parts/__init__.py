"""Trips in parts: more than fit in memory, read, matched and counted where they are."""
