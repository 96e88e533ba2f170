"""What all our layers with sublayers have in common."""

from keras_synth.core.recomputation import Recomputed


class Layer(Recomputed):
    """A layer that stays frozen: with `trainable=False` before it is built, also what `build` makes of it.

    Keras freezes the sublayers that a layer has when the flag is set, and no later ones.
    """

    def _post_build(self):
        super()._post_build()
        if not self.trainable:
            self.trainable = True  # TensorFlow passes over a value that an attribute has already
            self.trainable = False
