//! Tests the releases that scripts/package builds: the archive and the packages can be checked, loaded and removed, and
//! every build produces the same bytes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::support::needs::{EVERYWHERE, needs};
use crate::support::pages::{ROOT, dangling_links};
use crate::support::programs::output;
use crate::support::{MODULES, Server, new_folder, throttle};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns a new folder with a copy of the release, which the first call builds from these sources.
fn release() -> TempDir {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("release");
        let _ = fs::remove_dir_all(&folder);
        package(Path::new(ROOT), &folder);
        folder
    });
    let release = new_folder();
    shell("cp -r \"$0\"/. .", made, release.path());
    release
}

fn package(root: &Path, folder: &Path) -> String {
    shell("unset CARGO_TARGET_DIR; scripts/package --folder \"$0\"", folder, root)
}

/// Runs shell commands in a folder, with the argument as `$0`. Returns their output and their error messages.
fn shell(commands: &str, argument: &Path, folder: &Path) -> String {
    output(Command::new("sh").args(["-ec", &format!("exec 2>&1; {commands}")]).arg(argument).current_dir(folder))
}

fn assert_loads(settings: [&str; 2]) {
    let server = Server::start_bare(&settings);
    assert_eq!(throttle(&mut server.connect(), "key 15 30 60"), [0, 16, 15, -1, 2]);
    let ready = format!("redis-cell {VERSION} is ready");
    assert!(server.log().contains(&ready), "the log lacks {ready:?}: {}", server.log());
}

#[test]
fn the_archive_has_a_checksum_the_documents_the_licences_and_settings_that_load_the_library() {
    needs!(EVERYWHERE);
    let release = release();
    let check = "for file in *.tar.gz *.deb *.whl *.tgz; do sha256sum --check $file.sha256 | grep \"^$file: \"; done";
    let folder = release.path().join("unpacked");
    shell(&format!("{check}; tar -xzf *.tar.gz; mv redis-cell-v{VERSION}-*-linux-gnu $0"), &folder, release.path());
    assert_eq!(dangling_links(&folder), [""; 0]);
    let licences = fs::read_to_string(folder.join("LICENSE")).unwrap();
    for part in ["Zig", "Rust", "redis-module", "thiserror", "gimli"] {
        let (_, licence) =
            licences.split_once(&format!("\n--- {part}")).unwrap_or_else(|| panic!("LICENSE has no part for {part}"));
        let licence = licence.split("\n---").next().unwrap();
        assert!(
            licence.contains("Copyright") || licence.contains("Permission is hereby granted"),
            "{part} has no licence text: {licence}"
        );
    }
    let settings = folder.join("redis-cell.conf");
    shell(&format!("sed -i s,{MODULES},$PWD, $0"), &settings, &folder);
    assert_loads(["--include", settings.to_str().unwrap()]);
}

/// dpkg installs the package into a folder, so the test needs no superuser rights, and changes nothing on this machine.
#[test]
fn the_debian_package_says_which_line_to_add_when_to_restart_and_which_lines_to_remove() {
    needs!(EVERYWHERE);
    let (release, system) = (release(), new_folder());
    let within = |path: &str| system.path().join(path.trim_start_matches('/'));
    let library = within(MODULES).join("libredis_cell.so");
    let line = format!("loadmodule {MODULES}/libredis_cell.so");
    // In that folder, no other package is installed, so ignore dependencies. Run the package's scripts without chroot,
    // which needs root.
    let dpkg = |action: &str| {
        let commands = "mkdir -p $0/var/lib/dpkg/info $0/var/lib/dpkg/updates; touch $0/var/lib/dpkg/status
            PATH=$PATH:/usr/sbin:/sbin dpkg --root=$0 --log=/dev/null --force-depends --force-not-root \
                --force-script-chrootless ";
        shell(&format!("{commands}{action}"), system.path(), release.path())
    };

    let said = dpkg("--install *.deb");
    assert!(said.contains(&line) && !within("/etc").exists(), "the package adds the line itself: {said}");
    assert_eq!(dangling_links(&within("/usr/share/doc/redis-cell")), [""; 0]);
    assert_loads(["--loadmodule", library.to_str().unwrap()]);
    let said = dpkg("--install *.deb");
    assert!(said.contains(&format!("version {VERSION} until it is restarted")), "dpkg says {said}");

    // Two ways to make a server load the module. Each file also gets the line as a comment, which must not count.
    let loads = [
        ("/etc/valkey/tenants/one.conf", format!("\t LOADMODULE\t\"{MODULES}/libredis_cell.so\"")),
        ("/run/systemd/system/redis-server.service", format!("ExecStart=/usr/bin/redis-server --{line}")),
    ];
    for (file, load) in &loads {
        fs::create_dir_all(within(file).parent().unwrap()).unwrap();
        fs::write(within(file), format!("port 6379\n# {line}\n{load}\n")).unwrap();
    }
    let said = dpkg("--remove redis-cell");
    let shown: BTreeSet<_> = said.lines().filter_map(|line| line.strip_prefix("    ")).map(String::from).collect();
    assert_eq!(shown, loads.map(|(file, load)| format!("{file}:{load}")).into(), "{said}");
    assert!(!library.exists());
}

/// Each module of the Python package and each store of the npm package loads, together with the libraries that the
/// examples use.
#[test]
fn pip_and_npm_install_the_packages_for_other_limiters() {
    needs!(EVERYWHERE);
    let (release, folder) = (release(), new_folder());
    let install = r#"eval "$(/usr/bin/python3 tests/examples/packages.py)"; cd "$0"
        /usr/bin/python3 -m pip install --quiet --root-user-action ignore --no-deps --no-index --target python "$RELEASE"/*.whl
        export DJANGO_SETTINGS_MODULE= PYTHONPATH=$0/python:$PYTHONPATH
        for module in limits fastapi rest_framework; do
            /usr/bin/python3 -c "import django.conf; django.conf.settings.configure()
import redis_cell.$module as module; print(module.__file__)"
        done
        npm install --silent --offline --no-audit --no-fund --prefix node "$RELEASE"/*.tgz; cd node
        for store in express fastify nest; do
            node -e "console.log(require.resolve('redis-cell/$store')); require('redis-cell/$store')"
            node --input-type=module -e "import 'redis-cell/$store'"
        done"#;
    let commands = format!("RELEASE={}; {install}", release.path().display());
    let said = shell(&commands, folder.path(), Path::new(ROOT));
    let within = |line: &str| Path::new(line).starts_with(folder.path());
    assert!(said.lines().count() == 6 && said.lines().all(within), "not all packages are in the folder: {said}");
}

/// The copy of the repository also has files that git does not track, which must not get into a release.
#[test]
fn a_release_made_in_another_folder_has_the_same_bytes() {
    needs!(EVERYWHERE);
    let (release, clone) = (release(), new_folder());
    let copy = "git -c safe.directory=\"$PWD\" ls-files -z | xargs -0 cp -a --parents -t \"$0\"
        cp -a .git \"$0\"; mkdir \"$0/target\"; ln -s \"$PWD/target/zig\" \"$0/target\"; touch \"$0/docs/.env\"";
    shell(copy, clone.path(), Path::new(ROOT));
    let made = clone.path().join("target/package");
    package(clone.path(), &made);
    shell("for file in *; do cmp $file $0/$file; done", &made, release.path());

    fs::write(clone.path().join("README.md"), "another").unwrap();
    let said = package(clone.path(), &made);
    assert!(said.contains("not committed: README.md"), "scripts/package says {said}");
}
