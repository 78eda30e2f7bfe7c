//! What README.md and docs/ say holds: every block of code is run, or is word for word a file that the tests run; every
//! link leads somewhere; every cost has been measured; nothing is said twice.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::clients::{output, python};
use crate::support::{Process, Server, executable, free_port, module, module_command, run, throttle, wait_until};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// Folders with files that the tests run, for blocks of these languages.
const EXAMPLES: [&str; 3] = ["tests/clients", "tests/moving", "docs/monitoring"];
const LANGUAGES: [(&str, &str); 5] = [("python", "py"), ("js", "js"), ("rust", "rs"), ("lua", "lua"), ("yaml", "yml")];

/// README.md and every page in docs/, of a clone or of an unpacked release.
fn pages(root: &Path) -> Vec<PathBuf> {
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|file| file.unwrap().path());
    let mut pages: Vec<_> = docs.filter(|path| path.extension().is_some_and(|found| found == "md")).collect();
    pages.sort();
    pages.insert(0, root.join("README.md"));
    pages
}

/// What stands between three backticks.
pub struct Block {
    /// File and line.
    place: String,
    /// The word after the three backticks.
    pub language: String,
    pub text: String,
}

/// Of all pages; of a test that fails, the last place that it has printed is the one.
pub fn blocks(of_interest: impl Fn(&Block) -> bool) -> Vec<Block> {
    let mut blocks = Vec::new();
    for page in pages(Path::new(ROOT)) {
        let text = fs::read_to_string(&page).unwrap();
        let mut lines = text.lines().zip(1..);
        while let Some((line, number)) = lines.next() {
            if let Some(language) = line.strip_prefix("```") {
                let place = format!("{}:{number}", page.strip_prefix(ROOT).unwrap().display());
                let text: Vec<_> = lines.by_ref().map(|(line, _)| line).take_while(|line| *line != "```").collect();
                blocks.push(Block { place, language: language.to_string(), text: text.join("\n") });
            }
        }
    }
    blocks.retain(of_interest);
    assert!(!blocks.is_empty(), "no such block");
    blocks
}

fn blocks_in(language: &str) -> impl Iterator<Item = Block> {
    blocks(|block| block.language == language).into_iter().inspect(|block| println!("{}", block.place))
}

/// The pages' stand-ins for wherever the user has put the library.
fn with_real_path(text: &str) -> String {
    let module = module();
    ["/path/to/libredis_cell.so", "./target/release/libredis_cell.so"]
        .iter()
        .fold(text.to_string(), |text, path| text.replace(path, module.to_str().unwrap()))
}

#[test]
fn there_is_no_block_that_no_test_knows() {
    for Block { place, language, .. } in blocks(|_| true) {
        let known = LANGUAGES.iter().any(|(name, _)| *name == language);
        assert!(known || ["console", "conf", "sh", ""].contains(&language.as_str()), "{place}: {language}");
    }
}

