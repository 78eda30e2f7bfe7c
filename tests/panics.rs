//! Nothing in the module panics.

use std::fs;

use crate::support::module;

/// What can panic brings along the place to tell. A library without one of ours has no such code: no index out of
/// bounds, no overflow, no unwrap. What is left is the standard library's own, and that of its dependencies.
#[test]
fn no_code_of_the_module_can_panic() {
    let library = fs::read(module()).unwrap();
    let is_path = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-".contains(byte);
    let places: Vec<String> = library
        .split(|byte| !is_path(byte))
        .map(|path| String::from_utf8_lossy(path).into_owned())
        .filter(|path| path.contains(".rs"))
        .collect();
    assert!(places.len() > 5, "places are no longer in the library: {places:?}");
    for place in places {
        assert!(place.contains("/rustc/") || place.contains("/rust/deps/"), "{place}");
    }
}
