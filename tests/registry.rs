//! Policies by their addresses in registries, against a registry of our own on the loopback: what other
//! registries answer, what goes wrong with them, and what one that lies could try.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod scratch;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use allot_base::{Error, is_registry_address};
use allot_record::hex;
use allot_remote::registry::{Reference, fetch, push};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use scratch::Scratch;

const USER: &str = "someone";
const PASSWORD: &str = "pass:secretsecretsecret";
const TOKEN: &str = "secrettokensecrettoken";
const OCI: &str = "application/vnd.oci.image.manifest.v1+json";

/// A registry in a thread, until it is closed or the test ends.
struct Registry {
    address: String,
    shared: Arc<Shared>,
    door: Option<std::thread::JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// Blobs by `sha256:…`, manifests by `name:tag` and `name:sha256:…`, uploads by their path.
    held: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Method, path and authorization of each request, in order.
    asked: Mutex<Vec<(String, String, Option<String>)>>,
    manner: Mutex<Manner>,
    closed: Mutex<bool>,
}

/// How the registry behaves.
#[derive(Clone, Default, PartialEq)]
enum Manner {
    #[default]
    Plain,
    /// Wants to know who asks, in one of two ways.
    Basic,
    Bearer,
    /// Has blobs elsewhere.
    Elsewhere(String),
    /// Takes blobs only as a whole.
    Whole,
    /// Gives blobs bit by bit.
    Slow,
    /// Gives what nobody named.
    OtherManifest,
    OtherBlob,
    LongerBlob,
    EndlessBlob,
    /// Hangs up in the middle of a blob.
    Cut,
    /// Gives a token that no header can have.
    BadToken,
    /// Says this to everything under `manifests` or `blobs`.
    Status(&'static str, u16, &'static str),
}

impl Registry {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared::default());
        let inside = shared.clone();
        let door = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if *inside.closed.lock().unwrap() {
                    return;
                }
                let inside = inside.clone();
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(&stream);
                    while answer(&mut reader, &stream, &inside).is_some() {}
                });
            }
        });
        Self { address, shared, door: Some(door) }
    }

    fn behaves(&self, manner: Manner) {
        *self.shared.manner.lock().unwrap() = manner;
    }

    /// Puts a manifest under `it`, around its layers' media types and bytes; gives its reference.
    fn holds(&self, layers: &[(&str, &[u8])]) -> Reference {
        let mut held = self.shared.held.lock().unwrap();
        let mut told = Vec::new();
        for (kind, bytes) in layers {
            held.insert(digest(bytes), bytes.to_vec());
            told.push(json!({"mediaType": kind, "digest": digest(bytes), "size": bytes.len()}));
        }
        drop(held);
        self.holds_manifest(&manifest(&json!(told)))
    }

    fn holds_manifest(&self, manifest: &Value) -> Reference {
        let bytes = manifest.to_string().into_bytes();
        let digest = digest(&bytes);
        self.shared.held.lock().unwrap().insert(format!("it:{digest}"), bytes);
        Reference::parse(&format!("oci://{}/it@{digest}", self.address)).unwrap()
    }

    fn asked(&self) -> Vec<(String, String, Option<String>)> {
        self.shared.asked.lock().unwrap().clone()
    }

    fn paths(&self) -> Vec<String> {
        self.asked().into_iter().map(|(_, path, _)| path).collect()
    }

    fn close(mut self) {
        *self.shared.closed.lock().unwrap() = true;
        let _ = TcpStream::connect(&self.address);
        self.door.take().unwrap().join().unwrap();
    }
}

fn manifest(layers: &Value) -> Value {
    let config =
        json!({"mediaType": "application/vnd.wasm.config.v0+json", "digest": digest(b"{}"), "size": 2});
    json!({"schemaVersion": 2, "mediaType": OCI, "config": config, "layers": layers})
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(bytes)))
}

fn uniform() -> Vec<u8> {
    std::fs::read(scratch::root().join("policies/prebuilt/uniform.wasm")).unwrap()
}

