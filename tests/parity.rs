//! The decoder against transformers, over tiny checkpoints with recorded values: `ALLOT_TINY_MODELS`
//! names another folder of them. `ALLOT_EXPORTED` names a folder for what is exported here, which
//! `tests/cases/models/families.py --check` loads with transformers. Logits, hidden states, greedy tokens, token
//! log-probs, the clipped loss and every gradient.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use allot_engine::cpu::{Cpu, Setup};
use allot_engine::loss::{LossInputs, LossNormalization, part};
use allot_engine::model::{
    By, Checkpoint, Decoder, FAMILIES, Precision, Rope, Scaling, Shape, SpecialIds, token_log_probs,
};
use allot_engine::tensors::Tensors;
use allot_engine::{LossConfig, LossKind};
use candle_core::{DType, Device, IndexOp as _, Tensor};
use serde_json::json;

type Reference = HashMap<String, Tensor>;

fn folders() -> Vec<PathBuf> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/models");
    let folder = std::env::var_os("ALLOT_TINY_MODELS").map_or(default, PathBuf::from);
    let mut all: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("reference.safetensors").is_file())
        .collect();
    all.sort();
    assert!(!all.is_empty(), "{} holds no model with a reference", folder.display());
    all
}

/// The largest difference, over the size of what it is compared with.
fn difference(ours: &Tensor, theirs: &Tensor) -> f32 {
    assert_eq!(ours.dims(), theirs.dims());
    let scalar = |t: Tensor| t.flatten_all().unwrap().max(0).unwrap().to_scalar::<f32>().unwrap();
    let largest = scalar(theirs.abs().unwrap());
    scalar((ours - theirs).unwrap().abs().unwrap()) / largest.max(1e-3)
}

fn tokens(reference: &Reference, name: &str) -> Tensor {
    reference[name].to_dtype(DType::U32).unwrap()
}

fn rows(tokens: &Tensor) -> Vec<Vec<u32>> {
    tokens.to_vec2().unwrap()
}

#[test]
fn both_kinds_of_config_tell_the_same_shape() {
    for folder in folders() {
        let new = Shape::read(&folder.join("config.json")).unwrap();
        assert_eq!(new, Shape::read(&folder.join("config_v4.json")).unwrap(), "{}", folder.display());
        let checkpoint = Checkpoint::load(&folder, &Device::Cpu).unwrap();
        let numbers: usize = checkpoint.weights.values().map(|v| v.elem_count()).sum();
        assert_eq!(numbers, new.parameters());
    }
}

#[test]
fn the_decoder_computes_what_transformers_does() {
    for folder in folders() {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let checkpoint = Checkpoint::load(&folder, &Device::Cpu).unwrap();
        let reference =
            candle_core::safetensors::load(folder.join("reference.safetensors"), &Device::Cpu).unwrap();
        let decoder = Decoder::new(&checkpoint);
        let close = |ours: &Tensor, theirs: &Tensor, what: &str, bound: f32| {
            let d = difference(ours, theirs);
            println!("{name:<28} {what:<24} {d:.1e}");
            assert!(d < bound, "{name}: {what} differs by {d:e} of its largest value");
        };

        let ids = tokens(&reference, "input_ids");
        let output = decoder.forward(&ids).unwrap();
        close(&output.logits, &reference["logits"], "logits", 2e-5);
        for (i, hidden) in output.hidden.iter().enumerate() {
            close(hidden, &reference[&format!("hidden_{i}")], &format!("hidden_{i}"), 2e-5);
        }

        // The reference was told to give twelve tokens, none of them the end.
        let config: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(folder.join("config.json")).unwrap()).unwrap();
        let end = config["eos_token_id"].as_u64().unwrap() as usize;
        let mut row = rows(&ids).swap_remove(0);
        let greedy = rows(&tokens(&reference, "greedy_output_ids")).swap_remove(0);
        while row.len() < greedy.len() {
            let ids = Tensor::new(vec![row.as_slice()], &Device::Cpu).unwrap();
            let logits = decoder.forward(&ids).unwrap().logits;
            let mut last: Vec<f32> = logits.i((0, row.len() - 1)).unwrap().to_vec1().unwrap();
            last[end] = f32::NEG_INFINITY;
            let best = (0..last.len()).max_by(|a, b| last[*a].total_cmp(&last[*b])).unwrap();
            row.push(best as u32);
        }
        assert_eq!(row, greedy, "{name}: greedy tokens");
    }
}

