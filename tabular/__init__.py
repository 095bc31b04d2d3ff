"""Tables, one-off and over time: workloads, marginals, and a graphical model that draws rows.

Reach it through ``import synthgeo as sg``; this package's name is a place, not an API (ADR 1).
"""

__synthgeo_part__ = "0.2.0.dev0"