/// Reads a request and answers it; nothing where either side hung up.
fn answer(reader: &mut BufReader<&TcpStream>, mut stream: &TcpStream, shared: &Shared) -> Option<()> {
    let line = |reader: &mut BufReader<&TcpStream>| {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        Some(line.trim_end().to_owned())
    };
    let request = line(reader)?;
    let mut words = request.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = BTreeMap::new();
    while let Some((name, value)) = line(reader)?.split_once(": ") {
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let mut body = vec![0; headers.get("content-length").map_or(0, |length| length.parse().unwrap())];
    reader.read_exact(&mut body).ok()?;
    let authorization = headers.get("authorization").cloned();
    shared.asked.lock().unwrap().push((method.clone(), path.clone(), authorization.clone()));
    if *shared.closed.lock().unwrap() {
        return None;
    }

    let manner = shared.manner.lock().unwrap().clone();
    let (status, extra, mut bytes) =
        reply(&method, &path, body, authorization.as_deref(), &manner, shared, headers.get("host")?);
    let blob = path.contains("/blobs/sha256:") && status == 200;
    if blob && manner == Manner::LongerBlob {
        bytes.extend([0; 1000]);
    }
    let length = if blob && manner == Manner::EndlessBlob { 1 << 40 } else { bytes.len() };
    write!(stream, "HTTP/1.1 {status} So\r\n{extra}Content-Length: {length}\r\n\r\n").ok()?;
    match manner {
        Manner::Cut if blob => {
            stream.write_all(&bytes[..bytes.len() / 2]).ok()?;
            let _ = stream.shutdown(std::net::Shutdown::Both);
            None
        }
        Manner::Slow if blob => {
            for part in bytes.chunks(bytes.len() / 5 + 1) {
                stream.write_all(part).ok()?;
                std::thread::sleep(Duration::from_millis(20));
            }
            Some(())
        }
        // Until the other side has enough of it.
        Manner::EndlessBlob if blob => {
            while stream.write_all(&[0; 1 << 14]).is_ok() {}
            None
        }
        _ => stream.write_all(&bytes).ok(),
    }
}

/// A status, further headers and a body.
fn reply(
    method: &str,
    path: &str,
    body: Vec<u8>,
    authorization: Option<&str>,
    manner: &Manner,
    shared: &Shared,
    host: &str,
) -> (u16, String, Vec<u8>) {
    let plain = |status| (status, String::new(), Vec::new());
    let at = |status, place: &str| (status, format!("Location: {place}\r\n"), Vec::new());
    let coded = |status, code: &str| {
        let told = json!({"errors": [{"code": code, "message": "no", "detail": {}}]});
        (status, String::new(), told.to_string().into_bytes())
    };
    let basic = authorization == Some(&format!("Basic {}", base64(&format!("{USER}:{PASSWORD}"))));
    if path.starts_with("/token?") {
        let token = if *manner == Manner::BadToken { "no\nheader" } else { TOKEN };
        let may = basic || *manner == Manner::BadToken;
        let given = json!({"token": token}).to_string().into_bytes();
        return if may { (200, String::new(), given) } else { plain(401) };
    }
    let challenge = match manner {
        Manner::Basic if !basic => Some("Basic realm=\"it\"".to_owned()),
        Manner::Bearer | Manner::BadToken if authorization != Some(&format!("Bearer {TOKEN}")) => {
            Some(format!("Bearer realm=\"http://{host}/token\",service=\"it\""))
        }
        _ => None,
    };
    if let Some(challenge) = challenge {
        return (401, format!("WWW-Authenticate: {challenge}\r\n"), Vec::new());
    }
    if path == "/v2/" {
        return plain(200);
    }
    if let Manner::Status(place, status, code) = manner
        && path.contains(&format!("/{place}/"))
    {
        return if code.is_empty() { plain(*status) } else { coded(*status, code) };
    }
    let mut held = shared.held.lock().unwrap();
    let rest = path.trim_start_matches("/v2/");
    if let Some((name, tag)) = rest.split_once("/manifests/") {
        if method == "PUT" {
            let digest = digest(&body);
            held.insert(format!("{name}:{tag}"), body.clone());
            held.insert(format!("{name}:{digest}"), body);
            return at(201, &format!("/v2/{name}/manifests/{digest}"));
        }
        return match held.get(&format!("{name}:{tag}")) {
            Some(_) if *manner == Manner::OtherManifest => {
                (200, String::new(), manifest(&json!([])).to_string().into())
            }
            Some(bytes) => (200, format!("Content-Type: {OCI}\r\n"), bytes.clone()),
            None => coded(404, "MANIFEST_UNKNOWN"),
        };
    }
    if method == "POST" && rest.ends_with("/blobs/uploads/") {
        let upload = format!("{path}{}", held.len());
        held.insert(upload.clone(), Vec::new());
        return at(202, &upload);
    }
    if method == "PATCH" {
        if *manner == Manner::Whole {
            return plain(200);
        }
        held.get_mut(path).unwrap().extend(body);
        return at(202, path);
    }
    if let Some((upload, said)) = path.split_once("?digest=").filter(|_| method == "PUT") {
        let mut bytes = held.remove(upload).unwrap();
        bytes.extend(body);
        assert_eq!(digest(&bytes), said.replace("%3A", ":"));
        held.insert(digest(&bytes), bytes);
        return at(201, "/v2/it");
    }
    match rest.split_once("/blobs/").and_then(|(_, digest)| held.get(digest)) {
        Some(_) if matches!(manner, Manner::Elsewhere(_)) => {
            let Manner::Elsewhere(other) = manner else { unreachable!() };
            at(307, &format!("http://{other}{path}"))
        }
        Some(bytes) if *manner == Manner::OtherBlob => {
            (200, String::new(), bytes.iter().map(|b| !b).collect())
        }
        Some(bytes) => (200, String::new(), bytes.clone()),
        None => coded(404, "BLOB_UNKNOWN"),
    }
}

fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for part in text.as_bytes().chunks(3) {
        let bits = part.iter().fold(0_u32, |bits, b| bits << 8 | u32::from(*b)) << (8 * (3 - part.len()));
        let digit = |i: usize| DIGITS[(bits >> (18 - 6 * i)) as usize & 63] as char;
        out.extend((0..4).map(|i| if i <= part.len() { digit(i) } else { '=' }));
    }
    out
}

