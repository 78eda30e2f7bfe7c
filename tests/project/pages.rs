//! Checks the documentation pages: links work, commands run, and figures agree with calls, tables and files.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use redis::Value;
use saphyr::{LoadableYamlNode, YamlOwned as Yaml};

use crate::support::clock::{Clock, START};
use crate::support::commands::MILLISECOND;
use crate::support::expected::TRY_AGAIN;
use crate::support::needs::{PYTHON_REDIS, REDIS_7, REDIS_CLI, needs};
use crate::support::pages::{Block, ROOT, block, blocks, code, dangling_links, pages, section, text_of, typed};
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
    assert!(dangling.is_empty(), "broken links: {dangling:#?}");
}

#[test]
fn each_file_that_a_page_names_exists() {
    for Block { place, text, .. } in blocks().into_iter().filter(|block| block.language == "code") {
        let is_path = ["src/", "tests/", "scripts/", "docs/"].iter().any(|folder| text.starts_with(folder));
        let exists = !is_path || text.contains([' ', '*', '…']) || Path::new(ROOT).join(&text).exists();
        assert!(exists, "{place}: the file {text} does not exist");
    }
}

/// Words that identify the programs that other tests read from a page and run. Most of these tests are in
/// tests/examples/applications.py, one is in clients/python/tests, and one is in this file. Every other program must be part of a file that is run.
const RUN_ELSEWHERE: [&str; 8] = [
    "def admit",
    "check(\"items\"",
    "import redis_cell.limits  # adds",
    "\n\nlimiter = Limiter(",
    "limiter.current_limits",
    "REDIS_CELL = ",
    "def lifespan",
    "new RedisCellStore",
];

/// A block of settings must load the module. A block of a program must be part of a file that is run. Most shell
/// commands are not checked here, because other tests read them from the page and run them.
#[test]
fn each_block_of_code_is_run_or_is_part_of_a_program_that_is_run() {
    let folders = ["docs", "clients", "tests/examples"].map(|folder| Path::new(ROOT).join(folder));
    let files = folders.iter().flat_map(|folder| files(folder));
    let files = files.filter(|file| file.extension().is_none_or(|extension| extension != "md"));
    let programs: Vec<_> = files.filter_map(|file| fs::read_to_string(file).ok()).collect();
    let manifest = Yaml::load_from_str(&text_of("docs/kubernetes/limits.yaml")).unwrap();
    let kubernetes = manifest[0]["data"]["redis.conf"].as_str().unwrap().replace(MODULES, "/path/to");
    let kubernetes = Block { place: "limits.yaml".into(), language: "conf".into(), text: kubernetes };
    for Block { place, language, text } in blocks().into_iter().chain([kubernetes]) {
        let text = text.replace("/path/to/libredis_cell.so", module());
        let is_run = match language.as_str() {
            "code" | "console" | "" => true,
            "conf" => {
                let folder = new_folder();
                let file = folder.path().join("redis.conf");
                fs::write(&file, text.replace("dir /data", &format!("dir {}", folder.path().display()))).unwrap();
                loads(&["--include", file.to_str().unwrap()])
            }
            "sh" => text.strip_prefix("redis-server ").is_none_or(|line| loads(&line.split(' ').collect::<Vec<_>>())),
            _ => {
                RUN_ELSEWHERE.iter().any(|words| text.contains(words))
                    || programs.iter().any(|program| lines(program).contains(&lines(&text)))
            }
        };
        assert!(is_run, "{place}: no test runs this block of {language:?}");
    }
}

/// Returns the lines of a program without their indentation, each with a newline before and after it.
fn lines(text: &str) -> String {
    text.lines().map(|line| format!("\n{}\n", line.trim())).collect()
}

/// Returns the files in a folder and its subfolders, except those installed by npm.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    let entries = entries.filter(|path| !path.ends_with("node_modules"));
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Returns whether a server with these settings logs that the module is ready, in the words of the README.
fn loads(settings: &[&str]) -> bool {
    let ready = format!("redis-cell {VERSION} is ready");
    assert_says("README.md", &format!("`{ready}`"));
    Server::start_bare(settings).log().contains(&ready)
}

/// The map is a table in docs/development.md, with a row for each file.
#[test]
fn the_map_of_the_sources_has_each_file() {
    let page = text_of("docs/development.md");
    let (_, rows) = page.split_once("\n| file in `src/` |").unwrap();
    let rows = rows.split("\n\n").next().unwrap().lines().skip(2);
    let mapped: BTreeSet<_> = rows.map(|row| row.split('`').nth(1).unwrap().to_string()).collect();
    let source = Path::new(ROOT).join("src");
    let paths = files(&source).into_iter().map(|file| file.strip_prefix(&source).unwrap().display().to_string());
    // In the table, the files in src/redis/ share a single row, and so do those in src/limiter/tests/.
    let row = |path: String| match path.find("tests/") {
        Some(start) => path[..start + 6].to_string(),
        None => path.split_inclusive('/').next().unwrap().to_string(),
    };
    let found: BTreeSet<_> = paths.map(row).collect();
    assert_eq!(mapped, found);
}

