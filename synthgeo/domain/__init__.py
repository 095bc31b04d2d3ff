"""Public knowledge about where records can be: boxes, land, road networks.

A domain never depends on private data; that is what makes pruning and sampling on it free.
"""
