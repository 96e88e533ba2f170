"""Exports of every task, asked in a process that knows nothing of this library."""

import pathlib
import pickle
import re
import subprocess
import sys

import keras_hub
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_synth.export import export

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "support" / "server_program.py"
BATCHING = (ROOT / "examples" / "serving" / "batching_parameters.txt").read_text()
TEXTS = [
    b"one two",
    b"",
    b"three",
    b"six " * 500,
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 drei".encode(),
    "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 one".encode(),
    b"\xff\xfe three \xc3",
    b"four\x00five \x00",
    b"<s> </s> <pad> one",
]
TEXTS += [b" ".join(TEXTS[i % 3 : i % 3 + 1 + i % 2]) + b" one" * (i % 20) for i in range(64 - len(TEXTS))]
ROWS = [slice(0, 0), slice(0, 1), slice(1, 4), slice(0, 64)]
BATCHES = [TEXTS[rows] for rows in ROWS]


def strings(texts):
    """As Python strings: what is no UTF-8 is replaced, as the tokenizer does."""
    return [text.decode(errors="replace") for text in texts]


def array(texts):
    return np.array([*texts, None], object)[:-1]


def log_softmax(logits):
    logits = logits.astype("float64") - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def score(model, inputs, targets, mask):
    """The log-probability of the targets, by NumPy."""
    logits = np.array(model({name: np.array(ids) for name, ids in inputs.items()}))
    picked = np.take_along_axis(log_softmax(logits), np.array(targets)[..., None], -1)[..., 0]
    return np.where(np.array(mask), picked, 0.0).sum(-1)


@pytest.fixture(scope="module")
def translator(make_model, trained):
    model = make_model(dropout=0.0)
    model.set_weights(trained.get_weights())
    model.compile(sampler=keras_hub.samplers.BeamSampler(3), jit_compile=False)
    return model


@pytest.fixture(scope="module")
def exported(make_task, translator, file_tokenizer, tmp_path_factory):
    """The models, the folders of their exports, and those loaded."""
    folder = tmp_path_factory.mktemp("saved_models")
    tokenizer, vocabulary = file_tokenizer
    tasks = {task: make_task(task, tokenizer, seed=3) for task in ("classifier", "masked_lm", "causal_lm")}
    tasks["causal_lm"].compile(sampler="greedy", jit_compile=False)
    tasks["seq2seq_lm"] = translator
    tasks["backbone"] = translator.backbone
    labels = {"classifier": ["bad", "g\u00fct", "neutral"]}
    versions = {
        task: str(export(model, folder / task, labels=labels.get(task))) for task, model in tasks.items()
    }
    vocabulary.unlink()
    loaded = {task: tf.saved_model.load(version) for task, version in versions.items()}
    return tasks, versions, loaded


@pytest.fixture(scope="module")
def served(exported, tmp_path_factory):
    """The models, and a function that returns the four answers of their exports to a request."""
    (tasks, versions, _), folder = exported, tmp_path_factory.mktemp("jobs")
    rng = np.random.default_rng(0)
    tokens = {
        task: {
            tensor.name: rng.integers(1, 20, (4, 7), "int32")
            if "ids" in tensor.name
            else np.ones((4, 7), "int32")
            for tensor in model.inputs
        }
        for task, model in tasks.items()
    }
    jobs = [
        (versions[task], signature, {name: array(batch) for name in inputs})
        for task, signature, inputs in (
            ("classifier", "classify", ["text"]),
            ("classifier", "classify_pair", ["text", "second_text"]),
            ("masked_lm", "fill_mask", ["text"]),
            ("causal_lm", "generate", ["text"]),
            ("causal_lm", "score", ["text"]),
            ("seq2seq_lm", "generate", ["text"]),
            ("seq2seq_lm", "score", ["source", "target"]),
        )
        for batch in BATCHES
    ]
    masked = array([b"one <mask> three <mask>", b"<mask>", b"two"])
    jobs.append((versions["masked_lm"], "fill_mask", {"text": masked}))
    jobs += [
        (versions[task], signature, {name: ids[:rows] for name, ids in tokens[task].items()})
        for task, signature in (
            ("classifier", "predict"),
            ("masked_lm", "predict"),
            ("causal_lm", "predict"),
            ("causal_lm", "generate_tokens"),
            ("seq2seq_lm", "predict"),
            ("seq2seq_lm", "generate_tokens"),
            ("backbone", "predict"),
        )
        for rows in (4, 0)
    ]
    files = [folder / "jobs.pickle", folder / "answers.pickle"]
    files[0].write_bytes(pickle.dumps(jobs))
    shown = subprocess.run(
        [sys.executable, "-I", PROGRAM, *files], check=True, cwd=folder, stdout=subprocess.PIPE
    ).stdout.decode()
    answers = list(zip(*pickle.loads(files[1].read_bytes()), strict=True))

    def ask(task, signature, number):
        """The inputs and the answers of the request with this number to a signature."""
        found = [i for i, job in enumerate(jobs) if job[:2] == (versions[task], signature)]
        return jobs[found[number]][2], answers[found[number]]

    return tasks, ask, shown


