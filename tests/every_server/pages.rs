//! The sessions, commands and settings of README.md and docs/, run on each server. Checks of the pages that need no
//! server are in project/pages.rs.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use redis::Value;
use saphyr::{LoadableYamlNode, YamlOwned as Yaml};

use crate::support::clock::{Clock, SECOND, START};
use crate::support::needs::{NATIVE, PYTHON_REDIS, REDIS_CLI, needs};
use crate::support::pages::{Block, ROOT, block, blocks, code, pages, text_of};
use crate::support::programs::{output, python};
use crate::support::{MODULES, Server, module, new_folder, run};

fn blocks_in(language: &str) -> impl Iterator<Item = Block> {
    blocks(|block| block.language == language).into_iter().inspect(|block| println!("{}", block.place))
}

/// Puts the library's path where the pages have one that stands for the user's own.
fn with_real_path(text: &str) -> String {
    text.replace("/path/to/libredis_cell.so", module())
}

#[test]
#[ignore = "slow: a server for each session"]
fn sessions_are_what_redis_cli_shows() {
    needs!(NATIVE);
    needs!(REDIS_CLI);
    for Block { place, text, .. } in blocks_in("console") {
        let (prompts, expected): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with("127.0.0.1:6379"));
        let commands = prompts.iter().map(|prompt| prompt.split_once("> ").unwrap().1);
        let commands = commands.map(|command| format!("{command}\n")).collect::<String>();
        let (_clock, server, _) = Clock::start(START);
        let mut client = Command::new("redis-cli");
        client.args(["-p", &server.port.to_string(), "--no-raw"]);
        client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut client = client.spawn().unwrap();
        client.stdin.take().unwrap().write_all(commands.as_bytes()).unwrap();
        let output = String::from_utf8(client.wait_with_output().unwrap().stdout).unwrap();
        // redis-cli adds the time of a call that took more than half a second.
        let is_time = |line: &str| line.starts_with('(') && line.ends_with("s)");
        let lines = output.lines().map(str::trim_end);
        let mut shown: Vec<_> = lines.filter(|line| !line.is_empty() && !is_time(line)).collect();
        // Three dots stand for the rest of a long reply.
        if expected.last() == Some(&"...") && shown.len() >= expected.len() {
            shown.truncate(expected.len() - 1);
            shown.push("...");
        }
        assert_eq!(shown, expected, "{place}");
    }
}

/// A block without a language shows a command's syntax, or calls with their replies. A sentence or a table has names of
/// commands, and calls that end in numbers.
#[test]
fn commands_are_known_and_calls_are_answered_where_they_stand() {
    let (_clock, _server, mut connection) = Clock::start(START);
    let mut places: Vec<_> = blocks_in("").map(|block| (block.place, block.text)).collect();
    for page in pages(Path::new(ROOT)) {
        let text = fs::read_to_string(&page).unwrap();
        let codes = code(&text).filter(|code| code.starts_with("CL."));
        places.extend(codes.map(|code| (page.display().to_string(), code)));
    }
    let mut calls = 0;
    for (place, text) in places {
        let name = text.split(' ').next().unwrap();
        let known: Vec<Value> = run(&mut connection, &format!("COMMAND INFO {name}")).unwrap();
        assert!(known != [Value::Nil], "{place}: {name}");
        run::<()>(&mut connection, "FLUSHALL").unwrap();
        for line in text.lines() {
            let (call, expected) = line.split_once("   ->   ").unwrap_or((line, ""));
            let words: Vec<_> = call.split(' ').collect();
            let is_call = words.len() > 4 && words[words.len() - 3..].iter().all(|word| word.parse::<i64>().is_ok());
            if !is_call && expected.is_empty() {
                continue;
            }
            calls += 1;
            let reply: Value = run(&mut connection, call).unwrap_or_else(|error| panic!("{place}: {call}: {error}"));
            let integers = expected.split_terminator(' ').map(|integer| Value::Int(integer.parse().unwrap()));
            assert!(expected.is_empty() || reply == Value::Array(integers.collect()), "{place}: {call}: {reply:?}");
        }
    }
    assert!(calls >= 40, "{calls}");
}

/// The caller takes all that there is, at once and after each second or, for an hour's quota, each minute.
#[test]
fn the_table_of_burst_and_rate_says_what_a_caller_gets() {
    let page = text_of("docs/choosing.md");
    let rows: Vec<_> = page.lines().filter_map(|row| row.strip_prefix("| `")?.split_once("` | ")).collect();
    assert_eq!(rows.len(), 3);
    let (clock, _server, mut connection) = Clock::start(START);
    let mut taken = |quota: &str, pause: i64| -> Vec<i64> {
        run::<()>(&mut connection, "FLUSHALL").unwrap();
        let taken = (0..=60).map(|turn| {
            clock.set(START + turn * pause);
            run::<[i64; 5]>(&mut connection, &format!("CL.TAKE key {quota} 999999")).unwrap()[0]
        });
        taken.collect()
    };
    for (quota, expected) in rows {
        let taken = taken(quota, SECOND);
        let [second, minute] = [2, 61].map(|times| taken[..times].iter().sum::<i64>());
        assert_eq!(format!("{second} | {minute} |"), expected, "{quota}");
    }
    for (quota, in_an_hour) in [("1 1 3600", "never more than 3 in any hour"), ("2 3 3600", "6 in the first hour")] {
        assert!(page.contains(quota) && page.contains(in_an_hour), "{quota}");
        let taken: i64 = taken(quota, 60 * SECOND).iter().sum();
        assert!(in_an_hour.contains(&taken.to_string()), "{quota}");
    }
}

