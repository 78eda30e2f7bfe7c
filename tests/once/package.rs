//! The releases of scripts/package: each can be checked, installed, used and removed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use addr2line::demangle_auto;
use addr2line::gimli::{self, Dwarf, EndianSlice, LittleEndian, SectionId};
use object::{Architecture, Object, ObjectSection, ObjectSymbol};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::mach_o::is_loadable;
use crate::support::needs::{SCRIPTS_TEST, needs};
use crate::support::pages::{ROOT, blocks, dangling_links, pages};
use crate::support::programs::{self, output_and_errors as output};
use crate::support::{MODULES, Server, module, new_folder, throttle};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The test unpacks the archive by the README's lines, with this machine's platform in them.
#[test]
fn the_archive_unpacks_into_a_folder_of_its_own_with_the_library_and_its_documents() {
    needs!(SCRIPTS_TEST);
    let release = Release::new();
    let archive = release.file(".tar.gz");
    let name = archive.file_name().unwrap().to_str().unwrap().strip_suffix(".tar.gz").unwrap();
    let platform = name.strip_prefix(&format!("redis-cell-v{VERSION}-")).unwrap();
    let [block] = &blocks(|block| block.text.starts_with("sha256sum"))[..] else {
        panic!("expected exactly one block that begins with `sha256sum`")
    };
    let lines = block.text.replace("x86_64-unknown-linux-gnu", platform);
    let (shell, server) = lines.rsplit_once('\n').unwrap();
    output(Command::new("sh").args(["-e", "-c", shell]).current_dir(release.path()));

    let folder = release.path().join(name);
    let entries = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let entries: BTreeSet<_> = entries.collect();
    let expected = ["CHANGELOG.md", "LICENSE", "README.md", "docs", "libredis_cell.so", "redis-cell.cdx.json"];
    let expected: BTreeSet<_> =
        expected.into_iter().chain(["redis-cell.conf", "scripts"]).map(ToString::to_string).collect();
    assert_eq!(entries, expected);
    assert_eq!(dangling_links(&folder), [""; 0]);

    let library = server.strip_prefix("redis-server --save '' --loadmodule ./").unwrap();
    assert_answers(&["--loadmodule", release.path().join(library).to_str().unwrap()]);
    // The settings in the archive load the library as well, once they have its path.
    let settings = folder.join("redis-cell.conf");
    let line = fs::read_to_string(&settings).unwrap();
    assert!(line.contains(MODULES), "{line}");
    fs::write(&settings, line.replace(MODULES, folder.to_str().unwrap())).unwrap();
    assert_answers(&["--include", settings.to_str().unwrap()]);
}

/// The table "Status" of docs/development.md says how the image as a whole was tried.
#[test]
fn the_commands_of_the_containerfile_take_the_library_out_of_the_archive() {
    needs!(SCRIPTS_TEST);
    let release = Release::new();
    let file = fs::read_to_string(Path::new(ROOT).join("docs/Containerfile")).unwrap();
    assert!(file.contains(&format!("\nARG VERSION={VERSION}\n")), "{file}");
    let copied = file.lines().find_map(|line| line.strip_prefix("COPY --from=release /release/")).unwrap();
    let library = release.path().join(copied.split(' ').next().unwrap());
    let alpine = release.path().join("alpine-release");
    let commands = file.split_once("\nRUN ").unwrap().1.split_once("\n\n").unwrap().0;
    assert!(commands.contains("/etc/alpine-release"), "{commands}");
    let commands = commands.replace("/release", release.path().to_str().unwrap());
    let commands = commands.replace("/etc/alpine-release", alpine.to_str().unwrap());
    let shell = |lines: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", lines]).current_dir(release.path()).env("VERSION", VERSION);
        shell
    };
    output(&mut shell(&commands));
    assert!(file.contains(&format!("CMD [\"--loadmodule\", \"{MODULES}/libredis_cell.so\"]")), "{file}");
    assert_answers(&["--loadmodule", library.to_str().unwrap()]);

    // An image on Alpine takes the library from the archive for musl: here from a small archive of the same form. An
    // archive whose sum is wrong is refused.
    fs::write(alpine, "").unwrap();
    let name = format!("redis-cell-v{VERSION}-{}-unknown-linux-musl", std::env::consts::ARCH);
    let make =
        "mkdir $0; echo musl >$0/libredis_cell.so; tar -czf $0.tar.gz $0 && sha256sum $0.tar.gz >$0.tar.gz.sha256";
    output(shell(make).arg(&name));
    output(&mut shell(&commands));
    assert_eq!(fs::read_to_string(&library).unwrap(), "musl\n");
    fs::remove_file(&library).unwrap();
    output(shell("echo other >$0/libredis_cell.so; tar -czf $0.tar.gz $0").arg(&name));
    let refused = shell(&commands).output().unwrap();
    assert!(!refused.status.success() && !library.exists(), "{refused:?}");
}

