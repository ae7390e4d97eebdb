//! Maps, lists and bins of MessagePack.

use rmp::{encode, Marker};
use std::io::{self, Read};

/// The deepest that a server nests arrays and maps.
const DEPTH: u32 = 8;

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Nil,
    Bool(bool),
    Uint(u64),
    Int(i64),
    Float(f64),
    Str(String),
    Bin(Vec<u8>),
    List(Vec<Value>),
    Map(Vec<(String, Value)>),
}

/// A map of fields: `fields(&[("name", "items".into()), ("dim", 8.into())])`.
pub fn fields(list: &[(&str, Value)]) -> Value {
    Value::Map(list.iter().map(|(name, value)| (name.to_string(), value.clone())).collect())
}

impl From<u64> for Value {
    fn from(n: u64) -> Value {
        Value::Uint(n)
    }
}

impl From<i32> for Value {
    fn from(n: i32) -> Value {
        Value::Int(n.into())
    }
}

impl From<f64> for Value {
    fn from(x: f64) -> Value {
        Value::Float(x)
    }
}

impl From<bool> for Value {
    fn from(is: bool) -> Value {
        Value::Bool(is)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Str(text.to_string())
    }
}

impl Value {
    /// A field of a map; Nil where there is none.
    pub fn get(&self, name: &str) -> &Value {
        match self {
            Value::Map(list) => list.iter().find(|(n, _)| n == name).map_or(&Value::Nil, |(_, value)| value),
            _ => &Value::Nil,
        }
    }

    /// Its unsigned integer; 0 where it is none.
    pub fn uint(&self) -> u64 {
        match self {
            Value::Uint(n) => *n,
            _ => 0,
        }
    }

    /// Its text; empty where it is none.
    pub fn str(&self) -> &str {
        match self {
            Value::Str(text) => text,
            _ => "",
        }
    }

    pub fn list(&self) -> &[Value] {
        match self {
            Value::List(list) => list,
            _ => &[],
        }
    }

    /// Writing to memory does not fail.
    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        match self {
            Value::Nil => encode::write_nil(to).unwrap(),
            Value::Bool(is) => encode::write_bool(to, *is).unwrap(),
            Value::Uint(n) => drop(encode::write_uint(to, *n).unwrap()),
            Value::Int(n) => drop(encode::write_sint(to, *n).unwrap()),
            Value::Float(x) => encode::write_f64(to, *x).unwrap(),
            Value::Str(text) => encode::write_str(to, text).unwrap(),
            Value::Bin(data) => encode::write_bin(to, data).unwrap(),
            Value::List(list) => {
                encode::write_array_len(to, list.len() as u32).unwrap();
                list.iter().for_each(|value| value.write(to));
            }
            Value::Map(list) => {
                encode::write_map_len(to, list.len() as u32).unwrap();
                for (name, value) in list {
                    encode::write_str(to, name).unwrap();
                    value.write(to);
                }
            }
        }
    }

    pub(crate) fn read(from: &mut impl Read) -> io::Result<Value> {
        read(from, DEPTH)
    }
}

fn wrong(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// A big-endian number of n bytes.
fn number(from: &mut impl Read, n: usize) -> io::Result<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes[8 - n..])?;
    Ok(u64::from_be_bytes(bytes))
}

fn read(from: &mut impl Read, depth: u32) -> io::Result<Value> {
    Ok(match Marker::from_u8(number(from, 1)? as u8) {
        Marker::Null => Value::Nil,
        Marker::True => Value::Bool(true),
        Marker::False => Value::Bool(false),
        Marker::FixPos(n) => Value::Uint(n.into()),
        Marker::FixNeg(n) => Value::Int(n.into()),
        Marker::U8 => Value::Uint(number(from, 1)?),
        Marker::U16 => Value::Uint(number(from, 2)?),
        Marker::U32 => Value::Uint(number(from, 4)?),
        Marker::U64 => Value::Uint(number(from, 8)?),
        Marker::I8 => Value::Int(number(from, 1)? as i8 as i64),
        Marker::I16 => Value::Int(number(from, 2)? as i16 as i64),
        Marker::I32 => Value::Int(number(from, 4)? as i32 as i64),
        Marker::I64 => Value::Int(number(from, 8)? as i64),
        Marker::F32 => Value::Float(f32::from_bits(number(from, 4)? as u32).into()),
        Marker::F64 => Value::Float(f64::from_bits(number(from, 8)?)),
        Marker::FixStr(n) => read_str(from, n.into())?,
        Marker::Str8 => number(from, 1).and_then(|n| read_str(from, n))?,
        Marker::Str16 => number(from, 2).and_then(|n| read_str(from, n))?,
        Marker::Str32 => number(from, 4).and_then(|n| read_str(from, n))?,
        Marker::Bin8 => Value::Bin(number(from, 1).and_then(|n| read_bytes(from, n))?),
        Marker::Bin16 => Value::Bin(number(from, 2).and_then(|n| read_bytes(from, n))?),
        Marker::Bin32 => Value::Bin(number(from, 4).and_then(|n| read_bytes(from, n))?),
        Marker::FixArray(n) => read_list(from, n.into(), depth)?,
        Marker::Array16 => number(from, 2).and_then(|n| read_list(from, n, depth))?,
        Marker::Array32 => number(from, 4).and_then(|n| read_list(from, n, depth))?,
        Marker::FixMap(n) => read_map(from, n.into(), depth)?,
        Marker::Map16 => number(from, 2).and_then(|n| read_map(from, n, depth))?,
        Marker::Map32 => number(from, 4).and_then(|n| read_map(from, n, depth))?,
        _ => return Err(wrong("a value of a type that embd does not send")),
    })
}

/// Grows with the bytes that come, not with those announced.
fn read_bytes(from: &mut impl Read, n: u64) -> io::Result<Vec<u8>> {
    let mut data = Vec::new();
    if from.take(n).read_to_end(&mut data)? as u64 != n {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(data)
}

fn read_str(from: &mut impl Read, n: u64) -> io::Result<Value> {
    let text = String::from_utf8(read_bytes(from, n)?);
    text.map(Value::Str).map_err(|_| wrong("a text that is not UTF-8"))
}

fn deeper(depth: u32) -> io::Result<u32> {
    depth.checked_sub(1).ok_or_else(|| wrong("arrays and maps are nested too deep"))
}

fn read_list(from: &mut impl Read, n: u64, depth: u32) -> io::Result<Value> {
    let depth = deeper(depth)?;
    (0..n).map(|_| read(from, depth)).collect::<io::Result<_>>().map(Value::List)
}

fn read_map(from: &mut impl Read, n: u64, depth: u32) -> io::Result<Value> {
    let depth = deeper(depth)?;
    let entry = |_| Ok((read(from, depth)?.str().to_string(), read(from, depth)?));
    (0..n).map(entry).collect::<io::Result<_>>().map(Value::Map)
}
