"""The encoder of a Transformer, with synthesized self-attention."""

import keras

from keras_synth.models.backbone import Encoding, SynthesizerBackbone, tokens_and_mask


@keras.saving.register_keras_serializable("keras_synth")
class SynthesizerEncoderBackbone(Encoding, SynthesizerBackbone):
    """A Transformer encoder whose self-attention is synthesized.

    For classification and masked language models, as the encoders in
    [Tay et al., 2021](https://arxiv.org/abs/2005.00743). Inputs are a dict with `"token_ids"` and
    `"padding_mask"`, both `(batch, T)`; the output has shape `(batch, T, hidden_dim)`.

    Args:
        vocabulary_size: int. The number of tokens in the vocabulary.
        num_layers: int. The number of blocks.
        num_heads: int. The number of attention heads. Must divide `hidden_dim`.
        hidden_dim: int. The width of the embedding and of every block.
        intermediate_dim: int. The width of the feed-forward networks' hidden layer.
        max_length: int. The longest sequence.
        attention: The self-attention, as in `keras_synth.layers.SynthesizerEncoder`, or a list with one
            for each block. Defaults to `"random+dot_product"`.
        **kwargs: `positions`, `tie_word_embeddings`, `seed` and `dtype`, as in
            `keras_synth.models.SynthesizerEncoderDecoderBackbone`; the options of blocks, such as `dropout`
            and `activation`, as there; and keyword arguments of `keras_hub.models.Backbone`.

    Raises:
        ValueError: If `num_heads` does not divide `hidden_dim`, or another argument is wrong.

    Example:

    >>> import numpy as np
    >>> backbone = SynthesizerEncoderBackbone(
    ...     vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=32,
    ...     max_length=64, attention=["random", "dense"],
    ... )
    >>> backbone({
    ...     "token_ids": np.ones((3, 7), "int32"), "padding_mask": np.ones((3, 7), "bool")
    ... }).shape
    TensorShape([3, 7, 16])
    """

    def connect(self, dtype):
        self.make_encoder(dtype)
        inputs = tokens_and_mask()
        return inputs, self.encode(**inputs)

    @property
    def transformer_layers(self):
        """`encoder_layers`, by the name that blocks have in KerasHub."""
        return self.encoder_layers
