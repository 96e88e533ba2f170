"""Alignments that are tables of weights: they do not look at the input."""

import keras
from keras import ops

from keras_synth.alignments.alignment import Alignment
from keras_synth.core.checks import check_positive_int
from keras_synth.core.initializers import PerHeadInitializer, fork
from keras_synth.core.projections import Projecting
from keras_synth.core.slices import cut


class TableAlignment(Alignment):
    """Base class of the alignments whose logits are made of weights alone.

    Args:
        num_heads: int. The number of attention heads, `H`.
        max_length: int. The longest sequence, `N`.
        trainable_alignment: bool. Whether the tables are trained. Fixed tables are saved too.
        alignment_initializer: Initializer of the tables, applied to each head by itself. Defaults to
            what `default_initializer` returns.
        alignment_regularizer: Regularizer of the tables. Defaults to `None`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.
    """

    reads = "nothing"
    depends_on_input = False

    def __init__(
        self,
        num_heads,
        max_length,
        trainable_alignment=True,
        alignment_initializer=None,
        alignment_regularizer=None,
        **kwargs,
    ):
        super().__init__(num_heads, **kwargs)
        self.max_length = check_positive_int(self, "max_length", max_length)
        self.trainable_alignment = trainable_alignment
        self.alignment_initializer = keras.initializers.get(alignment_initializer)
        self.alignment_regularizer = keras.regularizers.get(alignment_regularizer)

    def default_initializer(self):
        """The initializer of one head's table that is used where the user gives none."""
        raise NotImplementedError

    @property
    def default_stddev(self):
        """The standard deviation of logits at the start.

        Chosen by measurement: the held-out loss of two-layer models of width 128 after 300 steps on
        characters (tinyshakespeare), and after 200 steps of translation (Multi30k, English to German),
        by `benchmarks/initializers.py`. Zero is uniform averaging, where all heads start equal.

        | | 0 | 0.1 | 1 | 2 |
        | --- | --- | --- | --- | --- |
        | random | 3.190, 3.740 | 2.581, 3.600 | 2.725, 3.734 | 3.053 |
        | fixed random | 3.230, 3.714 | | 2.740, 3.700 | 3.101 |
        | factorized random | | 2.821, 3.675 | 2.867, 3.693 | 2.916 |
        """
        return 0.1 if self.trainable_alignment else 1.0

    def add_table(self, name, columns):
        """A `(H, N, columns)` table. It stays in float32 under mixed precision, as softmax does."""
        initializer = self.alignment_initializer or self.default_initializer()
        return self.add_weight(
            name=name,
            shape=(self.num_heads, self.max_length, columns),
            initializer=PerHeadInitializer(fork(initializer, name)),
            regularizer=self.alignment_regularizer if self.trainable_alignment else None,
            trainable=self.trainable_alignment,
            autocast=False,
        )

    def has_table(self, causal):
        return True

    def get_config(self):
        return {
            **super().get_config(),
            "max_length": self.max_length,
            "trainable_alignment": self.trainable_alignment,
            "alignment_initializer": keras.initializers.serialize(self.alignment_initializer),
            "alignment_regularizer": keras.regularizers.serialize(self.alignment_regularizer),
        }


@keras.saving.register_keras_serializable("keras_synth")
class RandomAlignment(TableAlignment):
    """The random synthesizer: one table of logits a head, trained or fixed.

    `B = R`, with `R` of shape `(H, N, N)`, cut to the length of the sequence. Section 3.1.2 of
    [Tay et al., 2021](https://arxiv.org/abs/2005.00743). `H N^2` parameters, none of them trained if
    `trainable_alignment` is `False`.

    Args:
        num_heads: int. The number of attention heads, `H`.
        max_length: int. The longest sequence, `N`.
        trainable_alignment: bool. Whether the table is trained. Defaults to `True`.
        alignment_initializer: Initializer of each head's `(N, N)` table. Defaults to a normal
            distribution with standard deviation 0.1, or 1 if the table is fixed.
        alignment_regularizer: Regularizer of the table. Defaults to `None`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Example:

    >>> import numpy as np
    >>> alignment = RandomAlignment(num_heads=2, max_length=16)
    >>> alignment(np.zeros((3, 5, 8))).shape
    TensorShape([2, 5, 5])
    """

    formula = "R"

    def default_initializer(self):
        return keras.initializers.RandomNormal(stddev=self.default_stddev)

    def build(self, query_shape, keys_shape=None):
        self.table = self.add_table("table", self.max_length)

    def call(self, query, keys=None, start_index=0, key_length=None, key_mask=None, causal=False):
        rows, columns = self._lengths(query, key_length)
        rows_of_table = cut(ops.convert_to_tensor(self.table), start_index, rows, axis=1)
        return cut(rows_of_table, 0, columns, axis=2)


