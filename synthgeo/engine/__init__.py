"""Exact counting: frames and Arrow in memory, files through DuckDB, clusters through Dask.

Same input, same counts, whatever the engine. Nothing here is private: counts never leave the curator.
"""
