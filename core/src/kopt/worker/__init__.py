"""Judge and candidate processes: where torch is imported and candidate code runs."""