/// The sentence of what went wrong: one line, with a hint.
fn told<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    let error = result.unwrap_err();
    assert!(!error.what.contains('\n') && !error.to_string().contains("secret"), "{error}");
    assert!(!error.to_string().contains("http://"), "{error}");
    error.what
}

fn files(folder: &Path) -> usize {
    std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .fold(0, |all, entry| if entry.path().is_dir() { all + files(&entry.path()) } else { all + 1 })
}

#[test]
fn what_is_pushed_is_fetched_once_and_then_kept() {
    let (server, cache) = (Registry::start(), tempfile::tempdir().unwrap());
    let component = uniform();
    let reference = push(&component, &format!("oci://{}/me/even:1.0", server.address)).unwrap();
    let again = push(&component, &format!("oci://{}/me/even", server.address)).unwrap();
    assert_eq!(reference, again, "the same component has the same digest");
    assert_eq!(Reference::parse(&reference.to_string()).unwrap(), reference);
    let held = server.shared.held.lock().unwrap().clone();
    assert_eq!(held["me/even:1.0"], held["me/even:latest"]);
    assert_eq!(digest(&held["me/even:1.0"]), format!("sha256:{}", reference.digest()));

    // As other tools have it.
    let manifest: Value = serde_json::from_slice(&held["me/even:1.0"]).unwrap();
    assert_eq!(manifest["mediaType"], OCI);
    assert_eq!(manifest["config"]["mediaType"], "application/vnd.wasm.config.v0+json");
    let layer =
        json!({"mediaType": "application/wasm", "digest": digest(&component), "size": component.len()});
    assert_eq!(manifest["layers"], json!([layer]));
    let config: Value =
        serde_json::from_slice(&held[manifest["config"]["digest"].as_str().unwrap()]).unwrap();
    assert_eq!((&config["architecture"], &config["os"]), (&json!("wasm"), &json!("wasip2")));
    assert_eq!(config["layerDigests"], json!([digest(&component)]));
    let exports = config["component"]["exports"].as_array().unwrap();
    assert!(exports[0].as_str().unwrap().starts_with("rollout:allocation/allocator@"), "{config}");

    assert!(fetch(&reference, Some(cache.path())).unwrap() == component);
    let before = server.asked().len();
    assert!(fetch(&reference, Some(cache.path())).unwrap() == component);
    assert_eq!(server.asked().len(), before, "nothing is asked for twice");
    assert!(fetch(&reference, None).unwrap() == component);
    assert!(server.asked().len() > before);

    // Others may be at the same address later, or nobody.
    let address = server.address.clone();
    server.close();
    assert!(fetch(&reference, Some(cache.path())).unwrap() == component);
    assert_eq!(told(fetch(&reference, None)), format!("could not reach {address}: connection refused"));
}

