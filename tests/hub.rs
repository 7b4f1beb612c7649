//! Models and data sets by name, against a hub of our own on the loopback: the routes and headers that
//! huggingface.co has, and what goes wrong with it.

#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use allot_base::Error;
use allot_engine::model::Checkpoint;
use allot_models::hub::{self, Hub};
use allot_models::tokens::Tokens;
use candle_core::Device;

const TOKEN: &str = "hf_secretsecretsecret";
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A hub in a thread, for as long as the test runs.
struct Server {
    address: String,
    /// Path and authorization of each request, in order.
    asked: Arc<Log>,
}

type Log = Mutex<Vec<(String, Option<String>)>>;
type Files = BTreeMap<String, Vec<u8>>;

/// What the hub holds: `models/tiny/llama`, with more files than a model needs; `models/tiny/gated`, for who
/// has the token; and `datasets/tiny/sums`.
fn holdings() -> BTreeMap<String, Files> {
    let mut model = Files::new();
    for entry in std::fs::read_dir(tiny()).unwrap().map(|entry| entry.unwrap()) {
        model.insert(entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap());
    }
    model.insert("onnx/model.onnx".to_owned(), vec![0; 10]);
    model.insert("original/model.safetensors".to_owned(), vec![0; 10]);
    model.insert("pytorch_model.bin".to_owned(), vec![0; 10]);
    let sums: Files = [
        "main/train-00000-of-00002.parquet",
        "main/train-00001-of-00002.parquet",
        "main/test.parquet",
        "README.md",
    ]
    .map(|name| (name.to_owned(), name.as_bytes().to_vec()))
    .into();
    let questions: Files = [
        ("main/train.jsonl".to_owned(), b"{\"question\": \"1+1=\", \"answer\": \"2\"}\n".repeat(3)),
        ("main/test.jsonl".to_owned(), b"{\"question\": \"2+2=\", \"answer\": \"4\"}\n".to_vec()),
    ]
    .into();
    let escape: Files = [("../../../escaped.parquet".to_owned(), vec![1])].into();
    let gguf: Files = [("model-q8.gguf".to_owned(), vec![1])].into();
    [
        ("models/tiny/llama", model.clone()),
        ("models/tiny/gated", model),
        ("models/tiny/gguf", gguf),
        ("datasets/tiny/sums", sums),
        ("datasets/tiny/escape", escape),
        ("datasets/tiny/questions", questions),
    ]
    .map(|(name, files)| (name.to_owned(), files))
    .into()
}

fn tiny() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cases/models/tiny-llama-tied")
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (held, log) = (Arc::new(holdings()), asked.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (held, log) = (held.clone(), log.clone());
                std::thread::spawn(move || while answer(&stream, &held, &log).is_some() {});
            }
        });
        Self { address, asked }
    }

    fn hub(&self, cache: &Path, token: Option<&str>) -> Hub {
        let token = token.map(str::to_owned);
        Hub { endpoint: self.address.clone(), cache: cache.to_owned(), token, offline: false }
    }

    /// How many requests there were for the bytes of files, not counting those for one byte.
    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|(path, _)| path.clone()).collect()
    }
}

/// Reads a request and answers it; nothing where the other side hung up.
fn answer(mut stream: &TcpStream, held: &BTreeMap<String, Files>, log: &Log) -> Option<()> {
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next()?.ok()?;
    let path = request.split(' ').nth(1)?.to_owned();
    let mut headers = BTreeMap::new();
    for line in lines.map_while(Result::ok).take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(": ")?;
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let authorization = headers.get("authorization").cloned();
    log.lock().unwrap().push((path.clone(), authorization.clone()));
    let may = authorization.as_deref() == Some(&format!("Bearer {TOKEN}"));

    let (status, extra, body) = reply(&path, &headers, may, held);
    let length = body.len();
    write!(stream, "HTTP/1.1 {status}\r\n{extra}Content-Length: {length}\r\n\r\n").ok()?;
    stream.write_all(&body).ok()
}