@pytest.mark.parametrize("number", range(len(BATCHES)))
@pytest.mark.parametrize(
    "task, signature",
    [
        ("classifier", "classify"),
        ("classifier", "classify_pair"),
        ("masked_lm", "fill_mask"),
        ("causal_lm", "generate"),
        ("causal_lm", "score"),
        ("seq2seq_lm", "generate"),
        ("seq2seq_lm", "score"),
    ],
)
def test_loaders_and_threads_agree_and_batches_keep_their_size(served, task, signature, number):
    _, ask, _ = served
    _, answers = ask(task, signature, number)
    for name, value in answers[0].items():
        assert len(value) == len(BATCHES[number])
        for other in answers[1:]:
            if value.dtype == np.float32:
                np.testing.assert_allclose(other[name], value, rtol=1e-4, atol=1e-4)
            else:
                np.testing.assert_array_equal(other[name], value)
        if value.dtype == object:
            assert all(text.decode() is not None for text in value)  # valid UTF-8, which JSON needs


@pytest.mark.parametrize("second", [False, True])
def test_classifier(served, second):
    tasks, ask, _ = served
    model = tasks["classifier"]
    for number in (1, 2, 3):
        _, (answer, *_) = ask("classifier", "classify_pair" if second else "classify", number)
        texts = strings(BATCHES[number])
        inputs = model.preprocessor((texts, texts), y=None) if second else model.preprocessor(texts)
        logits = np.array(model({name: np.array(x) for name, x in inputs.items()}))
        scores = np.exp(log_softmax(logits))
        np.testing.assert_allclose(answer["scores"], scores, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(answer["score"], scores.max(-1), rtol=1e-4, atol=1e-5)
        labels = ["bad", "g\u00fct", "neutral"]
        assert [label.decode() for label in answer["label"]] == [labels[i] for i in scores.argmax(-1)]
        lengths = np.array([len(model.preprocessor.tokenizer(text)) for text in texts])
        room = 19 - 3 if second else 19 - 2
        np.testing.assert_array_equal(answer["truncated"], lengths * (1 + second) > room)


def test_causal_lm(served):
    tasks, ask, _ = served
    model, texts = tasks["causal_lm"], strings(TEXTS)
    expected = model.generate(texts)
    inputs, targets, mask = model.preprocessor(texts)
    expected_score = score(model, inputs, targets, mask)
    lengths = np.array([len(model.preprocessor.tokenizer(text)) for text in texts])
    for number, rows in enumerate(ROWS):
        _, (answer, *_) = ask("causal_lm", "generate", number)
        assert [text.decode() for text in answer["text"]] == expected[rows]
        _, (scored, *_) = ask("causal_lm", "score", number)
        np.testing.assert_allclose(scored["score"], expected_score[rows], rtol=1e-4)
        np.testing.assert_array_equal(scored["num_tokens"], np.array(mask).sum(-1)[rows])
        np.testing.assert_array_equal(answer["truncated"], lengths[rows] > 12)
        np.testing.assert_array_equal(scored["truncated"], lengths[rows] > 12)


def test_seq2seq_lm(served):
    tasks, ask, _ = served
    model, texts = tasks["seq2seq_lm"], strings(TEXTS)
    expected = model.generate(texts)
    inputs, targets, mask = model.preprocessor({"encoder_text": texts, "decoder_text": texts})
    expected_score = score(model, inputs, targets, mask)
    lengths = np.array([len(model.preprocessor.tokenizer(text)) for text in texts])
    for number, rows in enumerate(ROWS):
        _, (answer, *_) = ask("seq2seq_lm", "generate", number)
        assert [text.decode() for text in answer["text"]] == expected[rows]
        np.testing.assert_array_equal(answer["truncated"], lengths[rows] > 17)
        _, (scored, *_) = ask("seq2seq_lm", "score", number)
        np.testing.assert_allclose(scored["score"], expected_score[rows], rtol=1e-4)
        np.testing.assert_array_equal(scored["num_tokens"], np.array(mask).sum(-1)[rows])
        np.testing.assert_array_equal(scored["truncated"], lengths[rows] > 16)
    _, (answer, *_) = ask("seq2seq_lm", "generate", 1)
    assert answer["text"][0] == b"eins zwei"
    # The tokenizer gives the answer the tokens that were generated.
    inputs, targets, mask = model.preprocessor({"encoder_text": ["one two"], "decoder_text": ["eins zwei"]})
    np.testing.assert_allclose(answer["score"], score(model, inputs, targets, mask), rtol=1e-4)


def test_saved_model_cli_shows_the_signatures(served):
    shown = served[2]
    assert re.findall(r"signature_def\['(.*)'\]", shown) == [
        "__saved_model_init_op", "classify", "classify_pair", "predict", "serving_default",
    ]  # fmt: skip
    assert re.search(r"outputs\['truncated'\] tensor_info:\s+dtype: DT_BOOL\s+shape: \(-1\)", shown)
    # It lists the arguments of a function in any order.
    arguments = re.search(r"'classify_pair'\s+Named Argument #1\s+(\w+)\s+Named Argument #2\s+(\w+)", shown)
    assert set(arguments.groups()) == {"text", "second_text"}


def test_generated_tokens_have_the_score_of_what_was_generated(served):
    tasks, ask, _ = served
    for task, side in (("causal_lm", ""), ("seq2seq_lm", "decoder_")):
        inputs, (answer, *_) = ask(task, "generate_tokens", 0)
        ids, mask = answer[f"{side}token_ids"], answer[f"{side}padding_mask"]
        assert ids.dtype == mask.dtype == np.int32  # as `predict` takes them
        np.testing.assert_array_equal(ids, inputs[f"{side}token_ids"])  # prompts without room
        np.testing.assert_array_equal(answer["score"], 0.0)


def test_masked_lm(served):
    tasks, ask, _ = served
    model = tasks["masked_lm"]
    tokenizer = model.preprocessor.tokenizer
    request, (answer, *_) = ask("masked_lm", "fill_mask", len(BATCHES))
    mask = tokenizer.mask_token_id
    one, three, two = (list(tokenizer(text)) for text in ("one", "three", "two"))
    for row, tokens in enumerate(([*one, mask, *three, mask], [mask], two)):
        tokens = np.array([[tokenizer.start_token_id, *tokens, tokenizer.end_token_id]])
        positions = np.nonzero(tokens == mask)[1][None]
        if not positions.size:
            assert answer["score"][row] == 0.0 and answer["text"][row] == b"two"
            continue
        inputs = {"token_ids": tokens, "padding_mask": np.ones_like(tokens), "mask_positions": positions}
        log_probabilities = log_softmax(np.array(model(inputs)))[0]
        np.testing.assert_allclose(answer["score"][row], log_probabilities.max(-1).sum(), rtol=1e-4)
        tokens[0, positions[0]] = log_probabilities.argmax(-1)
        assert answer["text"][row].decode() == tokenizer.detokenize(tokens[0, 1:-1].tolist())
    assert not answer["truncated"].any()
    # Text without masks comes back, as far as it was not cut.
    _, (answer, *_) = ask("masked_lm", "fill_mask", 3)
    kept = ~answer["truncated"]
    assert kept.any() and not kept.all()
    for text, original, whole in zip(answer["text"], strings(TEXTS), kept, strict=True):
        assert not whole or text.decode() == tokenizer.detokenize(tokenizer(original))


@pytest.mark.parametrize("task", ["classifier", "masked_lm", "causal_lm", "seq2seq_lm", "backbone"])
def test_predict(served, task):
    tasks, ask, _ = served
    inputs, answers = ask(task, "predict", 0)
    _, empty = ask(task, "predict", 1)
    expected = tasks[task](inputs)
    if not isinstance(expected, dict):
        expected = {"logits": expected}
    for answer in answers:
        assert answer.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(answer[name], np.array(value), rtol=1e-4, atol=1e-4)
    for name, value in expected.items():
        assert empty[0][name].shape == (0, *value.shape[1:])


# Tokens that come out can go in


def signature(exported, task, name):
    function = exported[2][task].signatures[name]

    def ask(inputs):
        answer = function(**{key: tf.constant(value) for key, value in inputs.items()})
        return {key: value.numpy() for key, value in answer.items()}

    return ask


@pytest.mark.parametrize("task, side", [("causal_lm", ""), ("seq2seq_lm", "decoder_")])
def test_generated_tokens_are_inputs(exported, task, side):
    generate, predict = (signature(exported, task, name) for name in ("generate_tokens", "predict"))
    mask = np.array([[1, 1, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0, 0, 0]], "int32")
    prompt = {
        f"{part}{name}": values
        for part in {side, "encoder_" if side else ""}
        for name, values in (("token_ids", np.full_like(mask, 9) * mask), ("padding_mask", mask))
    }
    answer = generate(prompt)
    total = answer.pop("score")
    assert {value.dtype for value in answer.values()} == {np.dtype("int32")}
    inputs = {**prompt, **answer}
    log_probabilities = log_softmax(predict(inputs)["logits"])[:, :-1]
    picked = np.take_along_axis(log_probabilities, answer[f"{side}token_ids"][:, 1:, None], -1)[..., 0]
    made = answer[f"{side}padding_mask"][:, 1:] * (1 - mask[:, 1:])
    np.testing.assert_allclose(total, (picked * made).sum(-1), rtol=1e-4)
    # A prompt without room comes back.
    again = generate({**inputs, f"{side}padding_mask": np.ones_like(mask)})
    np.testing.assert_array_equal(again[f"{side}token_ids"], answer[f"{side}token_ids"])


@pytest.mark.parametrize("task, side", [("causal_lm", ""), ("seq2seq_lm", "decoder_")])
def test_generation_begins_with_a_token(exported, task, side):
    inputs = {tensor.name: np.ones((2, 3), "int32") for tensor in exported[0][task].inputs}
    inputs |= {f"{side}{name}": np.ones((2, 0), "int32") for name in ("token_ids", "padding_mask")}
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"`{side}token_ids` must be .* at least one"):
        signature(exported, task, "generate_tokens")(inputs)


