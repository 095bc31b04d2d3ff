"""Seeded outputs of every product, pinned: a change of one needs a stated reason in the commit."""