fn reply(
    path: &str,
    headers: &BTreeMap<String, String>,
    may: bool,
    held: &BTreeMap<String, Files>,
) -> (String, String, Vec<u8>) {
    let plain = |status: &str| (status.to_owned(), String::new(), Vec::new());
    if path.contains("/broken") {
        return plain("503 Service Unavailable");
    }
    if path.contains("/noise") {
        return ("200 OK".to_owned(), String::new(), b"<html>hello</html>".to_vec());
    }
    // `/api/models/org/name/revision/main`: what files there are.
    if let Some(rest) = path.strip_prefix("/api/") {
        let Some((repo, revision)) = rest.split_once("/revision/") else { return plain("400 Bad Request") };
        if repo.ends_with("/gated") && !may {
            return plain("401 Unauthorized");
        }
        let Some(files) = held.get(repo).filter(|_| ["main", "v1", COMMIT].contains(&revision)) else {
            return plain("404 Not Found");
        };
        let siblings: Vec<_> = files.keys().map(|name| serde_json::json!({"rfilename": name})).collect();
        let info = serde_json::json!({"sha": COMMIT, "siblings": siblings, "id": repo});
        return ("200 OK".to_owned(), String::new(), info.to_string().into_bytes());
    }
    // Large files are elsewhere.
    let (path, moved) = match path.strip_prefix("/cdn/") {
        Some(rest) => (format!("/{rest}"), true),
        None => (path.to_owned(), false),
    };
    // `/org/name/resolve/commit/file`: its bytes.
    let Some((repo, file)) = path.split_once(&format!("/resolve/{COMMIT}/")) else {
        return plain("404 Not Found");
    };
    let repo =
        repo.strip_prefix("/datasets/").map_or(format!("models{repo}"), |name| format!("datasets/{name}"));
    let Some(bytes) = held.get(&repo).and_then(|files| files.get(file)) else {
        return plain("404 Not Found");
    };
    let named =
        format!("X-Repo-Commit: {COMMIT}\r\nETag: \"{}-{}\"\r\n", file.replace('/', "-"), bytes.len());
    if file.ends_with(".safetensors") && !moved {
        return ("302 Found".to_owned(), format!("{named}Location: /cdn{path}\r\n"), Vec::new());
    }
    let range =
        headers.get("range").and_then(|range| range.strip_prefix("bytes=")).and_then(|r| r.split_once('-'));
    let (start, end) = range.map_or((0, bytes.len()), |(start, end)| {
        (start.parse().unwrap(), end.parse::<usize>().map_or(bytes.len(), |end| end + 1))
    });
    let part = bytes[start..end].to_vec();
    let extra = format!("{named}Content-Range: bytes {start}-{}/{}\r\n", end - 1, bytes.len());
    ("206 Partial Content".to_owned(), extra, part)
}

fn told(error: &Error) {
    assert!(!error.what.contains('\n') && !error.to_string().contains("secret"), "{error}");
    assert!(!error.hints.is_empty(), "{error}");
}

#[test]
fn a_model_comes_from_the_hub_once() {
    let (server, cache) = (Server::start(), tempfile::tempdir().unwrap());
    let hub = server.hub(cache.path(), None);
    let folder = hub.model("tiny/llama").unwrap();
    assert_eq!(folder, cache.path().join("models--tiny--llama/snapshots").join(COMMIT));
    for name in [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
        "model.safetensors",
    ] {
        assert!(
            std::fs::read(folder.join(name)).unwrap() == std::fs::read(tiny().join(name)).unwrap(),
            "{name}"
        );
    }
    for name in ["onnx", "original", "pytorch_model.bin", "reference.safetensors"] {
        assert!(!folder.join(name).exists(), "{name}");
    }
    let checkpoint = Checkpoint::load(&folder, &Device::Cpu).unwrap();
    Tokens::read(&folder).unwrap().fits(checkpoint.shape.vocabulary).unwrap();

    // Then only what there is is asked for, whether by branch, tag or commit.
    let before = server.asked().len();
    for id in ["tiny/llama", "tiny/llama@main", "tiny/llama@v1", &format!("tiny/llama@{COMMIT}")] {
        assert_eq!(hub.model(id).unwrap(), folder);
    }
    let after = server.asked().split_off(before);
    assert!(
        after.len() == 4 && after.iter().all(|path| path.starts_with("/api/models/tiny/llama/revision/")),
        "{after:?}"
    );

    // And offline nothing.
    let offline = Hub { offline: true, ..server.hub(cache.path(), None) };
    for id in ["tiny/llama", "tiny/llama@v1", &format!("tiny/llama@{COMMIT}")] {
        assert_eq!(offline.model(id).unwrap(), folder);
    }
    assert_eq!(server.asked().len(), before + 4);
    let missing = offline.model("tiny/gated").unwrap_err();
    told(&missing);
    assert!(missing.what.starts_with("`tiny/gated` is not in the cache `"), "{missing}");
}

