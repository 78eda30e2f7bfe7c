//! The releases of scripts/package: each can be checked, installed, used and removed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::support::needs::{EVERYWHERE, needs};
use crate::support::pages::{ROOT, block, dangling_links, pages, text_of};
use crate::support::programs::output_and_errors as output;
use crate::support::{MODULES, Server, new_folder, throttle};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The test unpacks the archive by the README's lines, with this machine's platform in them.
#[test]
fn the_archive_unpacks_into_a_folder_of_its_own_with_the_library_and_its_documents() {
    needs!(EVERYWHERE);
    let release = release();
    let lines = block("sh", "sha256sum").replace("x86_64-unknown-linux-gnu", &native());
    let (shell, server) = lines.strip_prefix("cd target/package\n").unwrap().rsplit_once('\n').unwrap();
    output(Command::new("sh").args(["-e", "-c", shell]).current_dir(release.path()));

    let folder = release.path().join(format!("redis-cell-v{VERSION}-{}", native()));
    let entries = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let expected = ["CHANGELOG.md", "LICENSE", "README.md", "docs", "libredis_cell.so", "redis-cell.conf"];
    assert_eq!(entries.collect::<BTreeSet<_>>(), expected.map(String::from).into());
    assert_eq!(dangling_links(&folder), [""; 0]);
    let licences = fs::read_to_string(folder.join("LICENSE")).unwrap();
    for part in ["Zig", "Rust", "redis-module", "thiserror", "gimli"] {
        let (_, licence) = licences.split_once(&format!("\n--- {part}")).unwrap_or_else(|| panic!("no {part}"));
        let licence = licence.split("\n---").next().unwrap();
        assert!(licence.contains("Copyright") || licence.contains("Permission is hereby granted"), "{part}: {licence}");
    }

    let library = server.strip_prefix("redis-server --save '' --loadmodule ./").unwrap().replace('*', VERSION);
    assert_answers(&["--loadmodule", release.path().join(&library).to_str().unwrap()]);
    // The settings in the archive load the library as well, once they have its path.
    let settings = folder.join("redis-cell.conf");
    let line = fs::read_to_string(&settings).unwrap();
    assert!(line.contains(MODULES), "{line}");
    fs::write(&settings, line.replace(MODULES, folder.to_str().unwrap())).unwrap();
    assert_answers(&["--include", settings.to_str().unwrap()]);
}

