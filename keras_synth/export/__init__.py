"""SavedModels for TF Serving."""

from keras_synth.export.saved_model import export

__all__ = ["export"]
