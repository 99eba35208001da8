"""Random configs of every family, counted by Transformers on the meta device and by `llmem parameters`.
    python tests/transformers/compare.py LLMEM FAMILIES.md --count 20 --seed 1 [--only llama,mamba]"""
import argparse, collections, dataclasses, inspect, json, random, re, subprocess, sys, warnings, logging
warnings.filterwarnings("ignore")
import torch, transformers
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
transformers.logging.set_verbosity_error()
logging.disable(logging.WARNING)

NOT = re.compile(r"(_token_id|_token_index|_token|_eps|_epsilon|initializer|_dropout|_pdrop|dropout_prob|use_cache|^dtype|torch_dtype|problem_type|id2label|label2id|return_dict|_from|chunk_size_feed|"
                 r"architectures|output_hidden|output_attentions|is_encoder|rope_theta|rms_norm|layer_norm_eps|loss|_coef|scor|summary|transformers_version|num_labels|is_decoder|add_cross|tokenizer|theta|_std|"
                 r"^eos|^bos|^pad|cross_attention_hidden|finetuning|task_specific|prefix|sub_configs|pretraining_tp|base_model|ignore_keys|attribute_map|keys_to|auto_class|has_no_defaults|name_or_path|fsdp|quantization|time_step|per_layer_config|reference_compile|use_kernels|attn_implementation|embd_pdrop|layerdrop|softmax_scale)")

def fields_of(cls):
    out = {}
    for f in dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else []:
        if f.name.startswith("_") or NOT.search(f.name): continue
        d = f.default if f.default is not dataclasses.MISSING else (f.default_factory() if f.default_factory is not dataclasses.MISSING else None)
        out[f.name] = (d, str(f.type))
    if not out:
        for n, p in inspect.signature(cls.__init__).parameters.items():
            if n in ("self", "kwargs") or NOT.search(n): continue
            out[n] = (p.default if p.default is not inspect.Parameter.empty else None, str(p.annotation))
    return out

LAYERS = re.compile(r"^(num_hidden_layers|n_layer|n_layers|num_layers|num_decoder_layers|encoder_layers|decoder_layers|depth|num_global_layers|decoder_num_layers)$")
ACTS = ["silu", "gelu", "relu", "gelu_new", "gelu_pytorch_tanh", "relu2"]

def value(r, name, default, kind, layers, heads, all_fields):
    """A random value, or KeyError for: leave out."""
    if LAYERS.match(name): return layers if name != "num_decoder_layers" else r.choice([layers, layers + 1])
    if name in ("layer_types", "layers_block_type", "layer_block_types", "mlp_layer_types", "hybrid_override_pattern", "layers_type"): return list_value(r, name, default, layers)
    if isinstance(default, bool) or kind == "bool" or "bool" in kind and default is None: return r.random() < .5
    if re.search(r"head", name) and re.search(r"kv|key_value|key_heads|n_groups|num_key", name) and not name.endswith("dim") and "int" in kind: return r.choice([1, 2, heads, heads])
    if re.search(r"^(num_attention_heads|n_head|n_heads|num_heads|encoder_attention_heads|decoder_attention_heads)$", name): return heads
    if name in ("hidden_size", "n_embd", "d_model", "dim", "word_embed_proj_dim", "embed_dim"): return heads * r.choice([8, 16, 24])
    if name in ("head_dim", "kv_channels", "d_kv", "attention_head_dim", "mamba_head_dim", "global_head_dim", "swa_head_dim"): return r.choice([8, 16, 24, 32] + ([None] if default is None or "None" in kind else []))
    if name in ("hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act", "activation", "hidden_activation_function", "dense_act_fn"): return r.choice(ACTS)
    if "layer" in name and isinstance(default, list) or isinstance(default, (list, dict, tuple)) or "dict" in kind and "int" not in kind or "list" in kind and not "int |" in kind: raise KeyError
    if isinstance(default, float) and not isinstance(default, bool) and "int" not in kind.replace("interval", ""):
        return r.choice([default, 0.5, 1.0, 0.25, 2.0])
    if isinstance(default, int) or "int" in kind:
        if re.search(r"experts_per_tok|top_k|topk|num_experts_per", name): return r.choice([1, 2])
        if re.search(r"n_group|topk_group", name): return 1
        if re.search(r"experts", name) and "shared" not in name: return r.choice([2, 4, 6, 8])
        if re.search(r"period|offset|interval|pattern|step|every|replace|max_window", name): return r.choice([0, 1, 2, 3] if "offset" in name or "replace" in name or "max_window" in name else [1, 2, 3])
        if re.search(r"window|position|seq_len|n_positions|n_ctx|chunk", name): return r.choice([16, 64, 100, default])
        if re.search(r"vocab", name): return r.choice([100, 128, 257])
        if default is None: return r.choice([None, 8, 16, 64])
        if not isinstance(default, int): raise KeyError
        if default <= 8: return r.choice([1, 2, 3, 4, default])
        return r.choice([8, 16, 24, 32, 48, 64, default])
    if isinstance(default, str): raise KeyError
    raise KeyError