/// The options of `cargo` and of the scripts must exist, and the names of tests must select at least one test.
#[test]
fn each_line_for_contributors_is_one_that_runs() {
    let mut run = 0;
    for Block { place, language, text } in blocks() {
        for line in text.split(['\n', '&']).filter(|_| ["code", "sh"].contains(&language.as_str())) {
            let mut words = line.split_whitespace().skip_while(|word| word.contains('='));
            let Some(program) = words.next() else { continue };
            let words: Vec<_> = words.collect();
            let known = match words.first() {
                Some(command) if program == "cargo" => output(Command::new("cargo").args([command, "-h"])),
                Some(_) if program.starts_with("scripts/") => text_of(program),
                _ => continue,
            };
            run += 1;
            let (before, after) = words.split_at(words.iter().position(|word| *word == "--").unwrap_or(words.len()));
            let unknown = before.iter().find(|word| word.starts_with("--") && !known.contains(**word));
            assert_eq!(unknown, None, "{place}: {program} has no such option");
            if program == "cargo" && words[0] == "test" && !words.contains(&"--lib") {
                let names = before[1..].iter().filter(|word| !["--test", "servers"].contains(word));
                let mut tests = Command::new(env::current_exe().unwrap());
                let listed = output(tests.args(names).args(after.iter().skip(1)).arg("--list"));
                assert!(listed.contains(": test\n"), "{place}: {line} runs no test");
            }
            // scripts/test passes the arguments to pytest. The name after `-k` may be that of a pytest parameter that
            // is defined in another file.
            if let [file, "-k", name] = words[..] {
                let folder = files(Path::new(ROOT).join(file).parent().unwrap());
                let has_name = folder.iter().any(|file| fs::read_to_string(file).is_ok_and(|text| text.contains(name)));
                assert!(Path::new(ROOT).join(file).exists() && has_name, "{place}: {line} runs no test");
            }
        }
    }
    assert!(run > 0, "no page has a line for contributors");
}

/// In a session on a page, three spaces after a reply begin a remark, and three dots stand for the rest of a reply.
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
        // Skip the time that redis-cli adds if a call took more than half a second.
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

/// A block without a language contains a command's syntax, or calls with their replies. Sentences and tables contain
/// names of commands, and calls that end in numbers.
#[test]
fn commands_are_known_and_calls_get_the_replies_beside_them() {
    let (_clock, _server, mut connection) = Clock::start(START);
    let mut calls = 0;
    for Block { place, text, .. } in blocks().into_iter().filter(|block| block.text.starts_with("CL.")) {
        run::<()>(&mut connection, "FLUSHALL").unwrap();
        let name = text.split(' ').next().unwrap();
        let known: Vec<Value> = run(&mut connection, &format!("COMMAND INFO {name}")).unwrap();
        assert!(known != [Value::Nil], "{place}: the server does not know {name}");
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
                assert!(is_right, "{place}: {call} gets {reply:?}, not {expected}");
            }
        }
    }
    assert!(calls > 0, "no page has a call");
}

/// Checks the commands after `redis-cli`. Also checks code in sentences if it consists of a command's name and further
/// words, and is not an error.
#[test]
fn each_command_on_a_page_is_known_to_the_server() {
    needs!(REDIS_7);
    let (_server, mut connection) = Server::start().connected();
    let mut known = 0;
    for Block { place, language, text } in blocks() {
        let text = text.replace("\\\n", " ");
        let is_error = ["ERR ", "TRYAGAIN ", "WRONGTYPE "].iter().any(|code| text.starts_with(code));
        let is_command =
            |word: &str| word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'.');
        let typed = text.split("redis-cli ").skip(1).filter_map(typed_command);
        let named = text.split_once(' ').filter(|(name, _)| language == "code" && !is_error && is_command(name));
        for (name, rest) in typed.chain(named) {
            // Skip SENTINEL, which upgrade.rs tests, and INCREX, which servers know since Redis 8.8 and Valkey 9.2.
            if ["SENTINEL", "INCREX"].contains(&name) {
                continue;
            }
            known += 1;
            let info: Vec<Value> = run(&mut connection, &format!("COMMAND INFO {name}")).unwrap();
            let Value::Array(info) = &info[0] else { panic!("{place}: the server does not know {name}") };
            let subcommands: Vec<Vec<Value>> = redis::from_redis_value_ref(&info[9]).unwrap();
            let next = rest.split_whitespace().next().unwrap_or_default();
            let called = Value::BulkString(format!("{name}|{next}").to_lowercase().into());
            let is_known = subcommands.is_empty() || subcommands.iter().any(|subcommand| subcommand[0] == called);
            assert!(is_known, "{place}: the server does not know {name} {next}");
        }
    }
    assert!(known > 0, "no page has a command");
}

