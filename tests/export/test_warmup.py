"""Requests by which a server warms up."""

import keras
import pytest
import tensorflow as tf

from keras_synth.export import export

prediction_log_pb2 = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")


def test_records_that_the_signatures_answer(make_task, tmp_path):
    model = make_task("classifier")
    tokens = [[1, 5, 7]]
    version = export(
        model,
        tmp_path / "topics",
        warmup=[
            {"text": ["one two", "b\u00e9\U0001f600"]},
            {"text": ["one"], "second_text": ["two"]},
            {"token_ids": tokens, "padding_mask": [[1, 1, 1]]},
        ],
    )
    signatures = tf.saved_model.load(version).signatures
    records = tf.data.TFRecordDataset(str(version / "assets.extra" / "tf_serving_warmup_requests"))
    seen = []
    for record in records.as_numpy_iterator():
        request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
        assert request.model_spec.name == "topics"
        inputs = {name: tf.constant(tf.make_ndarray(proto)) for name, proto in request.inputs.items()}
        answer = signatures[request.model_spec.signature_name](**inputs)
        seen.append((request.model_spec.signature_name, len(next(iter(answer.values())))))
    assert seen == [("classify", 2), ("classify_pair", 1), ("predict", 1)]


def test_a_request_that_fails_is_no_request_to_export(make_task, tmp_path):
    tokens = [[1] * 24]
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most max_length=23 tokens"):
        export(
            make_task("classifier"), tmp_path / "m", warmup=[{"token_ids": tokens, "padding_mask": tokens}]
        )
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    "warmup, message",
    [
        ([{"text": "a"}], r"`text` of a request in `warmup` must be a batch, of shape \(None,\)"),
        ([{"text": [["a"]]}], r"Received: text=\[\['a'\]\], of shape \(1, 1\)"),
        (["a"], "must be a dict from the inputs .* Received: 'a'"),
        ({"text": ["a"]}, "must be a dict from the inputs .* Received: 'text'"),
        ([{"text": [1, 2]}], r"must be string, without gaps. Received: text=\[1, 2\]"),
        ([{"text": ["a", ["b"]]}], "must be string, without gaps"),
        ([{"txt": ["a"]}], r"Received: a request with \['txt'\]; the signatures are predict: \['text'\]"),
    ],
)
def test_what_is_no_batch(warmup, message, tmp_path):
    text = keras.Input((), dtype="string", name="text")
    model = keras.Model(text, keras.layers.StringLookup(vocabulary=["one"], name="place")(text))
    with pytest.raises(ValueError, match=message):
        export(model, tmp_path / "m", warmup=warmup)
    assert not (tmp_path / "m").exists()
