"""What the tasks have in common: batches of tokens, compiling after loading, metrics, generation."""

import contextlib
import warnings

import keras
import keras_hub
import tensorflow as tf
from keras import ops

from keras_synth.data.shuffling import count_examples, is_dataset, shuffled_batches, split, to_tensors
from keras_synth.models.freezing import FrozenLayers
from keras_synth.models.generation import check_prompts, distribute, end_token_ids, strip_prompts
from keras_synth.models.logits import check_logits
from keras_synth.models.preprocessors import check_fit
from keras_synth.models.samplers import get_sampler
from keras_synth.training.metrics import sparse_categorical_accuracy
from keras_synth.training.step import ReplicaTraining

#: The default: models of this library are trained from scratch.
LEARNING_RATE = 1e-3


class SynthesizerTask(FrozenLayers, ReplicaTraining):
    """Mixin of all tasks, to stand before the class of KerasHub."""

    #: Whether the output is logits, or else probabilities; `None` if it is neither.
    returns_logits = True

    @property
    def backbone(self):
        """The backbone, of the class that this task is for."""
        return getattr(self, "_backbone", None)

    @backbone.setter
    def backbone(self, backbone):
        if not isinstance(backbone, self.backbone_cls):
            raise ValueError(
                f"The `backbone` of {type(self).__name__} must be a {self.backbone_cls.__name__}. "
                f"Received: backbone={backbone!r}"
            )
        self._backbone = backbone

    @property
    def preprocessor(self):
        """The preprocessor, which makes what the backbone takes; or `None`."""
        return getattr(self, "_preprocessor", None)

    @preprocessor.setter
    def preprocessor(self, preprocessor):
        check_fit(preprocessor, self.backbone)
        self._preprocessor = preprocessor

    def compile(self, optimizer="auto", loss="auto", **kwargs):
        check_logits(self, loss, kwargs)
        if isinstance(optimizer, str) and optimizer == "auto":
            # That of KerasHub is for models that have been trained by others.
            optimizer = keras.optimizers.Adam(LEARNING_RATE)
        super().compile(optimizer, loss, **kwargs)

    def fit(
        self,
        x=None,
        y=None,
        batch_size=None,
        sample_weight=None,
        validation_data=None,
        validation_split=None,
        shuffle=True,
        **kwargs,
    ):
        """Trains the model, as `keras.Model.fit`.

        Strings and arrays are shuffled in each epoch, unless `shuffle` is `False`; a `tf.data.Dataset` is
        taken in its own order. `validation_split` also splits lists of strings.
        """
        if isinstance(validation_data, (tuple, list)):
            names = [f"validation_data[{index}]" for index in range(3)]
            validation_data = self._check(*keras.utils.unpack_x_y_sample_weight(validation_data), *names)
        x, y, sample_weight = self._check(x, y, sample_weight)
        if not is_dataset(x):
            data = keras.utils.pack_x_y_sample_weight(x, y, sample_weight)
            if validation_split and validation_data is None:
                data, validation_data = split(data, validation_split)
                validation_split = None
            if shuffle:
                x, y, sample_weight = shuffled_batches(data, batch_size or 32), None, None
                batch_size = None
            else:
                x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        # KerasHub makes a dataset of everything, and Keras then ignores `shuffle`.
        return super().fit(
            x, y, batch_size, sample_weight, validation_data, validation_split, shuffle=False, **kwargs
        )

    def evaluate(self, x=None, y=None, batch_size=None, sample_weight=None, **kwargs):
        if not kwargs.get("_use_cached_eval_dataset", False):
            x, y, sample_weight = self._check(x, y, sample_weight)
        return super().evaluate(x, y, batch_size, sample_weight, **kwargs)

    def predict(self, x=None, batch_size=None, **kwargs):
        x, _, _ = self._check(x)
        return super().predict(x, batch_size, **kwargs)

    def check_targets(self, y, name="y"):
        """Returns what is to be learned as the loss takes it, or raises if it is wrong."""
        return y

    def _check(self, x, y=None, sample_weight=None, *names):
        """Makes tensors of arrays and lists, and raises if something is wrong with them."""
        if is_dataset(x):
            _check_batches(x)
            return x, y, sample_weight
        names = names or ("x", "y", "sample_weight")
        x, y, sample_weight = map(to_tensors, (x, y, sample_weight), names)
        count_examples((x, y, sample_weight))
        for tensor in keras.tree.flatten(x):
            if tensor.dtype == tf.string and tensor.shape.rank != 1:
                raise ValueError(
                    f"The texts of `{names[0]}` must be in one row. Two texts that belong together are a "
                    f"tuple or a dict of two. Received: texts of shape {tuple(tensor.shape)}"
                )
        return x, None if y is None else self.check_targets(y, names[1]), sample_weight

    def preprocess_samples(self, x, y=None, sample_weight=None):
        y = None if y is None else self.check_targets(y)
        # Batches of tokens, as `keras_synth.data.token_batches` makes them, are taken as they are.
        if isinstance(x, dict) and set(self.input) <= set(x):
            return keras.utils.pack_x_y_sample_weight(x, y, sample_weight)
        return super().preprocess_samples(x, y, sample_weight)

    def compile_from_config(self, config):
        # Keras restores the arguments of its own `compile` only.
        arguments = {
            name: keras.saving.deserialize_keras_object(value)
            for name, value in config.items()
            if name != "sampler"
        }
        if "sampler" in config:
            arguments["sampler"] = get_sampler(config["sampler"])
        try:
            check_logits(self, arguments.get("loss"), arguments)
        except ValueError as error:  # it was none when the file was saved
            warnings.warn(f"{error}. The model is compiled with its default ones.", stacklevel=2)
            for name in ("loss", "metrics", "weighted_metrics"):
                arguments.pop(name, None)
        if tf.distribute.get_strategy().num_replicas_in_sync > 1:
            arguments["jit_compile"] = False  # it may have been on by itself where the model was saved
        self.compile(**arguments)
        self.optimizer.build(self.trainable_variables)

    def save_task_weights(self, filepath):
        with self._without_optimizer():
            super().save_task_weights(filepath)

    def load_task_weights(self, filepath):
        with self._without_optimizer():
            super().load_task_weights(filepath)

    @contextlib.contextmanager
    def _without_optimizer(self):
        """A preset holds the weights of a task and not the state of its training."""
        optimizer, self.optimizer = self.optimizer, None
        try:
            yield
        finally:
            self.optimizer = optimizer