/// The steps of a release are in docs/development.md.
#[test]
fn the_pages_name_the_files_of_this_version_and_the_changelog_has_it() {
    let read = |page: &Path| fs::read_to_string(page).unwrap();
    let root = Path::new(ROOT);
    let readme = read(&root.join("README.md"));
    for page in pages(root).into_iter().chain([root.join("docs/Containerfile")]) {
        let text = read(&page);
        for prefix in ["redis-cell-v", "redis-cell_", "ARG VERSION=", "redis-cell_version:"] {
            for (place, _) in text.match_indices(prefix) {
                let rest = &text[place + prefix.len()..];
                let other = rest.starts_with(|letter: char| letter.is_ascii_digit()) && !rest.starts_with(VERSION);
                assert!(!other, "{}: {prefix}{}", page.display(), rest.lines().next().unwrap());
            }
        }
    }
    assert!(readme.contains(&format!("redis-cell-v{VERSION}-")), "README.md names no archive");
    assert!(readme.contains(&format!("`redis-cell {VERSION} is ready`")), "README.md: the log's line");
    let results = read(&root.join("scripts/bench-results/README.md"));
    assert!(results.contains(&format!("redis-cell {VERSION}")), "scripts/bench has measured another version");

    let changelog = read(&root.join("CHANGELOG.md"));
    let latest = changelog.split("\n## ").nth(1).unwrap().lines().next().unwrap();
    let unreleased = latest == "Unreleased";
    assert!(unreleased || latest.starts_with(&format!("{VERSION} - 20")), "CHANGELOG.md: {latest}");
    assert!(!unreleased || !changelog.contains(&format!("\n## {VERSION} - ")), "{VERSION} is released already");
    let readme = readme.split_whitespace().collect::<Vec<_>>().join(" ");
    let says_so = readme.contains(&format!("{VERSION} is not released yet"));
    assert_eq!(says_so, unreleased, "README.md and CHANGELOG.md disagree: is {VERSION} released?");
}

#[test]
fn the_licences_of_all_that_is_linked_in_come_along() {
    needs!(SCRIPTS_TEST);
    let licences = Release::new();
    let licences = hyphens(&fs::read_to_string(licences.unpacked().join("LICENSE")).unwrap());
    for name in linked_crates().keys() {
        assert!(licences.contains(&format!("\n--- {name} ---\n")), "{name} is linked in, and its licence is missing");
    }
}

#[test]
fn the_bill_of_materials_names_the_crates_that_are_linked_in_and_no_other() {
    needs!(SCRIPTS_TEST);
    let root = Path::new(ROOT);
    let release = Release::new();
    let bill = release.file(".cdx.json");
    output(Command::new(root.join("scripts/test.d/schemas")).arg(&bill));
    let archive = release.unpacked();
    assert_eq!(fs::read(archive.join("redis-cell.cdx.json")).unwrap(), fs::read(&bill).unwrap());

    let mut sum = Command::new("sha256sum");
    let sum = output(sum.arg(archive.join("libredis_cell.so")));
    let bill: Value = serde_json::from_slice(&fs::read(&bill).unwrap()).unwrap();
    let library = &bill["metadata"]["component"];
    assert_eq!((library["name"].as_str(), library["version"].as_str()), (Some("redis-cell"), Some(VERSION)));
    assert_eq!(library["hashes"][0]["content"], sum.split(' ').next().unwrap());

    let text = |value: &Value| value.as_str().unwrap().to_string();
    let parts = bill["components"].as_array().unwrap().iter();
    let licences: BTreeMap<_, _> =
        parts.map(|part| (text(&part["purl"]), text(&part["licenses"][0]["expression"]))).collect();
    let crates = licences.keys().filter_map(|part| part.strip_prefix("pkg:cargo/")?.split_once('@'));
    let crates: BTreeMap<String, &str> = crates.map(|(name, version)| (hyphens(name), version)).collect();
    assert_eq!(licences[&format!("pkg:cargo/redis-module@{}", crates["redis-module"])], "BSD-3-Clause");
    let linked = linked_crates();
    assert_eq!(crates.keys().collect::<Vec<_>>(), linked.keys().collect::<Vec<_>>());
    for (name, version) in linked.iter().filter(|(_, version)| !version.is_empty()) {
        assert_eq!(crates[name], version, "{name}");
    }
    let rust = output(Command::new("rustc").arg("--version"));
    let rust = rust.split(' ').nth(1).unwrap();
    assert_eq!(licences[&format!("pkg:generic/rust-std@{rust}")], "MIT OR Apache-2.0");
}

