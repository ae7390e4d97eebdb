//! One connection to one shard, and the errors of its answers.

use crate::value::{fields, Value};
use std::fmt;
use std::io::{self, BufReader, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Mutex;
use std::time::Duration;

/// Codes of errors, as in proto/PROTOCOL.md.
pub mod code {
    pub const INVALID: u32 = 1;
    pub const MALFORMED: u32 = 2;
    pub const TOO_LARGE: u32 = 3;
    pub const UNKNOWN_METHOD: u32 = 4;
    pub const UNKNOWN_TABLE: u32 = 5;
    pub const EXISTS: u32 = 6;
    pub const UNSUPPORTED: u32 = 7;
    pub const FULL: u32 = 8;
    pub const NOT_FINITE: u32 = 9;
    pub const NO_MEMORY: u32 = 10;
    pub const BUSY: u32 = 11;
    pub const DRAINING: u32 = 12;
    pub const UNREACHABLE: u32 = 13;
    /// The connection was lost during the call: a push may have been applied.
    pub const CLOSED: u32 = 15;
    pub const PROTOCOL: u32 = 16;
    pub const DENIED: u32 = 20;
    pub const GAP: u32 = 21;
    pub const FORGOTTEN: u32 = 22;
    pub const LOADING: u32 = 24;
    /// Keys have moved between shards, and the request could not be split again.
    pub const MOVED: u32 = 26;
}

/// What a server refused a request with, or a failure to reach it. A refused request has changed nothing on that shard;
/// other shards may have applied their share of a push.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    pub code: u32,
    pub text: String,
}

impl Error {
    pub(crate) fn new(code: u32, text: impl fmt::Display) -> Error {
        Error { code, text: text.to_string() }
    }

    /// Whether the same request may succeed later. A push whose connection was lost is safe to repeat only with a number.
    pub fn may_repeat(&self) -> bool {
        use code::*;
        matches!(self.code, NO_MEMORY | BUSY | DRAINING | UNREACHABLE | CLOSED | LOADING)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "embd: error {}: {}", self.code, self.text)
    }
}

impl std::error::Error for Error {}

pub type Result<T> = std::result::Result<T, Error>;

/// Options of `Client::connect`.
#[derive(Clone, Debug)]
pub struct Options {
    /// For servers that ask for one.
    pub token: String,
    /// Of a call to a shard.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options { token: String::new(), timeout: Duration::from_secs(30) }
    }
}

struct Connection {
    stream: BufReader<TcpStream>,
    msgid: u32,
}

impl Connection {
    /// Whether the server has ended it. What is not sent there has certainly not been applied.
    fn is_ended(&self) -> bool {
        let stream = self.stream.get_ref();
        let peeked = stream.set_nonblocking(true).and_then(|_| stream.peek(&mut [0]));
        let waits = matches!(peeked, Err(e) if e.kind() == io::ErrorKind::WouldBlock);
        stream.set_nonblocking(false).is_err() || !waits
    }
}

/// A shard. Its connection is made at the first call, and again after a failure.
pub(crate) struct Shard {
    address: String,
    options: Options,
    client_id: u64,
    connection: Mutex<Option<Connection>>,
}

impl Shard {
    pub fn new(address: &str, options: &Options, client_id: u64) -> Shard {
        Shard { address: address.to_string(), options: options.clone(), client_id, connection: Mutex::new(None) }
    }

    pub fn timeout(&self) -> Duration {
        self.options.timeout
    }

    /// Sends a request and reads its answer: the map, and the bins.
    pub fn call(&self, method: &str, params: &Value, bins: &[&[u8]]) -> Result<(Value, Vec<Vec<u8>>)> {
        let mut place = self.connection.lock().unwrap();
        if place.as_ref().map_or(false, Connection::is_ended) {
            *place = None;
        }
        if place.is_none() {
            *place = Some(self.dial()?);
        }
        let answer = exchange(place.as_mut().unwrap(), method, params, bins);
        answer.unwrap_or_else(|lost| {
            *place = None; // the stream may be out of step
            Err(Error::new(code::CLOSED, lost))
        })
    }

    fn dial(&self) -> Result<Connection> {
        let stream = self.reach().map_err(|e| Error::new(code::UNREACHABLE, format!("{}: {}", self.address, e)))?;
        let mut connection = Connection { stream: BufReader::new(stream), msgid: 0 };
        let mut hello =
            vec![("protocol", 1.into()), ("client", "embd-rust".into()), ("client_id", self.client_id.into())];
        if !self.options.token.is_empty() {
            hello.push(("token", self.options.token.as_str().into()));
        }
        let said = exchange(&mut connection, "hello", &fields(&hello), &[]);
        let (answer, _) = said.map_err(|lost| Error::new(code::CLOSED, lost))??;
        match answer.get("loading") {
            Value::Str(text) => Err(Error::new(code::LOADING, text)),
            _ => Ok(connection),
        }
    }

    fn reach(&self) -> io::Result<TcpStream> {
        let mut failure = io::ErrorKind::AddrNotAvailable.into();
        for place in self.address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&place, self.options.timeout) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(self.options.timeout))?;
                    stream.set_write_timeout(Some(self.options.timeout))?;
                    return Ok(stream);
                }
                Err(e) => failure = e,
            }
        }
        Err(failure)
    }

    #[doc(hidden)]
    pub fn hang_up(&self) {
        if let Some(connection) = &*self.connection.lock().unwrap() {
            let _ = connection.stream.get_ref().shutdown(std::net::Shutdown::Both);
        }
    }
}

type Answer = Result<(Value, Vec<Vec<u8>>)>;

/// The outer error: the connection is lost. The inner one: the server refused the request.
fn exchange(c: &mut Connection, method: &str, params: &Value, bins: &[&[u8]]) -> io::Result<Answer> {
    c.msgid = c.msgid.wrapping_add(1);
    let mut items = vec![params.clone()];
    items.extend(bins.iter().map(|bin| Value::Bin(bin.to_vec())));
    let mut bytes = Vec::new();
    Value::List(vec![0.into(), Value::Uint(c.msgid.into()), method.into(), Value::List(items)]).write(&mut bytes);
    c.stream.get_mut().write_all(&bytes)?;
    match Value::read(&mut c.stream)? {
        Value::List(m) if m.len() == 4 && m[0] == Value::Uint(1) && m[1] == Value::Uint(c.msgid.into()) => {
            Ok(answer(m))
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the server sent something else than the answer")),
    }
}

/// [1, msgid, error, result]. Calls are made one by one, so the next answer is that of the last request.
fn answer(mut message: Vec<Value>) -> Answer {
    if let [number, text] = message[2].list() {
        return Err(Error::new(number.uint() as u32, text.str()));
    }
    let wrong = || Error::new(code::PROTOCOL, "the result is not a map and bins");
    let mut items = match message.remove(3) {
        Value::List(items) => items.into_iter(),
        _ => return Err(wrong()),
    };
    let map = items.next().unwrap_or_else(|| fields(&[]));
    let bins = items.map(|item| match item {
        Value::Bin(bin) => Ok(bin),
        _ => Err(wrong()),
    });
    Ok((map, bins.collect::<Result<_>>()?))
}
