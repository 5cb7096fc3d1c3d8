"""Which class goes next? One module per algorithm, all behind `Picker`, one table of them all."""

from giveway_scheduler.picking.picker import Picker
from giveway_scheduler.picking.registry import PICKERS, make_picker

__all__ = ["PICKERS", "Picker", "make_picker"]