#[test]
fn the_debian_package_is_installed_used_and_removed() {
    needs!(SCRIPTS_TEST);
    let release = Release::new();
    let package = release.file(".deb");
    let root = release.path().join("root");
    let within = |path: &str| root.join(path.trim_start_matches('/'));
    let library = within(MODULES).join("libredis_cell.so");
    let settings = within("/etc/redis/redis.conf");
    let line = format!("loadmodule {MODULES}/libredis_cell.so");

    let said = dpkg(&root, "--install", package.to_str().unwrap());
    assert!(said.contains(&line), "{said}");
    let readme = within("/usr/share/doc/redis-cell/README.Debian");
    assert!(fs::read_to_string(readme).unwrap().contains(&line));
    assert!(within("/usr/share/doc/redis-cell/redis-cell.cdx.json").exists(), "the bill of materials is missing");
    assert!(!settings.exists(), "the package installs settings, which belong to the administrator");
    assert_eq!(dangling_links(&within("/usr/share/doc/redis-cell")), [""; 0]);
    assert!(
        !within("/usr/share/doc/redis-cell/docs/development.md").exists(),
        "the package has the page for developers"
    );
    let field = |name| output(Command::new("dpkg-deb").arg("--field").arg(&package).arg(name));
    // scripts/package checks that the library needs no newer glibc.
    assert_eq!(field("Depends").trim(), "libc6 (>= 2.17)");
    let maintainer = field("Maintainer");
    assert!(maintainer.trim().ends_with('>') && maintainer.contains('@'), "{maintainer}");
    assert_answers(&["--loadmodule", library.to_str().unwrap()]);

    let said = dpkg(&root, "--install", package.to_str().unwrap());
    let restart = format!("goes on with version {VERSION} until it is restarted");
    assert!(said.contains(&restart), "{said}");

    // Each way in which a server may be told to load the module; the commented line does not.
    let quoted = format!("\t LOADMODULE\t\"{MODULES}/libredis_cell.so\"");
    let option = format!("ExecStart=/usr/bin/redis-server /etc/redis/redis.conf --{line}");
    let loads = [
        ("/etc/redis/redis.conf", &line),
        ("/etc/valkey/tenants/one.conf", &quoted),
        ("/etc/systemd/system/redis-server.service.d/limits.conf", &option),
        ("/run/systemd/system/valkey-server.service", &option),
    ];
    for (file, load) in loads {
        let file = within(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, format!("port 6379\n# {line}\n{load}\n")).unwrap();
    }
    let said = dpkg(&root, "--remove", "redis-cell");
    let shown: BTreeSet<_> =
        said.lines().filter_map(|line| line.strip_prefix("    ")).map(ToString::to_string).collect();
    assert_eq!(shown, loads.map(|(file, load)| format!("{file}:{load}")).into(), "{said}");
    assert!(said.contains("will not start again") && said.contains("settings elsewhere"), "{said}");
    assert!(!library.exists());

    dpkg(&root, "--install", package.to_str().unwrap());
    loads.iter().for_each(|(file, _)| fs::remove_file(within(file)).unwrap());
    let said = dpkg(&root, "--remove", "redis-cell");
    assert!(!said.contains("will not start again") && said.contains("settings elsewhere"), "{said}");
}

#[test]
fn a_release_made_again_in_another_folder_has_the_same_bytes() {
    needs!(SCRIPTS_TEST);
    let one = Release::new();
    let other = again("release");
    output(program("crates").arg(ROOT).arg(&other).arg(native()));
    let two = Release::from(&other, &native());
    for suffix in [".tar.gz", ".deb"] {
        let same = fs::read(one.file(suffix)).unwrap() == fs::read(two.file(suffix)).unwrap();
        assert!(same, "{suffix}");
    }
}

