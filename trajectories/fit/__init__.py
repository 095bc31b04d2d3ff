"""From released measurements to a model whose trips agree with them. Post-processing."""