def list_value(r, name, default, layers):
    if name == "layer_types": kinds = LAYER_KINDS.get(CURRENT[0], ["full_attention", "sliding_attention"])
    elif name in ("layers_block_type",): kinds = LAYER_KINDS.get(CURRENT[0], None)
    elif name == "mlp_layer_types": kinds = ["dense", "sparse"]
    else: raise KeyError
    if kinds is None: raise KeyError
    return [r.choice(kinds) for _ in range(layers)]
CURRENT = [""]
LAYER_KINDS = {"qwen3_next": ["full_attention", "linear_attention"], "qwen3_5_text": ["full_attention", "linear_attention"], "qwen3_5_moe_text": ["full_attention", "linear_attention"],
  "granitemoehybrid": ["mamba", "attention"], "lfm2": ["full_attention", "conv"], "minimax": ["full_attention", "linear_attention"], "zamba": ["mamba", "hybrid"],
  "nemotron_h": ["mamba", "attention", "moe", "mlp"], "jamba": ["mamba", "attention"]}

def nested(r, cls, heads, layers, p):
    config = {}
    for name, (default, kind) in fields_of(cls).items():
        if LAYERS.match(name): pass
        elif r.random() < p: continue
        if r.random() < .08 and (default is None or "None" in kind) and not LAYERS.match(name): config[name] = None; continue
        try: config[name] = value(r, name, default, kind, layers, heads, None)
        except KeyError: continue
    return config

def random_config(r, model_type):
    cls = CONFIG_MAPPING[model_type]
    CURRENT[0] = model_type
    layers, heads, p = r.choice([1, 2, 3, 4, 5]), r.choice([2, 4, 8]), r.choice([.1, .3, .6, .8])
    config = nested(r, cls, heads, layers, p)
    for sub, sub_cls in (getattr(cls, "sub_configs", None) or {}).items():
        if not isinstance(sub_cls, type) or sub_cls.__name__ == "AutoConfig": continue
        CURRENT[0] = getattr(sub_cls, "model_type", model_type)
        config[sub] = nested(r, sub_cls, r.choice([2, 4, 8]), layers, r.choice([.3, .6, .8]))
    fix(r, cls, config, heads)
    for sub in ("text_config",):
        if isinstance(config.get(sub), dict): fix(r, cls.sub_configs[sub], config[sub], heads)
    config["model_type"] = model_type
    return config

