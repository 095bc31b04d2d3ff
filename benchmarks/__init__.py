"""Benchmarks: ``python -m benchmarks.<name>`` prints a table and writes ``benchmarks/results/<name>.json``."""
