"""A training step of a class that is no causal LM, by the oracle's means (ORACLE_HOME is its folder): the class that `architectures` names, with its
labels, TRL's and Trainer's task type for PEFT, and training.target_sequence for an encoder-decoder's labels.

    gpu python step_of_class.py run SPECS.jsonl > VECTORS.jsonl
    gpu python step_of_class.py trace SPEC.json SNAPSHOT.pickle
"""
import inspect, os, sys
HERE = os.environ["ORACLE_HOME"]
sys.path.insert(0, HERE)
import oracle, losses, model as hf, parallel

oracle.DEFAULTS["training"].update(target_sequence=None)

causal = hf.from_config
def from_config(spec):
    import torch, transformers
    named = hf.raw_config(spec["model"]).get("architectures")
    if not named or not hasattr(transformers, named[0]): return causal(spec)
    t = spec["training"]
    return getattr(transformers, named[0])._from_config(hf.config(spec), dtype=getattr(torch, t["weights"]), attn_implementation=t["attention"])
hf.from_config = from_config

def make_labels(spec, ids):
    import torch
    t, named = spec["training"], (hf.raw_config(spec["model"]).get("architectures") or [""])[0]
    cfg = hf.config(spec)
    if named.endswith("ForSequenceClassification"):
        kind = cfg.problem_type or ("regression" if cfg.num_labels == 1 else "single_label_classification")
        if kind == "regression": return torch.zeros(ids.shape[0] if cfg.num_labels == 1 else (ids.shape[0], cfg.num_labels), dtype=torch.float, device="cuda")
        if kind == "multi_label_classification": return torch.zeros(ids.shape[0], cfg.num_labels, dtype=torch.float, device="cuda")
        return torch.zeros(ids.shape[0], dtype=torch.long, device="cuda")
    if t["target_sequence"]: return torch.zeros(ids.shape[0], t["target_sequence"], dtype=torch.long, device="cuda")
    return torch.zeros_like(ids)

source = inspect.getsource(oracle.step)
old = "labels = torch.zeros_like(ids)"
assert old in source; source = source.replace(old, "labels = make_labels(spec, ids)")
oracle.make_labels = make_labels
exec(compile(source, oracle.__file__, "exec"), oracle.__dict__)

compute = losses.compute
def padded(model, reference, training, ids, inputs):
    """A model called with the words that are left, as TRL's and Trainer's collators call it."""
    if training["mask"] == "padded":
        import torch
        inputs = {**inputs, "attention_mask": torch.ones_like(ids)}
    return model(input_ids=ids, **({} if no_cache(model) else {"use_cache": False}), **inputs).loss
def no_cache(model):
    base = losses.unwrapped(model.module if hasattr(model, "module") else model)
    return "use_cache" not in inspect.signature(type(base).forward).parameters and not any("kwargs" == k for k in inspect.signature(type(base).forward).parameters)
losses.compute = padded
adapt = inspect.getsource(hf.adapt).replace('task_type="CAUSAL_LM"', 'task_type=task_type_of(model)')
def task_type_of(model):
    name = type(model).__name__
    return next((t for k, t in {"ForSequenceClassification": "SEQ_CLS", "ForTokenClassification": "TOKEN_CLS", "ForMaskedLM": None, "T5ForConditional": "SEQ_2_SEQ_LM"}.items() if k in name), "CAUSAL_LM" if hasattr(model, "prepare_inputs_for_generation") else None)
hf.task_type_of = task_type_of
exec(compile(adapt, hf.__file__, "exec"), hf.__dict__)

import loops
def item(t):
    import torch
    ids = torch.full((t["sequence"],), 2)
    spec, device = {"model": oracle.MODEL, "training": t}, "cpu"
    labels = make_labels(spec, torch.zeros(1, t["sequence"], dtype=torch.long)).cpu()[0]
    return {"input_ids": ids, "labels": labels, "attention_mask": torch.ones(t["sequence"], dtype=torch.long)}
loops.item_of = item
_settle = loops.settle_reads
def settle():
    """As for causal masks: without padding, asked and then answered so."""
    _settle()
    import transformers.masking_utils as M
    if hasattr(M, "_settled_bidirectional"): return
    M._settled_bidirectional = True; g = M._ignore_bidirectional_mask_sdpa
    def ignore(padding_mask, kv_length, local_attention_size=None):
        g(padding_mask, kv_length, local_attention_size)
        return local_attention_size is None or kv_length < local_attention_size
    M._ignore_bidirectional_mask_sdpa = ignore
loops.settle_reads = settle
_decoder = parallel.decoder
class Layers:
    def __init__(self, model):
        from transformers.modeling_layers import GradientCheckpointingLayer
        self.layers = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
def decoder(model):
    found = _decoder(model)
    return found if hasattr(found, "layers") else Layers(model)
parallel.decoder = decoder
src = inspect.getsource(loops.run_loop)
old = 'item = {"input_ids": torch.full((S,), 2), "labels": torch.full((S,), 2), "attention_mask": torch.ones(S, dtype=torch.long)}'
assert old in src
exec(compile(src.replace(old, "item = item_of(t)"), loops.__file__, "exec"), loops.__dict__)
_run = oracle.run
def run(spec, snapshot=None):
    oracle.MODEL = spec["model"]
    return _run(spec, snapshot)
oracle.run = run
oracle.__file__ = os.path.abspath(__file__)
if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    oracle.main()
