"""SavedModels for TensorFlow Serving, and other formats."""

from keras_synth.export.exporter import export
from keras_synth.export.variants import with_dtype

__all__ = ["export", "with_dtype"]
