"""kopt as a library: make a function of this script faster, and print by how much."""

import sys

import torch

import kopt


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


if __name__ == "__main__":
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 2048
    run = kopt.optimize(
        rms_norm, [torch.randn(size, size), torch.randn(size)], budget=kopt.Budget(trials=3)
    )
    print(f"{run.status}: {run.reason}")
    for name, speedup in run.best.measurement.speedup.items() if run.best else ():
        print(f"{speedup.median:.2f}x over {name}, at least {speedup.low:.2f}x")
