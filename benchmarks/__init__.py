"""Benchmarks: ``python -m benchmarks.<name>`` prints a table and writes it to ``benchmarks/results``."""
