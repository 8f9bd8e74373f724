"""The verbs: one module per stage of a run."""
