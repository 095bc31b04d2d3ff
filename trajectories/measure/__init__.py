"""Measuring: everything that a fit learns of private trips, with the only noise there is.

``measured.measure`` makes all measurements; each has a module with its guarantee.
"""