#[test]
fn the_decoder_learns_what_transformers_does() {
    for folder in folders() {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let checkpoint = Checkpoint::load(&folder, &Device::Cpu).unwrap();
        let reference =
            candle_core::safetensors::load(folder.join("reference.safetensors"), &Device::Cpu).unwrap();
        let told: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(folder.join("reference.json")).unwrap()).unwrap();
        let number = |path: &str| told.pointer(path).and_then(serde_json::Value::as_f64).unwrap();

        let ids = tokens(&reference, "input_ids");
        let logits = Decoder::new(&checkpoint).forward(&ids).unwrap().logits;
        let log_probs = token_log_probs(&logits, &ids).unwrap();
        let d = difference(&log_probs, &reference["token_logp"]);
        assert!(d < 2e-5, "{name}: log-probs differ by {d:e}");

        let all = |name: &str| -> Vec<f32> { reference[name].flatten_all().unwrap().to_vec1().unwrap() };
        let (old, advantages, mask) = (all("old_logp"), all("advantages"), all("response_mask"));
        let new: Vec<f32> = log_probs.flatten_all().unwrap().to_vec1().unwrap();
        let config = LossConfig {
            clip_low: Some(number("/clip/low")),
            clip_high: Some(number("/clip/high")),
            dual_clip: Some(0.0),
            ..LossConfig::of(LossKind::Dapo)
        };
        let tokens = mask.iter().filter(|m| **m > 0.0).count();
        let over = LossNormalization { answers: 1, tokens, longest: tokens, correction: 1.0, steps: 1 };
        // Here each token has an advantage of its own.
        let (mut value, mut slopes) = (0.0, vec![0.0; new.len()]);
        for i in (0..new.len()).filter(|i| mask[*i] > 0.0) {
            let (new, old) = (&new[i..=i], &old[i..=i]);
            let told = LossInputs {
                by_token: &[],
                whole: 1,
                advantage: advantages[i].into(),
                new,
                old,
                sampled: old,
                reference: &[],
                entropies: &[],
            };
            let one = part(&config, told, over);
            value += one.value;
            slopes[i] = one.gradient.log_probs[0];
        }
        assert!(
            (value - number("/loss")).abs() < 1e-5,
            "{name}: the loss is {value}, not {}",
            number("/loss")
        );
        let slopes = Tensor::from_vec(slopes, log_probs.dims(), &Device::Cpu).unwrap();
        let loss = (log_probs * slopes).unwrap().sum_all().unwrap();

        let gradients = loss.backward().unwrap();
        let norms = told["grad_norms"].as_object().unwrap();
        assert_eq!(norms.len(), checkpoint.weights.len(), "{name}: a gradient for every weight");
        let (mut worst, mut held) = (0.0_f32, 0);
        for (weight, norm) in norms {
            let gradient = gradients
                .get(&checkpoint.weights[weight])
                .unwrap_or_else(|| panic!("{name}: {weight} has no gradient"));
            let ours =
                f64::from(gradient.sqr().unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap()).sqrt();
            let theirs = norm.as_f64().unwrap();
            assert!(
                (ours - theirs).abs() < 1e-4 * theirs.max(1e-3),
                "{name}: the gradient of {weight} has the norm {ours}, not {theirs}"
            );
            if let Some(expected) = reference.get(&format!("grad.{weight}")) {
                worst = worst.max(difference(gradient, expected));
                held += 1;
            }
        }
        println!("{name:<28} {held} gradients, worst {worst:.1e}");
        assert!(worst < 1e-4 && held > 10, "{name}: a gradient differs by {worst:e}");
    }
}

