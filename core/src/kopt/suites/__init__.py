"""Suites: many problems one after another, with one record of what came out."""