def _check_batches(dataset):
    """Checks that the elements of a dataset are batches."""
    if not isinstance(dataset, tf.data.Dataset):
        return
    x, _, _ = keras.utils.unpack_x_y_sample_weight(dataset.element_spec)
    for spec in keras.tree.flatten(x):
        rank = 1 if spec.dtype == tf.string else 2
        if spec.shape.rank is not None and spec.shape.rank < rank:
            raise ValueError(
                "A dataset must have batches of texts or tokens as its elements, as `dataset.batch(32)` "
                f"makes them. Received: a dataset of elements {dataset.element_spec}"
            )


class LanguageModel(SynthesizerTask):
    """Mixin of the tasks whose loss is a mean over tokens: padding, which has weight 0, never counts."""

    loss_divides_by_weights = True

    def compile(self, *args, metrics=None, weighted_metrics="auto", **kwargs):
        if weighted_metrics == "auto":
            weighted_metrics = [] if metrics else [self._accuracy()]
        # Padding counts in no metric, whichever argument brought it here.
        super().compile(*args, weighted_metrics=[*(metrics or []), *(weighted_metrics or [])], **kwargs)

    def _accuracy(self):
        # A function alone would become a metric, with variables, in the first step, and be traced twice.
        strategy = getattr(self, "distribute_strategy", None)  # on the TensorFlow backend
        with strategy.scope() if strategy else contextlib.nullcontext():
            return keras.metrics.MeanMetricWrapper(
                sparse_categorical_accuracy, name=sparse_categorical_accuracy.__name__
            )


