"""The sequence-to-sequence task: `fit` on pairs of strings, `generate` strings from strings."""

import keras
import keras_hub
from keras import ops

from keras_synth.models.encoder_decoder_backbone import SynthesizerEncoderDecoderBackbone
from keras_synth.models.seq2seq_lm_preprocessor import SynthesizerSeq2SeqLMPreprocessor


@keras.saving.register_keras_serializable("keras_synth")
class SynthesizerSeq2SeqLM(keras_hub.models.Seq2SeqLM):
    """A sequence-to-sequence language model with synthesized self-attention.

    Predicts each target token from the source and the target tokens before it; the output projection
    is the transposed embedding. `generate` uses the sampler that `compile(sampler=...)` was given, one
    of `keras_hub.samplers`, and caches: of the values alone, and of keys only where an alignment has
    keys. In beam search a beam that has ended keeps its probability, so that short and long answers
    compete fairly.

    Args:
        backbone: A `keras_synth.models.SynthesizerEncoderDecoderBackbone`.
        preprocessor: A `keras_synth.models.SynthesizerSeq2SeqLMPreprocessor`, or `None` if inputs are
            preprocessed already.
        **kwargs: Keyword arguments of `keras_hub.models.Seq2SeqLM`.

    Example:

    >>> import keras_hub
    >>> from keras_synth.data import train_tokenizer
    >>> pairs = {"encoder_text": ["one two", "three"], "decoder_text": ["eins zwei", "drei"]}
    >>> tokenizer = train_tokenizer(sum(pairs.values(), []), vocabulary_size=300)
    >>> backbone = SynthesizerEncoderDecoderBackbone(
    ...     tokenizer.vocabulary_size(), num_layers=1, num_heads=2, hidden_dim=16,
    ...     intermediate_dim=32, max_length=32,
    ... )
    >>> preprocessor = SynthesizerSeq2SeqLMPreprocessor(tokenizer, 32, 32)
    >>> model = SynthesizerSeq2SeqLM(backbone, preprocessor)
    >>> model.compile(keras.optimizers.Adam(1e-2), sampler=keras_hub.samplers.BeamSampler(2))
    >>> history = model.fit(pairs, batch_size=2, verbose=0)
    >>> len(model.generate(["one", "two"]))
    2
    """

    backbone_cls = SynthesizerEncoderDecoderBackbone
    preprocessor_cls = SynthesizerSeq2SeqLMPreprocessor

    def __init__(self, backbone, preprocessor=None, **kwargs):
        # === Layers ===
        self.backbone = backbone
        self.preprocessor = preprocessor

        # === Functional Model ===
        hidden = backbone(backbone.input)["decoder_sequence_output"]
        outputs = backbone.token_embedding(hidden, reverse=True)
        super().__init__(inputs=backbone.input, outputs=outputs, **kwargs)

    def preprocess_samples(self, x, y=None, sample_weight=None):
        # Batches of tokens, as `keras_synth.data.token_batches` makes them, are taken as they are.
        if isinstance(x, dict) and "encoder_token_ids" in x:
            return keras.utils.pack_x_y_sample_weight(x, y, sample_weight)
        return super().preprocess_samples(x, y, sample_weight)

    def get_compile_config(self):
        config = super().get_compile_config()
        return config and {**config, "sampler": keras_hub.samplers.serialize(self.sampler)}

    def compile_from_config(self, config):
        # Keras restores the arguments of its own `compile` only.
        sampler = keras_hub.samplers.get(config["sampler"])
        arguments = {
            name: keras.saving.deserialize_keras_object(value)
            for name, value in config.items()
            if name != "sampler"
        }
        self.compile(**arguments, sampler=sampler)
        self.optimizer.build(self.trainable_variables)

    def generate_step(self, inputs, stop_token_ids=None):
        """Generates the tokens of one batch; what `generate` compiles.

        Args:
            inputs: A dict with `"encoder_token_ids"`, `"encoder_padding_mask"`,
                `"decoder_token_ids"` and `"decoder_padding_mask"`, as the model takes them.
            stop_token_ids: Tuple of ints. The tokens that end a sequence; `None` to go on to the end.

        Returns:
            A dict with `"decoder_token_ids"` and `"decoder_padding_mask"`.
        """
        backbone = self.backbone
        encoder_padding_mask = inputs["encoder_padding_mask"]
        token_ids = inputs["decoder_token_ids"]
        prompt_mask = ops.cast(inputs["decoder_padding_mask"], "bool")

        encoder_output = backbone.encode(inputs["encoder_token_ids"], encoder_padding_mask)
        cache = backbone.init_cache(*ops.shape(token_ids), ops.shape(encoder_padding_mask)[1])
        hidden, cache = backbone.decode(
            token_ids, encoder_padding_mask, cache, index=0, encoder_output=encoder_output
        )
        first_index = ops.min(ops.sum(ops.cast(prompt_mask, "int32"), axis=-1))

        def next(prompt, state, index):
            cache, encoder_padding_mask = state
            previous = ops.slice(prompt, (0, index - 1), (ops.shape(prompt)[0], 1))
            hidden, cache = backbone.decode(previous, encoder_padding_mask, cache, index - 1)
            logits = backbone.token_embedding(hidden, reverse=True)[:, 0]
            if stop_token_ids is not None:
                logits = _stay_ended(logits, previous, stop_token_ids)
            return logits, hidden[:, 0], (cache, encoder_padding_mask)

        token_ids = self.sampler(
            next=next,
            prompt=token_ids,
            cache=(cache, encoder_padding_mask),
            index=first_index,
            mask=prompt_mask,
            stop_token_ids=stop_token_ids,
            hidden_states=hidden,
            model=self,
        )
        padding_mask = ops.ones_like(token_ids, dtype="bool")
        if stop_token_ids is not None:
            ends = ops.logical_and(_is_any(token_ids, stop_token_ids), ~prompt_mask)
            ends = ops.cast(ends, "int32")
            # Nothing after the first end; the end itself still counts.
            padding_mask = ops.cumsum(ends, axis=-1) - ends == 0
        return {"decoder_token_ids": token_ids, "decoder_padding_mask": padding_mask}


def _is_any(token_ids, candidates):
    """Where `token_ids` are one of `candidates`."""
    return ops.any(ops.stack([token_ids == candidate for candidate in candidates]), axis=0)


def _stay_ended(logits, previous, stop_token_ids):
    """Lets a sequence whose `previous` token ended it repeat that end with certainty.

    KerasHub's beam search knows no ends: without this it would go on to multiply the probability of
    an ended beam with those of tokens that nobody will see.
    """
    ended = _is_any(previous, stop_token_ids)
    is_stop = ops.arange(ops.shape(logits)[-1]) == stop_token_ids[0]
    certain = ops.where(is_stop, 0.0, -1e9)
    return ops.where(ended, certain, ops.cast(logits, "float32"))