#[test]
fn a_download_that_was_cut_off_goes_on() {
    let (server, cache) = (Server::start(), tempfile::tempdir().unwrap());
    let whole = std::fs::read(tiny().join("model.safetensors")).unwrap();
    let blobs = cache.path().join("models--tiny--llama/blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    let part = blobs.join(format!("model.safetensors-{}", whole.len())).with_extension("part");
    std::fs::write(part, &whole[..1000]).unwrap();
    let folder = server.hub(cache.path(), None).model("tiny/llama").unwrap();
    assert!(std::fs::read(folder.join("model.safetensors")).unwrap() == whole);
}

#[test]
fn files_of_a_data_set_come_by_pattern() {
    let (server, cache) = (Server::start(), tempfile::tempdir().unwrap());
    let hub = server.hub(cache.path(), None);
    let files = hub.dataset("tiny/sums", "main/train-*.parquet").unwrap();
    let texts: Vec<String> = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
    assert_eq!(texts, ["main/train-00000-of-00002.parquet", "main/train-00001-of-00002.parquet"]);
    assert_eq!(hub.dataset("tiny/sums", "*test*").unwrap().len(), 1);
    assert_eq!(hub.dataset("tiny/sums", "main/test.parquet").unwrap().len(), 1);
    let none = hub.dataset("tiny/sums", "train*").unwrap_err();
    assert_eq!(none.what, "no file of the data set `tiny/sums` matches `train*`");
    assert!(none.hints[0].starts_with("it has `main/test.parquet`, `main/train-"));

    let escape = hub.dataset("tiny/escape", "*").unwrap_err();
    assert!(escape.what.contains("names a file `../../../escaped.parquet`"), "{escape}");
}

#[test]
fn what_goes_wrong_is_told_and_never_with_the_token() {
    let (server, cache) = (Server::start(), tempfile::tempdir().unwrap());
    let place = &server.address;
    let hub = server.hub(cache.path(), Some(TOKEN));
    let wrong = |hub: &Hub, id: &str| {
        let error = hub.model(id).unwrap_err();
        told(&error);
        error.what
    };
    assert_eq!(wrong(&hub, "tiny/nothing"), format!("{place} has no `tiny/nothing`"));
    assert_eq!(wrong(&hub, "tiny/llama@v9"), format!("{place} has no `tiny/llama@v9`"));
    assert_eq!(wrong(&hub, "tiny/broken"), format!("{place} can't serve `tiny/broken` now (503)"));
    assert!(wrong(&hub, "tiny/noise").contains("sent an unexpected response"));
    assert_eq!(wrong(&hub, "tiny/gguf"), "`tiny/gguf` has no `config.json`");
    for bad in ["tiny", "/etc/passwd", "../up", "a/b/c", "tiny/", "tiny/x@", "tiny/x@../..", "tiny/x y", ""] {
        assert_eq!(wrong(&hub, bad), format!("`{bad}` is not a valid name on the hub"));
    }
    assert_eq!(wrong(&hub, "tiny/llama@refs/pr/1"), format!("{place} has no `tiny/llama@refs/pr/1`"));

    let gated = wrong(&server.hub(cache.path(), None), "tiny/gated");
    assert_eq!(gated, format!("{place} does not give `tiny/gated` to someone without a token (401)"));
    let stranger = wrong(&server.hub(cache.path(), Some("hf_secretother")), "tiny/gated");
    assert_eq!(stranger, format!("{place} does not give `tiny/gated` to the owner of this token (401)"));
    assert!(hub.model("tiny/gated").unwrap().join("model.safetensors").is_file());

    // Nobody listens there any more.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let unreachable = Hub { endpoint: format!("http://{gone}"), ..server.hub(cache.path(), Some(TOKEN)) };
    let error = wrong(&unreachable, "tiny/llama");
    assert!(error.starts_with(&format!("could not reach http://{gone} for `tiny/llama`: ")), "{error}");
}

/// Runs in a process of its own, below: what it is told comes from the environment.
#[test]
#[ignore = "run by the next test"]
fn child() {
    let folder = hub::model("tiny/gated").unwrap();
    std::fs::write(std::env::var_os("ALLOT_TEST_OUT").unwrap(), folder.to_str().unwrap()).unwrap();
}

#[test]
fn the_environment_names_hub_cache_and_token() {
    let (server, home) = (Server::start(), tempfile::tempdir().unwrap());
    let out = home.path().join("out");
    let run = |token: Option<&str>| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child", "--ignored", "--nocapture"]);
        for name in ["HF_TOKEN", "HF_HUB_CACHE", "HF_HUB_OFFLINE"] {
            command.env_remove(name);
        }
        command.env("HF_ENDPOINT", format!("{}/", server.address)).env("HF_HOME", home.path());
        command.env("ALLOT_TEST_OUT", &out).envs(token.map(|token| ("HF_TOKEN", token)));
        command.output().unwrap()
    };
    let refused = run(None);
    assert!(!refused.status.success() && !out.exists());
    let given = run(Some(TOKEN));
    assert!(given.status.success(), "{}", String::from_utf8_lossy(&given.stderr));
    let folder = home.path().join("hub/models--tiny--gated/snapshots").join(COMMIT);
    assert_eq!(std::fs::read_to_string(&out).unwrap(), folder.to_str().unwrap());
    // No bars, no token.
    for text in [&given.stdout, &given.stderr, &refused.stdout, &refused.stderr] {
        let text = String::from_utf8_lossy(text);
        assert!(!text.contains("secret") && !text.contains("B/s"), "{text}");
    }
    // What `huggingface-cli login` leaves behind serves as well.
    std::fs::remove_file(&out).unwrap();
    std::fs::write(home.path().join("token"), format!("{TOKEN}\n")).unwrap();
    assert!(run(None).status.success() && out.exists());
}

