"""The tests mirror the packages; helpers are imported as ``tests.<folder>.<module>``."""
