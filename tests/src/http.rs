//! A small blocking HTTP/1.1 client: one connection, one request at a time, bounded answers.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// The largest answer body that is read.
const BODY_BYTES_MAX: usize = 64 << 20;
/// The longest line of an answer's head.
const LINE_BYTES_MAX: u64 = 16 << 10;
/// How long an answer may take; long polls included.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as JSON.
    ///
    /// # Errors
    /// InvalidData with the body when it is none.
    pub fn json(&self) -> io::Result<Value> {
        serde_json::from_slice(&self.body).map_err(|error| {
            let text = String::from_utf8_lossy(&self.body);
            invalid(format!("{error} in the answer {text:.500}"))
        })
    }
}

/// An open connection.
#[derive(Debug)]
pub struct Connection {
    address: String,
    stream: BufReader<TcpStream>,
}

fn invalid(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.into())
}

impl Connection {
    /// Connects to `host:port`.
    ///
    /// # Errors
    /// When nothing listens there.
    pub fn open(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(Self {
            address: address.to_owned(),
            stream: BufReader::new(stream),
        })
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// When the connection breaks, the answer takes too long, is too large, or is no HTTP/1.1.
    pub fn request(&mut self, method: &str, path: &str, body: &[u8]) -> io::Result<Answer> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        let stream = self.stream.get_mut();
        stream.write_all(&[head.as_bytes(), body].concat())?;
        let status_line = self.line()?;
        let status = status_line
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .ok_or_else(|| invalid(format!("status line {status_line:?}")))?;
        let mut length = 0;
        let mut chunked = false;
        loop {
            let line = self.line()?.to_ascii_lowercase();
            match line.split_once(':') {
                None if line.is_empty() => break,
                None => return Err(invalid(format!("header line {line:?}"))),
                Some(("content-length", value)) => {
                    length = value
                        .trim()
                        .parse()
                        .map_err(|_| invalid("content-length"))?;
                }
                Some(("transfer-encoding", value)) => chunked = value.trim() == "chunked",
                Some(_) => {}
            }
        }
        let body = if chunked {
            self.chunks()?
        } else {
            self.bytes(length)?
        };
        Ok(Answer { status, body })
    }

    /// Sends JSON and wants JSON back with a status below 300.
    ///
    /// # Errors
    /// As [`Connection::request`], and InvalidData for any other answer.
    pub fn post(&mut self, path: &str, body: &Value) -> io::Result<Value> {
        let answer = self.request("POST", path, body.to_string().as_bytes())?;
        if answer.status >= 300 {
            let text = String::from_utf8_lossy(&answer.body);
            return Err(invalid(format!(
                "POST {path}: status {}: {text:.500}",
                answer.status
            )));
        }
        if answer.body.is_empty() {
            return Ok(Value::Null);
        }
        answer.json()
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        let read = (&mut self.stream)
            .take(LINE_BYTES_MAX)
            .read_line(&mut line)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end_matches(['\r', '\n']).to_owned())
    }

    fn bytes(&mut self, length: usize) -> io::Result<Vec<u8>> {
        if length > BODY_BYTES_MAX {
            return Err(invalid(format!("an answer of {length} bytes")));
        }
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let length = usize::from_str_radix(line.trim(), 16)
                .map_err(|_| invalid(format!("chunk length {line:?}")))?;
            if body.len().saturating_add(length) > BODY_BYTES_MAX {
                return Err(invalid("an answer of too many chunks"));
            }
            body.extend(self.bytes(length)?);
            self.line()?;
            if length == 0 {
                return Ok(body);
            }
        }
    }
}