#[test]
fn settings_load_the_module() {
    needs!(NATIVE);
    let ready = format!("redis-cell {} is ready", env!("CARGO_PKG_VERSION"));
    let manifest = Yaml::load_from_str(&text_of("docs/kubernetes/limits.yaml")).unwrap();
    let kubernetes = manifest[0]["data"]["redis.conf"].as_str().unwrap().replace(MODULES, "/path/to");
    let blocks = blocks_in("conf").filter(|block| !block.text.starts_with("sentinel "));
    let all = blocks.map(|block| (block.place, block.text)).chain([("limits.yaml".to_string(), kubernetes)]);
    for (place, text) in all {
        let folder = new_folder();
        let file = folder.path().join("redis.conf");
        let text = text.replace("dir /data", &format!("dir {}", folder.path().display()));
        fs::write(&file, with_real_path(&text)).unwrap();
        let server = Server::start_bare(&["--include", file.to_str().unwrap()]);
        assert!(server.log().contains(&ready), "{place}: {}", server.log());
    }
}

#[test]
#[ignore = "slow: Python"]
fn the_readmes_lines_of_python_admit_16_requests_and_refuse_the_next() {
    needs!(NATIVE);
    needs!(PYTHON_REDIS);
    let (_clock, server, _) = Clock::start(START);
    let folder = new_folder();
    let program = folder.path().join("readme.py");
    let seventeen = "import os\n\nclient = redis.Redis.from_url(os.environ['REDIS_URL'])\n\
                     for _ in range(17):\n    print(admit('user123'))\n";
    fs::write(&program, format!("{}\n\n{seventeen}", block("python", "def admit"))).unwrap();
    let allowed = (0..16).rev().map(|remaining| format!("(200, {{'X-RateLimit-Remaining': {remaining}}})\n"));
    let expected = allowed.collect::<String>() + "(429, {'Retry-After': 2})\n";
    assert_eq!(output(&mut python(program.to_str().unwrap(), &server)), expected);
}

/// The blocks of commands that another file runs, by page and by words in them.
const RUN_ELSEWHERE: [(&str, &str); 8] = [
    ("README.md", "sha256sum"),                          // package.rs
    ("README.md", "sudo sed"),                           // loading.rs, and package.rs the first line
    ("docs/monitoring.md", "prometheus-redis-exporter"), // monitoring.rs
    ("docs/monitoring.md", "CL.LOOK health"),            // monitoring.rs
    ("docs/monitoring.md", "psubscribe"),                // monitoring.rs
    ("docs/moving.md", ""),                              // moving.rs: all of them, in their order
    ("docs/operating.md", "--scan"),                     // operating.rs
    ("docs/protect.md", "uvicorn"),                      // test_protect.py
];

#[test]
fn shell_commands_on_the_pages_are_those_that_the_tests_run() {
    needs!(NATIVE);
    for Block { place, text, .. } in blocks_in("sh") {
        if RUN_ELSEWHERE.iter().any(|(page, words)| place.starts_with(page) && text.contains(words)) {
            continue;
        }
        for line in text.lines() {
            let command = line.split('#').next().unwrap().trim();
            match command.split_whitespace().collect::<Vec<_>>().as_slice() {
                // scripts.rs runs the first, package.rs the last; the second runs this test.
                ["scripts/run" | "scripts/test" | "scripts/package"] => assert!(Path::new(ROOT).join(command).exists()),
                // The job `container` runs it with each image.
                ["docker", ..] => {
                    let workflow = text_of(".github/workflows/ci.yml").replace("${{ matrix.server }}", "redis:8");
                    assert!(workflow.contains(&format!("run: {command}\n")), "{place}: CI does not run {command}");
                }
                ["redis-server", arguments @ ..] => {
                    // The shell takes the quotes away.
                    let arguments = with_real_path(&arguments.join(" ")).replace('\'', "");
                    let server = Server::start_bare(&arguments.split(' ').collect::<Vec<_>>());
                    run::<Vec<i64>>(&mut server.connect(), "CL.THROTTLE key 1 1 60").unwrap();
                }
                _ => panic!("{place}: no test runs {line}"),
            }
        }
    }
}
