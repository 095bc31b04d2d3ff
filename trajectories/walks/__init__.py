"""Conditional random walks, and the sampling of trips from a released model. Post-processing."""
