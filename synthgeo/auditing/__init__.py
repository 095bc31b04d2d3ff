"""Attempts to break the promise: black-box lower bounds on ε, exact white-box losses, neighbours, membership.

``sg.audit(...)`` is the black-box one. An audit never proves privacy; it can only show that a promise is
broken.
"""