/// Given the words after `redis-cli`, skips the options, and returns the command and its arguments.
fn typed_command(words: &str) -> Option<(&str, &str)> {
    let (word, rest) = words.trim_start().split_once(' ').unwrap_or((words.trim(), ""));
    let word = word.trim_end_matches(['`', ';']).split('\n').next()?;
    match word {
        "--eval" | "--cluster" | "" => None,
        "-h" | "-p" | "-a" | "-n" | "-u" => typed_command(rest.trim_start().split_once(' ')?.1),
        _ if word.starts_with('-') => typed_command(rest),
        _ => Some((word, rest)),
    }
}

/// The tables say how many calls a quota allows in any span of time. That is the largest number that can be charged at
/// once and paid off within that span.
#[test]
fn the_maximum_number_of_calls_in_a_span_is_the_one_in_the_tables() {
    let (_clock, _server, mut connection) = Clock::start(START);
    let mut rows = 0;
    for page in pages(Path::new(ROOT)) {
        let text = fs::read_to_string(&page).unwrap();
        let mut spans = Vec::new();
        for cells in text.lines().map(|line| line.split('|').map(str::trim).collect::<Vec<_>>()) {
            let span = |cell: &&str| Some(milliseconds(cell.strip_prefix("maximum calls in any ")?));
            if cells.iter().any(|cell| span(cell).is_some()) {
                spans = cells.iter().map(span).collect();
            }
            let quota = cells.get(1).and_then(|cell| cell.strip_prefix('`')?.strip_suffix('`')).unwrap_or_default();
            let [max_burst, count, period] = quota.split(' ').collect::<Vec<_>>()[..] else { continue };
            let Ok(period) = period.parse::<u64>() else { continue };
            for (cell, span) in cells.iter().zip(&spans).filter_map(|(cell, span)| Some((cell, (*span)?))) {
                rows += 1;
                let most: u64 = cell.parse().unwrap();
                for (calls, is_allowed) in [(most, true), (most + 1, false)] {
                    run::<()>(&mut connection, "FLUSHALL").unwrap();
                    let call = format!("CL.PCHARGE key {max_burst} {count} {} {calls}", period * 1_000);
                    let [_, _, _, wait, _] = run::<[i64; 5]>(&mut connection, &call).unwrap();
                    assert_eq!(wait <= span, is_allowed, "{}: {quota}: {calls} in {span} ms", page.display());
                }
            }
        }
    }
    assert!(rows > 0, "no page has a table of quotas with the maximum calls in a span");
}

fn milliseconds(unit: &str) -> i64 {
    let seconds = [("second", 1), ("minute", 60), ("hour", 3_600), ("day", 86_400)];
    seconds.iter().find(|(name, _)| *name == unit).unwrap_or_else(|| panic!("{unit} is not a unit of time")).1 * 1_000
}

/// The table shows the reply to the last call above it, if that is made after the call at the top of the README.
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

/// Errors that the server sends, not the module. every_server/pages.rs tests them.
const ERRORS_OF_THE_SERVER: [&str; 2] = ["ERR max number of clients reached", "ERR unknown command"];

/// The messages in src/error.rs have placeholders in braces. replies.txt has the page's messages as a server sends
/// them, except for `TRY_AGAIN`, which refusals.rs tests.
#[test]
fn the_table_of_errors_has_every_error_as_a_server_sends_it() {
    let (page, source) = (text_of("docs/commands.md"), text_of("src/error.rs"));
    let table = section(&page, "## Errors");
    let sent = text_of("tests/every_server/replies.txt") + &format!("   ->   {TRY_AGAIN}\n");
    let rows = table.lines().filter_map(|row| row.strip_prefix("| ")?.split(" | ").next());
    // Skip codes without a text, such as `OOM`, which are the server's errors. Also skip texts that the page shortens,
    // such as `ERR quantity: …`.
    for error in rows.flat_map(code).filter(|error| error.contains(' ') && !error.ends_with('…')) {
        let is_sent = sent.contains(&format!("   ->   {error}\n")) || ERRORS_OF_THE_SERVER.contains(&&*error);
        assert!(is_sent, "no test gets the error {error:?}");
    }
    let texts = source.split("#[error(\"").skip(1).map(|text| text.split("\")]").next().unwrap());
    for text in texts.filter(|text| text.starts_with(char::is_uppercase)) {
        // The page may shorten a text, as in `ERR quantity: …`.
        let (before, after) = (text.split('{').next().unwrap(), text.rsplit('}').next().unwrap());
        let is_shown = |shown: String| match shown.strip_suffix('…') {
            Some(start) => text.starts_with(start),
            None => shown.starts_with(before) && shown.contains(after),
        };
        assert!(code(table).any(is_shown), "docs/commands.md lacks {text:?}");
    }
}

