"""Tables over time: the mechanisms of ``TabularStream`` and its baseline."""
