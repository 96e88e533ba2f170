"""What every alignment layer has in common."""

import keras

from keras_synth.core.checks import check_positive_int
from keras_synth.core.layer import Layer
from keras_synth.core.slices import place_windows, reach

#: The logit of a place where an alignment never attends: nothing, in float32, beside any place where it
#: does. It is finite, so that a mixture can learn to look there.
OUTSIDE = -30.0


class Alignment(Layer):
    """Base class of the layers that make the alignment logits `B` of attention.

    An alignment knows nothing of values, masks or softmax: it turns a query of shape `(batch, T, D)`
    into logits for `S` columns. Logits that depend on the input have shape `(batch, H, T, S)`; all
    others have no batch axis, `(H, T, S)`, so that whoever uses them computes them once for a batch.

    To write a new alignment, override `build` and `call`, and `depends_on_input` if it is `False`. An
    alignment that looks at other tokens than the row's own also overrides `project_key`, `init_cache`
    and `reads`. An alignment that never attends to some positions says so in `support`; one whose other
    arguments depend on `max_length`, in `resize`.

    Attention costs `T S` for each head, unless an alignment offers what costs less: a `window`, with
    `window_logits`, or `decay_rates`.

    Args:
        num_heads: int. The number of attention heads, `H`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.
    """

    #: How the logits are made, in the symbols of the paper.
    formula = "B"
    #: What a row of logits is made from: `"nothing"`, its own `"token"`, that and its `"neighbours"`, or
    #: `"all tokens"`.
    reads = "token"
    #: Whether the logits depend on the query, and so have a batch axis.
    depends_on_input = True
    #: Whether queries and keys may be two different sequences. Synthesized logits have no keys:
    #: their columns are positions of the query's own sequence.
    supports_cross_attention = False
    #: The longest sequence that the alignment can take, `None` if it takes any.
    max_length = None
    #: How many neighbouring tokens, itself among them, a row attends to; `None` for all tokens.
    window = None
    #: If `B_ij = -rate |j - i|`, a method that returns the rate of each head, a tensor of shape `(H,)`.
    decay_rates = None
    #: Whether `call` takes a `scale`, a tensor of shape `(H, 1, 1)`, and multiplies something smaller by it
    #: than the logits.
    takes_scale = False
    #: Whether the name of an alignment, with another `max_length`, makes what `resize` makes.
    resizes_by_name = True

    def __init__(self, num_heads, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.num_heads = check_positive_int(self, "num_heads", num_heads)

    def build(self, query_shape, keys_shape=None):
        """Creates the weights.

        Args:
            query_shape: Shape of the query, `(batch, T, D)`.
            keys_shape: Shape of the key, `(batch, S, D)`, from before `project_key`. Defaults to
                `query_shape`.
        """

    def project_key(self, key, query=None):
        """What the logits need of other tokens, computed once for a token and kept in a cache.

        Args:
            key: Tensor of shape `(batch, S, D)`.
            query: Tensor of shape `(batch, T, D)`, for alignments that look at the query's own
                neighbours. Defaults to `key`.

        Returns:
            A tensor, or nested tensors, of shape `(batch, S, ...)`; `()` where nothing is needed.
        """
        return ()

    def init_cache(self, batch_size, length):
        """Zeros in the structure of `project_key`, for `length` positions."""
        return ()

    def window_logits(self, query, causal):
        """The logits of the neighbours alone, for an alignment with a `window`.

        Args:
            query: Tensor of shape `(batch, T, D)`.
            causal: bool. Whether a row is at the end of its window; otherwise it is in the middle, as
                `keras_synth.core.slices.reach` says.

        Returns:
            Tensor of shape `(batch, H, T, window)`, or `(H, 1, window)` if `depends_on_input` is `False`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no window.")

    def support(self, query_length, key_length, start_index=0, causal=False):
        """Where attention can ever go, as a bool tensor of shape `(H, T, S)`; `None` for everywhere.

        A row without any place to go gives zeros, as it does under every other mask. A mixture doesn't
        ask: there the logits of the other parts may lead elsewhere.

        Args:
            query_length: int or int tensor, `T`.
            key_length: int or int tensor, `S`.
            start_index: int or int tensor. The position of the first query.
            causal: bool. Whether no row may depend on tokens after its own.
        """
        if self.window is None:
            return None
        inside = keras.ops.ones((self.num_heads, query_length, self.window), dtype="bool")
        return place_windows(inside, start_index - reach(self.window, causal), key_length, fill=False)

    def has_table(self, causal):
        """Whether the logits of every sequence are a corner of one table, `(H, N, N)`.

        Then they may be computed once for all sequences. It is not so if they depend on the input, on the
        length of the sequence or on its padding.

        Args:
            causal: bool. Whether no row may depend on tokens after its own.
        """
        return False

    def resize(self, max_length):
        """Makes the same alignment for sequences of another length, without weights.

        Its weights are those of this one, cropped or extended at the end of their axes.

        Args:
            max_length: int. The longest sequence, for an alignment that has one.
        """
        config = self.get_config()
        if "max_length" in config:
            config["max_length"] = max_length
        return self.from_config(config)

    def call(self, query, keys=None, start_index=0, key_length=None, key_mask=None, causal=False):
        """Computes the logits of the query's rows.

        Args:
            query: Tensor of shape `(batch, T, D)`.
            keys: The result of `project_key`. Defaults to that of `query`.
            start_index: int or int tensor. The position of the first query, when the query is a
                part of a longer sequence, as in decoding with a cache.
            key_length: int or int tensor. The number of columns, `S`. Defaults to `T`.
            key_mask: bool tensor of shape `(batch, S)`, `False` for padding, whose content must not
                change the logits of other tokens.
            causal: bool. Whether no row may depend on tokens after its own.

        Returns:
            Logits of shape `(batch, H, T, S)`, or `(H, T, S)` if `depends_on_input` is `False`.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement `call`.")

    def compute_mask(self, inputs, previous_mask):
        return None  # logits are no sequence of tokens

    def get_config(self):
        return {**super().get_config(), "num_heads": self.num_heads}

    def _lengths(self, query, key_length):
        """`(T, S)`, checked against `max_length` as far as they are known."""
        query_length = keras.ops.shape(query)[1]
        key_length = query_length if key_length is None else key_length
        for length in (query_length, key_length):
            if self.max_length is not None and isinstance(length, int) and length > self.max_length:
                raise ValueError(
                    f"{type(self).__name__} '{self.name}' takes sequences of at most "
                    f"max_length={self.max_length} tokens. Received: a sequence of length {length}."
                )
        return query_length, key_length
