"""Convolutions: what one is given, the knobs that suit its shapes, and the kernels' source."""
