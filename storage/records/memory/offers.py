"""What was drawn from somebody's private talk and may serve others too, once they say so."""

from __future__ import annotations

import hashlib

from storage.records.memory.entries import Entry, Scope, ScopeKind

OFFERED = "offered_to"
"""Of a candidate's `extra`: the scope that a copy of it would be in."""

_OFFER = "offer:"
_SERVED = frozenset({ScopeKind.SKILL, ScopeKind.PROJECT})


def offer_of(entry: Entry) -> str:
    """The source of what would tell it to others."""
    return f"{_OFFER}{entry.id}"


def was_offered(entry: Entry) -> bool:
    return (entry.source or "").startswith(_OFFER)


def offered_to(entry: Entry) -> Scope | None:
    named = entry.extra.get(OFFERED)
    try:
        scope = Scope.of(named) if isinstance(named, str) else None
    except ValueError:
        return None
    return scope if scope is not None and scope.kind in _SERVED else None


def wording(candidate: Entry) -> str:
    """A digest of what somebody decides about: what it says, where it is, and whom it is for."""
    told = "\0".join((candidate.text, str(candidate.scope), str(offered_to(candidate) or "")))
    return hashlib.sha256(told.encode()).hexdigest()[:16]
