"""Beam search that can prefer longer or shorter answers."""

import keras
import keras_hub
from keras import ops


@keras.saving.register_keras_serializable("keras_synth")
class BeamSampler(keras_hub.samplers.BeamSampler):
    """Beam search with a length penalty.

    Beams are ranked by `log P / ((5 + length) / 6)^length_penalty`, see Section 7 of
    [Wu et al., 2016](https://arxiv.org/abs/1609.08144), where `length` counts what was generated, with
    the end. Without a penalty it is `keras_hub.samplers.BeamSampler`. It needs a model in which a
    sequence that has ended keeps its probability, as the tasks of this library do.

    Args:
        num_beams: int. The number of beams. Defaults to `5`.
        length_penalty: float. The larger it is, the longer the answers. `0.0` ranks by probability alone.
            Defaults to `0.6`.
        **kwargs: Keyword arguments of `keras_hub.samplers.BeamSampler`. With `return_all_beams`, the
            scores are those above, times `((5 + n) / 6)^length_penalty` for the `n` steps of the longest
            beam.

    Example:

    >>> BeamSampler(num_beams=4, length_penalty=0.6).get_config()["length_penalty"]
    0.6
    """

    def __init__(self, num_beams=5, length_penalty=0.6, **kwargs):
        super().__init__(num_beams=num_beams, **kwargs)
        self.length_penalty = length_penalty
        self._stop_token_ids = None

    def __call__(self, *args, stop_token_ids=None, **kwargs):
        self._stop_token_ids = stop_token_ids  # for `run_loop`, which isn't given them
        return super().__call__(*args, stop_token_ids=stop_token_ids, **kwargs)

    def run_loop(self, cond, body, **kwargs):
        if not self.length_penalty or self._stop_token_ids is None:
            return super().run_loop(cond, body, **kwargs)
        stop_token_ids = self._stop_token_ids

        def penalized(prompt, cache, index, mask, log_probs):
            # The scores times the penalty of the length that the other beams will have after this step:
            # theirs are plain log probabilities, and those of ended beams grow along.
            previous = prompt[:, index - 1]
            ended = ops.any(ops.stack([previous == stop for stop in stop_token_ids]), axis=0)
            ended = ended & ~mask[:, index - 1]
            length = ops.maximum(index - ops.sum(ops.cast(mask, "int32"), axis=-1), 0)
            length = ops.cast(length, log_probs.dtype)
            growth = ((6.0 + length) / (5.0 + length)) ** self.length_penalty
            return body(prompt, cache, index, mask, ops.where(ended, log_probs * growth, log_probs))

        return super().run_loop(cond, penalized, **kwargs)

    def get_config(self):
        return {**super().get_config(), "length_penalty": self.length_penalty}
