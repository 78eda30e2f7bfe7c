//! Checks that the module's code cannot panic.

use std::fs;

use crate::support::module;

/// Code that can panic leaves the name of its source file in the library, for the panic message. If the library names
/// none of the module's own files, it contains no such code: no index, overflow or unwrap that could panic. The
/// remaining names are those of the standard library and its dependencies.
#[test]
fn no_code_of_the_module_can_panic() {
    let library = fs::read(module()).unwrap();
    let is_path = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-".contains(byte);
    let places: Vec<String> = library
        .split(|byte| !is_path(byte))
        .map(|path| String::from_utf8_lossy(path).into_owned())
        .filter(|path| path.contains(".rs"))
        .collect();
    assert!(places.len() > 5, "the library no longer names source files: {places:?}");
    for place in places {
        assert!(
            place.contains("/rustc/") || place.contains("/rust/deps/"),
            "the library contains code that can panic, in {place}"
        );
    }
}
