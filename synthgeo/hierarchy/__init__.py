"""Hierarchies of cells: Morton keys and the PrivTree that cuts them to the data's density."""
