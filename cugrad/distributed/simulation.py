"""`torch.distributed.simulate`, for what stands in a higher room."""

from ..nn.parallel.simulation import Scaling, Simulation, simulate

__all__ = ["Scaling", "Simulation", "simulate"]