#[test]
fn a_run_takes_its_model_and_its_problems_from_the_hub() {
    let (server, home) = (Server::start(), tempfile::tempdir().unwrap());
    let config = r#"
        [run]
        seed = 1
        steps = 1
        groups = 1
        rollouts = 2
        [budget]
        rollouts = 2
        [policy]
        use = "uniform"
        [model]
        use = "hub:tiny/llama"
        threads = 1
        [sampling]
        max_tokens = 4
        [reward]
        grader = "exact"
        [[data]]
        files = "hub:tiny/questions/main/train.jsonl"
        [[evaluation.sets]]
        files = "hub:tiny/questions/main/test*"
    "#;
    let file = home.path().join("run.toml");
    std::fs::write(&file, config).unwrap();
    let told = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_allot"));
        command.arg("train").args(args).current_dir(home.path());
        command.env_remove("HF_TOKEN").env_remove("HF_HUB_CACHE").env_remove("HF_HUB_OFFLINE");
        let output =
            command.env("HF_ENDPOINT", &server.address).env("HF_HOME", home.path()).output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{err}");
        (out.into_owned(), err.into_owned())
    };
    let (out, err) = told(&["--dry-run", "run.toml"]);
    assert!(out.contains("1 to train on") && out.contains("1 in `test`"), "{out}");
    assert!(err.contains("2 of 3 rows"), "duplicates are told: {err}");
    // What a run was made of stays what it was, whatever its names mean later.
    told(&["run.toml", "--out", "run"]);
    let resolved = std::fs::read_to_string(home.path().join("run/resolved.toml")).unwrap();
    for pinned in [format!("hub:tiny/llama@{COMMIT}"), format!("hub:tiny/questions@{COMMIT}/main/")] {
        assert!(resolved.contains(&pinned), "{pinned}: {resolved}");
    }
    assert!(told(&["--resume", "run"]).1.contains("is over"), "{resolved}");
}