#[test]
fn a_component_goes_up_in_parts_or_as_a_whole() {
    let server = Registry::start();
    // More than a part: 4 MiB in a custom section.
    let mut large = uniform();
    large.extend([0, 0x86, 0x80, 0xc0, 0x02, 4]);
    large.extend(b"long");
    large.extend(vec![7; (5 << 20) + 1]);
    for manner in [Manner::Plain, Manner::Whole] {
        server.behaves(manner);
        let reference = push(&large, &format!("oci://{}/large", server.address)).unwrap();
        assert!(fetch(&reference, None).unwrap() == large);
        server.shared.held.lock().unwrap().clear();
    }
    let methods: Vec<String> = server.asked().into_iter().map(|(method, _, _)| method).collect();
    assert_eq!(methods.iter().filter(|method| *method == "PATCH").count(), 3 + 2);
    assert_eq!(told(push(b"\0asm\x01\0\0\0", "oci://127.0.0.1:1/x")), "the file to push is not a component");
}

#[test]
fn what_was_damaged_in_the_cache_is_fetched_anew() {
    let (server, cache) = (Registry::start(), tempfile::tempdir().unwrap());
    let reference = server.holds(&[("application/wasm", b"component")]);
    fetch(&reference, Some(cache.path())).unwrap();
    let kept = |digest: &str| cache.path().join("sha256").join(digest);
    let component = kept(&hex(&Sha256::digest(b"component")));
    let manifest = kept(reference.digest());
    assert_eq!(files(cache.path()), 2);
    for damaged in [&component, &manifest] {
        for bytes in ["", "compon", "another component"] {
            let whole = std::fs::read(damaged).unwrap();
            std::fs::write(damaged, bytes).unwrap();
            assert_eq!(fetch(&reference, Some(cache.path())).unwrap(), b"component");
            assert!(std::fs::read(damaged).unwrap() == whole);
        }
    }
    std::fs::write(&component, "damaged").unwrap();
    server.close();
    assert!(told(fetch(&reference, Some(cache.path()))).starts_with("could not reach "));
    assert!(!component.exists() && manifest.exists());

    // Where nothing can be kept, policies come all the same.
    let server = Registry::start();
    let reference = server.holds(&[("application/wasm", b"component")]);
    std::fs::write(cache.path().join("file"), "").unwrap();
    assert_eq!(fetch(&reference, Some(&cache.path().join("file"))).unwrap(), b"component");
}

#[test]
fn nothing_else_than_what_was_named_is_taken_or_kept() {
    let (server, cache) = (Registry::start(), tempfile::tempdir().unwrap());
    let reference = server.holds(&[("application/wasm", &[5; 10_000])]);
    let (place, blob) = (&server.address, digest(&[5; 10_000]));
    let other = |digest: &str| format!("{place} sent content that is not {digest}; nothing was kept");
    for (manner, wrong) in [
        (Manner::OtherManifest, other(&format!("sha256:{}", reference.digest()))),
        (Manner::OtherBlob, other(&blob)),
        (Manner::LongerBlob, other(&blob)),
        (Manner::EndlessBlob, other(&blob)),
    ] {
        server.behaves(manner);
        assert_eq!(told(fetch(&reference, Some(cache.path()))), wrong);
        assert_eq!(files(cache.path()), 0);
    }
    // A manifest that lies about the size.
    server.behaves(Manner::Plain);
    for size in [9_999, 10_001] {
        let layer = json!({"mediaType": "application/wasm", "digest": blob, "size": size});
        let reference = server.holds_manifest(&manifest(&json!([layer])));
        assert_eq!(told(fetch(&reference, Some(cache.path()))), other(&blob));
    }
    server.behaves(Manner::Cut);
    let cut = told(fetch(&reference, Some(cache.path())));
    assert!(cut.starts_with(&format!("the connection to {place} broke at `{blob}` of `it`: ")), "{cut}");
    assert_eq!(files(cache.path()), 0);

    // Slow is not wrong.
    server.behaves(Manner::Slow);
    assert_eq!(fetch(&reference, Some(cache.path())).unwrap(), [5; 10_000]);
}

