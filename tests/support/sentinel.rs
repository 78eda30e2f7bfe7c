//! A Sentinel of the test's own, which watches a primary by the name of `limits`.

use std::fs;
use std::process::Stdio;

use redis::{Client, RedisResult, Value};
use tempfile::TempDir;

use super::{Process, ends_with_the_test, executable, free_port, new_folder, run, wait_until};

pub struct Sentinel {
    pub port: u16,
    _folder: TempDir,
    client: Client,
    _process: Process,
}

impl Sentinel {
    /// Starts a Sentinel with these settings. Sentinel checks its servers more often than usual, if its version has the
    /// setting.
    pub fn start(settings: &str) -> Self {
        let port = free_port();
        let folder = new_folder();
        let file = folder.path().join("sentinel.conf");
        fs::write(&file, format!("port {port}\ndir {}\n{settings}\n", folder.path().display())).unwrap();
        let mut sentinel = ends_with_the_test(executable());
        sentinel.arg(&file).arg("--sentinel").env("LC_ALL", "C").stdout(Stdio::null());
        let process = Process::start(&mut sentinel);
        let client = Client::open(format!("redis://127.0.0.1:{port}/")).unwrap();
        let sentinel = Self { port, _folder: folder, client, _process: process };
        wait_until("Sentinel answers", || sentinel.answers("PING", "PONG"));
        // Redis 6.2 has no such setting.
        let _ = sentinel.ask::<()>("SENTINEL DEBUG info-period 500");
        sentinel
    }

    fn ask<T: redis::FromRedisValue>(&self, question: &str) -> RedisResult<T> {
        run(&mut self.client.get_connection()?, question)
    }

    /// Returns whether the answer contains this text.
    pub fn answers(&self, question: &str, text: &str) -> bool {
        self.ask::<Value>(question).is_ok_and(|answer| format!("{answer:?}").contains(text))
    }
}