class GenerativeModel(LanguageModel):
    """Mixin of the tasks that generate: decoding with a cache, by a sampler of KerasHub.

    A subclass says in `prefill` how decoding starts. In beam search a sequence that has ended keeps its
    probability, so that short and long answers compete fairly, and so does one whose prompt goes on.
    """

    #: What the names of the inputs that are generated begin with.
    side = ""

    def __init__(self, *args, sampler=None, **kwargs):
        super().__init__(*args, **kwargs)
        if sampler is not None:
            self.sampler = get_sampler(sampler)

    def compile(self, *args, sampler="top_k", **kwargs):
        super().compile(*args, sampler=get_sampler(sampler), **kwargs)

    def prefill(self, inputs, length):
        """Runs the model over the prompts.

        Args:
            inputs: The dict that `generate_step` gets.
            length: int tensor. The number of tokens, the same for all prompts, that do not come again.

        Returns:
            The decoder's output, `(batch, T, hidden_dim)`, and the cache.
        """
        raise NotImplementedError

    def logits(self, hidden):
        """The logits of the next token, from the decoder's output."""
        return self.backbone.token_embedding(hidden, reverse=True)

    def call_with_cache(self, token_ids, cache, cache_update_index, encoder_hidden_states=None):
        """Runs the decoder over a part of a sequence.

        Args:
            token_ids: int tensor of shape `(batch, T)`, the tokens from `cache_update_index` on.
            cache: What `backbone.init_cache` or an earlier call returned.
            cache_update_index: int or int tensor. The position of the first token.
            encoder_hidden_states: The encoder's output, where there is one, in the first call; later what
                is needed of it is in the cache.

        Returns:
            The logits of the next tokens, `(batch, T, vocabulary_size)`; the decoder's output,
            `(batch, T, hidden_dim)`; and the updated cache.
        """
        hidden, cache = self.backbone.decode_with_cache(
            token_ids, cache, cache_update_index, encoder_hidden_states
        )
        return self.logits(hidden), hidden, cache

    def get_compile_config(self):
        config = super().get_compile_config()
        return config and {**config, "sampler": keras_hub.samplers.serialize(self.sampler)}

    def get_config(self):
        # A preset has no compile configuration.
        sampler = getattr(self, "sampler", None)
        return {**super().get_config(), "sampler": sampler and keras_hub.samplers.serialize(sampler)}

    def generate(self, inputs, max_length=None, stop_token_ids="auto", strip_prompt=False):
        """Generates sequences that begin with prompts, by the sampler that `compile` was given.

        Args:
            inputs: Prompts: a string or a list of strings, or what else the preprocessor takes for
                generation; without a preprocessor, a dict of tensors as the model takes them; or a
                `tf.data.Dataset` of batches of these.
            max_length: int. The number of tokens that a sequence has at most, with its prompt. Defaults to
                the preprocessor's. Without a preprocessor, it is the length of the tensors.
            stop_token_ids: Tuple of ints. The tokens that end a sequence; `None` to go on to the end.
                Defaults to `"auto"`, the end of the preprocessor's tokenizer.
            strip_prompt: bool. Whether what is returned begins after the prompts. Defaults to `False`.

        Returns:
            A string for each prompt, or a single one; without a preprocessor, a dict of tokens and their
            padding mask, `(batch, length)`. With `keras_synth.models.BeamSampler(return_all_beams=True)`, a
            pair of two: a list of strings for each prompt, the best beam first, or tensors of shape
            `(batch, num_beams, length)`; and the scores of the beams, `(batch, num_beams)`.

        Raises:
            ValueError: If there are no prompts, or there is no preprocessor that knows the end.
        """
        if stop_token_ids == "auto":
            stop_token_ids = end_token_ids(self.preprocessor)
        inputs = dict(inputs) if isinstance(inputs, dict) else inputs  # which KerasHub writes to
        batches, is_single = self._normalize_generate_inputs(inputs)
        outputs, scores = [], []
        for batch in batches:
            check_prompts(batch)
            batch_outputs, batch_scores = self._generate_batch(
                batch, max_length, stop_token_ids, strip_prompt
            )
            outputs.append(batch_outputs)
            scores.append(batch_scores)
        check_prompts(outputs)
        outputs = self._normalize_generate_outputs(outputs, is_single)
        if scores[0] is None:
            return outputs
        return outputs, self._normalize_generate_outputs(scores, is_single)

    def _generate_batch(self, inputs, max_length, stop_token_ids, strip_prompt):
        """What a batch of prompts becomes, and the scores of its beams, or `None`."""
        if self.preprocessor is not None:
            inputs = self.preprocessor.generate_preprocess(inputs, sequence_length=max_length)
        inputs = distribute(inputs)
        outputs = dict(self.make_generate_function()(inputs, stop_token_ids=stop_token_ids))
        scores = outputs.pop("scores", None)
        names = f"{self.side}token_ids", f"{self.side}padding_mask"
        if strip_prompt:
            stripped = strip_prompts(*(outputs[name] for name in names), inputs[names[1]])
            outputs = dict(zip(names, stripped, strict=True))
        if self.preprocessor is None:
            return outputs, scores
        if scores is None:
            return self.preprocessor.generate_postprocess(outputs), None
        _, num_beams, length = ops.shape(outputs[names[0]])
        outputs = {name: ops.reshape(tensor, (-1, length)) for name, tensor in outputs.items()}
        texts = self.preprocessor.generate_postprocess(outputs)
        return [texts[i : i + num_beams] for i in range(0, len(texts), num_beams)], scores

    def generate_step(self, inputs, stop_token_ids=None):
        """Generates the tokens of one batch; what `generate` compiles.

        Args:
            inputs: A dict of tensors, as the model takes them. Prompts begin with a token each.
            stop_token_ids: Tuple of ints. The tokens that end a sequence; `None` to go on to the end.

        Returns:
            A dict with the tokens and the padding mask of what was generated, prompts included; where the
            sampler returns all beams, `(batch, num_beams, length)`, with their `"scores"`.
        """
        token_ids = inputs[f"{self.side}token_ids"]
        prompt_mask = ops.cast(inputs[f"{self.side}padding_mask"], "bool")
        lengths = ops.sum(ops.cast(prompt_mask, "int32"), axis=-1)
        # The first step goes on from the last token of the shortest prompt.
        index = ops.maximum(ops.min(lengths), 1)
        hidden, cache = self.prefill(inputs, index - 1)

        def next(prompt, state, index):
            cache, prompt_mask = state
            last = ops.shape(prompt)[1] - 1

            def at(index, sequences):
                return ops.slice(sequences, (0, index), (ops.shape(sequences)[0], 1))

            previous, following = index - 1, ops.minimum(index, last)
            logits, hidden, cache = self.call_with_cache(at(previous, prompt), cache, previous)
            logits = logits[:, 0]
            # KerasHub's beam search knows neither ends nor prompts of unequal length. Without this it
            # would multiply the probability of a beam with those of tokens that nobody will see.
            logits = _certain(logits, at(following, prompt), where=at(following, prompt_mask))
            if stop_token_ids is not None:
                ended = _is_any(at(previous, prompt), stop_token_ids) & ~at(previous, prompt_mask)
                logits = _certain(logits, stop_token_ids[0], where=ended)
            return logits, hidden[:, 0], (cache, prompt_mask)

        sampled = self.sampler(
            next=next,
            prompt=token_ids,
            cache=(cache, prompt_mask),
            index=index,
            mask=prompt_mask,
            stop_token_ids=stop_token_ids,
            hidden_states=hidden,
            model=self,
        )
        token_ids, *scores = sampled if isinstance(sampled, tuple) else (sampled,)
        if scores:
            prompt_mask = prompt_mask[:, None]  # that of all beams
        padding_mask = ops.ones_like(token_ids, dtype="bool")
        if stop_token_ids is not None:
            ends = ops.cast(_is_any(token_ids, stop_token_ids) & ~prompt_mask, "int32")
            # Nothing after the first end; the end itself still counts.
            padding_mask = ops.cumsum(ends, axis=-1) - ends == 0
        outputs = {f"{self.side}token_ids": token_ids, f"{self.side}padding_mask": padding_mask}
        return {**outputs, "scores": scores[0]} if scores else outputs


def _is_any(token_ids, candidates):
    """Where `token_ids` are one of `candidates`."""
    return ops.any(ops.stack([token_ids == candidate for candidate in candidates]), axis=0)


def _certain(logits, token_ids, where):
    """Logits by which the next token is this one, `where` that is true."""
    vocabulary = ops.arange(ops.shape(logits)[-1], dtype="int32")
    only = ops.where(vocabulary == ops.cast(token_ids, "int32"), 0.0, -1e9)
    return ops.where(where, only, ops.cast(logits, "float32"))
