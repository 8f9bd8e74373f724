"""Matrix products: what a graph multiplies, in normal form, and the kernels that are written for it."""
