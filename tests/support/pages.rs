//! The pages: README.md and docs/, their blocks of code and their links.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

pub const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Returns README.md and every page in docs/ and .github/, of a clone or of an unpacked release, which
/// has no .github/.
pub fn pages(root: &Path) -> Vec<PathBuf> {
    let folders = ["docs", ".github"].into_iter().filter_map(|folder| fs::read_dir(root.join(folder)).ok());
    let files = folders.flatten().map(|file| file.unwrap().path());
    let mut pages: Vec<_> = files.filter(|path| path.extension().is_some_and(|found| found == "md")).collect();
    pages.sort();
    pages.insert(0, root.join("README.md"));
    pages
}

/// A block of code on a page, between lines of three backticks.
pub struct Block {
    /// The file and the line.
    pub place: String,
    /// The word after the three backticks.
    pub language: String,
    pub text: String,
}

/// Returns the blocks of all pages, and prints the place of each: if a test fails, the last place printed is the cause.
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
    assert!(!blocks.is_empty(), "no page has such a block");
    blocks
}

/// Returns the only block in this language with these words in it.
pub fn block(language: &str, words: &str) -> String {
    let found = blocks(|block| block.language == language && block.text.contains(words));
    let [block] = &found[..] else { panic!("expected exactly one block with {words:?}") };
    block.text.clone()
}

/// Returns the command that creates the user of docs/monitoring.md for the exporter.
pub fn create_exporter() -> String {
    let session = block("console", "ACL SETUSER exporter");
    session.lines().next().unwrap().split_once("> ").unwrap().1.to_string()
}

/// Returns whether the page shows the lines that a program has printed, indented.
pub fn shows(page: &str, printed: &str) -> bool {
    let lines: String = printed.lines().map(|line| format!("    {line}\n")).collect();
    fs::read_to_string(Path::new(ROOT).join(page)).unwrap().contains(&lines)
}

/// Returns the command that calls a script of docs/moving on the server at this port. Its head has the command, and
/// docs/moving.md has the same.
pub fn command_of(script: &str, port: u16) -> String {
    let file = Path::new(ROOT).join("docs/moving").join(script);
    let text = fs::read_to_string(&file).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("--     ")).unwrap();
    assert!(shows("docs/moving.md", line), "{line}");
    line.replace(script, file.to_str().unwrap()).replacen("redis-cli", &format!("redis-cli -p {port}"), 1)
}

/// Returns every link or picture that leads nowhere, in a clone or an unpacked release: file, line and target. Links to
/// other sites are not followed.
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

/// Returns the lines outside of code, with their numbers.
pub fn prose(text: &str) -> Vec<(&str, usize)> {
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

/// Returns the anchors that GitHub makes of a page's headings.
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