#[test]
fn what_a_registry_says_is_told() {
    let server = Registry::start();
    let reference = server.holds(&[("application/wasm", b"component")]);
    let place = &server.address;
    let whole = format!("`it@sha256:{}`", reference.digest());
    let wrong = |at: &'static str, status: u16, code: &'static str| {
        server.behaves(Manner::Status(at, status, code));
        told(fetch(&reference, None))
    };
    let stranger =
        |thing: &str, status: u16| format!("{place} does not give {thing} to an anonymous user ({status})");
    assert_eq!(wrong("manifests", 404, ""), format!("{place} has no {whole}"));
    assert_eq!(wrong("manifests", 404, "MANIFEST_UNKNOWN"), format!("{place} has no {whole}"));
    assert_eq!(wrong("manifests", 404, "NAME_UNKNOWN"), format!("{place} has no `it`"));
    assert_eq!(wrong("manifests", 401, ""), stranger(&whole, 401));
    assert_eq!(wrong("manifests", 403, ""), stranger(&whole, 403));
    assert_eq!(wrong("manifests", 403, "DENIED"), stranger(&whole, 403));
    assert_eq!(wrong("manifests", 500, ""), format!("{place} can't serve {whole} now (500)"));
    assert_eq!(wrong("manifests", 429, "TOOMANYREQUESTS"), format!("{place} can't serve {whole} now (429)"));
    assert_eq!(wrong("manifests", 418, ""), format!("{place} refuses {whole} (418)"));
    let component = format!("`{}` of `it`", digest(b"component"));
    assert_eq!(wrong("blobs", 404, "BLOB_UNKNOWN"), format!("{place} has no {component}"));
    assert_eq!(wrong("blobs", 503, ""), format!("{place} can't serve {component} now (503)"));

    let put = |status: u16| {
        server.behaves(Manner::Status("blobs", status, ""));
        told(push(&uniform(), &format!("oci://{place}/it:1")))
    };
    assert_eq!(put(401), format!("{place} does not take `it:1` from an anonymous user (401)"));
    assert_eq!(put(500), format!("{place} can't serve `it:1` now (500)"));

    server.behaves(Manner::BadToken);
    assert_eq!(
        told(fetch(&reference, None)),
        format!("{place} does not answer like a registry when asked for `it`")
    );
    // `.invalid` is nobody's, by RFC 2606.
    let nowhere = Reference::parse(&format!("oci://no.invalid/it@{}", digest(b""))).unwrap();
    assert!(told(fetch(&nowhere, None)).starts_with("could not reach no.invalid: "));
}

#[test]
fn only_one_component_is_a_policy() {
    let server = Registry::start();
    let wrong = |manifest: &Value| {
        let reference = server.holds_manifest(manifest);
        let error = fetch(&reference, None).unwrap_err();
        error.what.replace(&format!("`{reference}` "), "")
    };
    let layer =
        |kind: &str, size: i64| json!({"mediaType": kind, "digest": digest(b"component"), "size": size});
    let wasm = layer("application/wasm", 9);
    let index =
        json!({"schemaVersion": 2, "manifests": [{"mediaType": OCI, "digest": digest(b""), "size": 1}]});
    assert_eq!(wrong(&index), "is an index of manifests, not one of them");
    assert_eq!(wrong(&manifest(&json!([]))), "has 0 layers with Wasm");
    let tar = layer("application/vnd.oci.image.layer.v1.tar+gzip", 9);
    assert_eq!(wrong(&manifest(&json!([tar]))), "has 0 layers with Wasm");
    assert_eq!(wrong(&manifest(&json!([wasm, wasm]))), "has 2 layers with Wasm");
    assert_eq!(wrong(&json!({"schemaVersion": 2})), "is not an image manifest");
    assert_eq!(wrong(&json!([1, 2])), "is not an image manifest");
    let less = manifest(&json!([layer("application/wasm", -1)]));
    assert_eq!(wrong(&less), "has a component of negative size");
    for digest in ["sha512:00", "sha256:00", "../../../up"] {
        let odd = json!({"mediaType": "application/wasm", "digest": digest, "size": 9});
        assert_eq!(wrong(&manifest(&json!([odd]))), "does not name its component by a sha256");
    }
    let large = wrong(&manifest(&json!([layer("application/wasm", 1 << 40)])));
    assert!(large.contains("has 1099511627776 bytes; expected at most "), "{large}");
    assert!(!server.paths().iter().any(|path| path.contains("/blobs/")), "refused before it is fetched");

    // The media type of older tools, and what else may lie beside a component.
    let older = "application/vnd.wasm.content.layer.v1+wasm";
    let reference = server.holds(&[("text/plain", b"licence"), (older, b"component")]);
    assert_eq!(fetch(&reference, None).unwrap(), b"component");
}

#[test]
fn on_a_runtime_as_elsewhere() {
    let server = Registry::start();
    let reference = server.holds(&[("application/wasm", b"component")]);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert_eq!(runtime.block_on(async { fetch(&reference, None) }).unwrap(), b"component");
}