# Requests that a server answers together


class Refused(Exception):
    """The server gives no answer."""


def merge(requests, pad):
    """What the batcher of TensorFlow Serving makes of requests: one, of all rows.

    It pads each tensor with the tensor's first element, or refuses tensors of unequal sizes.
    """
    merged = {}
    for name in requests[0]:
        tensors = [request[name] for request in requests]
        shapes = [tensor.shape[1:] for tensor in tensors]
        if len(set(shapes)) > 1:
            if not pad:
                raise Refused(f"The tensors {name} have different shapes, and padding is turned off.")
            longest = np.max(shapes, axis=0)
            tensors = [
                np.pad(
                    tensor,
                    [
                        (0, 0),
                        *((0, size - own) for own, size in zip(tensor.shape[1:], longest, strict=True)),
                    ],
                    constant_values=tensor.flat[0],
                )
                for tensor in tensors
            ]
        merged[name] = np.concatenate(tensors)
    return merged


def equal(answer, others):
    """Whether an answer is those of several requests, one after the other."""
    whole = {name: np.concatenate([other[name] for other in others]) for name in answer}
    return all(
        np.allclose(value, whole[name], rtol=1e-4, atol=1e-4)
        if value.dtype == np.float32
        else np.array_equal(value, whole[name])
        for name, value in answer.items()
    )


