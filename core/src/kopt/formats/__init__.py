"""The problem formats that come with the core."""
