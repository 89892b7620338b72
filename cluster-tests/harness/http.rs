//! The smallest HTTP client that the tests need: one GET, read to the end.

use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An HTTP answer.
#[derive(Clone, Debug)]
pub struct Response {
    /// Status code, such as 200.
    pub status: u16,
    /// Header lines as they came, without the status line.
    pub headers: String,
    /// Body, as text.
    pub body: String,
}

/// Asks `address` (`HOST:PORT`) for `path`.
///
/// # Errors
/// Whatever the socket says, or `InvalidData` for what is not an HTTP answer.
pub async fn get(address: &str, path: &str) -> io::Result<Response> {
    ask(address, path, "").await
}

/// As [`get`], by the user `guest`.
///
/// # Errors
/// As [`get`].
pub async fn get_as_guest(address: &str, path: &str) -> io::Result<Response> {
    // `guest:guest` in base64.
    ask(address, path, "Authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n").await
}

async fn ask(address: &str, path: &str, headers: &str) -> io::Result<Response> {
    let mut socket = TcpStream::connect(address).await?;
    // HTTP/1.0, so that the answer is neither chunked nor kept alive.
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n{headers}\r\n");
    socket.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await?;
    parse(&String::from_utf8_lossy(&answer))
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not an HTTP answer"))
}

fn parse(answer: &str) -> Option<Response> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let (status_line, headers) = head.split_once("\r\n").unwrap_or((head, ""));
    let status = status_line.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    Some(Response { status, headers: headers.to_owned(), body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_apart() {
        let answer = parse("HTTP/1.1 503 Service Unavailable\r\na: b\r\n\r\nno majority").unwrap();
        assert_eq!(answer.status, 503);
        assert_eq!(answer.headers, "a: b");
        assert_eq!(answer.body, "no majority");
        assert!(parse("garbage").is_none());
    }
}
