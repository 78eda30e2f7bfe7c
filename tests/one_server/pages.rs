//! The pages themselves, without a server. A test runs every block of code, or the block is word for word a file, or
//! lines of a file, that the tests run; every link leads somewhere. Costs are in costs.rs.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use pulldown_cmark::Event;
use serde_json::Value as Json;

use crate::support::COMMANDS;
use crate::support::expected::TRY_AGAIN;
use crate::support::pages::{Block, ROOT, blocks, code, dangling_links, pages, parts, text_of};
use crate::support::programs::output;

/// Folders whose files the tests run. A page's block of Python must be lines of one of these files.
const EXAMPLES: [&str; 6] =
    ["docs/budgets", "docs/clients", "docs/moving", "docs/monitoring", "docs/protect", "docs/recipes"];

#[test]
fn there_is_no_block_that_no_test_knows() {
    for Block { place, language, .. } in blocks(|_| true) {
        assert!(["python", "console", "conf", "sh", ""].contains(&language.as_str()), "{place}: {language}");
    }
}

/// A block is a whole file, or some lines of a file to which the page links. every_server/pages.rs runs the README's block.
#[test]
fn examples_are_lines_of_files_that_the_tests_run() {
    let files = EXAMPLES.iter().flat_map(|folder| fs::read_dir(Path::new(ROOT).join(folder)).unwrap());
    let files: Vec<_> = files
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == "py"))
        .map(|path| (path.strip_prefix(ROOT).unwrap().display().to_string(), fs::read_to_string(&path).unwrap()))
        .collect();
    for Block { place, text, .. } in blocks(|block| block.language == "python" && !block.place.starts_with("README")) {
        let name = place.split(':').next().unwrap();
        let (page, folder) = (text_of(name), format!("{}/", Path::new(name).parent().unwrap().display()));
        let stands_in = |(path, file): &(String, String)| {
            *file == format!("{text}\n")
                || page.contains(&format!("({})", path.trim_start_matches(&folder)))
                    && format!("\n{file}").contains(&format!("\n{text}\n"))
        };
        assert!(files.iter().any(stands_in), "{place} stands in no file of {EXAMPLES:?} that the page links to");
    }
}

#[test]
fn links_lead_somewhere() {
    let dangling = dangling_links(Path::new(ROOT));
    assert!(dangling.is_empty(), "{dangling:#?}");
}

#[test]
fn each_file_that_a_page_names_is_there() {
    for page in pages(Path::new(ROOT)) {
        let text = fs::read_to_string(&page).unwrap();
        for (part, number, _) in parts(&text) {
            let Event::Code(file) = part else { continue };
            let is_path = ["src/", "tests/", "scripts/", "docs/"].iter().any(|folder| file.starts_with(folder));
            let found = !is_path || file.contains([' ', '*', '…']) || Path::new(ROOT).join(&*file).exists();
            assert!(found, "{}:{number}: there is no {file}", page.display());
        }
    }
}

/// Returns the lines of a page between this heading and the next of its rank.
fn section<'a>(page: &'a str, heading: &str) -> Option<&'a str> {
    let (_, rest) = page.split_once(&format!("\n{heading}\n"))?;
    let (rank, _) = heading.split_once(' ').unwrap();
    rest.split(&format!("\n{rank} ")).next()
}

/// The first commands that a visitor types stand together, and what the second fetches is what it says itself.
#[test]
fn the_readme_says_what_the_tests_fetch() {
    let readme = text_of("README.md");
    let run_it = section(&readme, "## Run it").unwrap();
    assert!(run_it.contains("```sh\nscripts/run\nscripts/test\n```"), "{run_it}");
    let script = text_of("scripts/test");
    let fetched = script.split_once("the first run fetches ").unwrap().1.split_once('.').unwrap().0;
    assert!(run_it.contains(fetched), "{fetched}");
}

