"""Durable runs: a stream whose ledger, state and releases live in one directory and survive crashes."""