@keras.saving.register_keras_serializable("keras_synth")
class FactorizedRandomAlignment(TableAlignment):
    """The factorized random synthesizer: a table of low rank a head, trained or fixed.

    `B = R1 R2^T`, with `R1` and `R2` of shape `(H, N, rank)`, cut to the length of the sequence.
    Section 3.1.3 of [Tay et al., 2021](https://arxiv.org/abs/2005.00743). `2 H N rank` parameters.

    Args:
        num_heads: int. The number of attention heads, `H`.
        max_length: int. The longest sequence, `N`.
        rank: int. The number of columns of a factor, `k` in the paper. Defaults to `8`.
        trainable_alignment: bool. Whether the factors are trained. Defaults to `True`.
        alignment_initializer: Initializer of each head's `(N, rank)` factors, which get numbers of
            their own. Defaults to a normal distribution such that the logits have standard deviation
            0.1, or 1 if the factors are fixed.
        alignment_regularizer: Regularizer of the factors. Defaults to `None`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Example:

    >>> import numpy as np
    >>> alignment = FactorizedRandomAlignment(num_heads=2, max_length=16, rank=4)
    >>> alignment(np.zeros((3, 5, 8))).shape
    TensorShape([2, 5, 5])
    """

    formula = "R1 R2^T"

    def __init__(
        self,
        num_heads,
        max_length,
        rank=8,
        trainable_alignment=True,
        alignment_initializer=None,
        alignment_regularizer=None,
        **kwargs,
    ):
        super().__init__(
            num_heads,
            max_length,
            trainable_alignment,
            alignment_initializer,
            alignment_regularizer,
            **kwargs,
        )
        self.rank = check_positive_int(self, "rank", rank)

    def default_initializer(self):
        return keras.initializers.RandomNormal(stddev=(self.default_stddev / self.rank**0.5) ** 0.5)

    def build(self, query_shape, keys_shape=None):
        self.query_factor = self.add_table("query_factor", self.rank)
        self.key_factor = self.add_table("key_factor", self.rank)

    def call(self, query, keys=None, start_index=0, key_length=None, key_mask=None, causal=False):
        rows, columns = self._lengths(query, key_length)
        query_factor = cut(ops.convert_to_tensor(self.query_factor), start_index, rows, axis=1)
        key_factor = cut(ops.convert_to_tensor(self.key_factor), 0, columns, axis=1)
        return ops.matmul(query_factor, ops.transpose(key_factor, (0, 2, 1)))

    def get_config(self):
        return {**super().get_config(), "rank": self.rank}


@keras.saving.register_keras_serializable("keras_synth")
class RoutedRandomAlignment(Projecting, TableAlignment):
    """Each token mixes the rows of a few random tables.

    `B_t = sum_k softmax(W x_t + b)_k R_k[t]` for each head, with `num_tables` tables `R_k` of shape
    `(N, N)`, cut to the length of the sequence. `H N^2 num_tables + D H num_tables` parameters, and
    `H num_tables` biases.

    Args:
        num_heads: int. The number of attention heads, `H`.
        max_length: int. The longest sequence, `N`.
        num_tables: int. The number of tables of each head. Defaults to `4`.
        trainable_alignment: bool. Whether the tables are trained. Defaults to `True`.
        alignment_initializer: Initializer of each `(N, N)` table. Defaults to a normal distribution with
            standard deviation 0.1, or 1 if the tables are fixed.
        alignment_regularizer: Regularizer of the tables. Defaults to `None`.
        **kwargs: `use_bias` and the initializers, regularizers and constraints of
            `keras.layers.Dense`, and keyword arguments of `keras.layers.Layer`.

    Example:

    >>> import numpy as np
    >>> alignment = RoutedRandomAlignment(num_heads=2, max_length=16, num_tables=3)
    >>> alignment(np.zeros((3, 5, 8))).shape
    TensorShape([3, 2, 5, 5])
    """

    formula = "softmax(W x) R"
    reads = "token"
    depends_on_input = True
    takes_scale = True

    def __init__(
        self,
        num_heads,
        max_length,
        num_tables=4,
        trainable_alignment=True,
        alignment_initializer=None,
        alignment_regularizer=None,
        **kwargs,
    ):
        super().__init__(
            num_heads=num_heads,
            max_length=max_length,
            trainable_alignment=trainable_alignment,
            alignment_initializer=alignment_initializer,
            alignment_regularizer=alignment_regularizer,
            **kwargs,
        )
        self.num_tables = check_positive_int(self, "num_tables", num_tables)

    def default_initializer(self):
        return keras.initializers.RandomNormal(stddev=self.default_stddev)

    def build(self, query_shape, keys_shape=None):
        self.router_dense = self.projection("btd,dhk->bthk", (self.num_heads, self.num_tables), "router")
        self.router_dense.build(query_shape)
        self.tables = [self.add_table(f"table_{k}", self.max_length) for k in range(self.num_tables)]

    def call(
        self, query, keys=None, start_index=0, key_length=None, key_mask=None, causal=False, scale=1.0
    ):
        rows, columns = self._lengths(query, key_length)
        shares = self.router_dense(query)
        shares = ops.softmax(ops.cast(shares, keras.backend.result_type(shares.dtype, "float32")))
        # The tables change less by a scale than the logits of each example would cost.
        tables = ops.stack([ops.convert_to_tensor(table) for table in self.tables], axis=1)
        tables = cut(cut(tables, start_index, rows, axis=2), 0, columns, axis=3)
        scale = ops.reshape(ops.cast(scale, shares.dtype), (-1, 1))
        shares, tables = (ops.cast(x, self.compute_dtype) for x in (shares * scale, tables))
        return ops.einsum("bthk,hkts->bhts", shares, tables)

    def has_table(self, causal):
        return False

    def get_config(self):
        return {**super().get_config(), "num_tables": self.num_tables}
