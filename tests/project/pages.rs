//! The pages: links lead somewhere, commands run, and figures are those of calls, tables and files.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use redis::Value;
use saphyr::{LoadableYamlNode, YamlOwned as Yaml};

use crate::support::clock::{Clock, START};
use crate::support::commands::MILLISECOND;
use crate::support::expected::TRY_AGAIN;
use crate::support::needs::{PYTHON_REDIS, REDIS_CLI, needs};
use crate::support::pages::{Block, ROOT, block, blocks, code, dangling_links, section, text_of, typed};
use crate::support::programs::{output, python};
use crate::support::{COMMANDS, MODULES, Server, module, new_folder, run};

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn assert_says(page: &str, words: &str) {
    let text = text_of(page).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(words), "{page} does not say: {words}");
}

#[test]
fn links_lead_somewhere() {
    let dangling = dangling_links(Path::new(ROOT));
    assert!(dangling.is_empty(), "{dangling:#?}");
}

#[test]
fn each_file_that_a_page_names_exists() {
    for Block { place, text, .. } in blocks().into_iter().filter(|block| block.language == "code") {
        let is_path = ["src/", "tests/", "scripts/", "docs/"].iter().any(|folder| text.starts_with(folder));
        let exists = !is_path || text.contains([' ', '*', '…']) || Path::new(ROOT).join(&text).exists();
        assert!(exists, "{place}: there is no {text}");
    }
}

/// Words that identify the blocks that other tests run. The comments name these tests.
const RUN_ELSEWHERE: [&str; 13] = [
    "scripts/run\nscripts/test",   // scripts.rs, and this test
    "scripts/package",             // package.rs
    "apt install ./redis-cell",    // package.rs
    "sed -i",                      // loading.rs, upgrade.rs
    "redis-cli -h 10.0.0.",        // upgrade.rs
    "redis-cli -p 26379 SENTINEL", // upgrade.rs
    "prometheus-redis-exporter",   // prometheus.rs
    "CL.LOOK health",              // monitoring.rs
    "psubscribe",                  // monitoring.rs
    "def admit",                   // the README's lines of Python, in this file
    "uvicorn",                     // test_protect.py
    "FCALL calendar_throttle",     // test_pages.py
    "check(\"items\"",             // test_nginx.py
];

#[test]
fn each_block_of_code_is_run_or_is_part_of_a_program_that_is_run() {
    let folders = fs::read_dir(Path::new(ROOT).join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let folders = folders.chain([Path::new(ROOT).join("tests/examples")]).filter(|path| path.is_dir());
    let files = folders.flat_map(|folder| fs::read_dir(folder).unwrap()).map(|file| file.unwrap().path());
    let programs: Vec<_> = files.filter_map(|file| fs::read_to_string(file).ok()).collect();
    let manifest = Yaml::load_from_str(&text_of("docs/kubernetes/limits.yaml")).unwrap();
    let kubernetes = manifest[0]["data"]["redis.conf"].as_str().unwrap().replace(MODULES, "/path/to");
    let kubernetes = Block { place: "limits.yaml".into(), language: "conf".into(), text: kubernetes };
    for Block { place, language, text } in blocks().into_iter().chain([kubernetes]) {
        let text = text.replace("/path/to/libredis_cell.so", module());
        let is_run = match language.as_str() {
            "code" | "console" | "" => true,
            _ if RUN_ELSEWHERE.iter().any(|words| text.contains(words)) => true,
            "conf" => {
                let folder = new_folder();
                let file = folder.path().join("redis.conf");
                fs::write(&file, text.replace("dir /data", &format!("dir {}", folder.path().display()))).unwrap();
                loads(&["--include", file.to_str().unwrap()])
            }
            "sh" => text.strip_prefix("redis-server ").is_some_and(|line| loads(&line.split(' ').collect::<Vec<_>>())),
            _ => programs.iter().any(|program| format!("\n{program}").contains(&format!("\n{text}\n"))),
        };
        assert!(is_run, "{place}: a block of {language:?} that no test runs");
    }
}

/// Returns whether a server with these settings logs what the README says.
fn loads(settings: &[&str]) -> bool {
    let ready = format!("redis-cell {VERSION} is ready");
    assert_says("README.md", &format!("`{ready}`"));
    Server::start_bare(settings).log().contains(&ready)
}

/// Three spaces after a reply begin a remark for the reader. Three dots stand for the rest of a reply.
#[test]
#[ignore = "slow: a server for each session"]
fn sessions_are_what_redis_cli_shows() {
    needs!(REDIS_CLI);
    for Block { place, text, .. } in blocks().into_iter().filter(|block| block.language == "console") {
        let (prompts, replies): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with("127.0.0.1:6379> "));
        let commands: String = prompts.iter().map(|line| line[16..].to_string() + "\n").collect();
        let (_clock, server, _) = Clock::start(START);
        let typed = "printf %s \"$1\" | redis-cli -p \"$0\" --no-raw";
        let shown = output(Command::new("sh").args(["-c", typed, &server.port.to_string(), &commands]));
        // redis-cli adds the time of a call that took more than half a second.
        let is_reply = |line: &&str| !(line.is_empty() || line.starts_with('(') && line.ends_with("s)"));
        let mut shown: Vec<_> = shown.lines().map(str::trim_end).filter(is_reply).collect();
        let reply = |line: &'_ str| {
            let indent = line.len() - line.trim_start().len();
            line[..line[indent..].find("   ").map_or(line.len(), |end| indent + end)].to_string()
        };
        let mut replies: Vec<_> = replies.into_iter().map(reply).collect();
        if replies.last().is_some_and(|last| last == "...") {
            replies.pop();
            shown.truncate(replies.len());
        }
        assert_eq!(shown, replies, "{place}");
    }
}

