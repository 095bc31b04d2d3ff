"""Attempts to break the promise: black-box lower bounds on ε, exact white-box losses, neighbours, membership.

``sg.audit(...)`` is the black-box one. An audit never proves privacy; it can only show that a promise is
broken.
"""

from synthgeo._callable import make_callable

make_callable(__name__, module="synthgeo.audit.blackbox")
