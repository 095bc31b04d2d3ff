"""Metrics that compare a release with the private data. For the curator only: nothing here is private.

One module a kind of data: ``spatial`` (points), ``trajectories`` (trips; ``paths`` holds their geometry),
and so on. Nothing that releases imports this package; an import contract says so.
"""