/// The commands in milliseconds share a section, because each has the arguments of its counterpart in seconds.
#[test]
fn each_command_is_in_the_readme_and_has_a_section_with_its_arguments() {
    let (readme, page) = (text_of("README.md"), text_of("docs/commands.md"));
    for command in &COMMANDS {
        let name = command.name.to_uppercase();
        let (heading, words) = match command.unit == MILLISECOND {
            false => (format!("## {name}"), format!("```\n{name} {}\n```\n", command.syntax)),
            true => ("## Milliseconds".to_string(), format!("`{name}`")),
        };
        assert!(section(&page, &heading).contains(&words), "docs/commands.md does not say under {heading:?}: {words}");
        assert!(section(&readme, "## Commands").contains(&format!("`{name}`")), "README.md lacks {name}");
    }
}

/// If the text of a link contains a figure, every figure in its paragraph must be on a page to which the paragraph
/// links.
#[test]
fn figures_are_those_of_the_page_to_which_they_link() {
    let mut linked = 0;
    for page in pages(Path::new(ROOT)) {
        let text = fs::read_to_string(&page).unwrap();
        for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.starts_with('|')) {
            let links = paragraph.split('[').filter_map(|link| link.split(')').next()?.split_once("]("));
            let links: Vec<_> = links.filter(|(_, target)| target.contains(".md")).collect();
            if links.iter().all(|(words, _)| figures(words).is_empty()) {
                continue;
            }
            linked += 1;
            let sources = links.iter().map(|(_, target)| page.with_file_name(target.split('#').next().unwrap()));
            let known: BTreeSet<_> = sources.flat_map(|source| figures(&fs::read_to_string(source).unwrap())).collect();
            let unknown: Vec<_> = figures(paragraph).difference(&known).cloned().collect();
            assert!(unknown.is_empty(), "{}: no link leads to the source of {unknown:?}: {paragraph}", page.display());
        }
    }
    assert!(linked > 0, "no page links to the source of a figure");
}

/// Returns the numbers in a text, without the punctuation after them.
fn figures(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_digit() && !".,".contains(letter));
    let words = words.map(|word| word.trim_matches(['.', ',']).to_string());
    words.filter(|word| !word.is_empty()).collect()
}

/// Other figures are checked elsewhere: costs.rs checks the size of a limiter, and loading.rs the server versions
/// that the module needs.
#[test]
fn versions_and_sizes_are_those_of_other_files() {
    let between = |file: &str, before: &str, after: &str| {
        let text = text_of(file);
        text.split_once(before)
            .unwrap_or_else(|| panic!("{file} lacks {before:?}"))
            .1
            .split(after)
            .next()
            .unwrap()
            .to_string()
    };
    for server in between("scripts/servers", "\nsupported='\n", "\n'").lines() {
        let version = server.split_whitespace().nth(1).unwrap().trim_end_matches('*');
        assert_says("docs/platforms.md", &format!(" {version}"));
    }
    for (page, words) in [
        ("docs/Containerfile", format!("ARG VERSION={VERSION} ")),
        ("docs/kubernetes/limits.yaml", format!("/REPO:{VERSION}")),
        ("docs/platforms.md", format!("glibc {}", between("scripts/package", "\nglibc=", "\n"))),
        ("README.md", format!("Rust {} or newer", env!("CARGO_PKG_RUST_VERSION"))),
        ("README.md", format!("{} MB", between("scripts/test", "fetches about ", " MB"))),
    ] {
        assert_says(page, &words);
    }
}

/// A guarantee names its tests by the beginning of their names, such as `hostile`.
#[test]
fn each_guarantee_names_tests_that_exist() {
    let tests = format!("\n{}", output(Command::new(env::current_exe().unwrap()).arg("--list")));
    let page = text_of("docs/design.md");
    let guarantees: Vec<_> = section(&page, "## Guarantees").split("\n* ").skip(1).collect();
    assert!(!guarantees.is_empty(), "the guarantees are not a list");
    for guarantee in guarantees {
        let (_, named) = guarantee.split("\n\n").next().unwrap().rsplit_once('(').unwrap_or_default();
        let names: Vec<_> = code(named).collect();
        let known = names.iter().all(|name| tests.contains(&format!("\n{name}")));
        assert!(!names.is_empty() && known, "not all of these are tests: {names:?}, in {guarantee}");
    }
}
