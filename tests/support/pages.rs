//! The pages: README.md and docs/, their blocks of code and their links.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

pub const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// README.md and every page in docs/ and .github/, of a clone or of an unpacked release, which has no .github/.
pub fn pages(root: &Path) -> Vec<PathBuf> {
    let folders = ["docs", ".github"].into_iter().filter_map(|folder| fs::read_dir(root.join(folder)).ok());
    let files = folders.flatten().map(|file| file.unwrap().path());
    let mut pages: Vec<_> = files.filter(|path| path.extension().is_some_and(|found| found == "md")).collect();
    pages.sort();
    pages.insert(0, root.join("README.md"));
    pages
}

/// What stands between three backticks.
pub struct Block {
    /// File and line.
    pub place: String,
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

/// Whether the page shows what a program prints: lines that are indented.
pub fn shows(page: &str, printed: &str) -> bool {
    let lines: String = printed.lines().map(|line| format!("    {line}\n")).collect();
    fs::read_to_string(Path::new(ROOT).join(page)).unwrap().contains(&lines)
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
