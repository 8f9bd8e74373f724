"""kopt's test of itself: kernels that cheat, which it must reject, and honest ones, which it must accept."""