/// A block without a language has a command's syntax, or calls with their replies. A sentence or a table has names of
/// commands, and calls that end in numbers.
#[test]
fn commands_are_known_and_calls_get_the_replies_beside_them() {
    let (_clock, _server, mut connection) = Clock::start(START);
    let mut calls = 0;
    for Block { place, text, .. } in blocks().into_iter().filter(|block| block.text.starts_with("CL.")) {
        run::<()>(&mut connection, "FLUSHALL").unwrap();
        let name = text.split(' ').next().unwrap();
        let known: Vec<Value> = run(&mut connection, &format!("COMMAND INFO {name}")).unwrap();
        assert!(known != [Value::Nil], "{place}: {name}");
        for line in text.lines() {
            let (call, expected) = line.split_once("   ->   ").unwrap_or((line, ""));
            let words: Vec<_> = call.split(' ').collect();
            let is_call = words.len() > 4 && words[words.len() - 3..].iter().all(|word| word.parse::<i64>().is_ok());
            if is_call || !expected.is_empty() {
                calls += 1;
                let reply = run::<Value>(&mut connection, call);
                let reply = reply.unwrap_or_else(|error| panic!("{place}: {call}: {error}"));
                let integers = expected.split_terminator(' ').map(|integer| Value::Int(integer.parse().unwrap()));
                let is_right = expected.is_empty() || reply == Value::Array(integers.collect());
                assert!(is_right, "{place}: {call}: {reply:?}");
            }
        }
    }
    assert!(calls >= 37, "{calls}");
}

/// replies.txt quotes what a page says, above the calls that show it.
#[test]
fn each_quote_in_replies_txt_is_on_its_page() {
    for quote in text_of("tests/every_server/replies.txt").lines().skip(5).filter_map(|line| line.strip_prefix("> ")) {
        let (page, words) = quote.split_once(": ").unwrap();
        assert_says(page, words);
    }
}

/// The table has the reply to the call in the sentence before it, after the call at the top of the page.
#[test]
fn the_readmes_table_is_the_reply_to_its_second_call() {
    let readme = text_of("README.md");
    let (before, table) = section(&readme, "## The arguments and the reply").split_once("\n| name |").unwrap();
    let (_clock, _server, mut connection) = Clock::start(START);
    run::<Value>(&mut connection, &typed("CL.THROTTLE user123")).unwrap();
    let reply: Vec<i64> = run(&mut connection, &code(before).last().unwrap()).unwrap();
    let rows = table.lines().filter(|row| row.starts_with("| `"));
    let column: Vec<i64> = rows.map(|row| row.split(" | ").nth(1).unwrap().parse().unwrap()).collect();
    assert_eq!(column, reply);
}

#[test]
#[ignore = "slow: Python"]
fn the_readmes_lines_of_python_admit_16_requests_and_refuse_the_next() {
    needs!(PYTHON_REDIS);
    let (_clock, server, _) = Clock::start(START);
    let folder = new_folder();
    let program = folder.path().join("readme.py");
    let lines = block("python", "def admit").replace("redis.Redis(", &format!("redis.Redis(port={}, ", server.port));
    fs::write(&program, format!("{lines}\n\nfor _ in range(17):\n    print(admit('user123'))\n")).unwrap();
    let allowed = (0..16).rev().map(|remaining| format!("(200, {{'X-RateLimit-Remaining': '{remaining}'}})\n"));
    let expected = allowed.collect::<String>() + "(429, {'Retry-After': '2'})\n";
    assert_eq!(output(&mut python(program.to_str().unwrap(), &server)), expected);
}

