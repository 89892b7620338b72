//! The smallest HTTP client that the tests need: one GET, read to the end, of nobody or of a user.

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

/// As [`get`], as the user `guest` with this password.
///
/// # Errors
/// As [`get`].
pub async fn get_as_guest(address: &str, path: &str, password: &str) -> io::Result<Response> {
    let credentials = credentials("guest", password);
    ask(address, path, &format!("Authorization: Basic {credentials}\r\n")).await
}

/// What follows `Authorization: Basic` in a request of that user (RFC 7617).
pub fn credentials(user: &str, password: &str) -> String {
    base64(format!("{user}:{password}").as_bytes())
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or_default());
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let letter = LETTERS.get((word >> (18 - 6 * place) & 63) as usize).copied();
            text.push(if place > three.len() { '=' } else { char::from(letter.unwrap_or(b'=')) });
        }
    }
    text
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