def token_requests(model, lengths):
    """Requests with tokens of these lengths, for a model's own inputs; positions are the first."""
    rng = np.random.default_rng(0)
    return [
        {
            tensor.name: np.ones((rows, length), "int32")
            if "mask" in tensor.name
            else rng.integers(5, 20, (rows, length), "int32")
            for tensor in model.inputs
        }
        for rows, length in zip((1, 2, 1), lengths, strict=True)
    ]


def pad_with_zeros(request, length):
    """As a client has to, which knows the largest length."""
    return {name: np.pad(value, [(0, 0), (0, length - value.shape[1])]) for name, value in request.items()}


SIGNATURES = [
    ("classifier", "classify"),
    ("classifier", "classify_pair"),
    ("classifier", "predict"),
    ("masked_lm", "fill_mask"),
    ("masked_lm", "predict"),
    ("causal_lm", "generate"),
    ("causal_lm", "score"),
    ("causal_lm", "predict"),
    ("causal_lm", "generate_tokens"),
    ("seq2seq_lm", "generate"),
    ("seq2seq_lm", "score"),
    ("seq2seq_lm", "predict"),
    ("seq2seq_lm", "generate_tokens"),
    ("backbone", "predict"),
]


def test_every_signature_is_asked_in_batches(exported):
    assert set(SIGNATURES) == {
        (task, name)
        for task, loaded in exported[2].items()
        for name in loaded.signatures
        if name != "serving_default"
    }


