//! docs/recipes/policies.lua: policies by name.

use redis::Connection;

use crate::support::needs::{FUNCTIONS, needs};
use crate::support::recipes::{ask, load_function, read, user};
use crate::support::{Server, error_of, run};

#[test]
fn named_policies_change_for_all_in_one_command_unless_the_file_has_a_mistake() {
    needs!(FUNCTIONS);
    let server = Server::start();
    let (mut connection, mut app) = (server.connect(), user(&server, "docs/recipes.md", "## Named policies"));
    let library = read("policies.lua");
    load_function(&mut connection, &library).unwrap();
    // A policy of several quotas replies with the number of the one that decides.
    assert_eq!(ask(&mut app, "FCALL throttle 1 user123 gold 90").unwrap()[..3], [0, 100, 10]);
    assert_eq!(ask(&mut app, "FCALL throttle 1 user123 gold").unwrap()[3..], [-1, 55, 1]);
    assert_eq!(ask(&mut app, "FCALL throttle 1 user7 free").unwrap(), [0, 10, 9, -1, 6]);
    assert_eq!(error_of(&mut connection, "FCALL throttle 1 user7 silver"), "ERR no policy of that name");
    for words in ["0 gold", "2 key other gold", "1 key", "1 key gold 1 1"] {
        let error = error_of(&mut connection, &format!("FCALL throttle {words}"));
        assert!(error.starts_with("ERR wrong number of arguments"), "{words}: {error}");
    }

    // A quota that is added at the end begins full, and the others go on.
    let state = |connection: &mut Connection| run::<String>(connection, "GET user123").unwrap();
    let (gold, before) = ("99, 100, 60, 9999, 10000, 86400", state(&mut connection));
    load_function(&mut connection, &library.replace(gold, &format!("{gold}, 5, 1, 1"))).unwrap();
    assert_eq!(ask(&mut app, "FCALL throttle 1 user123 gold 0").unwrap()[..3], [0, 6, 6]);
    assert_eq!(state(&mut connection), before);
    // Redis 7.2 would send a number with this many zeros as 1e+9.
    load_function(&mut connection, &library.replace("9, 10, 60}", "999999999, 1000000000, 1000000000}")).unwrap();
    assert_eq!(ask(&mut app, "FCALL throttle 1 user8 free 0").unwrap()[..3], [0, 1_000_000_000, 1_000_000_000]);
    // A file with a mistake is refused, and the old one stays.
    load_function(&mut connection, &library).unwrap();
    for (policy, mistake) in [
        ("{'free'}", "not_three_numbers"),
        (&format!("{{'free'{}}}", ", 9, 10, 60".repeat(9)), "1_to_8_quotas"),
        ("{'free', 9.5, 10, 60}", "not_whole"),
        ("{'free', -2, 10, 60}", "too_small"),
        ("{'free', 9, 0, 60}", "too_small"),
        ("{'free', 9, 1000000001, 1}", "more_than_one_token_a_nanosecond"),
        ("{'free', 9, 1, 1000000000}", "too_large"),
        ("{'free', 9, 0 / 0, 60}", "too_small"),
        ("{9, 10, 60, 5}", "without_a_name"),
        ("{'gold', 9, 10, 60}", "two_policies_of_one_name"),
        ("{'fre', 9, 10, 60}", "no_policy_of_a_name_that_is_called"),
    ] {
        let mistaken = library.replace("{'free', 9, 10, 60}", policy);
        let error = load_function(&mut connection, &mistaken).expect_err(policy).to_string();
        assert!(error.contains(mistake), "{policy}: {error}");
        assert_eq!(ask(&mut app, "FCALL throttle 1 key free 0").unwrap(), [0, 10, 10, -1, 0], "{policy}");
    }
}