def fix(r, cls, config, heads):
    names = {f.name for f in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
    if "pad_token_id" in names: config["pad_token_id"] = None
    def width(k): return next((x for x in k if x in names), None)
    h, n, kv = width(["hidden_size", "n_embd", "d_model", "dim"]), width(["num_attention_heads", "n_head", "n_heads", "num_heads"]), width(["num_key_value_heads", "num_kv_heads"])
    if r.random() < .93:
        if n and h and (config.get(n) or config.get(h) or (kv and config.get(kv))):
            config[n] = heads
            config[h] = heads * r.choice([8, 16, 24])
            if kv: config[kv] = r.choice([x for x in (1, 2, heads) if heads % x == 0])
        if n and config.get(n) is None: config.pop(n, None)
    if "mamba_n_heads" in names and r.random() < .9:
        config["hidden_size"], config["mamba_expand"] = heads * 16, 2
        config["mamba_d_head"] = r.choice([8, 16]); config["mamba_n_heads"] = heads * 32 // config["mamba_d_head"]
        if "mamba_d_ssm" in names: config["mamba_d_ssm"] = heads * 32
        config["mamba_n_groups"] = r.choice([1, 2])
    if "num_heads" in names and "state_size" in names and r.random() < .9:
        config["hidden_size"], config["expand"] = heads * 16, 2
        config["head_dim"] = r.choice([8, 16]); config["num_heads"] = heads * 32 // config["head_dim"]; config["n_groups"] = r.choice([1, 2])
    if "attn_layer_offset" in names and "expert_layer_offset" in names:
        config["attn_layer_period"], config["attn_layer_offset"] = r.choice([(2, 1), (3, 1), (2, 0)])
        config["expert_layer_period"], config["expert_layer_offset"] = r.choice([(2, 1), (3, 1), (2, 0)])
    if "attention_types" in names:
        n = config.get("num_layers", 24); n = n + n % 2; config["num_layers"] = n; config["attention_types"] = [[["global", "local"], n // 2]]

def grouped(name): return ".".join("*" if p.isdigit() else p for p in name.split("."))

def count(config, model_class):
    raw = {k: v for k, v in config.items() if k not in ("architectures",)}
    cfg = AutoConfig.for_model(raw.pop("model_type"), **json.loads(json.dumps(raw)))
    with torch.device("meta"):
        cls = getattr(transformers, model_class, None)
        model = cls(cfg) if cls is not None else AutoModelForCausalLM.from_config(cfg)
    groups = collections.Counter()
    for n, p in model.named_parameters(): groups[(grouped(n), tuple(p.shape))] += 1
    return groups, sum(p.numel() for p in model.parameters())

def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("llmem"); ap.add_argument("families")
    ap.add_argument("--count", type=int, default=10); ap.add_argument("--seed", type=int, default=1); ap.add_argument("--only", default=""); ap.add_argument("--out", default="")
    ap.add_argument("--keep", default="")
    a = ap.parse_args()
    families = [tuple(c.strip() for c in line.split("|")[1:3]) for line in open(a.families) if line.startswith("| ") and "model_type" not in line]
    rows = []
    for mt, mc in families:
        if a.only and mt not in a.only.split(","): continue
        if mt not in CONFIG_MAPPING or not hasattr(transformers, mc) or (mt.endswith("_text") and "Conditional" in mc): continue
        r = random.Random(f"{a.seed}/{mt}")
        for i in range(a.count):
            config = random_config(r, mt)
            try: groups, total = count(config, mc); error = ""
            except Exception as e: groups, total, error = None, None, f"{type(e).__name__}: {str(e)[:150]}"
            rows.append((mt, mc, config, groups, total, error))
        print(mt, sum(1 for x in rows if x[0] == mt and not x[5]), "of", a.count, "built", file=sys.stderr, flush=True)
    text = "\n".join(json.dumps({"model": {"name": "x", "config": c}}) for _, _, c, _, _, _ in rows)
    answers = subprocess.run([a.llmem, "parameters"], input=text + "\n", capture_output=True, text=True).stdout.splitlines()
    assert len(answers) == len(rows), (len(answers), len(rows))
    kinds = collections.Counter(); seen = collections.defaultdict(list)
    kept = open(a.keep, "w") if a.keep else None
    for (mt, mc, c, groups, total, error), line in zip(rows, answers):
        ans = json.loads(line)
        if error:
            kinds[(mt, "both refuse" if not ans["ok"] else "HF refuses, we answer")] += 1
            if ans["ok"]: seen[(mt, "HF refuses: " + error[:110])].append((c, ""))
            continue
        if not ans["ok"]:
            text = "; ".join(p["message"] for p in ans["problems"])
            if "needs an even head_dim" in text or "cannot be shared out" in text: kinds[(mt, "no forward")] += 1; continue
            kinds[(mt, "FALSE REFUSAL")] += 1
            seen[(mt, "REFUSED: " + "; ".join(p["at"] + " " + p["message"][:140] for p in ans["problems"]))].append((c, ""))
            continue
        ours = collections.Counter({(g["name"], tuple(g["shape"])): 0 for g in ans["value"]["groups"]})
        for g in ans["value"]["groups"]: ours[(g["name"], tuple(g["shape"]))] += g["count"]
        if ours == groups:
            kinds[(mt, "exact")] += 1
            if kept: kept.write(json.dumps({"config": c, "total": total, "groups": [[n, list(s), k] for (n, s), k in groups.items()]}) + "\n")
        else:
            kinds[(mt, "DIFFERENT")] += 1
            d = [f"HF {n}{list(s)}x{groups[(n, s)]} ours x{ours.get((n, s), 0)}" for n, s in sorted(set(groups) | set(ours), key=str) if groups.get((n, s), 0) != ours.get((n, s), 0)]
            seen[(mt, "DIFF " + re.sub(r"\d+", "#", d[0])[:100])].append((c, "; ".join(d[:6])))
    for mt in dict.fromkeys(r[0] for r in rows): print(mt, {k: v for (m, k), v in kinds.items() if m == mt})
    print()
    for (mt, what), cs in seen.items():
        c, detail = min(cs, key=lambda x: len(json.dumps(x[0])))
        print(f"## {mt} x{len(cs)}: {what}\n   {detail}\n   {json.dumps(c)[:700]}")
main()
