"""Classes that Keras finds when it reads a file, though their room has not been imported yet."""

import importlib

import keras

#: Those that a file may begin with, or that a model of other layers may contain, by their rooms.
ROOMS = {
    "keras_synth.data": ("MaskingTokenizer", "SynthesizerTokenizer"),
    "keras_synth.models": (
        "BeamSampler",
        "SynthesizerCausalLM",
        "SynthesizerCausalLMPreprocessor",
        "SynthesizerDecoderBackbone",
        "SynthesizerEncoderBackbone",
        "SynthesizerEncoderDecoderBackbone",
        "SynthesizerMaskedLM",
        "SynthesizerMaskedLMPreprocessor",
        "SynthesizerSeq2SeqLM",
        "SynthesizerSeq2SeqLMPreprocessor",
        "SynthesizerSpanCorruptionPreprocessor",
        "SynthesizerTextClassifier",
        "SynthesizerTextClassifierPreprocessor",
    ),
    "keras_synth.training": ("AdamW", "Adafactor", "InverseSquareRoot", "SmoothedCrossentropy"),
}


class DeferredClass:
    """What Keras has in its registry instead of a class until the room of the class is imported.

    It does what Keras and KerasHub do with a class that they found there.

    Args:
        room: string. The module that has the class, and registers it.
        name: string. The name of the class.
    """

    def __init__(self, room, name):
        self.room = room
        self.name = name

    def load(self):
        return getattr(importlib.import_module(self.room), self.name)

    def from_config(self, config, **kwargs):
        return self.load().from_config(config, **kwargs)

    @property
    def __bases__(self):
        """What `issubclass` looks at."""
        return (self.load(),)

    def __eq__(self, other):
        return self.load() is other

    def __hash__(self):
        return hash((self.room, self.name))


def register_deferred():
    """Puts the classes of `ROOMS` into Keras's registry, unless they are there already."""
    registry = keras.saving.get_custom_objects()
    for room, names in ROOMS.items():
        for name in names:
            registry.setdefault(f"keras_synth>{name}", DeferredClass(room, name))
