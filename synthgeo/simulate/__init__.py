"""Data that the project makes itself: point streams, cities with trips, people over time, households, series.

Nothing here is private, and nothing here protects anybody: it is stand-in data for demos, tests and
benchmarks. Every function takes ``seed=`` and gives the same frame for the same seed.
"""

from synthgeo.simulate.city import checkins, circles, city_graph, taxi_stream
from synthgeo.simulate.series import (
    ar1,
    binomial_ar1,
    daily_traffic,
    drive_cycle,
    logistic,
    markov_chain,
    random_walk,
    sinusoid,
    unemployment,
    wave,
)
from synthgeo.simulate.table import census, census_schema, household_schemas, households, panel, panel_schema
from synthgeo.simulate.trips import city_routes, city_trips

__all__ = [
    "ar1",
    "binomial_ar1",
    "census",
    "census_schema",
    "checkins",
    "circles",
    "city_graph",
    "city_routes",
    "city_trips",
    "daily_traffic",
    "drive_cycle",
    "household_schemas",
    "households",
    "logistic",
    "markov_chain",
    "panel",
    "panel_schema",
    "random_walk",
    "sinusoid",
    "taxi_stream",
    "unemployment",
    "wave",
]
