"""Run folders: the journal, the sources, the report."""