#[test]
fn many_at_once_share_a_cache() {
    let (server, cache) = (Registry::start(), tempfile::tempdir().unwrap());
    let reference = server.holds(&[("application/wasm", &[5; 10_000])]);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(fetch(&reference, Some(cache.path())).unwrap(), [5; 10_000]));
        }
    });
    assert_eq!(files(cache.path()), 2);
}

#[test]
fn addresses_are_whole_or_refused() {
    let hex = "0123456789abcdef".repeat(4);
    for good in [
        "ghcr.io/me/policy",
        "localhost/x",
        "localhost:5000/x",
        "[::1]:5000/a/b/c",
        "[::1]/x",
        "10.0.0.1:80/a.b/c_d/e--f__g",
        "docker.io/library/x",
    ] {
        let text = format!("oci://{good}@sha256:{hex}");
        assert_eq!(Reference::parse(&text).unwrap().to_string(), text);
    }
    let wrong = |text: &str| {
        let error = Reference::parse(text).unwrap_err();
        assert!(!error.hints.is_empty(), "{error}");
        error.what.replace(&format!("`{text}` "), "")
    };
    assert_eq!(wrong(&format!("oci:ghcr.io/x@sha256:{hex}")), "is not an address in a registry");
    assert_eq!(wrong("oci://ghcr.io/x"), "has no digest");
    assert_eq!(wrong("oci://ghcr.io/x:1.0"), "has no digest");
    assert_eq!(wrong(&format!("oci://ghcr.io/x:1.0@sha256:{hex}")), "has a tag and a digest");
    assert_eq!(wrong(&format!("oci://ghcr.io/x@sha512:{hex}{hex}")), "has a digest that is not a sha256");
    assert_eq!(wrong("oci://ghcr.io/x@"), "has a digest that is not a sha256");
    let short = "has a digest that does not have 64 hexadecimal digits";
    assert_eq!(wrong("oci://ghcr.io/x@sha256:"), short);
    assert_eq!(wrong(&format!("oci://ghcr.io/x@sha256:{hex}0")), short);
    assert_eq!(wrong(&format!("oci://ghcr.io/x@sha256:{}", hex.replace('a', "g"))), short);
    let capitals = hex.to_uppercase();
    assert_eq!(wrong(&format!("oci://ghcr.io/x@sha256:{capitals}")), "has a digest in capital letters");
    for (bare, why) in [
        ("/x", "does not name a registry"),
        ("ghcr.io", "has no name after its registry"),
        ("ghcr.io/", "has no name after its registry"),
        ("ghcr.io/me/x/", "has a name with characters that are not allowed in a registry"),
        ("ghcr.io/Me/x", "has capital letters, which names in a registry can't have"),
        ("gh cr.io/x", "names a registry with an invalid host name"),
        ("ghcr.io:port/x", "names a registry with an invalid host name"),
        ("[::g]/x", "names a registry with an invalid host name"),
        ("..", "has no name after its registry"),
        ("ghcr.io/a//b", "has a name with characters that are not allowed in a registry"),
        ("ghcr.io/../x", "has a name with characters that are not allowed in a registry"),
        ("ghcr.io/x?y", "has a name with characters that are not allowed in a registry"),
        ("ghcr.io/x#y", "has a name with characters that are not allowed in a registry"),
        ("ghcr.io/x%2e", "has a name with characters that are not allowed in a registry"),
        ("ghcr.io/é", "has a name with characters that are not allowed in a registry"),
    ] {
        assert_eq!(wrong(&format!("oci://{bare}@sha256:{hex}")), why, "{bare}");
    }
    // A password is not said back.
    assert!(
        wrong(&format!("oci://me:secret@ghcr.io/x@sha256:{hex}")).starts_with("an address in a registry")
    );
    assert!(is_registry_address("oci:x") && !is_registry_address("./oci.wasm"));

    let pushed = |text: &str| told(push(&uniform(), text));
    assert!(pushed(&format!("oci://ghcr.io/x@sha256:{hex}")).ends_with("has a digest already"));
    assert!(pushed("oci://ghcr.io/x:-1").ends_with("has an invalid tag"));
    assert!(pushed("ghcr.io/x").ends_with("is not an address in a registry"));
}