/// A row of scripts/servers has a name, a version with a star if the server is a usual one, an origin, and packages. Only
/// the table of docs/platforms.md names the newest servers; another page names a version, on which it saw something.
#[test]
fn every_place_names_the_servers_that_scripts_servers_fetches() {
    let script = text_of("scripts/servers");
    let (_, rows) = script.split_once("\nsupported='\n").unwrap();
    let rows = rows.lines().take_while(|row| *row != "'").map(|row| row.split_whitespace().collect());
    let rows: Vec<Vec<_>> = rows.collect();
    let (table, sums) = (text_of("docs/platforms.md"), text_of("scripts/servers.d/pypi"));
    for row in &rows {
        let name = row[0].replace("redis-", "Redis ").replace("valkey-", "Valkey ");
        let of_the_table = format!("\n| {name} | {} |", row[1].trim_end_matches('*'));
        assert!(table.contains(&of_the_table), "docs/platforms.md lacks {of_the_table:?}");
        assert!(!row[2].starts_with("pypi:") || sums.contains(&format!("{} --hash=", row[3])), "no sum of {}", row[3]);
    }
    let newest = |kind| rows.iter().filter_map(|row| row[0].strip_prefix(kind)).next_back().unwrap();
    let names = [newest("redis-").to_string(), format!("Valkey {}", newest("valkey-"))];
    for page in pages(Path::new(ROOT)).iter().filter(|page| !page.ends_with("platforms.md")) {
        let text = fs::read_to_string(page).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        for name in &names {
            let is_version = |rest: &&str| rest.chars().nth(1).is_some_and(|digit| digit.is_ascii_digit());
            let without = text.split(name).skip(1).find(|rest| !is_version(rest));
            assert!(without.is_none(), "{}: {name}{}", page.display(), without.unwrap_or_default());
        }
    }
    let workflow = text_of(".github/workflows/ci.yml");
    let (_, suites) = workflow.split_once("server: [redis").unwrap();
    for suite in format!("redis{}", suites.split(']').next().unwrap()).split(", ") {
        assert!(rows.iter().any(|row| row[0] == suite), "ci.yml: scripts/servers has no {suite}");
    }
}

/// The page need not name what only serves the examples, or only calls them.
#[test]
fn the_page_of_clients_names_the_versions_of_the_libraries_that_the_tests_run() {
    let (page, lock) = (text_of("docs/clients.md"), text_of("Cargo.lock"));
    let (_, rust) = lock.split_once("name = \"redis\"\n").unwrap();
    let files = ["requirements.txt", "package.json"].map(|file| text_of(&format!("tests/examples/{file}")));
    let lines = files.iter().flat_map(|file| file.lines()).chain(rust.lines().take(1));
    let others = ["httpx2", "uvicorn", "gunicorn", "hypercorn", "flask-limiter", "slowapi", "    \"ipaddr.js"];
    for line in lines.filter(|line| !others.iter().any(|other| line.starts_with(other))) {
        let is_version = |word: &&str| word.starts_with(|letter: char| letter.is_ascii_digit());
        for version in line.split(['=', '"']).filter(is_version) {
            assert!(page.split([' ', ',', '|']).any(|word| word == version), "the table does not name {line}");
        }
    }
}

/// The measured figures, rounded. A page that says the first as well says the same.
#[test]
fn the_readme_says_what_a_call_costs_of_a_set_in_instructions_and_in_time() {
    let results: Json = serde_json::from_str(&text_of("scripts/bench-results/results.json")).unwrap();
    let checks = &results["checks"];
    let alone = |check: &str| checks[check]["instructions"]["alone"].as_f64().unwrap();
    let instructions = alone("CL.THROTTLE allowed") / alone("SET PX");
    let time = checks["CL.THROTTLE allowed"]["ratio"].as_f64().unwrap();
    let says = format!("takes {instructions:.2} of a SET's instructions, {time:.2} of its time");
    assert!(text_of("README.md").contains(&says), "{says}");
    for page in pages(Path::new(ROOT)) {
        let text = fs::read_to_string(&page).unwrap();
        let is_same = |rest: &str| format!("0.{rest}").starts_with(&format!("{instructions:.2}"));
        assert!(text.split(" takes 0.").skip(1).all(is_same), "{}: not {instructions:.2}", page.display());
    }
}