/// A message in src/error.rs has placeholders in braces. replies.txt has the page's messages as a server sends them,
/// except for the one in refusals.rs.
#[test]
fn the_table_of_errors_has_every_error_as_a_server_sends_it() {
    let (page, source) = (text_of("docs/commands.md"), text_of("src/error.rs"));
    let table = section(&page, "## Errors").split("\n### ").next().unwrap();
    let sent = text_of("tests/every_server/replies.txt") + &format!("   ->   {TRY_AGAIN}\n");
    for (_, error) in table.lines().filter_map(|row| row.strip_suffix("` |")?.rsplit_once(" | `")) {
        assert!(sent.contains(&format!("   ->   {error}\n")), "no test gets the error {error:?}");
    }
    let texts = source.split("#[error(\"").skip(1).map(|text| text.split("\")]").next().unwrap());
    for text in texts.filter(|text| text.starts_with(char::is_uppercase)) {
        // The page may leave out the rest of a text: `ERR quantity: …`.
        let (before, after) = (text.split('{').next().unwrap(), text.rsplit('}').next().unwrap());
        let is_shown = |shown: String| match shown.strip_suffix('…') {
            Some(start) => text.starts_with(start),
            None => shown.starts_with(before) && shown.contains(after),
        };
        assert!(code(table).any(is_shown), "docs/commands.md lacks {text:?}");
    }
}

/// The commands in milliseconds share a section: each has the arguments of its counterpart in seconds.
#[test]
fn each_command_has_a_row_in_the_readme_and_a_section_with_its_arguments() {
    let (readme, page) = (text_of("README.md"), text_of("docs/commands.md"));
    for command in &COMMANDS {
        let name = command.name.to_uppercase();
        let (heading, words) = match command.unit == MILLISECOND {
            false => (format!("## {name}"), format!("```\n{name} {}\n```\n", command.syntax)),
            true => ("## Milliseconds".to_string(), format!("`{name}`")),
        };
        assert!(section(&page, &heading).contains(&words), "docs/commands.md does not have under {heading:?}: {words}");
        assert!(section(&readme, "## Commands").contains(&format!("`{name}`")), "README.md has no row for {name}");
    }
}

/// These figures are in other files as well. costs.rs checks the bytes in docs/operating.md.
#[test]
fn versions_and_figures_are_those_of_other_files() {
    let between = |file: &str, before: &str, after: &str| {
        let text = text_of(file);
        text.split_once(before).unwrap().1.split(after).next().unwrap().to_string()
    };
    let [cost, memory] = [("docs/comparison.md", "CL.THROTTLE, allowed"), ("docs/operating.md", "one quota")]
        .map(|(page, name)| between(page, &format!("| {name} | "), " |\n"))
        .map(|row| row.split(" | ").map(String::from).collect::<Vec<_>>());
    for server in between("scripts/servers", "\nsupported='\n", "\n'").lines() {
        let version = server.split_whitespace().nth(1).unwrap().trim_end_matches('*');
        assert_says("docs/platforms.md", &format!(" {version}"));
    }
    let needs = between("src/redis/module.rs", "\"needs ", " or later:");
    for version in needs.split(|letter: char| letter != '.' && !letter.is_ascii_digit()).filter(|word| !word.is_empty())
    {
        assert_says("README.md", &format!("{version} or newer"));
    }
    for (page, words) in [
        ("docs/Containerfile", format!("ARG VERSION={VERSION} ")),
        ("docs/kubernetes/limits.yaml", format!("/REPO:{VERSION}")),
        ("docs/comparison.md", between("README.md", "EPYC core handles ", " calls") + " to "),
        ("docs/platforms.md", format!("needs only glibc {}", between("scripts/package", "\nglibc=", "\n"))),
        ("README.md", format!("Rust {} or newer", env!("CARGO_PKG_RUST_VERSION"))),
        ("README.md", format!("downloads about {} MB", between("scripts/test", "fetches about ", " MB"))),
        (
            "README.md",
            format!("takes [{} times the instructions](docs/comparison.md#what-a-call-costs) and {} times the CPU time", cost[1], cost[3]),
        ),
        ("README.md", format!("without pipelining, and {} with pipelining", cost[4])),
        ("README.md", format!("A limiter uses [{} bytes]", memory[0])),
    ] {
        assert_says(page, &words);
    }
}

/// A guarantee names tests by the beginning of their names, such as `hostile`.
#[test]
fn each_guarantee_names_tests_that_exist() {
    let tests = format!("\n{}", output(Command::new(env::current_exe().unwrap()).arg("--list")));
    let page = text_of("docs/design.md");
    let guarantees: Vec<_> = section(&page, "## Guarantees").split("\n* ").skip(1).collect();
    assert!(guarantees.len() > 6);
    for guarantee in guarantees {
        let (_, named) = guarantee.split("\n\n").next().unwrap().rsplit_once('(').unwrap_or_default();
        let names: Vec<_> = code(named).collect();
        let known = names.iter().all(|name| tests.contains(&format!("\n{name}")));
        assert!(!names.is_empty() && known, "not all of these are tests: {names:?}, in {guarantee}");
    }
}