#[test]
fn sessions_are_what_redis_cli_shows() {
    for Block { place, text, .. } in blocks_in("console") {
        let mut commands = String::new();
        let mut expected = Vec::new();
        for line in text.lines() {
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
        assert_eq!(shown, expected, "{place}");
    }
}

/// Without a language: a command's syntax, or a call with a word below each of its arguments.
#[test]
fn commands_are_known_and_calls_are_explained_where_they_stand() {
    let server = Server::start();
    let mut connection = server.connect();
    for Block { place, text, .. } in blocks_in("") {
        let mut lines = text.lines();
        let call = lines.next().unwrap();
        let name = call.split(' ').next().unwrap();
        let known: Vec<redis::Value> = run(&mut connection, &format!("COMMAND INFO {name}")).unwrap();
        assert!(known != [redis::Value::Nil], "{place}: {name}");
        let Some(names) = lines.next() else { continue };
        run::<[i64; 5]>(&mut connection, call).unwrap();
        let columns = |line: &str| -> Vec<_> {
            let starts = line.match_indices(|letter: char| letter != ' ').map(|(column, _)| column);
            starts.filter(|column| *column == 0 || line.as_bytes()[column - 1] == b' ').collect()
        };
        assert_eq!(columns(names), columns(call)[1..], "{place}: the names are not below their arguments");
        let named: Vec<_> = names.split_whitespace().collect();
        assert_eq!(named, ["key", "max_burst", "count", "period", "quantity"], "{place}");
    }
}

#[test]
fn settings_load_the_module() {
    for Block { place, text, .. } in blocks_in("conf").filter(|block| !block.text.starts_with("sentinel ")) {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("docs-{}.conf", std::process::id()));
        fs::write(&file, with_real_path(&text)).unwrap();
        let server = Server::start_bare(&["--include", file.to_str().unwrap()]);
        let ready = format!("redis-cell {} is ready", env!("CARGO_PKG_VERSION"));
        assert!(server.log().contains(&ready), "{place}: {}", server.log());
        fs::remove_file(file).unwrap();
    }
}

/// With the pages' settings for Sentinel and their client, on a primary of the test's own.
#[test]
fn sentinel_promotes_a_replica_that_goes_on_limiting() {
    let mut primary = Server::start();
    let replica = Server::start_with(&["--replicaof", "127.0.0.1", &primary.port.to_string()]);
    let settings = blocks_in("conf").find(|block| block.text.starts_with("sentinel ")).unwrap().text;
    let settings = settings.replace("6379", &primary.port.to_string());
    let port = free_port();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sentinel-{port}"));
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("sentinel.conf");
    // It tries once more in this time, where it has not heard of the replica of late.
    let again = "sentinel failover-timeout limits 3000";
    fs::write(&file, format!("port {port}\ndir {}\n{settings}\n{again}\n", folder.display())).unwrap();
    let mut sentinel = Command::new(executable());
    sentinel.arg(&file).arg("--sentinel").env("LC_ALL", "C").stdout(Stdio::null());
    let sentinel = Process::start(&mut sentinel);

    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/")).unwrap();
    let knows = |name: &str, value: &str| {
        let ask = || -> redis::RedisResult<redis::Value> { run(&mut client.get_connection()?, name) };
        ask().is_ok_and(|answer| format!("{answer:?}").contains(value))
    };
    let replica_port = replica.port.to_string();
    wait_until("Sentinel knows the replica", || knows("SENTINEL replicas limits", &replica_port));
    let call = || {
        let mut example = python("sentinel.py", &replica);
        example.env("SENTINEL_PORT", port.to_string());
        output(example)
    };
    assert_eq!(call(), "[0, 3, 2, -1, 60]\n");
    assert_eq!(throttle(&mut primary.connect(), "key 2 1 3600 3")[..3], [0, 3, 0]);
    wait_until("the replica has both", || run::<u8>(&mut replica.connect(), "EXISTS key user123").unwrap() == 2);
    primary.kill();
    wait_until("Sentinel promotes it", || knows("SENTINEL get-master-addr-by-name limits", &replica_port));
    wait_until("it is a primary", || {
        let role: redis::Value = run(&mut replica.connect(), "ROLE").unwrap();
        format!("{role:?}").contains("master")
    });
    assert_eq!(throttle(&mut replica.connect(), "key 2 1 3600")[..3], [1, 3, 0]);
    assert!(call().starts_with("[0, 3, 1, -1, "));

    drop(sentinel);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_is_typed_in_a_shell_is_what_the_tests_run() {
    for Block { place, text, .. } in blocks_in("sh") {
        // In package.rs, as it stands.
        if text.starts_with("sha256sum") {
            continue;
        }
        for line in text.lines() {
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
                // What `module` runs, with --quiet.
                ["cargo", "build", "--release", "--locked"] => {}
                // Run by package.rs, which installs with dpkg alone, and without a service.
                ["sudo" | "echo", ..] => {}
                // Run by monitoring.rs.
                ["prometheus-redis-exporter" | "-script" | "timeout" | "sort", ..] => {}
                _ => panic!("{place}: {line}"),
            }
        }
    }
}

