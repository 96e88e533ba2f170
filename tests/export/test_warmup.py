"""Requests by which a server warms up."""

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
