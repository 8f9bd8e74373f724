"""How four public harnesses would judge the kernels of `kopt selftest`: their protocols, re-implemented."""
