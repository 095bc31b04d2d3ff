"""The graphical model of a table: a junction tree over marginals (``junction_tree``), fitted to noisy counts
(``fitting``, ``mirror_descent``), read and sampled by message passing (``message_passing``, ``sampling``).
Everything here is post-processing of released numbers."""
