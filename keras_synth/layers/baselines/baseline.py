"""What the baselines have in common with each other."""

import dataclasses

import keras
from keras import ops

from keras_synth.layers import masks
from keras_synth.layers.multi_head import MultiHead


class Baseline(MultiHead):
    """Base class of the layers that weigh no pairs of tokens.

    They take the same call arguments as a `keras_synth.layers.SyntheticAttention`, apart from attention
    masks that are more than a padding mask. Hidden tokens are zeros where a baseline gets to see them.

    Args:
        num_heads: int. The number of heads, `H`.
        key_dim: int. The width of a head.
        **kwargs: Keyword arguments of `MultiHead`.
    """

    #: As in `keras_synth.alignments.Alignment`.
    resizes_by_name = True
    #: Whether a call may have `use_causal_mask`.
    supports_causal_mask = True

    def add_kernel(self, name, shape, initializer):
        """A weight that is regularized and constrained as the kernels are."""
        return self.add_weight(
            name=name,
            shape=shape,
            initializer=initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )

    def mix_values(self, query, projected, start_index, causal, training):
        """Mixes what `project` made, with zeros for hidden tokens; otherwise as `MultiHead.mix`."""
        raise NotImplementedError

    def resize(self, max_length):
        """Makes the same layer for sequences of another length, as `Alignment.resize` does."""
        return self.from_config(self.get_config())

    def _check_masks(self, lengths, attention_mask=None, **given):
        given = super()._check_masks(lengths, attention_mask=attention_mask, **given)
        attention_mask = given["attention_mask"]
        if attention_mask is not None and not masks.hides_columns(attention_mask.shape):
            raise ValueError(
                f"{type(self).__name__} '{self.name}' weighs no pairs of tokens, so its `attention_mask` "
                "can only hide padding: it must have shape (batch, 1, S). "
                f"Received: attention_mask of shape {tuple(attention_mask.shape)}"
            )
        return given

    def mix(self, query, projected, mask, start_index, causal, training):
        keys = mask.visible_keys
        if keys is not None:
            projected = keras.tree.map_structure(
                lambda tokens: ops.where(keys[:, :, None, None], tokens, 0), projected
            )
        output, scores = self.mix_values(query, projected, start_index, causal, training)
        if mask.query is not None:
            output = ops.where(mask.query[:, :, None, None], output, 0)

        def masked_scores():
            hidden = dataclasses.replace(mask, causal=None, positions=None).merged()
            return scores() if hidden is None else ops.where(hidden, scores(), 0)

        return output, masked_scores
