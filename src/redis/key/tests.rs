//! Wrong uses of an open key: they do not compile. The test runs the compiler, because cargo runs no doc tests of a
//! cdylib, and because a doc test would see only public functions.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Compiles a command's call that opens a key and continues like this. Returns the code of the first error.
fn error_of(rest: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program.rs");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let call = format!(
        "#[path = \"{source}/decimal.rs\"] mod decimal;
        #[path = \"{source}/redis/mod.rs\"] mod redis;
        pub fn call(context: &mut redis::Context, name: &redis::Argument) -> Result<(), redis::Unavailable> {{
            let key = redis::Key::open(context, name)?;
            {rest}
            Ok(())
        }}"
    );
    fs::write(&program, call).unwrap();
    // Cargo puts the libraries beside these tests.
    let executable = env::current_exe().unwrap();
    let libraries = executable.parent().unwrap();
    let mut compiler = Command::new(Path::new(env!("CARGO")).with_file_name("rustc"));
    compiler.args(["--edition=2024", "--crate-type=lib", "--emit=metadata", "--out-dir"]).arg(folder.path());
    compiler.arg("-L").arg(libraries).arg(program);
    for name in ["libc", "redis_module"] {
        compiler.arg("--extern").arg(newest(libraries, name));
    }
    let output = compiler.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let code = text.split_once("error[").map(|(_, code)| code.chars().take(5).collect());
    assert_eq!(output.status.success(), code.is_none(), "{text}");
    code
}

/// Returns `name=file`, the newest library of this name.
fn newest(libraries: &Path, name: &str) -> OsString {
    let files = fs::read_dir(libraries).unwrap().map(|file| file.unwrap().path());
    let named = files.filter(|file| {
        let file = file.file_name().unwrap().to_string_lossy();
        file.starts_with(&format!("lib{name}-")) && file.ends_with(".rlib")
    });
    let newest = named.max_by_key(|file| file.metadata().unwrap().modified().unwrap()).unwrap();
    OsString::from_iter([name.as_ref(), "=".as_ref(), newest.as_os_str()])
}

/// The context may run another module's callback, which may delete the key.
#[test]
#[cfg_attr(miri, ignore = "Miri starts no compiler")]
fn the_context_cannot_be_used_while_a_key_is_open() {
    let error_of = |rest| error_of(rest).unwrap_or_default();
    assert_eq!(error_of("drop(key); context.notify(c\"event\", name);"), "");
    assert_eq!(error_of("context.notify(c\"event\", name); drop(key);"), "E0502");
    assert_eq!(error_of("let value = key.value(); redis::make_room(context, name)?; drop(value);"), "E0502");
    assert_eq!(error_of("let other = redis::Key::open(context, name)?; drop((key, other));"), "E0499");
}
