//! Requests over HTTP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

const TIME_MAX: Duration = Duration::from_secs(10);

/// Returns the body of an answer with status 200.
pub(crate) fn get(address: SocketAddr, path: &str, accept: &str) -> Result<String> {
    let what = format!("GET http://{address}{path}");
    let answer = request(address, path, accept).with_context(|| what.clone())?;
    let (head, body) = answer.split_once("\r\n\r\n").with_context(|| format!("{what}: no answer of HTTP"))?;
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        bail!("{what}: {status}: {}", body.trim());
    }
    Ok(body.to_owned())
}

/// By HTTP 1.0, where the answer ends with the stream.
fn request(address: SocketAddr, path: &str, accept: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIME_MAX)?;
    stream.set_read_timeout(Some(TIME_MAX))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: {accept}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
