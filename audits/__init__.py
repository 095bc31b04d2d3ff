"""The registry of audits: cases by kind of mechanism, and the broken twins that they must catch."""
