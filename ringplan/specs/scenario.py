"""One question: a model on a device, in a mesh, with a workload."""

from __future__ import annotations

from ringplan.specs.base import Spec
from ringplan.specs.engine import Engine
from ringplan.specs.hardware import HardwareProfile
from ringplan.specs.mesh import Mesh
from ringplan.specs.model import ModelSpec
from ringplan.specs.schedule import Schedule
from ringplan.specs.workload import Workload


class Scenario(Spec):
    """Everything an estimate needs."""

    model: ModelSpec
    hardware: HardwareProfile
    mesh: Mesh
    workload: Workload
    schedule: Schedule
    engine: Engine
    rivals: tuple[Schedule, ...] = ()  # shipped schedules that an estimate compares

    @property
    def cuts_documents(self) -> bool:
        """Whether each packed document, rather than the packed sequence, is cut over all ranks."""
        evenly = self.mesh.partition != "contiguous" and self.mesh.ring_size > 1
        return (
            self.workload.document_lengths is not None
            and evenly
            and self.schedule.documents == "each"
        )

    def device_memory(self, stage: int) -> float:
        """Bytes of a device of a pipeline stage: the hardware's, unless the cards differ."""
        cards = self.mesh.pp_memory
        return self.hardware.memory.capacity if cards is None else cards[min(stage, len(cards) - 1)]