/// Whole, with import and connection, so that they can be pasted.
#[test]
fn examples_are_files_that_the_tests_run() {
    for (language, extension) in LANGUAGES {
        let files = EXAMPLES.iter().flat_map(|folder| fs::read_dir(Path::new(ROOT).join(folder)).unwrap());
        let files: Vec<_> = files
            .map(|file| file.unwrap().path())
            .filter(|path| path.extension().is_some_and(|found| found == extension))
            .map(|path| fs::read_to_string(path).unwrap())
            .collect();
        for Block { place, text, .. } in blocks_in(language) {
            assert!(files.contains(&format!("{text}\n")), "{place} is none of the files in {EXAMPLES:?}");
        }
    }
}

#[test]
fn links_lead_somewhere() {
    let dangling = dangling_links(Path::new(ROOT));
    assert!(dangling.is_empty(), "{dangling:#?}");
}

/// Every link and picture between the pages of a clone, or of an unpacked release, that leads nowhere: file, line and
/// target. Those to the outside are not followed.
pub fn dangling_links(root: &Path) -> Vec<String> {
    let mut dangling = Vec::new();
    let mut pages = pages(root);
    pages.push(root.join("CHANGELOG.md"));
    for page in &pages {
        let folder = page.parent().unwrap();
        let text = fs::read_to_string(page).unwrap();
        for (line, number) in prose(&text) {
            let targets = line.split("](").skip(1).map(|rest| rest.split(')').next().unwrap().to_string());
            let references = line.split("][").skip(1).map(|rest| rest.split(']').next().unwrap());
            let undefined = references.filter(|name| !text.contains(&format!("\n[{name}]: https://")));
            let undefined: Vec<_> = undefined.map(ToString::to_string).collect();
            for target in targets.filter(|target| !target.starts_with("https://")) {
                let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
                let file = if path.is_empty() { page.clone() } else { folder.join(path) };
                let found = file.exists() && (anchor.is_empty() || anchors(&file).contains(anchor));
                if !found {
                    dangling.push(format!("{}:{number}: {target}", page.display()));
                }
            }
            dangling.extend(undefined.iter().map(|name| format!("{}:{number}: [{name}]", page.display())));
        }
    }
    dangling
}

/// The lines outside of code, and their numbers.
fn prose(text: &str) -> Vec<(&str, usize)> {
    let mut code = false;
    let mut lines = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        if line.starts_with("```") {
            code = !code;
        } else if !code {
            lines.push((line, number));
        }
    }
    lines
}

/// A page's headings as GitHub makes anchors of them.
fn anchors(page: &Path) -> HashSet<String> {
    let text = fs::read_to_string(page).unwrap();
    let headings = prose(&text).into_iter().filter_map(|(line, _)| line.strip_prefix('#'));
    headings
        .map(|heading| {
            let heading = heading.trim_start_matches('#').trim().to_lowercase();
            let letters = heading.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
            letters.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
        })
        .collect()
}

/// A cost on a page is one that `scripts/bench` has measured.
#[test]
fn costs_are_those_of_the_committed_results() {
    let results = fs::read_to_string(Path::new(ROOT).join("scripts/bench-results/README.md")).unwrap();
    for page in ["README.md", "docs/costs.md"] {
        let text = fs::read_to_string(Path::new(ROOT).join(page)).unwrap();
        let mut rows = 0;
        let mut lines = text.lines().zip(1..);
        while let Some((head, _)) = lines.next() {
            if !head.starts_with("| one ") {
                continue;
            }
            assert!(results.contains(head), "{page}: {head}");
            for (row, number) in lines.by_ref().take_while(|(line, _)| line.starts_with('|')) {
                assert!(results.contains(row), "{page}:{number}: {row}");
                rows += 1;
            }
        }
        assert!(rows > 5, "{page}");
    }
}

