//! The pages themselves, without a server. A test runs every block of code, or the block is word for word a file, or
//! lines of a file, that the tests run; every link leads somewhere. Costs are in costs.rs.

use std::fs;
use std::path::Path;

use pulldown_cmark::Event;

use crate::support::COMMANDS;
use crate::support::pages::{Block, ROOT, blocks, code, dangling_links, pages, parts, prose};
use crate::support::programs::list_of_tests;

/// Folders whose files the tests run. A page's block of Python must be lines of one of these files.
const EXAMPLES: [&str; 6] =
    ["docs/budgets", "docs/clients", "docs/moving", "docs/monitoring", "docs/protect", "docs/recipes"];

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(file)).unwrap()
}

#[test]
fn there_is_no_block_that_no_test_knows() {
    for Block { place, language, .. } in blocks(|_| true) {
        assert!(["python", "console", "conf", "sh", ""].contains(&language.as_str()), "{place}: {language}");
    }
}

/// A block is a whole file, or some lines of a file to which the page links.
#[test]
fn examples_are_lines_of_files_that_the_tests_run() {
    let files = EXAMPLES.iter().flat_map(|folder| fs::read_dir(Path::new(ROOT).join(folder)).unwrap());
    let files: Vec<_> = files
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == "py"))
        .map(|path| (path.strip_prefix(ROOT).unwrap().display().to_string(), fs::read_to_string(&path).unwrap()))
        .collect();
    for Block { place, text, .. } in blocks(|block| block.language == "python") {
        let name = place.split(':').next().unwrap();
        let (page, folder) = (read(name), format!("{}/", Path::new(name).parent().unwrap().display()));
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
    let folders = ["src/", "tests/", "scripts/", "docs/"];
    for page in pages(Path::new(ROOT)) {
        let text = fs::read_to_string(&page).unwrap();
        for (part, number, _) in parts(&text) {
            let Event::Code(file) = part else { continue };
            let is_path = folders.iter().any(|folder| file.starts_with(folder)) && !file.contains([' ', '*', '…']);
            assert!(
                !is_path || Path::new(ROOT).join(&*file).exists(),
                "{}:{number}: there is no {file}",
                page.display()
            );
        }
    }
}

/// A row in a table for redis-7.0 is `| Redis 7.0 | …`, for valkey-9 `| Valkey 9 | …`.
#[test]
fn each_server_that_the_tests_run_on_has_a_row_on_a_page() {
    let script = fs::read_to_string(Path::new(ROOT).join("scripts/servers")).unwrap();
    let supported = script.split_once("\nsupported='\n").unwrap().1.split_once("\n'").unwrap().0;
    let text: Vec<_> = pages(Path::new(ROOT)).iter().map(|page| fs::read_to_string(page).unwrap()).collect();
    for line in supported.lines() {
        let (kind, version) = line.split_whitespace().next().unwrap().split_once('-').unwrap();
        let row = format!("\n| {} {version} | ", if kind == "redis" { "Redis" } else { "Valkey" });
        assert!(text.iter().any(|text| text.contains(&row)), "no page has a row{}", row.trim_end());
    }
}

/// Returns the lines of a page between this heading and the next of its rank.
fn section<'a>(page: &'a str, heading: &str) -> Option<&'a str> {
    let (_, rest) = page.split_once(&format!("\n{heading}"))?;
    let (rank, _) = heading.split_once(' ').unwrap();
    rest.split(&format!("\n{rank} ")).next()
}

#[test]
fn each_command_has_a_row_in_the_readme() {
    let readme = read("README.md");
    let rows = section(&readme, "## Commands").unwrap();
    for command in &COMMANDS {
        let name = format!("`{}`", command.name.to_uppercase());
        let first = |row: &str| row.split('|').nth(1).is_some_and(|column| column.contains(&name));
        assert!(rows.lines().any(first), "README.md has no row for {name}");
    }
}

