"""The masked language model, for the pre-training of encoders."""

import keras
import keras_hub

from keras_synth.models.encoder_backbone import SynthesizerEncoderBackbone
from keras_synth.models.preprocessors import SynthesizerMaskedLMPreprocessor
from keras_synth.models.task import LanguageModel


@keras.saving.register_keras_serializable("keras_synth")
class SynthesizerMaskedLM(LanguageModel, keras_hub.models.MaskedLM):
    """A masked language model with synthesized self-attention.

    Predicts tokens that were masked from all others, as in
    [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), with the embedding as the output projection
    where the backbone ties the two. Only masked tokens have a part in the loss and in metrics.

    Args:
        backbone: A `keras_synth.models.SynthesizerEncoderBackbone`.
        preprocessor: A `keras_synth.models.SynthesizerMaskedLMPreprocessor`, or `None` if inputs are
            preprocessed already.
        **kwargs: Keyword arguments of `keras_hub.models.MaskedLM`.

    Example:

    >>> from keras_synth.data import train_tokenizer
    >>> from keras_synth.data.masking_tokenizer import MaskingTokenizer
    >>> texts = ["one two three", "four five six"]
    >>> tokenizer = MaskingTokenizer(train_tokenizer(texts, vocabulary_size=300).proto)
    >>> backbone = SynthesizerEncoderBackbone(
    ...     tokenizer.vocabulary_size(), num_layers=1, num_heads=2, hidden_dim=16,
    ...     intermediate_dim=32, max_length=32,
    ... )
    >>> model = SynthesizerMaskedLM(backbone, SynthesizerMaskedLMPreprocessor(tokenizer, 32))
    >>> history = model.fit(texts, batch_size=2, verbose=0)
    """

    backbone_cls = SynthesizerEncoderBackbone
    preprocessor_cls = SynthesizerMaskedLMPreprocessor

    def __init__(self, backbone, preprocessor=None, **kwargs):
        # === Layers ===
        self.backbone = backbone
        self.preprocessor = preprocessor
        self.masked_lm_head = keras_hub.layers.MaskedLMHead(
            token_embedding=backbone.token_embedding,
            intermediate_activation="gelu",
            layer_norm_epsilon=backbone.layer_norm_epsilon,
            # In mixed precision it would add its bias, in float32, to logits in float16.
            dtype="float32",
            name="masked_lm_head",
        )

        # === Functional Model ===
        positions = keras.Input((None,), dtype="int32", name="mask_positions")
        super().__init__(
            inputs={**backbone.input, "mask_positions": positions},
            outputs=self.masked_lm_head(backbone(backbone.input), positions),
            **kwargs,
        )