#[test]
fn a_broken_checkpoint_is_told_in_words() {
    let source = folders().into_iter().find(|f| f.ends_with("tiny-llama-tied")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(source.join(file), folder.path().join(file)).unwrap();
    }
    let load = || Checkpoint::load(folder.path(), &Device::Cpu).map(|_| ()).unwrap_err().to_string();
    let config = std::fs::read_to_string(source.join("config.json")).unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();

    write("config.json", config.replace("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3").as_bytes());
    assert!(load().starts_with("the checkpoint has no tensor `model.layers.2."), "{}", load());
    write(
        "config.json",
        config.replace("\"intermediate_size\": 160", "\"intermediate_size\": 99").as_bytes(),
    );
    assert!(load().contains("has the shape [160, 64]; the config makes it [99, 64]"), "{}", load());
    write("config.json", br#"{"model_type": "mamba"}"#);
    assert!(load().contains("config.json"), "{}", load());
    write("config.json", b"{");
    assert!(load().contains("config.json"), "{}", load());
    write("config.json", config.as_bytes());
    let whole = std::fs::read(source.join("model.safetensors")).unwrap();
    for cut in [0, 4, 100, whole.len() / 2, whole.len() - 1] {
        write("model.safetensors", &whole[..cut]);
        assert!(load().starts_with("could not read `"), "{}", load());
    }
    std::fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    assert!(load().starts_with("could not read `"), "{}", load());
}

/// Every scaling that is known, with every setting of it, by what transformers makes of it.
#[test]
fn rotary_embeddings_are_scaled_as_in_transformers() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/models/rope.json");
    let cases: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    for case in cases.as_array().unwrap() {
        let head = case["head"].as_u64().unwrap() as usize;
        let config = json!({
            "model_type": "llama", "vocab_size": 8, "hidden_size": 4 * head, "intermediate_size": 8,
            "num_hidden_layers": 1, "num_attention_heads": 4, "rms_norm_eps": 1e-6,
            "max_position_embeddings": 256, "rope_parameters": case["rope"],
        });
        let shape = Shape::parse(&config.to_string()).unwrap();
        let all = case["frequencies"].as_array().unwrap();
        let ours = shape.rope.frequencies(head);
        assert_eq!(ours.len(), all.len());
        for (ours, theirs) in ours.iter().zip(all) {
            let (ours, theirs) = (f64::from(*ours), theirs.as_f64().unwrap());
            assert!((ours / theirs - 1.0).abs() < 2e-6, "{}: {ours} {theirs}", case["rope"]);
        }
        let factor = case["factor"].as_f64().unwrap();
        assert!((f64::from(shape.rope.factor()) - factor).abs() < 1e-6, "{}", case["rope"]);
    }
}

/// What is exported is read again as it was, and by transformers: see the head of this file.
#[test]
fn what_is_exported_is_what_was_loaded() {
    let scratch = tempfile::tempdir().unwrap();
    let to = std::env::var_os("ALLOT_EXPORTED").map_or(scratch.path().to_owned(), PathBuf::from);
    let mut families = Vec::new();
    for folder in folders() {
        let checkpoint = Checkpoint::load(&folder, &Device::Cpu).unwrap();
        let to = to.join(folder.file_name().unwrap());
        checkpoint.export(&to, Precision::F32, &SpecialIds::default()).unwrap();
        let again = Checkpoint::load(&to, &Device::Cpu).unwrap();
        assert_eq!(again.shape, checkpoint.shape, "{}", folder.display());
        for (name, weight) in &checkpoint.weights {
            assert_eq!(difference(&again.weights[name], weight), 0.0, "{}: {name}", folder.display());
        }
        families.push(checkpoint.shape.family);
    }
    for family in FAMILIES {
        assert!(families.contains(&family), "{} has no checkpoint here", family.name);
    }
}

