//! The pages themselves, without a server. A test runs every block of code, or the block is lines of a program that the
//! tests run; every link leads somewhere. Costs are in costs.rs.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use pulldown_cmark::Event;

use crate::support::COMMANDS;
use crate::support::expected::TRY_AGAIN;
use crate::support::pages::{Block, ROOT, blocks, code, dangling_links, pages, parts, text_of};
use crate::support::programs::output;

/// every_server/pages.rs runs the README's block of Python, and all blocks in other languages.
#[test]
fn each_block_of_code_is_run_or_is_lines_of_a_program_that_is() {
    let program = format!("\n{}", text_of("docs/protect/protect.py"));
    for Block { place, language, text } in blocks(|_| true) {
        let is_run = ["console", "conf", "sh", ""].contains(&language.as_str())
            || language == "python" && (place.starts_with("README") || program.contains(&format!("\n{text}\n")));
        assert!(is_run, "{place}: a block of {language:?} that no test runs");
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

/// A row of scripts/servers begins with a name, and a version with a star if the server is a usual one.
#[test]
fn the_table_of_servers_has_those_that_scripts_servers_fetches() {
    let (script, page) = (text_of("scripts/servers"), text_of("docs/platforms.md"));
    let (_, rows) = script.split_once("\nsupported='\n").unwrap();
    for row in rows.lines().take_while(|row| *row != "'") {
        let words: Vec<_> = row.split_whitespace().collect();
        let name = words[0].replace("redis-", "Redis ").replace("valkey-", "Valkey ");
        let of_the_table = format!("\n| {name} | {} |", words[1].trim_end_matches('*'));
        assert!(page.contains(&of_the_table), "docs/platforms.md lacks {of_the_table:?}");
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

/// The most calls a second are those of the page of results; the least stand there with their date. A page that says
/// what a call takes of a SET's instructions says the same.
#[test]
fn the_readme_says_what_a_call_costs_as_the_page_of_results_does() {
    let (readme, results) = (text_of("README.md"), text_of("docs/cost.md"));
    let rows = results.lines().filter_map(|line| line.strip_prefix("| CL.THROTTLE allowed | "));
    let rows: Vec<Vec<_>> = rows.map(|row| row.trim_end_matches(" |").split(" | ").collect()).collect();
    let (instructions, time, most) = (rows[0][1], rows[1][1], rows[1][2]);
    let says = format!("takes {instructions} of a SET's instructions, {time} of its time");
    assert!(readme.contains(&says), "README.md lacks {says:?}");
    for page in pages(Path::new(ROOT)) {
        let text = fs::read_to_string(&page).unwrap();
        let is_same = |rest: &str| format!("0.{rest}").starts_with(instructions);
        assert!(text.split(" takes 0.").skip(1).all(is_same), "{}: not {instructions}", page.display());
    }
    let says = format!(" to {most} calls a second](docs/cost.md#speed)");
    let (before, _) = readme.split_once(&says).unwrap_or_else(|| panic!("README.md lacks {says:?}"));
    let least = before.rsplit('[').next().unwrap();
    assert!(results.contains(&format!("\n{least} to ")), "{least}");
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