@pytest.mark.parametrize("task, name", SIGNATURES)
def test_requests_that_are_merged_have_the_answers_of_single_ones(exported, task, name):
    """By the parameters of the example, and as the documentation tells clients to ask."""
    pad = {"true": True, "false": False}[
        re.search(r"^pad_variable_length_inputs: (\w+)", BATCHING, re.M)[1]
    ]
    ask, model = signature(exported, task, name), exported[0][task]
    if name in ("predict", "generate_tokens"):
        requests = token_requests(model, [3, 7, 5])
        try:
            merged = merge(requests, pad)
        except Refused:
            # An error is no other answer. Padded by the client, they are one batch.
            requests = [pad_with_zeros(request, 8) for request in requests]
            merged = merge(requests, pad)
    else:
        texts = [array(TEXTS[:1]), array(TEXTS[1:4]), array([b"one <mask> two"])]
        inputs = {"classify_pair": ["text", "second_text"], "score": ["source", "target"]}
        names = inputs.get(name, ["text"]) if task != "causal_lm" else ["text"]
        requests = [dict.fromkeys(names, text) for text in texts]
        merged = merge(requests, pad)
    assert equal(ask(merged), [ask(request) for request in requests])


def test_padding_by_a_client_changes_no_answer_and_by_the_server_does(exported):
    ask = signature(exported, "classifier", "predict")
    requests = token_requests(exported[0]["classifier"], [3, 7, 5])
    alone = [ask(request) for request in requests]
    assert equal(ask(merge([pad_with_zeros(request, 9) for request in requests], pad=False)), alone)
    assert not equal(ask(merge(requests, pad=True)), alone)


# Operations

#: Of tensorflow-text, in 2.12, which TensorFlow Serving 2.17 to 2.19 contains, and in 2.20.
TEXT_OPERATIONS = {"SentencepieceOp", "SentencepieceTokenizeOp", "SentencepieceDetokenizeOp"}


@pytest.mark.parametrize("task", ["classifier", "masked_lm", "causal_lm", "seq2seq_lm", "backbone"])
def test_old_servers_have_all_operations(exported, task):
    folder = pathlib.Path(exported[1][task])
    graph = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    graph = graph.meta_graphs[0].graph_def
    operations = {node.op for node in graph.node}
    operations.update(node.op for function in graph.library.function for node in function.node_def)
    foreign = operations - set(dir(tf.raw_ops))
    assert foreign <= TEXT_OPERATIONS and not any("XLA" in name.upper() for name in operations)
    report = (folder / "assets.extra" / "report.md").read_text()
    assert "The oldest TensorFlow Serving that answers: 2.17." in report
