//! A package index (PEP 503) on loopback, with one wheel: `pip install allot` finds it as it finds a wheel on PyPI, without a
//! network.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use allot_base::{Error, Result};

use crate::dist;

/// Starts the index, which serves until this process ends. Returns its URL.
///
/// # Errors
///
/// The wheel cannot be read, or no port of 127.0.0.1 can be listened on.
pub fn serve(wheel: &Path) -> Result<String> {
    let name = wheel.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // pip compares the hash with what it downloads.
    let page = format!(
        "<!DOCTYPE html>\n<html><body><a href=\"../../files/{name}#sha256={}\">{name}</a></body></html>\n",
        dist::sum(wheel)?
    );
    let failed = |e: std::io::Error| Error::new(format!("a port of 127.0.0.1 cannot be listened on: {e}"));
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let url = format!("http://{}/simple", listener.local_addr().map_err(failed)?);
    let files = Arc::new(Files { page, download: format!("/files/{name}"), wheel: wheel.to_owned() });
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let files = Arc::clone(&files);
            // pip sees a failure, and says so.
            std::thread::spawn(move || drop(files.answer(stream)));
        }
    });
    Ok(url)
}

/// What the index serves.
struct Files {
    /// The page of the package `allot`.
    page: String,
    /// The wheel's path in a URL.
    download: String,
    wheel: PathBuf,
}

impl Files {
    /// Answers one request, and closes the connection.
    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let request = lines.next().transpose()?.unwrap_or_default();
        // Up to the empty line after the last header.
        for line in lines {
            if line?.is_empty() {
                break;
            }
        }
        let (status, kind, body) = match request.split(' ').nth(1) {
            Some("/simple/allot/") => ("200 OK", "text/html", self.page.clone().into_bytes()),
            Some(path) if path == self.download => {
                ("200 OK", "application/octet-stream", std::fs::read(&self.wheel)?)
            }
            _ => ("404 Not Found", "text/plain", b"this index has allot, and nothing else\n".to_vec()),
        };
        let length = body.len();
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        )?;
        stream.write_all(&body)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use super::serve;

    fn get(url: &str, path: &str) -> String {
        let address = url.strip_prefix("http://").unwrap().strip_suffix("/simple").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn the_page_names_the_wheel_with_its_hash_and_nothing_else_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let wheel = folder.path().join("allot-1-py3-none-any.whl");
        std::fs::write(&wheel, "bytes of a wheel").unwrap();
        let url = serve(&wheel).unwrap();
        let page = get(&url, "/simple/allot/");
        let hash = crate::dist::sum(&wheel).unwrap();
        assert!(page.contains(&format!("../../files/allot-1-py3-none-any.whl#sha256={hash}")), "{page}");
        let download = get(&url, "/files/allot-1-py3-none-any.whl");
        assert!(download.starts_with("HTTP/1.1 200") && download.ends_with("\r\n\r\nbytes of a wheel"));
        assert!(get(&url, "/simple/numpy/").starts_with("HTTP/1.1 404"));
        assert!(get(&url, "/files/../../../etc/passwd").starts_with("HTTP/1.1 404"));
    }
}