/// A text of src/error.rs has braces for words. replies.txt has the page's texts as a server replies them, but for the one
/// of refusals.rs.
#[test]
fn the_table_of_errors_has_every_error_as_a_server_replies_it() {
    let (page, source) = (text_of("docs/commands.md"), text_of("src/error.rs"));
    let table = section(&page, "## Errors").unwrap().split("\n### ").next().unwrap();
    let rows: Vec<_> = table.lines().filter_map(|row| row.strip_prefix("| ")?.rsplit_once(" | `")).collect();
    let replied = text_of("tests/every_server/replies.txt") + &format!("   ->   {TRY_AGAIN}\n");
    for (_, error) in &rows {
        let error = error.trim_end_matches("` |");
        assert!(replied.contains(&format!("   ->   {error}\n")), "no test has a reply of {error:?}");
    }
    let texts = source.split("#[error(\"").skip(1).map(|text| text.split("\")]").next().unwrap());
    let texts: Vec<_> = texts.filter(|text| text.starts_with(|letter: char| letter.is_ascii_uppercase())).collect();
    assert!(texts.len() > 10, "{texts:?}");
    for text in texts {
        let (before, after) = (text.split('{').next().unwrap(), text.rsplit('}').next().unwrap());
        // The rest of a text may be left out: `ERR quantity: …`.
        let is_shown = |shown: String| match shown.strip_suffix('…') {
            Some(start) => text.starts_with(start),
            None => shown.starts_with(before) && shown.contains(after),
        };
        assert!(code(table).any(is_shown), "docs/commands.md lacks {text:?}");
    }
}

/// The commands in milliseconds share the section `Milliseconds`: each has the arguments of its command in seconds.
#[test]
fn each_command_has_a_row_in_the_readme_and_a_section_with_its_arguments() {
    let (readme, page) = (text_of("README.md"), text_of("docs/commands.md"));
    let rows = section(&readme, "## Commands").unwrap();
    for command in &COMMANDS {
        let name = command.name.to_uppercase();
        let (heading, words) = match command.in_seconds() {
            None => (format!("## {name}"), format!("```\n{name} {}\n```\n", command.syntax)),
            Some(in_seconds) => {
                assert_eq!(command.syntax, in_seconds.syntax, "{name}");
                ("## Milliseconds".to_string(), format!("`{name}`"))
            }
        };
        let found = section(&page, &heading).is_some_and(|section| section.contains(&words));
        assert!(found, "docs/commands.md does not have under {heading:?}: {words}");
        assert!(rows.contains(&format!("`{name}`")), "README.md has no row for {name}");
    }
}

/// A name is the beginning of the tests' names: `hostile`.
#[test]
fn each_guarantee_names_tests_that_exist() {
    let tests = format!("\n{}", output(Command::new(env::current_exe().unwrap()).arg("--list")));
    let page = text_of("docs/design.md");
    let guarantees = section(&page, "## Guarantees").unwrap().split("\n### The servers' own tests").next().unwrap();
    let guarantees = guarantees.split("\n* ").skip(1).map(|bullet| bullet.split("\n\n").next().unwrap());
    let guarantees: Vec<_> = guarantees.collect();
    assert!(guarantees.len() > 8);
    for guarantee in guarantees {
        let (_, named) = guarantee.rsplit_once('(').unwrap_or_else(|| panic!("no test is named: {guarantee}"));
        let names: Vec<_> = code(named).collect();
        let known = names.iter().all(|name| tests.contains(&format!("\n{name}")));
        assert!(!names.is_empty() && known, "not all of these are tests: {names:?}");
    }
}

/// The most is what the results have, rounded; the least stands on their page with its date.
#[test]
fn the_readme_says_how_many_calls_a_second_a_core_answers() {
    let results: Json = serde_json::from_str(&text_of("scripts/bench-results/results.json")).unwrap();
    let nanoseconds = results["checks"]["CL.THROTTLE allowed"]["cpu"].as_f64().unwrap();
    let readme = text_of("README.md");
    let most = format!(" to {:.0}00,000 calls a second](scripts/bench-results/README.md#speed)", 1e4 / nanoseconds);
    let (before, _) = readme.split_once(&most).unwrap_or_else(|| panic!("README.md lacks {most:?}"));
    let least = before.rsplit('[').next().unwrap();
    assert!(text_of("scripts/bench-results/README.md").contains(&format!(": {least} to ")), "{least}");
}
