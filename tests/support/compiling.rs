//! Builds the libraries that the tests load: the module, and the C files in this folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

use serde_json::Value as Json;

use super::new_folder;
use super::pages::ROOT;
use super::programs::output;

/// Returns the path of the module: `MODULE` if it is set, or else that of the release build, which the first call
/// brings up to date.
pub fn module() -> &'static str {
    static MODULE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let module = MODULE.get_or_init(|| {
        if let Some(module) = std::env::var_os("MODULE").map(PathBuf::from) {
            return Some(module.canonicalize().unwrap_or_else(|error| panic!("MODULE: {}: {error}", module.display())));
        }
        // Cargo prints its errors itself.
        let build = cargo().args(["build", "--release", "--locked", "--quiet"]).status();
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| Path::new(ROOT).join("target"), PathBuf::from);
        build.unwrap().success().then(|| target.join("release/libredis_cell.so"))
    });
    module.as_ref().expect("the module did not build: see cargo's errors above").to_str().unwrap()
}

/// Compiles a C file in this folder once, and returns the path of its library.
pub fn compiled(name: &'static str) -> &'static str {
    static LIBRARIES: Mutex<BTreeMap<&str, &str>> = Mutex::new(BTreeMap::new());
    LIBRARIES.lock().unwrap().entry(name).or_insert_with(|| compile(name).leak())
}

/// Returns the arguments that load redis-cell behind shim.c. The server then looks like a Valkey that saves keys
/// without a fork, and keys whose names start with `unwritable` cannot be opened for writing.
pub fn load_with_unwritable_keys() -> [&'static str; 4] {
    ["--loadmodule", compiled("shim"), "valkey", module()]
}

fn compile(name: &str) -> String {
    let source = Path::new(ROOT).join(format!("tests/support/{name}.c"));
    let compiler = std::env::var("MODULE_CC").unwrap_or("cc".to_string());
    // Test runs for several platforms share this folder, so the library's name includes the compiler.
    let library = format!("{name}-{}.so", compiler.replace('/', "-"));
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(library);
    // Compile in another folder and then move the library, because another test run may be using the old one.
    let folder = new_folder();
    let [object, new] = ["o", "so"].map(|kind| folder.path().join(name).with_extension(kind));
    let compile = |arguments: &[&str], from: &Path, to: &Path| {
        output(Command::new(&compiler).args(arguments).arg("-o").args([to, from]));
    };
    compile(&["-c", "-fPIC", "-O1", "-Wall", "-Werror", "-I", headers().to_str().unwrap()], &source, &object);
    // Do not link a C library: clock.c is preloaded into the server and, if `SERVER` is a script, into the shell, and
    // their C libraries may differ. With -nostdlib, zig finds no headers, so compile and link separately.
    compile(&["-shared", "-nostdlib"], &object, &new);
    fs::rename(&new, &library).unwrap();
    library.to_str().unwrap().to_string()
}

/// Returns the folder of redismodule.h, which comes with the redis-module crate.
fn headers() -> PathBuf {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut metadata = cargo();
    metadata.args(["metadata", "--locked", "--offline", "--format-version", "1", "--filter-platform", &platform]);
    let metadata: Json = serde_json::from_str(&output(&mut metadata)).unwrap();
    let package = metadata["packages"].as_array().unwrap().iter().find(|package| package["name"] == "redis-module");
    Path::new(package.unwrap()["manifest_path"].as_str().unwrap()).with_file_name("src/include")
}

/// Returns the cargo that runs the tests or, if they were started without cargo, the one on the PATH.
fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.current_dir(ROOT);
    cargo
}
