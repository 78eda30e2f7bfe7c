//! Tests of the module as a whole that need no server.

use super::Module;

#[test]
fn a_version_is_a_number_with_two_digits_for_its_second_and_its_third_part() {
    for (version, number) in [("1.2.3", 10203), ("1.0.2", 10002), ("2.10.0", 21000)] {
        assert_eq!(Module::new(c"redis-cell", version, &[]).version_number(), number, "{version}");
    }
}
