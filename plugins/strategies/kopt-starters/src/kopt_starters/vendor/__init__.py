"""Candidates that let the vendor's library compute, between moves and fused endings of their own."""