/// The commands in milliseconds share the section `Milliseconds`: each has the arguments of its command in seconds.
#[test]
fn each_command_has_a_section_with_its_arguments() {
    let page = read("docs/commands.md");
    for command in &COMMANDS {
        let name = command.name.to_uppercase();
        match command.in_seconds() {
            None => {
                let heading = format!("## {name}\n");
                let section = section(&page, &heading).unwrap_or_else(|| panic!("docs/commands.md has no {heading:?}"));
                let block = format!("```\n{name} {}\n```\n", command.syntax);
                assert!(section.contains(&block), "docs/commands.md does not say {block}");
            }
            Some(in_seconds) => {
                assert_eq!(command.syntax, in_seconds.syntax, "{name}");
                let section = section(&page, "## Milliseconds\n").unwrap();
                assert!(section.contains(&format!("`{name}`")), "docs/commands.md does not name {name}");
            }
        }
    }
}

/// The entry stands under the version that brought the command, or under the changes of the next one.
#[test]
fn each_command_is_in_the_changelog() {
    let changelog = read("CHANGELOG.md");
    for command in &COMMANDS {
        let version = section(&changelog, &format!("## {}", command.since));
        let version = version.or_else(|| section(&changelog, "## Unreleased")).unwrap();
        let name = format!("`{}`", command.name.to_uppercase());
        assert!(version.contains(&name), "{name} is not in CHANGELOG.md, under {}", command.since);
    }
}

#[test]
fn each_command_and_file_stands_in_the_lists_of_info_of_the_layout_and_of_lib_rs() {
    let page = read("docs/operating.md");
    let info = section(&page, "## INFO\n").unwrap();
    for command in &COMMANDS {
        let name = command.name.strip_prefix("cl.").unwrap();
        let named = info.contains(&format!("`{name}`")) || info.contains(&format!("_{name}_allowed:"));
        assert!(named, "docs/operating.md does not name `{name}` under INFO");
    }
    let page = read("docs/development.md");
    let layout = section(&page, "## The layout\n").unwrap();
    for file in fs::read_dir(Path::new(ROOT).join("src")).unwrap() {
        let file = format!("`src/{}`", file.unwrap().file_name().display());
        assert!(!file.ends_with(".rs`") || layout.contains(&file), "docs/development.md has no {file} in its layout");
    }
    let source = read("src/lib.rs");
    let header = source.split("\n\n").next().unwrap();
    for row in source.split("command!(c\"").skip(1) {
        let file = format!("`{}.rs`", row.split('(').next().unwrap().rsplit(' ').next().unwrap());
        assert!(header.contains(&file), "the header of src/lib.rs does not name {file}");
    }
}

/// A name is the beginning of the tests' names: `hostile`.
#[test]
fn each_guarantee_names_tests_that_exist() {
    let tests = format!("\n{}", list_of_tests());
    let page = read("docs/design.md");
    let guarantees = section(&page, "## Guarantees\n").unwrap().split("\n### The servers' own tests").next().unwrap();
    let guarantees = guarantees.split("\n* ").skip(1).map(|bullet| bullet.split("\n\n").next().unwrap());
    let guarantees: Vec<_> = guarantees.collect();
    assert!(guarantees.len() > 8);
    for guarantee in guarantees {
        let (_, named) = guarantee.rsplit_once('(').unwrap_or_else(|| panic!("no test is named: {guarantee}"));
        let names: Vec<_> = code(named).collect();
        assert!(!names.is_empty(), "no test is named: {guarantee}");
        for name in names {
            assert!(tests.contains(&format!("\n{name}")), "there is no test {name}");
        }
    }
}

#[test]
fn the_pages_name_what_the_scripts_install() {
    let readme = read("README.md") + &read("docs/development.md");
    for script in ["scripts/run", "scripts/test"] {
        let script = read(script).replace("\\\n", "");
        let packages = script.lines().filter_map(|line| line.strip_prefix("scripts/setup "));
        let packages: Vec<_> = packages.flat_map(str::split_whitespace).collect();
        assert!(!packages.is_empty());
        for package in packages {
            assert!(readme.contains(&format!("`{package}`")), "{package}");
        }
    }
}

#[test]
fn lines_are_no_wider_than_those_of_the_code() {
    for page in pages(Path::new(ROOT)) {
        let text = fs::read_to_string(&page).unwrap();
        for (line, number) in prose(&text) {
            let free = line.starts_with(['|', '[']) || line.chars().count() <= 120;
            assert!(free, "{}:{number} has {} letters, and may have 120", page.display(), line.chars().count());
        }
    }
}
