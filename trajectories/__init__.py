"""Trips, stage by stage: reading, matching, ground (roads or plane), measure (the only noise), fit, walks.

Reach it through ``import synthgeo as sg``; this package's name is a place, not an API (ADR 1).
"""

__synthgeo_part__ = "0.2.0.dev0"
