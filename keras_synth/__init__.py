"""Synthesizer attention for Keras 3.

Rooms: `core` (what all rooms use), `alignments` (how attention logits are made), `layers` (what is done
with them), `models`, `data`, `training` and `export`. The first three need Keras alone; the others are
imported by name when they are needed, because they bring in KerasHub, tensorflow-text and TensorFlow
Datasets. Keras imports them by itself where it reads a file that has their classes.
"""

from keras_synth import alignments, layers
from keras_synth.core.deferred import register_deferred
from keras_synth.version import __version__

__all__ = ["__version__", "alignments", "layers"]

register_deferred()
