"""Public knowledge about the data: boxes, land, road networks, table schemas.

A domain never depends on private data; that is what makes pruning and sampling on it free.
"""
