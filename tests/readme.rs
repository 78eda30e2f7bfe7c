//! Every code block of the README is run, or stands word for word in a file that another test runs.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Server, module, module_command, run};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The README's blocks: the language after the three backticks, and the lines.
fn blocks() -> Vec<(String, String)> {
    let readme = fs::read_to_string(Path::new(ROOT).join("README.md")).unwrap();
    let mut blocks = Vec::new();
    let mut lines = readme.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let block: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push((language.to_string(), block.join("\n")));
        }
    }
    blocks
}

fn blocks_in(language: &str) -> Vec<String> {
    let blocks = blocks().into_iter().filter(|block| block.0 == language);
    let blocks: Vec<_> = blocks.map(|block| block.1).collect();
    assert!(!blocks.is_empty(), "no {language} in the README");
    blocks
}

/// The README's stand-in for wherever the user has put the library.
fn with_real_path(text: &str) -> String {
    text.replace("/path/to/libredis_cell.so", module().to_str().unwrap())
}

#[test]
fn there_is_no_block_that_no_test_knows() {
    for (language, block) in blocks() {
        match language.as_str() {
            "console" | "conf" | "sh" | "python" | "js" | "rust" => {}
            // The commands' syntax: what COMMAND DOCS says is tested in operating.rs.
            "" => assert!(block.starts_with("CL.") && !block.contains('\n'), "{block}"),
            _ => panic!("{language}: {block}"),
        }
    }
}

#[test]
fn sessions_are_what_redis_cli_shows() {
    for session in blocks_in("console") {
        let mut commands = String::new();
        let mut expected = Vec::new();
        for line in session.lines() {
            match line.strip_prefix("127.0.0.1:6379") {
                Some(prompt) => {
                    let (_, command) = prompt.split_once("> ").unwrap();
                    commands.push_str(&with_real_path(command));
                    commands.push('\n');
                }
                None => expected.push(line),
            }
        }
        let server = if commands.starts_with("MODULE LOAD") {
            Server::start_bare(module_command())
        } else {
            Server::start_with(module_command())
        };
        let mut client = Command::new("redis-cli");
        client.args(["-p", &server.port.to_string(), "--no-raw"]);
        client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut client = client.spawn().unwrap();
        client.stdin.take().unwrap().write_all(commands.as_bytes()).unwrap();
        let output = client.wait_with_output();
        let output = String::from_utf8(output.unwrap().stdout).unwrap();
        let shown: Vec<_> = output.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        assert_eq!(shown, expected, "{session}");
    }
}

#[test]
fn settings_load_the_module() {
    for settings in blocks_in("conf") {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme.conf");
        fs::write(&folder, with_real_path(&settings)).unwrap();
        let server = Server::start_bare(&["--include", folder.to_str().unwrap()]);
        assert!(server.log().contains("redis-cell 1.0.0 is ready"), "{}", server.log());
    }
}

#[test]
fn what_is_typed_in_a_shell_is_what_the_tests_run() {
    for line in blocks_in("sh").iter().flat_map(|block| block.lines()) {
        let command = line.split('#').next().unwrap().trim();
        match command.split_whitespace().collect::<Vec<_>>().as_slice() {
            // Run by scripts.rs, and this is the other.
            ["scripts/run" | "scripts/test"] => assert!(Path::new(ROOT).join(command).exists()),
            ["redis-server", arguments @ ..] => {
                let arguments: Vec<_> = arguments.iter().map(|argument| with_real_path(argument)).collect();
                let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
                let server = Server::start_bare(&arguments);
                run::<Vec<i64>>(&mut server.connect(), "CL.THROTTLE key 1 1 60").unwrap();
            }
            // Run by package.rs, which installs with dpkg alone, and without a service.
            ["sha256sum" | "tar" | "sudo" | "echo", ..] => {}
            _ => panic!("{line}"),
        }
    }
}

#[test]
fn examples_for_clients_are_excerpts_of_what_the_tests_run() {
    for (language, extension) in [("python", "py"), ("js", "js"), ("rust", "rs")] {
        let files = fs::read_dir(Path::new(ROOT).join("tests/clients")).unwrap();
        let files: Vec<_> = files
            .map(|file| file.unwrap().path())
            .filter(|path| path.extension().is_some_and(|found| found == extension))
            .map(|path| fs::read_to_string(path).unwrap())
            .collect();
        for block in blocks_in(language) {
            assert!(files.iter().any(|file| file.contains(&block)), "{block}");
        }
    }
}

/// A cost in the README is one that `scripts/bench` has measured.
#[test]
fn costs_are_those_of_the_committed_results() {
    let read = |file: &str| fs::read_to_string(Path::new(ROOT).join(file)).unwrap();
    let (readme, results) = (read("README.md"), read("scripts/bench-results/README.md"));
    let table = readme.split("| one check | instructions").nth(1).unwrap();
    let rows: Vec<_> = table.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() > 5);
    for row in rows {
        assert!(results.contains(row), "{row}");
    }
}
