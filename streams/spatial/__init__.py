"""Streams of points: PHDStream, its baselines, and the releases they make."""
