"""Cases of the registry, by product."""