/// Runs in processes of their own, below: who asks is said by the environment.
#[test]
#[ignore = "run by the next tests"]
fn child() {
    let reference = Reference::parse(&std::env::var("ALLOT_TEST_REFERENCE").unwrap()).unwrap();
    match fetch(&reference, None) {
        Ok(bytes) => println!("fetched {bytes:?}"),
        Err(error) => println!("{}", error.report()),
    }
}

/// What a child says with this `config.json`; neither password nor token, in any writing.
fn asked_with(config: &Value, reference: &Reference) -> String {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("config.json"), config.to_string()).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--ignored", "--nocapture"]).env("DOCKER_CONFIG", home.path());
    let done = command.env("ALLOT_TEST_REFERENCE", reference.to_string()).output().unwrap();
    let said = said(&done);
    assert!(done.status.success(), "{said}");
    said
}

fn said(done: &Output) -> String {
    let said = String::from_utf8_lossy(&[&done.stdout[..], b"\n", &done.stderr].concat()).into_owned();
    let secrets = [PASSWORD, TOKEN, "secret", &base64(&format!("{USER}:{PASSWORD}"))];
    assert!(!secrets.iter().any(|secret| said.contains(secret)), "{said}");
    said
}

#[test]
fn whoever_logged_in_with_docker_is_known() {
    let server = Registry::start();
    let reference = server.holds(&[("application/wasm", b"component")]);
    let place = &server.address;
    let fetched = format!("fetched {:?}", b"component");
    let login = json!({"auth": base64(&format!("{USER}:{PASSWORD}"))});
    for manner in [Manner::Basic, Manner::Bearer] {
        server.behaves(manner.clone());
        for written in [place.clone(), format!("https://{place}"), format!("https://{place}/v2/")] {
            assert!(asked_with(&json!({"auths": {written: login}}), &reference).contains(&fetched));
        }
        let refused = |config: &Value, who: &str| {
            let said = asked_with(config, &reference);
            assert!(said.contains(&format!("error: {place} does not give `it")), "{said}");
            assert!(said.contains(&format!(" to {who} (401)")), "{said}");
            assert!(said.contains(&format!("`docker login {place}`")), "{said}");
        };
        let stranger = "an anonymous user";
        refused(&json!({}), stranger);
        refused(&json!({"auths": {"ghcr.io": login}}), stranger);
        refused(&json!({"auths": {place: {}}, "credsStore": "secretservice"}), stranger);
        refused(&json!({"auths": {place: {"auth": "%%%"}}}), stranger);
        refused(&json!({"auths": {place: {"auth": base64("someone:secret")}}}), "this login");
        let elsewhere = server.asked().into_iter().filter(|(_, path, _)| path.starts_with("/token?"));
        assert_eq!(elsewhere.count() > 0, manner == Manner::Bearer);
    }

    // Nobody's login goes to another host, though the registry sends us there.
    let (near, far) = (Registry::start(), Registry::start());
    let reference = near.holds(&[("application/wasm", b"component")]);
    far.holds(&[("application/wasm", b"component")]);
    near.behaves(Manner::Elsewhere(far.address.clone()));
    let both = json!({"auths": {near.address.clone(): login, far.address.clone(): login}});
    assert!(asked_with(&both, &reference).contains(&fetched));
    assert!(
        !far.asked().is_empty() && far.asked().iter().all(|(_, _, authorization)| authorization.is_none())
    );
}

/// A run of the coin-flip world with this policy.
fn config(policy: &str) -> String {
    format!(
        r#"
        [run]
        seed = 1
        steps = 3
        groups = 4
        rollouts = 4
        [budget]
        rollouts = 1000
        [policy]
        use = "{policy}"
        "#
    )
}

#[test]
fn a_run_takes_its_policy_from_a_registry() {
    let (server, scratch, cache) = (Registry::start(), Scratch::new(), tempfile::tempdir().unwrap());
    let run = |config: &str, out: &str| {
        let mut command = scratch.command(&["simulate", config, "--out", out]);
        command.env("ALLOT_CACHE", cache.path()).env("DOCKER_CONFIG", scratch.path()).output().unwrap()
    };
    let login = json!({"auths": {&server.address: {"auth": base64(&format!("{USER}:{PASSWORD}"))}}});
    let reference = push(&uniform(), &format!("oci://{}/even:1", server.address)).unwrap();
    scratch.write("config.json", login.to_string());
    scratch.write("own.toml", config("uniform"));
    scratch.write("run.toml", config(&reference.to_string()));
    server.behaves(Manner::Basic);
    for (config, out) in [("own.toml", "own"), ("run.toml", "first")] {
        let done = run(config, out);
        assert!(done.status.success(), "{}", said(&done));
    }
    assert!(server.paths().iter().any(|path| path.contains("/blobs/")));
    assert_eq!(scratch.read("own/record.jsonl"), scratch.read("first/record.jsonl"));

    // From then on without the registry.
    server.close();
    let done = run("run.toml", "second");
    assert!(done.status.success(), "{}", said(&done));
    assert_eq!(scratch.read("own/record.jsonl"), scratch.read("second/record.jsonl"));
    for out in ["own", "first", "second"] {
        for file in std::fs::read_dir(scratch.path().join(out)).unwrap().flatten() {
            assert!(
                !String::from_utf8_lossy(&std::fs::read(file.path()).unwrap_or_default()).contains("secret")
            );
        }
    }
}

