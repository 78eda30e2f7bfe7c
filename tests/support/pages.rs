//! Reads the documentation pages (README.md, docs/ and .github/), with their blocks of code and their links.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use pulldown_cmark::{BrokenLink, CodeBlockKind, Event, Options, Parser, Tag};

pub const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Returns the text of a file in this repository.
pub fn text_of(file: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Returns the paths of the documentation pages in a clone, or in an unpacked release (which has no .github/).
pub fn pages(root: &Path) -> Vec<PathBuf> {
    let folders = ["docs", ".github"].into_iter().filter_map(|folder| fs::read_dir(root.join(folder)).ok());
    let files = folders.flatten().map(|file| file.unwrap().path());
    let mut pages: Vec<_> = files.filter(|path| path.extension().is_some_and(|found| found == "md")).collect();
    pages.sort();
    pages.insert(0, root.join("README.md"));
    pages
}

/// Parses Markdown. Returns its parts, each with the number of its first line and its text. An undefined reference
/// counts as a link to `[its name]`.
fn parts(text: &str) -> impl Iterator<Item = (Event<'_>, usize, &str)> {
    let undefined = |link: BrokenLink| Some((format!("[{}]", link.reference).into(), "".into()));
    let parts = Parser::new_with_broken_link_callback(text, Options::ENABLE_TABLES, Some(undefined)).into_offset_iter();
    parts.map(|(part, place)| (part, text[..place.start].matches('\n').count() + 1, &text[place]))
}

/// Returns the text between backticks in the sentences and tables of a page, or of a part of a page.
pub fn code(text: &str) -> impl Iterator<Item = String> {
    parts(text).filter_map(|(part, ..)| match part {
        Event::Code(code) => Some(code.to_string()),
        _ => None,
    })
}

/// Returns the part of a page under this heading, including all subheadings.
pub fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, rest) =
        page.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("the page has no heading {heading:?}"));
    let (rank, _) = heading.split_once(' ').unwrap();
    rest.split(&format!("\n{rank} ")).next().unwrap()
}

/// A block of code, or the text between backticks in a sentence or a table.
pub struct Block {
    /// The file and the number of the line.
    pub place: String,
    /// The word after the three backticks, or "code" for text in a sentence or a table.
    pub language: String,
    pub text: String,
}

pub fn blocks() -> Vec<Block> {
    let mut blocks = Vec::new();
    for page in pages(Path::new(ROOT)) {
        let text = fs::read_to_string(&page).unwrap();
        for (part, number, text) in parts(&text) {
            let (language, text) = match part {
                Event::Code(code) => ("code".into(), code.to_string()),
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                    let (_, lines) = text.split_once('\n').unwrap();
                    (language.to_string(), lines[..lines.rfind('\n').unwrap_or(0)].to_string())
                }
                _ => continue,
            };
            blocks.push(Block { place: format!("{}:{number}", page.display()), language, text });
        }
    }
    blocks
}

/// Returns the text of the only block on any page that is in this language and contains these words.
pub fn block(language: &str, words: &str) -> String {
    let mut found = blocks();
    found.retain(|block| block.language == language && block.text.contains(words));
    assert!(found.len() == 1, "the pages have {} blocks of {language} with {words:?}", found.len());
    found.remove(0).text
}

/// Returns the first command typed in the only `console` block that contains these words.
pub fn typed(words: &str) -> String {
    block("console", words).lines().next().unwrap().split_once("> ").unwrap().1.to_string()
}

/// Returns the file, line and target of each broken link or image in a clone or an unpacked release. Links to other
/// sites are not checked.
pub fn dangling_links(root: &Path) -> Vec<String> {
    let mut dangling = Vec::new();
    for page in pages(root).into_iter().chain([root.join("CHANGELOG.md")]) {
        let text = fs::read_to_string(&page).unwrap();
        for (part, number, _) in parts(&text) {
            let Event::Start(Tag::Link { dest_url: target, .. } | Tag::Image { dest_url: target, .. }) = part else {
                continue;
            };
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let file = if path.is_empty() { page.clone() } else { page.with_file_name(path) };
            let found = file.exists() && (anchor.is_empty() || anchors(&file).contains(anchor));
            if !found && !target.starts_with("https://") {
                dangling.push(format!("{}:{number}: {target}", page.display()));
            }
        }
    }
    dangling
}

/// Returns the anchors that GitHub derives from a page's headings.
fn anchors(page: &Path) -> HashSet<String> {
    let text = fs::read_to_string(page).unwrap();
    let headings = parts(&text).filter(|(part, ..)| matches!(part, Event::Start(Tag::Heading { .. })));
    let anchor = |(_, _, heading): (Event, usize, &str)| {
        let letters = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        letters.chars().filter(|letter| letter.is_alphanumeric() || "-_".contains(*letter)).collect()
    };
    headings.map(anchor).collect()
}
