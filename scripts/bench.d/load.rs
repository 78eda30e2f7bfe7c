//! The load for scripts/bench: one thread makes calls on many connections, in turn. Each connection sends its next
//! batch when its last batch has been answered.
//!
//! ```text
//! load PORT CONNECTIONS PIPELINE (SECONDSs | CALLS) KEYS (random | each | FIRST) COMMAND... [; COMMAND...]
//! ```
//!
//! A call is one command, or several in a row. `KEY` in its words stands for a key of 13 bytes. There are KEYS keys:
//!
//! * `random`: each call draws one.
//! * `each`: every key gets one call, in a mixed order.
//! * FIRST: the calls go through the keys in order, from this number on.
//!
//! Prints the number of calls, the number of limited calls (their reply is an array that starts with 1), and the
//! seconds that they took.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::exit;
use std::time::{Duration, Instant};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, connections, pipeline, length, keys, order, words @ ..] = &arguments[..] else {
        panic!("see the head of load.rs");
    };
    let number = |text: &str| text.parse::<u64>().unwrap();
    let (seconds, calls) = match length.strip_suffix('s') {
        Some(seconds) => (seconds.parse().unwrap(), u64::MAX),
        None => (f64::MAX, number(length)),
    };
    let end = (seconds < f64::MAX).then(|| Instant::now() + Duration::from_secs_f64(seconds));
    let mut source = Source {
        call: encode(words),
        replies: 1 + words.iter().filter(|word| *word == ";").count(),
        keys: number(keys),
        next: if order == "each" { Some(0) } else { order.parse().ok() },
        leap: if order == "each" { 7919 } else { 1 },
        chance: 0x9e37_79b9_7f4a_7c15,
    };
    let mut connections: Vec<_> = (0..number(connections)).map(|_| Connection::open(number(port) as u16)).collect();

    let start = Instant::now();
    let mut left = calls;
    let mut done = 0;
    let mut limited = 0;
    let mut more = true;
    while more {
        more = false;
        // The server answers the other connections while one is read.
        for connection in &mut connections {
            done += connection.receive(&mut limited);
            if left > 0 && end.is_none_or(|end| Instant::now() < end) {
                connection.send(number(pipeline).min(left), &mut source);
                left -= connection.calls;
                more = true;
            }
        }
    }
    println!("{done} {limited} {:.6}", start.elapsed().as_secs_f64());
}

/// The calls to send.
struct Source {
    /// The text of a call between its keys.
    call: Vec<Vec<u8>>,
    replies: usize,
    keys: u64,
    /// The number of the next key; `None` if keys are drawn at random.
    next: Option<u64>,
    /// The step from key to key: 1, or a prime that does not divide the number of keys, so that each key comes once.
    leap: u64,
    /// The state of the random numbers.
    chance: u64,
}

impl Source {
    fn write(&mut self, output: &mut Vec<u8>) {
        let key = match &mut self.next {
            Some(next) => {
                let key = *next;
                *next += self.leap;
                if self.leap == 1 { key } else { key % self.keys }
            }
            None => {
                self.chance ^= self.chance << 13;
                self.chance ^= self.chance >> 7;
                self.chance ^= self.chance << 17;
                self.chance % self.keys
            }
        };
        let mut text = *b"key:000000000";
        let mut rest = key;
        for digit in text[4..].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        for (number, part) in self.call.iter().enumerate() {
            if number > 0 {
                output.extend(text);
            }
            output.extend(part);
        }
    }
}

/// Returns a call as the server reads it, cut at its keys.
fn encode(words: &[String]) -> Vec<Vec<u8>> {
    let mut text = String::new();
    for command in words.split(|word| word == ";") {
        text += &format!("*{}\r\n", command.len());
        for word in command {
            let length = word.replace("KEY", "key:000000000").len();
            text += &format!("${length}\r\n{word}\r\n");
        }
    }
    text.split("KEY").map(|part| part.into()).collect()
}

struct Connection {
    stream: TcpStream,
    output: Vec<u8>,
    input: Vec<u8>,
    /// The calls of the batch, and the replies to it that are still to come.
    calls: u64,
    waiting: usize,
}

impl Connection {
    fn open(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, output: Vec::new(), input: Vec::new(), calls: 0, waiting: 0 }
    }

    fn send(&mut self, calls: u64, source: &mut Source) {
        self.calls = calls;
        self.output.clear();
        for _ in 0..self.calls {
            source.write(&mut self.output);
        }
        self.waiting = self.calls as usize * source.replies;
        self.stream.write_all(&self.output).unwrap();
    }

    /// Waits for the replies to the last batch, and returns how many calls it had.
    fn receive(&mut self, limited: &mut u64) -> u64 {
        let mut buffer = [0; 65536];
        while self.waiting > 0 {
            let length = self.stream.read(&mut buffer).unwrap();
            assert!(length > 0, "the server closed the connection");
            self.input.extend(&buffer[..length]);
            let mut rest = &self.input[..];
            while let Some(length) = reply_length(rest) {
                if rest[0] == b'*' && rest[4..].starts_with(b":1\r\n") {
                    *limited += 1;
                }
                rest = &rest[length..];
                self.waiting -= 1;
            }
            let consumed = self.input.len() - rest.len();
            self.input.drain(..consumed);
        }
        std::mem::take(&mut self.calls)
    }
}

/// Returns the length of the reply at the start of the input, or `None` if it is incomplete. An error ends the program.
fn reply_length(input: &[u8]) -> Option<usize> {
    let line = input.iter().position(|&byte| byte == b'\n')? + 1;
    let text = || std::str::from_utf8(&input[1..line - 2]).unwrap();
    let number = || text().parse::<i64>().unwrap();
    match input[0] {
        b'-' => {
            eprintln!("the server replied: {}", text());
            exit(1);
        }
        b'$' if number() >= 0 => {
            let length = line + number() as usize + 2;
            (input.len() >= length).then_some(length)
        }
        b'*' => {
            let mut length = line;
            for _ in 0..number() {
                length += reply_length(&input[length..])?;
            }
            Some(length)
        }
        _ => Some(line),
    }
}