/// Returns this machine's platform.
fn native() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// Writes a crate's name with hyphens, as Cargo.lock may have it: symbols, and crates themselves, may have underscores.
fn hyphens(name: &str) -> String {
    name.replace('_', "-")
}

/// Returns the crates with code or data in the library, with each version that is known. It reads the symbols and the
/// line numbers of a build that keeps them. Our own crate and the parts of Rust itself are left out.
fn linked_crates() -> &'static BTreeMap<String, String> {
    static LINKED: OnceLock<BTreeMap<String, String>> = OnceLock::new();
    LINKED.get_or_init(|| {
        let library = programs::output(Command::new("scripts/package.d/lines").current_dir(ROOT));
        let library = fs::read(library.trim()).unwrap();
        let library = object::File::parse(&library[..]).unwrap();
        let mut crates = BTreeMap::new();
        // Paths of symbols: <rustc_demangle::v0::Printer>::print_type
        for symbol in library.symbols().filter(ObjectSymbol::is_definition) {
            let path = demangle_auto(symbol.name().unwrap().into(), None);
            for path in path.split(|letter: char| !letter.is_ascii_alphanumeric() && !"_:".contains(letter)) {
                if let Some((name, _)) = path.split_once("::").filter(|(name, _)| !name.is_empty()) {
                    crates.insert(hyphens(name), String::new());
                }
            }
        }
        // Paths of source files: …/registry/src/…/thiserror-2.0.21/src/…, /rust/deps/gimli-0.32.3/src/…
        let section = |id: SectionId| {
            let section = library.section_by_name(id.name()).map(|section| section.data().unwrap());
            Ok::<_, gimli::Error>(EndianSlice::new(section.unwrap_or_default(), LittleEndian))
        };
        let lines = addr2line::Context::from_dwarf(Dwarf::load(section).unwrap()).unwrap();
        let files = lines.find_location_range(0, u64::MAX).unwrap().filter_map(|(_, _, line)| line.file);
        for path in files.filter(|file| file.contains("/registry/src/") || file.contains("/rust/deps/")) {
            let folder = path.split('/').find_map(|part| {
                let (name, version) = part.rsplit_once('-')?;
                (version.starts_with(|digit: char| digit.is_ascii_digit()) && version.contains('.'))
                    .then_some((name, version))
            });
            let (name, version) = folder.unwrap_or_else(|| panic!("{path}"));
            crates.insert(hyphens(name), version.to_string());
        }
        let own = ["--rustc", "alloc", "compiler-builtins", "core", "redis-cell", "std"];
        crates.retain(|name, _| !own.contains(&&name[..]));
        for some in ["redis-module", "thiserror", "gimli"] {
            assert!(crates.contains_key(some), "{some} is there, and was not found: {crates:?}");
        }
        crates
    })
}

/// Checks that a server with these settings has the module, in this version.
fn assert_answers(settings: &[&str]) {
    let server = Server::start_bare(settings);
    let reply = throttle(&mut server.connect(), "key 15 30 60");
    assert_eq!(reply, [0, 16, 15, -1, 2]);
    let ready = format!("redis-cell {VERSION} is ready");
    assert!(server.log().contains(&ready), "{}", server.log());
}

/// A release in a folder of its own, gone when dropped.
struct Release(TempDir);

impl Release {
    /// Copies the release of these sources, which the first test makes.
    fn new() -> Self {
        static MADE: OnceLock<PathBuf> = OnceLock::new();
        let made = MADE.get_or_init(|| {
            let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("release");
            let _ = fs::remove_dir_all(&folder);
            output(&mut package(Path::new(ROOT), &folder, &native()));
            folder
        });
        let release = Self(new_folder());
        for file in fs::read_dir(made).unwrap().map(Result::unwrap) {
            fs::copy(file.path(), release.path().join(file.file_name())).unwrap();
        }
        release
    }

    fn from(sources: &Path, platform: &str) -> Self {
        let release = Self(new_folder());
        output(&mut package(sources, release.path(), platform));
        release
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the only file with this suffix; fails unless its sum is right.
    fn file(&self, suffix: &str) -> PathBuf {
        let files: Vec<PathBuf> = fs::read_dir(self.path())
            .unwrap()
            .map(|file| file.unwrap().path())
            .filter(|path| path.to_str().unwrap().ends_with(suffix))
            .collect();
        let [file] = &files[..] else {
            panic!("{files:?}");
        };
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with("redis-cell") && name.contains(VERSION));
        let sum = format!("{name}.sha256");
        let mut check = Command::new("sha256sum");
        output(check.args(["--check", &sum]).current_dir(self.path()));
        file.clone()
    }

