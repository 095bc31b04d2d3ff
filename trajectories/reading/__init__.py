"""From recorded points to one plausible trip each: reading, cleaning. Each trip on its own."""
