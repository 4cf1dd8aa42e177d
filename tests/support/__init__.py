"""What tests share that is no test: generators, machines that attack, and small tools."""

from pathlib import Path

__all__ = ["ROOT"]

ROOT = Path(__file__).resolve().parents[2]
