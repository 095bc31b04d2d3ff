"""Map matching: the directed path on the roads that each trip most likely took. Each trip on its own."""