/// A config that says what nothing here knows is refused: it names the key and what it says.
#[test]
fn what_a_config_says_is_known_or_refused() {
    let of = |name: &str, changes: &[(&str, serde_json::Value)]| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/models").join(name);
        let text = std::fs::read_to_string(folder.join("config_v4.json")).unwrap();
        let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
        for (key, value) in changes {
            if *value == "gone" {
                config.as_object_mut().unwrap().remove(*key);
            } else {
                config[*key] = value.clone();
            }
        }
        Shape::parse(&config.to_string())
    };
    let refused: &[(&str, &str, serde_json::Value, &str)] = &[
        (
            "tiny-llama-tied",
            "rope_interleaved",
            json!(true),
            "`rope_interleaved` is true, and nothing is known",
        ),
        ("tiny-llama-tied", "partial_rotary_factor", json!(0.5), "`partial_rotary_factor` is 0.5"),
        ("tiny-llama-tied", "sliding_window", json!(64), "`sliding_window` is 64"),
        ("tiny-llama-tied", "attention_bias", json!(true), "it has biases"),
        ("tiny-llama-tied", "hidden_act", json!("gelu"), "`hidden_act` is `gelu`; only silu is known"),
        (
            "tiny-llama-tied",
            "layer_types",
            json!(["sliding_attention"]),
            "only full_attention is known for `llama`",
        ),
        (
            "tiny-llama-tied",
            "quantization_config",
            json!({"quant_method": "awq"}),
            "its weights are quantized (`awq`)",
        ),
        ("tiny-llama-tied", "model_type", json!("gemma3"), "`model_type` is `gemma3`; llama, qwen2,"),
        (
            "tiny-llama-tied",
            "rope_scaling",
            json!({"type": "longrope"}),
            "is of type `longrope`; default, linear,",
        ),
        (
            "tiny-llama-tied",
            "rope_scaling",
            json!({"type": "linear", "factor": 2.0, "x": 1}),
            "unknown field `x`",
        ),
        (
            "tiny-llama-tied",
            "rope_scaling",
            json!({"type": "linear", "factor": 0.0}),
            "`factor` of its rotary",
        ),
        (
            "tiny-llama-tied",
            "rope_scaling",
            json!({"type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5}),
            "heads that are rotated in part",
        ),
        (
            "tiny-llama-tied",
            "rope_parameters",
            json!({"full_attention": {}, "sliding_attention": {}}),
            "two tables, which is not known for `llama`",
        ),
        ("tiny-qwen2-tied", "use_sliding_window", json!(true), "sliding-window attention"),
        (
            "tiny-mistral",
            "sliding_window",
            json!("gone"),
            "it has no `sliding_window`, which a `mistral` needs",
        ),
        ("tiny-mistral", "sliding_window", json!(0), "`sliding_window` is 0; it is a whole number above 0"),
        ("tiny-smollm3-yarn", "no_rope_layers", json!([1]), "`no_rope_layers` has 1 of 2 layers"),
        ("tiny-smollm3-yarn", "no_rope_layers", json!([1, 2]), "`no_rope_layers` has 2, which is not known"),
        ("tiny-smollm3-yarn", "use_sliding_window", json!(true), "sliding-window attention"),
        (
            "tiny-granite-linear",
            "residual_multiplier",
            json!("much"),
            "`residual_multiplier` is \"much\"; it is a number",
        ),
        ("tiny-granite-linear", "num_local_experts", json!(8), "`num_local_experts` is 8"),
        ("tiny-olmo2-dynamic", "clip_qkv", json!(8.0), "`clip_qkv` is 8.0"),
        ("tiny-phi3", "partial_rotary_factor", json!(0.75), "heads that are rotated in part"),
        ("tiny-phi3", "rope_scaling", json!({"type": "yarn", "factor": 2.0}), "not known here for `phi3`"),
        (
            "tiny-qwen3-moe",
            "num_experts",
            json!("gone"),
            "it has no `num_experts`, which a `qwen3_moe` needs",
        ),
        ("tiny-qwen3-moe", "num_experts_per_tok", json!(7), "`num_experts_per_tok` is 7; it is from 1 to 6"),
        ("tiny-qwen3-moe", "decoder_sparse_step", json!(2), "some of its layers have no experts"),
        ("tiny-qwen3-moe", "mlp_only_layers", json!([0]), "some of its layers have no experts"),
        ("tiny-qwen3-moe", "norm_topk_prob", json!(1), "`norm_topk_prob` is 1; it is true or false"),
        (
            "tiny-qwen3-moe",
            "shared_expert_intermediate_size",
            json!(8),
            "`shared_expert_intermediate_size` is 8",
        ),
        ("tiny-gemma2", "head_dim", json!("gone"), "it has no `head_dim`, which a `gemma2` needs"),
        (
            "tiny-gemma2",
            "hidden_activation",
            json!("gelu"),
            "`hidden_activation` is `gelu`; only gelu_pytorch_tanh",
        ),
        ("tiny-gemma2", "layer_types", json!(["full_attention"]), "`layer_types` has 1 of 2 layers"),
        (
            "tiny-gemma3",
            "layer_types",
            json!(["full_attention", "chunked_attention"]),
            "has \"chunked_attention\"",
        ),
        ("tiny-gemma3", "use_bidirectional_attention", json!(true), "`use_bidirectional_attention` is true"),
    ];
    for (name, key, value, why) in refused {
        let told = of(name, &[(key, value.clone())]).unwrap_err();
        assert!(told.contains(why), "{name}, {key}: {told}");
    }
    // And what changes nothing is not in the way.
    for (key, value) in
        [("unheard_of", json!(null)), ("use_mrope", json!(false)), ("_any", json!(3)), ("top_p", json!(1))]
    {
        assert!(of("tiny-llama-tied", &[(key, value)]).is_ok(), "{key}");
    }
    let spread = of(
        "tiny-smollm3-yarn",
        &[("no_rope_layers", json!(null)), ("no_rope_layer_interval", json!("gone"))],
    );
    assert_eq!(spread.unwrap().variant.unrotated, [false, false], "each fourth layer");
    assert!(matches!(of("tiny-smollm3-yarn", &[]).unwrap().rope.scaling, Scaling::Yarn(_)));
    assert_eq!(
        of("tiny-gemma3", &[("rope_local_base_freq", json!("gone"))]).unwrap().variant.local,
        Some(Rope::plain(1e4))
    );
}

/// Where frequencies depend on how long a sequence is, a model would be another one past its context; and so it would be
/// past a sliding window, where none is computed.
#[test]
fn longer_sequences_than_can_be_computed_are_refused() {
    for folder in folders() {
        let checkpoint = Checkpoint::load(&folder, &Device::Cpu).unwrap();
        let shape = &checkpoint.shape;
        let (most, what) = shape.most(By::Cpu);
        assert_eq!((most, what), (shape.context, "context"));
        let dynamic = matches!(shape.rope.scaling, Scaling::Dynamic(_));
        for (longest, refused) in [(most, false), (most + 1, dynamic)] {
            let setup = Setup {
                precision: Precision::F32,
                threads: 1,
                longest,
                lora: None,
                reference: false,
                seed: 1,
            };
            let on_cpu = Cpu::new(&checkpoint, setup).err();
            let in_tensors = Tensors::new(&checkpoint, setup, &Device::Cpu).err();
            for error in [on_cpu, in_tensors] {
                let told = error.map(|e| e.to_string());
                let text =
                    format!("sequences have up to {longest} tokens, and the model's context has {most}");
                assert_eq!(told, refused.then_some(text), "{}", folder.display());
            }
        }
        let window = shape.variant.window.map(|window| (window, "sliding window"));
        assert_eq!(shape.most(By::Kernels), window.unwrap_or((most, what)));
    }
}

/// Kernels for a GPU are written for Llama and Qwen; a family that needs more is refused there.
#[test]
fn families_without_kernels_say_so() {
    let refused = folders().into_iter().filter_map(|folder| {
        let shape = Shape::read(&folder.join("config.json")).unwrap();
        Some((shape.family.name, shape.has_kernels().err()?))
    });
    let refused: Vec<_> = refused.collect();
    let names: Vec<&str> = refused.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["gemma2", "gemma3_text", "granite", "olmo2", "phi3", "qwen3_moe", "smollm3"]);
    assert_eq!(refused[0].1, "there are no kernels for what `gemma2` needs");
}

/// Configs with the sizes of published models, by how many parameters those are said to have.
#[test]
fn sizes_of_published_models_come_out() {
    let published: serde_json::Value =
        serde_json::from_str(include_str!("cases/models/published.json")).unwrap();
    for (name, model) in published.as_object().unwrap() {
        let shape = Shape::parse(&model["config"].to_string()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(shape.parameters() as u64, model["parameters"].as_u64().unwrap(), "{name}");
    }
}