#[test]
fn a_run_does_not_start_with_another_policy_than_it_names() {
    let (server, scratch, cache) = (Registry::start(), Scratch::new(), tempfile::tempdir().unwrap());
    let reference = push(&uniform(), &format!("oci://{}/even:1", server.address)).unwrap();
    let run = |policy: &str| {
        scratch.write("run.toml", config(policy));
        let mut command = scratch.command(&["simulate", "run.toml", "--out", "out"]);
        let done = command.env("ALLOT_CACHE", cache.path()).output().unwrap();
        assert!(!done.status.success() && !scratch.path().join("out/record.jsonl").exists());
        said(&done)
    };
    server.behaves(Manner::OtherBlob);
    let wrong = run(&reference.to_string());
    assert!(wrong.contains(&format!("{} sent content that is not sha256:", server.address)), "{wrong}");
    server.behaves(Manner::Plain);
    let tagged = run(&format!("oci://{}/even:1", server.address));
    assert!(tagged.contains("has no digest") && tagged.contains("hint: "), "{tagged}");
    assert_eq!(files(&cache.path().join("policies")), 0);
}

#[test]
fn a_policy_is_packed_for_others() {
    let (server, scratch, cache) = (Registry::start(), Scratch::new(), tempfile::tempdir().unwrap());
    let run = |args: &[&str]| {
        let done = scratch.command(args).env("ALLOT_CACHE", cache.path()).output().unwrap();
        assert!(done.status.success(), "{}", said(&done));
        String::from_utf8(done.stdout).unwrap()
    };
    scratch.write("mine.wasm", uniform());
    let address = format!("oci://{}/even:1", server.address);
    let packed = run(&["pack", "./mine.wasm", "--push", &address]);
    // What it says is what others put into their configs: the address with its digest.
    let lines: toml::Table = toml::from_str(&packed[packed.find("[policy]").unwrap()..]).unwrap();
    let (pushed, sha256) = (&lines["policy"]["use"], &lines["policy"]["sha256"]);
    assert!(pushed.as_str().unwrap().starts_with(&format!("oci://{}/even@sha256:", server.address)));
    assert_eq!(sha256.as_str(), Some(hex(&Sha256::digest(uniform())).as_str()));
    let json: Value =
        serde_json::from_str(&run(&["pack", "./mine.wasm", "--push", &address, "--json"])).unwrap();
    assert_eq!((json["pushed"].as_str(), json["sha256"].as_str()), (pushed.as_str(), sha256.as_str()));
    let policy = format!("{}\"\nsha256 = \"{}", pushed.as_str().unwrap(), sha256.as_str().unwrap());
    scratch.write("run.toml", config(&policy));
    scratch.write("own.toml", config("./mine.wasm"));
    run(&["simulate", "run.toml", "--out", "theirs"]);
    run(&["simulate", "own.toml", "--out", "own"]);
    assert_eq!(scratch.read("theirs/record.jsonl"), scratch.read("own/record.jsonl"));
    // It can be looked at there, packed again, asked again, and look on.
    let there = run(&["pack", pushed.as_str().unwrap()]);
    assert!(there.ends_with(&packed[packed.find("[policy]").unwrap()..]), "{there}");
    assert!(run(&["replay", "theirs"]).contains("calls, no difference"));
    run(&["simulate", "own.toml", "--out", "seen", "--shadow", pushed.as_str().unwrap()]);
    let done =
        scratch.command(&["pack", "./mine.wasm", "--push", pushed.as_str().unwrap()]).output().unwrap();
    assert!(said(&done).contains("has a digest already"), "{}", said(&done));
}