/// As the page says: where nobody listens, from Redis 7 on.
#[test]
fn an_allowed_call_costs_less_than_a_set_on_each_server() {
    let page = fs::read_to_string(Path::new(ROOT).join("docs/costs.md")).unwrap();
    let rows = page.lines().filter(|line| ["| Redis ", "| Valkey "].iter().any(|server| line.starts_with(server)));
    let allowed: BTreeMap<_, f64> = rows
        .map(|row| {
            let cells: Vec<_> = row.split('|').map(str::trim).collect();
            (cells[1], cells[3].parse().unwrap())
        })
        .collect();
    assert!(allowed.len() >= 6, "{allowed:?}");
    for (server, ratio) in allowed {
        assert!(ratio < 1.0 || server.starts_with("Redis 6."), "{server}: {ratio}");
    }
}

#[test]
fn the_readme_is_short_and_names_each_server() {
    let readme = fs::read_to_string(Path::new(ROOT).join("README.md")).unwrap();
    assert!(readme.lines().count() <= 180, "{} lines", readme.lines().count());
    let operating = fs::read_to_string(Path::new(ROOT).join("docs/operating.md")).unwrap();
    // "Redis server v=7.0.15 sha=…"
    let version = Command::new(executable()).arg("--version").output();
    let version = String::from_utf8(version.unwrap().stdout).unwrap();
    let (kind, number) = version.split_once(" server v=").unwrap();
    // A row for 7.0, or for all of 9.
    let mut parts = number.split('.');
    let (major, minor) = (parts.next().unwrap(), parts.next().unwrap());
    let rows = [format!("\n| {kind} {major}.{minor} | "), format!("\n| {kind} {major} | ")];
    assert!(rows.iter().any(|row| operating.contains(row)), "{version} is not in docs/operating.md");
}

#[test]
fn the_readme_names_what_the_scripts_install() {
    let read = |file: &str| fs::read_to_string(Path::new(ROOT).join(file)).unwrap();
    let readme = read("README.md");
    for script in ["scripts/run", "scripts/test"] {
        let script = read(script);
        let packages = script.lines().filter_map(|line| line.strip_prefix("scripts/setup "));
        let packages: Vec<_> = packages.flat_map(str::split_whitespace).collect();
        assert!(!packages.is_empty());
        for package in packages {
            assert!(readme.contains(&format!("`{package}`")), "{package}");
        }
    }
}

/// Six words or more, over all pages. Tables may repeat what prose explains.
#[test]
fn no_sentence_is_said_twice() {
    let mut places = BTreeMap::<String, Vec<String>>::new();
    for page in pages(Path::new(ROOT)) {
        let text = fs::read_to_string(&page).unwrap();
        let lines = prose(&text).into_iter().map(|(line, _)| line.trim_start_matches("* "));
        let lines: Vec<_> = lines.map(|line| if line.starts_with(['|', '[']) { "." } else { line }).collect();
        for paragraph in lines.split(|line| line.is_empty()) {
            for sentence in paragraph.join(" ").split(['.', ':', ';', '?']) {
                let words: Vec<_> = sentence.split_whitespace().map(str::to_lowercase).collect();
                if words.len() >= 6 {
                    places.entry(words.join(" ")).or_default().push(page.display().to_string());
                }
            }
        }
    }
    places.retain(|_, places| places.len() > 1);
    assert!(places.is_empty(), "{places:#?}");
}

#[test]
fn lines_are_no_wider_than_those_of_the_code() {
    for page in pages(Path::new(ROOT)) {
        let text = fs::read_to_string(&page).unwrap();
        for (line, number) in prose(&text) {
            let free = line.starts_with(['|', '[']) || line.chars().count() <= 120;
            assert!(free, "{}:{number}: {} letters", page.display(), line.chars().count());
        }
    }
}