/// The job `container` builds the whole, on Debian and on Alpine.
#[test]
fn the_commands_of_the_containerfile_take_the_library_out_of_the_archive() {
    needs!(EVERYWHERE);
    let release = release();
    let file = text_of("docs/Containerfile");
    let copied = file.lines().find_map(|line| line.strip_prefix("COPY --from=release /release/")).unwrap();
    let library = release.path().join(copied.split(' ').next().unwrap());
    let commands = file.split_once("\nRUN ").unwrap().1.split_once("\n\n").unwrap().0;
    let commands = commands.replace("/release", release.path().to_str().unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-c", &commands]).current_dir(release.path()).env("VERSION", VERSION);
    output(&mut shell);
    assert!(file.contains(&format!("CMD [\"--loadmodule\", \"{MODULES}/libredis_cell.so\"]")), "{file}");
    assert_answers(&["--loadmodule", library.to_str().unwrap()]);

    // An archive whose sum is wrong is refused.
    fs::remove_file(&library).unwrap();
    let archive = format!("redis-cell-v{VERSION}-{}.tar.gz", native());
    fs::write(release.path().join(format!("{archive}.sha256")), format!("{:064}  {archive}\n", 0)).unwrap();
    let refused = shell.output().unwrap();
    assert!(!refused.status.success() && !library.exists(), "{refused:?}");
}

#[test]
fn the_pages_name_the_files_of_this_version() {
    let (root, docs) = (Path::new(ROOT), Path::new(ROOT).join("docs"));
    for page in pages(root).into_iter().chain(["Containerfile", "kubernetes/limits.yaml"].map(|file| docs.join(file))) {
        let text = fs::read_to_string(&page).unwrap();
        for prefix in ["redis-cell-v", "redis-cell_", "ARG VERSION=", "redis-cell_version:", "ghcr.io/REPO:"] {
            for rest in text.split(prefix).skip(1) {
                let other = rest.starts_with(|letter: char| letter.is_ascii_digit()) && !rest.starts_with(VERSION);
                assert!(!other, "{}: {prefix}{}", page.display(), rest.lines().next().unwrap());
            }
        }
    }
}

/// A page writes "…" for the version.
#[test]
fn the_places_that_quote_the_line_of_a_loaded_module_have_it_as_the_server_logs_it() {
    let server = Server::start();
    for file in ["README.md", ".github/ISSUE_TEMPLATE/bug.yml"] {
        let text = text_of(file);
        let (before, _) = text.split_once(" is ready").unwrap_or_else(|| panic!("{file} does not quote it"));
        let quoted = &before[before.rfind("redis-cell").unwrap()..];
        let line = format!(" {} is ready\n", quoted.replace('…', VERSION));
        assert!(server.log().contains(&line), "{file}: the log has no line {line:?}: {}", server.log());
    }
}

#[test]
fn the_debian_package_is_installed_used_and_removed() {
    needs!(EVERYWHERE);
    let release = release();
    let package = file(release.path(), ".deb");
    let root = release.path().join("root");
    let within = |path: &str| root.join(path.trim_start_matches('/'));
    let library = within(MODULES).join("libredis_cell.so");
    let line = format!("loadmodule {MODULES}/libredis_cell.so");

    let said = dpkg(&root, "--install", package.to_str().unwrap());
    assert!(said.contains(&line), "{said}");
    let documents = within("/usr/share/doc/redis-cell");
    assert!(fs::read_to_string(documents.join("README.Debian")).unwrap().contains(&line));
    assert!(fs::read_to_string(documents.join("copyright")).unwrap().contains("\n--- redis-module"));
    assert_eq!(dangling_links(&documents), [""; 0]);
    assert!(!documents.join("docs/development.md").exists(), "the package has the page for developers");
    assert!(!within("/etc").exists(), "the package installs settings, which belong to the administrator");
    // scripts/package checks that the library needs no newer glibc.
    let depends = output(Command::new("dpkg-deb").arg("--field").arg(&package).arg("Depends"));
    assert_eq!(depends.trim(), "libc6 (>= 2.17)");
    assert_answers(&["--loadmodule", library.to_str().unwrap()]);

    let said = dpkg(&root, "--install", package.to_str().unwrap());
    let restart = format!("keeps version {VERSION} until it is restarted");
    assert!(said.contains(&restart), "{said}");

    // Ways in which a server may be told to load the module; the commented line does not.
    let loads = [
        ("/etc/valkey/tenants/one.conf", format!("\t LOADMODULE\t\"{MODULES}/libredis_cell.so\"")),
        ("/run/systemd/system/redis-server.service", format!("ExecStart=/usr/bin/redis-server --{line}")),
    ];
    for (file, load) in &loads {
        let file = within(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, format!("port 6379\n# {line}\n{load}\n")).unwrap();
    }
    let said = dpkg(&root, "--remove", "redis-cell");
    let shown: BTreeSet<_> = said.lines().filter_map(|line| line.strip_prefix("    ")).map(String::from).collect();
    assert_eq!(shown, loads.map(|(file, load)| format!("{file}:{load}")).into(), "{said}");
    assert!(said.contains("will not start again") && said.contains("settings elsewhere"), "{said}");
    assert!(!library.exists());
}

/// The other folder has files that git does not track: what a run of the tests, a user and scripts/package leave there.
#[test]
fn a_release_made_again_in_a_used_folder_has_the_same_bytes() {
    needs!(EVERYWHERE);
    let (one, two) = (release(), new_folder());
    let copy = "git -c safe.directory=\"$PWD\" ls-files -z | xargs -0 cp -a --parents -t \"$0\"
        cp -a .git \"$0\"
        mkdir -p \"$0/target\" \"$0/docs/clients/__pycache__\"
        ln -s \"$PWD/target/zig\" \"$0/target\"
        touch \"$0/docs/.env\" \"$0/docs/clients/__pycache__/protect.pyc\"";
    output(Command::new("sh").args(["-ec", copy]).arg(two.path()).current_dir(ROOT));
    // The Containerfile wants the archive beside it.
    let docs = two.path().join("docs");
    output(Command::new("cp").args([file(one.path(), ".tar.gz"), file(one.path(), ".deb"), docs.clone()]));
    let mut package = Command::new(two.path().join("scripts/package"));
    output(package.arg("--folder").arg(&docs).env_remove("CARGO_TARGET_DIR"));
    for suffix in [".tar.gz", ".deb"] {
        let [one, two] = [one.path(), &docs].map(|folder| fs::read(file(folder, suffix)).unwrap());
        assert!(one == two, "{suffix}");
    }

    fs::write(two.path().join("README.md"), "another").unwrap();
    let said = output(&mut package);
    assert!(said.contains("not committed: ") && said.contains("README.md"), "{said}");
}

/// Returns this machine's platform.
fn native() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// Checks that a server with these settings has the module, in this version.
fn assert_answers(settings: &[&str]) {
    let server = Server::start_bare(settings);
    let reply = throttle(&mut server.connect(), "key 15 30 60");
    assert_eq!(reply, [0, 16, 15, -1, 2]);
    let ready = format!("redis-cell {VERSION} is ready");
    assert!(server.log().contains(&ready), "{}", server.log());
}

/// Copies the release of these sources, which the first test makes, into a folder of its own.
fn release() -> TempDir {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("release");
        let _ = fs::remove_dir_all(&folder);
        let mut package = Command::new("scripts/package");
        output(package.arg("--folder").arg(&folder).current_dir(ROOT).env_remove("CARGO_TARGET_DIR"));
        folder
    });
    let release = new_folder();
    output(Command::new("cp").arg("-r").arg(made.join(".")).arg(release.path()));
    release
}

/// Returns the folder's only file with this suffix; fails unless its sum is right.
fn file(folder: &Path, suffix: &str) -> PathBuf {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let files: Vec<_> = files.filter(|name| name.ends_with(suffix)).collect();
    let [name] = &files[..] else { panic!("{files:?}") };
    assert!(name.starts_with("redis-cell") && name.contains(VERSION), "{name}");
    output(Command::new("sha256sum").args(["--check", &format!("{name}.sha256")]).current_dir(folder));
    folder.join(name)
}

/// Runs Debian's own installer on a system that is only a folder: it needs no root, and changes nothing on this
/// machine.
fn dpkg(root: &Path, action: &str, argument: &str) -> String {
    // The folder has no other package, and the package's own scripts run outside of it. dpkg asks for administrators'
    // programs, which a user's path may lack.
    let commands = "mkdir -p $0/var/lib/dpkg/info $0/var/lib/dpkg/updates
        touch $0/var/lib/dpkg/status
        PATH=$PATH:/usr/sbin:/sbin dpkg --root=$0 --log=/dev/null --force-depends --force-not-root \
            --force-script-chrootless $@";
    output(Command::new("sh").args(["-ec", commands]).arg(root).args([action, argument]))
}
