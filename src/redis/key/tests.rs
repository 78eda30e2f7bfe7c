//! Wrong uses of an open key: they do not compile. The test runs the compiler, because cargo runs no doc tests of a
//! cdylib, and because a doc test would see only public functions.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Compiles a program that uses these libraries. Returns the code of its first error.
fn error_of(program: &str, libraries: &[(&str, PathBuf)]) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("program.rs");
    fs::write(&file, program).unwrap();
    let mut compiler = Command::new(Path::new(env!("CARGO")).with_file_name("rustc"));
    compiler.args(["--edition=2024", "--crate-type=lib", "--emit=metadata", "--out-dir"]).arg(folder.path());
    compiler.arg(file).arg("-L").arg(beside());
    for (name, file) in libraries {
        compiler.arg("--extern").arg(format!("{name}={}", file.display()));
    }
    let output = compiler.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let code = text.split_once("error[").map(|(_, code)| code.chars().take(5).collect());
    assert_eq!(output.status.success(), code.is_none(), "{text}");
    code
}

/// The folder of these tests, in which cargo also puts the libraries.
fn beside() -> PathBuf {
    env::current_exe().unwrap().parent().unwrap().into()
}

/// Finds a library. There may be others of its name, which another compiler has made.
fn library(name: &str) -> (&str, PathBuf) {
    let files = fs::read_dir(beside()).unwrap().map(|file| file.unwrap().path());
    let mut named = files.filter(|file| {
        let file = file.file_name().unwrap().to_string_lossy();
        file.starts_with(&format!("lib{name}-")) && file.ends_with(".rlib")
    });
    let uses = format!("extern crate {name};");
    (name, named.find(|file| error_of(&uses, &[(name, file.clone())]).is_none()).unwrap())
}

/// The context may run another module's callback, which may delete the key.
#[test]
#[cfg_attr(miri, ignore = "Miri starts no compiler")]
fn the_context_cannot_be_used_while_a_key_is_open() {
    let libraries = ["libc", "redis_module"].map(library);
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let error_after_open = |rest: &str| {
        let call = format!(
            "#[path = \"{source}/decimal.rs\"] mod decimal;
            #[path = \"{source}/redis/mod.rs\"] mod redis;
            pub fn call(context: &mut redis::Context, name: &redis::Argument) -> Result<(), redis::Unavailable> {{
                let key = redis::Key::open(context, name)?;
                {rest}
                Ok(())
            }}"
        );
        error_of(&call, &libraries).unwrap_or_default()
    };
    assert_eq!(error_after_open("drop(key); context.notify(c\"event\", name);"), "");
    assert_eq!(error_after_open("context.notify(c\"event\", name); drop(key);"), "E0502");
    assert_eq!(error_after_open("let value = key.value(); redis::make_room(context, name)?; drop(value);"), "E0502");
    assert_eq!(error_after_open("let other = redis::Key::open(context, name)?; drop((key, other));"), "E0499");
}
