"""What may be handed on: readable files, a data card in words, a statement for machines, checksums.

Everything here works on releases alone. It never sees the private data, and refuses what is not releasable.
"""