    /// Unpacks the archive, and returns its folder.
    fn unpacked(&self) -> PathBuf {
        let archive = self.file(".tar.gz");
        output(Command::new("tar").arg("-xzf").arg(&archive).current_dir(self.path()));
        PathBuf::from(archive.to_str().unwrap().strip_suffix(".tar.gz").unwrap())
    }
}

/// Copies the sources to a folder of their own.
fn again(name: &str) -> PathBuf {
    let copy = Path::new(ROOT).join("target/again").join(name);
    output(program("again").arg(&copy));
    copy
}

/// Copies what was compiled for the module that all tests load. A release needs its build scripts and procedural
/// macros, which are the same in each folder, and take longer than the library.
fn copy_built(to: &Path) {
    fs::create_dir_all(to).unwrap();
    // The module is in target/release.
    output(Command::new("cp").args(["-a", "--no-clobber"]).arg(module().parent().unwrap()).arg(to));
}

/// Returns the command that runs a program of tests/once/package.
fn program(name: &str) -> Command {
    let mut program = Command::new(format!("tests/once/package/{name}"));
    program.current_dir(ROOT);
    program
}

/// Returns the command that packages these sources for the platform. The compiled build scripts and macros are already
/// in their folder then.
fn package(sources: &Path, folder: &Path, platform: &str) -> Command {
    copy_built(&sources.join("target/zigbuild").join(platform));
    let mut package = Command::new(sources.join("scripts/package"));
    package.arg("--folder").arg(folder).env_remove("CARGO_TARGET_DIR");
    // scripts/package takes this machine's platform unless told another.
    if platform != native() {
        package.arg(platform);
    }
    package
}

/// Runs Debian's own installer on a system that is only a folder: it needs no root, and changes nothing on this
/// machine.
fn dpkg(root: &Path, action: &str, argument: &str) -> String {
    let state = root.join("var/lib/dpkg");
    for folder in ["info", "updates"] {
        fs::create_dir_all(state.join(folder)).unwrap();
    }
    fs::File::options().append(true).create(true).open(state.join("status")).unwrap();
    let path = std::env::var("PATH").unwrap();
    output(
        Command::new("dpkg")
            .arg("--instdir")
            .arg(root)
            .arg("--admindir")
            .arg(&state)
            .arg("--log=/dev/null")
            // The folder has no other package, and the package's own scripts run outside of it.
            .args(["--force-depends", "--force-not-root", "--force-script-chrootless"])
            .args([action, argument])
            // dpkg asks for administrators' programs, which a user's path may lack.
            .env("PATH", format!("{path}:/usr/sbin:/sbin")),
    )
}

#[test]
fn a_macs_library_is_loadable_and_has_the_same_bytes_from_another_folder() {
    needs!(SCRIPTS_TEST);
    let apple = Architecture::Aarch64;
    let platform = "aarch64-apple-darwin";
    let [first, second] = ["mac-one", "mac-two"].map(again);
    let one = Release::from(&first, platform);
    output(program("crates").args([&first, &second]).arg(platform));
    let two = Release::from(&second, platform);
    assert!(fs::read(one.file(".tar.gz")).unwrap() == fs::read(two.file(".tar.gz")).unwrap(), "the archives differ");
    let intel = Release::from(&first, "x86_64-apple-darwin");
    is_loadable(&intel.unpacked().join("libredis_cell.dylib"), Architecture::X86_64).unwrap();

    let folder = one.unpacked();
    assert_eq!(dangling_links(&folder), [""; 0]);
    let conf = fs::read_to_string(folder.join("redis-cell.conf")).unwrap();
    assert!(conf.ends_with("/libredis_cell.dylib\n"), "{conf}");
    let library = folder.join("libredis_cell.dylib");
    is_loadable(&library, apple).unwrap();

    // The check itself sees a wrong processor and a changed byte.
    assert!(is_loadable(&library, Architecture::X86_64).is_err());
    let mut bytes = fs::read(&library).unwrap();
    bytes[0x10_000] ^= 1;
    fs::write(&library, bytes).unwrap();
    assert!(is_loadable(&library, apple).is_err());
}
