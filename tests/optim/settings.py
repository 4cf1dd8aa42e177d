"""The optimizers and the settings in which they are tried, beside PyTorch's."""

from __future__ import annotations

from typing import Any

COMMON: list[dict[str, Any]] = [{}, {"lr": 0.05, "weight_decay": 0.1, "maximize": True}]
DECOUPLED = {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}

EACH: dict[str, list[dict[str, Any]]] = {
    "ASGD": [*COMMON, {"lr": 0.1, "lambd": 0.01, "alpha": 0.5, "t0": 4, "weight_decay": 0.1}],
    "Adadelta": [*COMMON, {"lr": 0.5, "rho": 0.8, "eps": 1e-4, "weight_decay": 0.1}],
    "Adafactor": [*COMMON, {"lr": 0.1, "beta2_decay": -1.0, "eps": (1e-6, 1e-2), "d": 1.5}],
    "Adagrad": [
        *COMMON,
        {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.3, "eps": 1e-3},
    ],
    "Adam": [
        *COMMON,
        {"lr": 0.05, "betas": (0.8, 0.95), "weight_decay": 0.1, "amsgrad": True},
        {**DECOUPLED, "amsgrad": True},
    ],
    "AdamW": [
        *COMMON,
        {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-6, "amsgrad": True},
        {"lr": 0.05, "weight_decay": 0.0, "maximize": True},
    ],
    "Adamax": [*COMMON, {"lr": 0.1, "betas": (0.7, 0.9), "eps": 1e-3}],
    "Muon": [
        {},
        {"lr": 0.1, "weight_decay": 0.0, "momentum": 0.8, "nesterov": False},
        {"lr": 0.1, "ns_steps": 3, "adjust_lr_fn": "match_rms_adamw"},
    ],
    "NAdam": [*COMMON, DECOUPLED, {"lr": 0.05, "betas": (0.8, 0.95), "momentum_decay": 0.1}],
    "RAdam": [*COMMON, DECOUPLED, {"lr": 0.05, "betas": (0.8, 0.9), "eps": 1e-4}],
    "RMSprop": [
        *COMMON,
        {"lr": 0.05, "momentum": 0.5, "alpha": 0.8},
        {"lr": 0.05, "centered": True, "momentum": 0.9, "eps": 1e-2},
        {"lr": 0.05, "centered": True, "weight_decay": 0.1},
    ],
    "Rprop": [{}, {"lr": 0.05, "etas": (0.4, 1.4), "step_sizes": (1e-3, 0.2), "maximize": True}],
    "SGD": [
        *COMMON,
        {"lr": 0.1, "momentum": 0.9},
        {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.05},
        {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.05, "maximize": True},
    ],
}  # fmt: skip
SETTINGS = [(name, settings) for name, several in EACH.items() for settings in several]
IDS = [f"{name}-{'-'.join(settings) or 'defaults'}" for name, settings in SETTINGS]
NAMES = tuple(EACH)
MATRICES = ("Muon",)  # optimizers whose parameters are matrices
ROUGH = ("Muon",)  # those that compute in bfloat16
REAL = ("Adafactor", "Muon")  # and those that have neither complex parameters nor derivatives


def shapes_for(name: str) -> list[tuple[int, ...]]:
    """The shapes of parameters that an optimizer is tried with."""
    return [(3, 4), (5, 2), (2, 2)] if name in MATRICES else [(3, 4), (5,), ()]
