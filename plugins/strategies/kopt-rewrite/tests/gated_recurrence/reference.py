"""A gated linear recurrence over time: h(t) = sigmoid(gate(t)) * h(t-1) + x(t), from h(-1) = 0."""

import torch


def gated_recurrence(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    keep = torch.sigmoid(gate)
    state = torch.zeros_like(x[:, 0])
    states = []
    for t in range(x.shape[1]):
        state = keep[:, t] * state + x[:, t]
        states.append(state)
    return torch.stack(states, dim=1)
