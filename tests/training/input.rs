//! What a user can get wrong: each told in a sentence, with an exit code, before anything is made.

use std::fs;

use super::{CONFIG, cut, model, told, with};
use crate::scratch::Scratch;

/// What is said of a config, for which no folder may be left behind.
fn refused(scratch: &Scratch, config: &str) -> String {
    scratch.write("run.toml", config);
    let said = told(scratch, &["run.toml"]);
    assert!(said.ends_with("exit code 2"), "{said}");
    assert!(!scratch.path().join("runs").exists(), "a failed start leaves no folder: {said}");
    said
}

fn wrong(from: &str, to: &str) -> String {
    let config = CONFIG.replacen(from, to, 1);
    assert_ne!(config, CONFIG, "{from}");
    refused(&Scratch::new(), &config)
}

#[test]
fn a_dry_run_says_what_would_run() {
    let scratch = with(CONFIG);
    let args = ["run.toml", "--dry-run", "--policy", "pilot-commit", "--set", "pilot=3"];
    insta::assert_snapshot!(told(&scratch, &args), @r#"
    model                 tiny-sums
      parameters          152128
      of them trained     152128
    problems              90 to train on
      held out            30 in `held-out`, 2 rollouts each
    policy                pilot-commit 0.1.0
                          pilot = 3
                          commit = 24
                          prompts = 0
                          solved-at-least = 0.125
                          failed-at-least = 0.25
                          evict-at = 1.0
                          sampling = "random"
                          max-off = 4
                          pilot-kept = 0
                          epoch-end = "keep"
                          ranks = 1
    budget                4000 rollouts, at most 6 steps
    answers               up to 8 tokens
    memory                about 70.1 MiB
      weights             0.6 MiB
      optimizer           2.3 MiB
      sampling            2.1 MiB
      activations         64.6 MiB
      saving              0.6 MiB
    threads               2
    exit code 0
    "#);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1, "nothing is made");
}

#[test]
fn a_dry_run_finds_what_a_run_would_refuse() {
    let scratch = with(CONFIG);
    // What the policy itself refuses; and a model whose weights are not even there.
    model(&scratch);
    fs::remove_file(scratch.path().join("mine/model.safetensors")).unwrap();
    scratch.write("run.toml", CONFIG.replace("\"tiny-sums\"", "\"./mine\""));
    let refused = told(&scratch, &["run.toml", "--dry-run", "--policy", "pods", "--set", "keep=0"]);
    insta::assert_snapshot!(refused, @"
    error: policy `pods` refused its setting `keep`: there must be a rollout to train on
    exit code 2
    ");
    assert_eq!(told(&scratch, &["run.toml", "--policy", "pods", "--set", "keep=0"]), refused);
}

#[test]
fn keys_and_values_that_make_no_sense_are_told() {
    insta::assert_snapshot!(wrong("learning_rate", "learning_rat"), @"
    error: `run.toml` line 27, `learning_rat = 2e-4`: unknown field `learning_rat`, expected one of `learning_rate`, `beta1`, `beta2`, `epsilon`, `weight_decay`, `max_norm`, `warmup`, `schedule`, `final_share`

    hint: did you mean `learning_rate`?
    exit code 2
    ");
    insta::assert_snapshot!(wrong("[optimizer]", "[optimiser]"), @"
    error: `run.toml` line 26, `[optimiser]`: unknown field `optimiser`, expected one of `run`, `budget`, `policy`, `advantage`, `engine`, `rollouts`, `model`, `rollout`, `update`, `optimizer`, `reward`, `evaluation`, `checkpoint`, `data`, `tasks`, `compare`

    hint: did you mean `optimizer`?
    exit code 2
    ");
    insta::assert_snapshot!(wrong("grader = \"exact\"", "grader = \"exakt\""), @r#"
    error: `run.toml` line 24, `grader = "exakt"`: unknown variant `exakt`, expected one of `hendrycks`, `tinker`, `dapo-line`, `dapo-box`, `integer`, `choice`, `countdown`, `exact`, `number`, `math-verify`, `command`

    hint: did you mean `exact`?
    exit code 2
    "#);
    insta::assert_snapshot!(wrong("kind = \"sums\"", "kind = \"sum\""), @r#"
    error: `run.toml` line 38, `kind = "sum"`: unknown variant `sum`, expected one of `sums`, `products`, `chains`, `countdown`, `sorting`

    hint: did you mean `sums`?
    exit code 2
    "#);
    insta::assert_snapshot!(wrong("\"tiny-sums\"", "\"tiny-sum\""), @"
    error: no model is called `tiny-sum`

    hint: did you mean `tiny-sums`?
    hint: a model of your own is given by its path, as in `./mine`, one of the hub as in `hub:org/name`
    exit code 2
    ");
    let values = [
        ("every = 2", "every = 0"),
        ("rollouts = 2", "rollouts = 0"),
        ("rollouts = 2", "rollouts = 2\nproblems = 0"),
        ("rollouts = 2", "rollouts = 2\nsampling = { max_tokens = 0 }"),
        ("rollouts = 2", "rollouts = 2\nsampling = { max_tokens = 9 }"),
        ("rollouts = 2", "rollouts = 2\nsampling = { max_tokens = 8, top_p = 1.5 }"),
        ("every = 2 # checkpoint", "every = 0"),
        ("keep = 9", "keep = 0"),
        ("rows = 64", "rows = 0"),
        ("threads = 2", "threads = 0"),
        ("threads = 2", "threads = 10_000_000"),
        ("rows = 64", "lora = { rank = 0, alpha = 8.0 }"),
        ("rows = 64", "lora = { rank = 4, alpha = -1.0 }"),
        ("max_tokens = 8", "max_tokens = 0"),
        ("max_tokens = 8", "max_tokens = 8\ntemperature = -0.1"),
        ("max_tokens = 8", "max_tokens = 8\ntop_p = 0.0"),
        ("max_tokens = 8", "max_tokens = 1_000_000"),
        ("rows = 64", "max_prompt_tokens = 1_000_000"),
        ("learning_rate = 2e-4", "learning_rate = -1.0"),
        ("learning_rate = 2e-4", "learning_rate = nan"),
        ("[optimizer]", "[update]\nepochs = 0\n[optimizer]"),
        ("[optimizer]", "[update]\nmicro_batch_tokens = 0\n[optimizer]"),
        ("[optimizer]", "[update]\ncorrection = 0.0\n[optimizer]"),
        ("[optimizer]", "[update]\nloss = { kind = \"grpo\", kl = -1.0 }\n[optimizer]"),
        ("grader = \"exact\"", "grader = \"exact\"\nright = inf"),
        ("grader = \"exact\"", "grader = \"exact\"\noverlong = { buffer = 9, penalty = 1.0 }"),
        ("held_out = 0.2", "held_out = 1.0"),
        ("count = 60", "count = 0"),
        ("[[tasks]]", "[[evaluation.sets]]\nfiles = []\n[[tasks]]"),
    ];
    let all: Vec<String> = values
        .iter()
        .map(|(from, to)| wrong(from, to).lines().filter(|l| !l.is_empty()).collect::<Vec<_>>().join("\n"))
        .map(|said| said.replace("\nexit code 2", ""))
        .collect();
    insta::assert_snapshot!("values_that_make_no_sense", all.join("\n"));
    let nothing = CONFIG.split("[[tasks]]").next().unwrap();
    insta::assert_snapshot!(refused(&Scratch::new(), nothing), @"
    error: `run.toml` has no problems to train on

    hint: add a [[tasks]] or a [[data]] section
    exit code 2
    ");
}

#[test]
fn a_model_that_can_not_be_loaded_is_told() {
    let scratch = Scratch::new();
    let config = CONFIG.replace("\"tiny-sums\"", "\"./mine\"");
    let mut all = Vec::new();
    let mut see = |what: &str, change: &dyn Fn(&std::path::Path)| {
        let mine = scratch.path().join("mine");
        let _ = fs::remove_dir_all(&mine);
        let _ = fs::remove_file(&mine);
        model(&scratch);
        change(&mine);
        all.push(format!("--- {what}\n{}", refused(&scratch, &config)));
    };
    let edit = |path: std::path::PathBuf, from: &str, to: &str| {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{from}: {text}");
        fs::write(path, text.replacen(from, to, 1)).unwrap();
    };
    see("not there", &|mine| fs::remove_dir_all(mine).unwrap());
    see("no weights", &|mine| fs::remove_file(mine.join("model.safetensors")).unwrap());
    see("no config", &|mine| fs::remove_file(mine.join("config.json")).unwrap());
    see("no tokenizer", &|mine| fs::remove_file(mine.join("tokenizer.json")).unwrap());
    see("truncated weights", &|mine| cut(&mine.join("model.safetensors"), 1000));
    see("truncated header", &|mine| {
        fs::write(mine.join("model.safetensors"), [9, 0, 0]).unwrap();
    });
    see("foreign weights", &|mine| fs::write(mine.join("model.safetensors"), "PK no tensors").unwrap());
    see("pickled weights", &|mine| {
        fs::rename(mine.join("model.safetensors"), mine.join("pytorch_model.bin")).unwrap();
    });
    see("an unknown architecture", &|mine| {
        edit(mine.join("config.json"), "LlamaForCausalLM", "MambaForCausalLM");
        edit(mine.join("config.json"), "\"llama\"", "\"mamba\"");
    });
    see("another shape", &|mine| {
        edit(mine.join("config.json"), "\"num_hidden_layers\": ", "\"num_hidden_layers\": 1");
    });
    see("a config that is no JSON", &|mine| cut(&mine.join("config.json"), 9));
    see("a tokenizer that is no JSON", &|mine| cut(&mine.join("tokenizer.json"), 9));
    see("another model's tokenizer", &|mine| {
        let path = mine.join("tokenizer.json");
        let text = fs::read_to_string(&path).unwrap();
        let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
        json["model"]["vocab"]["far"] = 5000.into();
        fs::write(path, json.to_string()).unwrap();
    });
    see("a truncated GGUF file", &|mine| {
        fs::remove_dir_all(mine).unwrap();
        fs::write(mine, b"GGUF\x03\0\0\0\x07\0\0\0").unwrap();
    });
    see("a foreign file", &|mine| {
        fs::remove_dir_all(mine).unwrap();
        fs::write(mine, "PK\x03\x04 a zip file").unwrap();
    });
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn data_that_can_not_be_used_are_told() {
    let scratch = Scratch::new();
    let tasks = CONFIG.find("[[tasks]]").unwrap();
    let mut all = Vec::new();
    let mut see = |what: &str, bytes: &[u8], more: &str| {
        scratch.write("mine.jsonl", bytes);
        let config = format!("{}[[data]]\nfiles = \"mine.jsonl\"\n{more}", &CONFIG[..tasks]);
        all.push(format!("--- {what}\n{}", refused(&scratch, &config)));
    };
    let good = br#"{"question": "1+1=", "answer": "2"}"#;
    see("an empty file", b"", "");
    see("rows without the mapped columns", good, "question = \"prompt\"\nanswer = \"answer\"\n");
    see("rows of no known layout", br#"{"q": "1+1=", "a": "2"}"#, "");
    see("invalid UTF-8", b"{\"question\": \"1+1=\xff\xfe\", \"answer\": \"2\"}\n", "");
    see("no JSON", b"question,answer\n1+1=,2\n", "");
    see("a row without an answer", b"{\"question\": \"1+1=\", \"answer\": null}", "");
    see("prompts longer than the context", good, "template = \"{{ question * 100 }}\"\n");
    see("a share that is none", good, "held_out = 1.5\n");
    see("a file that is not there", good, "[[data]]\nfiles = \"none.jsonl\"\n");
    see("nothing left", good, "[[evaluation.sets]]\nfiles = \"mine.jsonl\"\n");
    see("messages without a template for them", good, "chat = true\n");
    see("an unknown format", good, "[[data]]\nfiles = \"run.toml\"\n");
    insta::assert_snapshot!(all.join("\n"));
}
