//! What a user can get wrong: each told in a sentence, with an exit code, before anything is made.

use std::fs;
use std::path::Path;

use allot_config::simulate::SimulateConfig;

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
    memory                about 231.6 MiB
      weights             0.6 MiB
      optimizer           2.3 MiB
      sampling            3.2 MiB
      activations         64.6 MiB
      saving              0.6 MiB
      rollouts at hand    0.2 MiB
      table of rollouts   0.1 MiB
      the program itself  160.0 MiB
    threads               2
    exit code 0
    "#);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1, "nothing is made");
}

#[test]
fn without_a_cache_the_shipped_model_lies_in_a_folder_of_the_user_s_alone() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let scratch = with(CONFIG);
    let temporary = scratch.path().join("tmp");
    fs::create_dir(&temporary).unwrap();
    let dry = || {
        let mut command = scratch.command(&["train", "run.toml", "--dry-run"]);
        for home in ["HOME", "XDG_CACHE_HOME", "ALLOT_CACHE"] {
            command.env_remove(home);
        }
        let done = command.env("TMPDIR", &temporary).output().unwrap();
        (done.status.success(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    assert!(dry().0);
    let folder = fs::read_dir(&temporary).unwrap().next().unwrap().unwrap().path();
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    let model = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();

    // What somebody changed there is put right, and what was put there goes.
    let weights = model.join("model.safetensors");
    let shipped = fs::read(&weights).unwrap();
    let mut changed = shipped.clone();
    changed[2000] ^= 1;
    fs::write(&weights, changed).unwrap();
    fs::write(model.join("chat_template.jinja"), "{{ 1 }}").unwrap();
    assert!(dry().0);
    assert_eq!(fs::read(&weights).unwrap(), shipped);
    assert!(!model.join("chat_template.jinja").exists());

    // A folder that others may write into, and one that is somewhere else.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let open = dry();
    fs::rename(&folder, scratch.path().join("elsewhere")).unwrap();
    fs::set_permissions(scratch.path().join("elsewhere"), fs::Permissions::from_mode(0o700)).unwrap();
    symlink(scratch.path().join("elsewhere"), &folder).unwrap();
    for (good, said) in [open, dry()] {
        assert!(!good && said.contains("is not private to this user"), "{said}");
        assert!(said.contains("`ALLOT_CACHE`"), "{said}");
    }
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
    error: policy `pods` refused its setting `keep`: must be at least 2: one rollout alone has no deviation to be measured by
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
    error: `run.toml` line 26, `[optimiser]`: unknown field `optimiser`, expected one of `run`, `budget`, `policy`, `advantage`, `engine`, `rollout_server`, `model`, `sampling`, `requests`, `update`, `optimizer`, `environment`, `reward`, `evaluation`, `checkpoint`, `data`, `tasks`, `compare`

    hint: did you mean `optimizer`?
    exit code 2
    ");
    insta::assert_snapshot!(wrong("grader = \"exact\"", "grader = \"exakt\""), @r#"
    error: `run.toml` line 24, `grader = "exakt"`: unknown variant `exakt`, expected one of `hendrycks`, `tinker`, `dapo-line`, `dapo-box`, `integer`, `choice`, `countdown`, `exact`, `number`, `math-verify` (needs math-verify: a Python that has it, or allot fetch math-verify), `command` (needs a program of yours), `functions` (needs python3 and a file of functions), `python` (needs CPython for Wasm: allot fetch python), `http` (needs a server), `component` (needs a component of yours: allot new --kind grader), `environment` (needs a Python with verifiers or reasoning-gym), `pattern`, `episode` (needs a section [environment])

    hint: did you mean `exact`?
    exit code 2
    "#);
    insta::assert_snapshot!(wrong("kind = \"sums\"", "kind = \"sum\""), @r#"
    error: `run.toml` line 38, `kind = "sum"`: unknown variant `sum`, expected one of `sums`, `products`, `chains`, `countdown`, `sorting`, `guess`, `calculator`

    hint: did you mean `sums`?
    exit code 2
    "#);
    insta::assert_snapshot!(wrong("\"tiny-sums\"", "\"tiny-sum\""), @"
    error: no model is called `tiny-sum`

    hint: did you mean `tiny-sums`?
    hint: give your own model by its path, as in `./mine`, or one on the hub as in `hub:org/name`
    exit code 2
    ");
    let values = [
        ("every = 2", "every = 0"),
        ("rollouts = 2", "rollouts = 0"),
        ("rollouts = 2", "rollouts = 2\nproblems = 0"),
        ("rollouts = 2", "rollouts = 2\nsampling = { max_tokens = 0 }"),
        ("rollouts = 2", "rollouts = 2\nsampling = { max_tokens = 9 }"),
        ("rollouts = 2", "rollouts = 2\nsampling = { max_tokens = 8, top_p = 1.5 }"),
        ("[[tasks]]", "[[evaluation.also]]\nname = \"a/b\"\n[[tasks]]"),
        ("[[tasks]]", "[[evaluation.also]]\nname = \"a\"\n[[evaluation.also]]\nname = \"a\"\n[[tasks]]"),
        ("[[tasks]]", "[[evaluation.also]]\nname = \"a\"\nrollouts = 0\n[[tasks]]"),
        ("[[tasks]]", "[[evaluation.also]]\nname = \"a\"\nsampling = { max_tokens = 9 }\n[[tasks]]"),
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
        ("[optimizer]", "[update]\nmini_batch = 64\nmini_batch_tokens = 4096\n[optimizer]"),
        ("[optimizer]", "[update]\ncorrection = 0.0\n[optimizer]"),
        ("[optimizer]", "[update]\nloss = { kind = \"grpo\", kl = -1.0 }\n[optimizer]"),
        ("[optimizer]", "[update]\nloss = { kind = \"grpo\", entropy = inf }\n[optimizer]"),
        ("[optimizer]", "[update]\nkeep_sampling_mask = true\n[optimizer]"),
        ("[reward]", "top_p = 0.9\n[update]\nkeep_sampling_mask = true\n[reward]"),
        ("rows = 64", "stop = [\"\"]"),
        ("rows = 64", "stop = [\"7<end>\"]"),
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
    let mut see = |what: &str, change: &dyn Fn(&Path)| {
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

/// What is said of a config with something typed on top of it.
fn typed(overrides: &[&str]) -> String {
    let scratch = with(CONFIG);
    let mut args = vec!["run.toml", "--dry-run"];
    args.extend(overrides.iter().flat_map(|o| ["-o", o]));
    told(&scratch, &args)
}

#[test]
fn a_list_is_no_section() {
    let list = wrong("[optimizer]\nlearning_rate = 2e-4", "[optimizer]\nlearning_rate = [1]");
    // serde's derive would take the first field, and leave out the rest.
    for section in ["optimizer", "checkpoint", "evaluation", "advantage", "update", "engine", "sampling"] {
        let said = typed(&[&format!("{section}=[1]")]);
        let what = "expected a section, whose values are given by key";
        assert!(said.contains(what) && said.ends_with("exit code 2"), "{section}: {said}");
    }
    let said = typed(&["evaluation.sampling=[1.0]"]);
    assert!(
        said.contains("`-o evaluation.sampling=[1.0]`: invalid type: list, expected a section"),
        "{said}"
    );
    let simulation = "[run]\nseed = 1\nsteps = 1\ngroups = 1\nrollouts = 2\n[budget]\nrollouts = 9\n[policy]\nuse = \"uniform\"\n";
    let world = SimulateConfig::parse(&format!("world = [4]\n{simulation}"), "run.toml").unwrap_err();
    assert_eq!(
        world.what,
        "`run.toml` line 1, `world = [4]`: invalid type: list, expected a section, whose values are given by key"
    );
    insta::assert_snapshot!(list);
}

#[test]
fn any_key_is_typed_on_top_of_a_config() {
    let scratch = with(CONFIG);
    let out = |name: &str, more: &[&str]| {
        let args: Vec<&str> = [&["run.toml", "--out", name][..], more].concat();
        let said = told(&scratch, &args);
        assert!(said.ends_with("exit code 0"), "{said}");
        (scratch.read(&format!("{name}/resolved.toml")), scratch.read(&format!("{name}/record.jsonl")))
    };
    let keys = [
        "run.steps=2",
        "optimizer.learning_rate=3e-5",
        "tasks.0.count=50",
        "policy.use=dapo",
        "run.name=mine",
    ];
    let overrides: Vec<&str> = keys.iter().flat_map(|key| ["-o", key]).collect();
    let typed = out("typed", &overrides);
    // As if it were written in the file.
    let written = CONFIG
        .replacen("steps = 6", "steps = 2\nname = \"mine\"", 1)
        .replacen("learning_rate = 2e-4", "learning_rate = 3e-5", 1)
        .replacen("count = 60", "count = 50", 1)
        .replacen("use = \"uniform\"", "use = \"dapo\"", 1);
    scratch.write("run.toml", written);
    assert_eq!(typed, out("written", &[]));
    assert!(typed.0.contains("learning_rate = 0.00003"), "{}", typed.0);
    assert!(typed.1.contains("\"name\":\"mine\""), "the record's head knows it");
}

#[test]
fn what_is_typed_is_checked_like_a_file() {
    let mut all: Vec<String> = vec![typed(&["optimizer.learning_rat=1e-5"])];
    all.push(typed(&["optimizer.learning_rate=fast"]));
    all.push(typed(&["optimizer.learning_rate=-1"]));
    all.push(typed(&["optimizer.lr=1e-5"]));
    all.push(typed(&["lr=1e-5"]));
    all.push(typed(&["optimizer.learning_rate"]));
    all.push(typed(&["run.seed=1", "run.seed=2"]));
    all.push(typed(&["tasks.3.count=2"]));
    all.push(typed(&["run.seed=2024-01-01"]));
    all.push(typed(&["run.steps=1\nseed=4"]));
    all.push(
        (told(&with(CONFIG), &["--resume", "out", "-o", "run.seed=1"]).lines().next().unwrap()).to_owned(),
    );
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn a_config_of_another_kind_is_told() {
    let mut all: Vec<String> = Vec::new();
    let simulation =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/simulate.toml"));
    let scratch = with(&simulation.unwrap());
    all.push(told(&scratch, &["run.toml"]));
    let scratch = with(CONFIG);
    all.push(scratch.allot(&["simulate", "run.toml"]));
    all.push(scratch.allot(&["pretrain", "run.toml", "--out", "model"]));
    all.push(refused(&Scratch::new(), "[optimizer]\nlearning_rate = 1e-4\n"));
    all.push(wrong("\"tiny-sums\"", "\"HuggingFaceTB/SmolLM2-135M\""));
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn questions_in_words_are_no_questions_for_a_model_of_digits() {
    insta::assert_snapshot!(wrong("style = \"terse\"", "style = \"words\""));
}

#[test]
fn sizes_have_bounds() {
    let keys = [
        "model.lora={rank=99999999999,alpha=8.0}",
        "evaluation.rollouts=4294967295",
        "model.rows=9999999999",
        "tasks.0.count=1000000000000",
        "run.groups=4294967295",
        "update.epochs=4294967295",
        "update.micro_batch_tokens=99999999999",
        "model.threads=99999999999",
        "reward.overlong={buffer=2,penalty=-1.0}",
    ];
    let all: Vec<String> = keys.iter().map(|key| typed(&[key]).replace("\nexit code 2", "")).collect();
    insta::assert_snapshot!(all.join("\n"));
    // What would overflow, if it were not counted with room.
    let said = typed(&["optimizer.warmup=4294967295"]);
    assert!(said.ends_with("exit code 0"), "{said}");
}

#[test]
fn what_fits_into_no_machine_is_told_before_it_starts() {
    // The largest micro-batch: 4 TiB.
    let scratch = with(CONFIG);
    let huge = ["run.toml", "-o", "update.micro_batch_tokens=16777216", "-o", "model.threads=1"];
    let dry = told(&scratch, &[&huge[..], &["--dry-run"]].concat());
    if allot::memory::of_machine().is_some_and(|own| own < 100 << 30) {
        assert!(dry.contains("note: it would take about ") && dry.ends_with("exit code 0"), "{dry}");
        let said = told(&scratch, &huge);
        assert!(
            said.contains("error: it would take about ") && said.contains("but this machine has"),
            "{said}"
        );
        assert!(said.contains("`update.micro_batch_tokens`") && said.ends_with("exit code 2"), "{said}");
        assert!(!scratch.path().join("runs").exists());
    }
}

#[test]
fn a_config_without_an_end_is_none() {
    let mut all: Vec<String> = Vec::new();
    let scratch = Scratch::new();
    all.push(told(&scratch, &["/dev/zero"]));
    scratch.write("long.toml", format!("[run]\nseed = {}", "9".repeat(900_000)));
    let said = told(&scratch, &["long.toml"]);
    assert!(said.len() < 2000, "{} bytes", said.len());
    scratch.write(
        "long.jsonl",
        format!(
            "{{\"question\": \"{}\", \"answer\": \"2\"}}\n{{\"question\": \"1+1=\", \"answer\": \"2\"}}",
            "1+".repeat(1 << 20)
        ),
    );
    let tasks = CONFIG.find("[[tasks]]").unwrap();
    scratch.write("run.toml", format!("{}[[data]]\nfiles = \"long.jsonl\"\n", &CONFIG[..tasks]));
    all.push(
        (told(&scratch, &["run.toml", "--dry-run"])
            .lines()
            .filter(|l| l.starts_with("note: 1 p"))
            .collect::<Vec<_>>()
            .join("\n"))
        .clone(),
    );
    insta::assert_snapshot!(all.join("\n"));
}
