"""The encoder-decoder Transformer of the paper, with synthesized self-attention."""

import keras

from keras_synth.core.serialization import to_plain
from keras_synth.models.backbone import (
    Decoding,
    Encoding,
    SynthesizerBackbone,
    one_per_layer,
    tokens_and_mask,
)


@keras.saving.register_keras_serializable("keras_synth")
class SynthesizerEncoderDecoderBackbone(Encoding, Decoding, SynthesizerBackbone):
    """An encoder-decoder Transformer whose self-attention is synthesized.

    The architecture of [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762) with the attention of
    [Tay et al., 2021](https://arxiv.org/abs/2005.00743): one embedding for both sides; cross-attention is
    a dot product. Inputs are a dict with `"encoder_token_ids"`, `"encoder_padding_mask"`,
    `"decoder_token_ids"` and `"decoder_padding_mask"`; outputs a dict with `"encoder_sequence_output"`
    and `"decoder_sequence_output"`.

    Args:
        vocabulary_size: int. The number of tokens in the vocabulary.
        num_layers: int. The number of encoder blocks, and of decoder blocks.
        num_heads: int. The number of attention heads. Must divide `hidden_dim`.
        hidden_dim: int. The width of the embedding and of every block.
        intermediate_dim: int. The width of the feed-forward networks' hidden layer.
        max_length: int. The longest sequence, of either side.
        attention: The self-attention, as in `keras_synth.layers.SynthesizerEncoder`, or a list with one
            for each block. Defaults to `"random+dot_product"`.
        decoder_attention: The same for the decoder. Defaults to `attention`.
        dropout: float. Dropout of the embeddings and of the output of each sublayer. Defaults to `0.1`.
        positions: `"sinusoidal"`, `"learned"`, `"relative_bias"` or `None`. With the third, a bias for each
            distance is added to the logits of self-attention, one for all blocks of a stack, as in
            [Raffel et al., 2019](https://arxiv.org/abs/1910.10683). Defaults to `"sinusoidal"`.
        tie_word_embeddings: bool. Whether logits are made with the embedding itself instead of a matrix
            of their own. Defaults to `True`.
        seed: int. The seed of dropout. Defaults to `None`.
        dtype: The dtype policy of all layers.
        **kwargs: The options of blocks, as `keras_synth.layers.SynthesizerBlock` documents them, but for
            initializers. Other defaults than there: `attention_dropout` is `0.0`, and `normalize_first` is
            `True`, with a normalization after the last block. And keyword arguments of
            `keras_hub.models.Backbone`.

    Raises:
        ValueError: If `num_heads` does not divide `hidden_dim`, or another argument is wrong.

    Example:

    >>> import numpy as np
    >>> backbone = SynthesizerEncoderDecoderBackbone(
    ...     vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=32,
    ...     max_length=64,
    ... )
    >>> outputs = backbone({
    ...     "encoder_token_ids": np.ones((3, 7), "int32"),
    ...     "encoder_padding_mask": np.ones((3, 7), "bool"),
    ...     "decoder_token_ids": np.ones((3, 5), "int32"),
    ...     "decoder_padding_mask": np.ones((3, 5), "bool"),
    ... })
    >>> outputs["decoder_sequence_output"].shape
    TensorShape([3, 5, 16])
    """

    def __init__(
        self,
        vocabulary_size,
        num_layers,
        num_heads,
        hidden_dim,
        intermediate_dim,
        max_length,
        attention="random+dot_product",
        decoder_attention=None,
        **kwargs,
    ):
        self.decoder_attention = one_per_layer(
            type(self), attention if decoder_attention is None else decoder_attention, num_layers
        )
        super().__init__(
            vocabulary_size,
            num_layers,
            num_heads,
            hidden_dim,
            intermediate_dim,
            max_length,
            attention,
            **kwargs,
        )

    def connect(self, dtype):
        self.make_encoder(dtype)
        self.make_decoder(self.decoder_attention, dtype)
        encoder, decoder = tokens_and_mask("encoder_"), tokens_and_mask("decoder_")
        encoder_output = self.encode(*encoder.values())
        decoder_output = self.decode(
            *decoder.values(),
            encoder_sequence=encoder_output,
            encoder_padding_mask=encoder["encoder_padding_mask"],
        )
        outputs = {
            "encoder_sequence_output": encoder_output,
            "decoder_sequence_output": decoder_output,
        }
        return {**encoder, **decoder}, outputs

    @property
    def encoder_transformer_layers(self):
        """`encoder_layers`, by the name that blocks have in KerasHub."""
        return self.encoder_layers

    @property
    def decoder_transformer_layers(self):
        """`decoder_layers`, by the name that blocks have in KerasHub."""
        return self.decoder_layers

    def get_config(self):
        return {**super().get_config(), "decoder_attention": to_plain(self.decoder_attention)}
