"""Attempts to break the promise: black-box lower bounds on ε, exact white-box losses, neighbours, membership.

``sg.auditing.audit(...)`` is the black-box one. An audit never proves privacy. It can only show that a
promise is broken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from synthgeo.extras import lazy

if TYPE_CHECKING:
    from synthgeo.auditing.blackbox import AuditResult, audit
    from synthgeo.auditing.duels import DuelResult, duel
    from synthgeo.auditing.membership import MembershipResult, attack_release, membership_attack

__getattr__ = lazy(
    __name__,
    {
        "audit": "synthgeo.auditing.blackbox",
        "AuditResult": "synthgeo.auditing.blackbox",
        "attack_release": "synthgeo.auditing.membership",
        "membership_attack": "synthgeo.auditing.membership",
        "MembershipResult": "synthgeo.auditing.membership",
        "duel": "synthgeo.auditing.duels",
        "DuelResult": "synthgeo.auditing.duels",
    },
)

__all__ = [
    "AuditResult",
    "DuelResult",
    "MembershipResult",
    "attack_release",
    "audit",
    "duel",
    "membership_attack",
]
