//! The recipes of docs/recipes.md, each a file in docs/recipes, do what the page says.

mod gcra;

use std::fs;
use std::process::{Command, Stdio};

use redis::{Connection, RedisResult, Value};

use crate::support::clock::Clock;
use crate::support::cluster::{SLOTS, add_slots, is_ok};
use crate::support::needs::needs;
use crate::support::programs;
use crate::support::random::Random;
use crate::support::recipes::{
    Dialogue, MICROSECOND, MILLISECOND, SECOND, START, load_function, output, path, permissions, prints, read,
};
use crate::support::replication::{catch_up, replicate};
use crate::support::{Server, error_of, now, run, snapshot, throttle, wait_until};

fn python(server: &Server) -> Command {
    let mut python = Command::new("/usr/bin/python3");
    python.arg("-B").env("REDIS_PORT", server.port.to_string()).env("PYTHONPATH", path("")).stderr(Stdio::inherit());
    python
}

/// Starts a program in Python that answers lines.
fn dialogue(server: &Server, program: &str) -> Dialogue {
    let mut command = python(server);
    command.args(["-c", program]);
    Dialogue::start(command)
}

#[test]
fn a_queue_tells_each_call_how_long_to_wait_and_refuses_whom_it_would_make_wait_longer() {
    let (clock, server) = Clock::start(START);
    let expected = "\
        a waits 0 ms\n\
        b waits 0 ms\n\
        c waits 100 ms\n\
        d waits 200 ms\n\
        e waits 300 ms\n\
        f is refused, may ask again after 100 ms\n";
    prints("waiting.py", &server, expected);
    // A call that does not wait is limited while other calls wait.
    let mut connection = server.connect();
    let mut at_once = || run::<[i64; 5]>(&mut connection, "CL.PTHROTTLE printer 1 1 100").unwrap();
    assert_eq!(at_once()[0], 1);
    clock.set(START + 400 * MILLISECOND - MICROSECOND);
    assert_eq!(at_once()[0], 1);
    clock.set(START + 400 * MILLISECOND);
    assert_eq!(at_once()[0], 0);
}

/// No call waits beyond the longest wait, even if a token does not take a whole number of milliseconds.
#[test]
#[ignore = "slow: Python"]
fn no_turn_is_further_away_than_the_longest_wait_and_no_turn_is_of_more_than_the_burst_or_of_none() {
    let (_clock, server) = Clock::start(START);
    let program = "import os, redis, waiting
client = redis.Redis(port=int(os.environ['REDIS_PORT']))
queue = waiting.Queue(client, 'key', 0, 3, 1000, 1000)
print([queue.turn() for _ in range(4)])
for tokens in 2, 0, -1:
    try:
        print(queue.turn(tokens))
    except ValueError as error:
        print(error)";
    let expected = "[0, 334, 667, 1000]\n".to_string() + &"a turn is for 1 to 1 tokens\n".repeat(3);
    assert_eq!(programs::output(python(&server).args(["-c", program])), expected);
    let tat: i64 = run(&mut server.connect(), "GET key").unwrap();
    assert_eq!(tat, START + 4 * 333_333_333, "four tokens are taken, and none is given back");
}

/// The calls come at random, sometimes too few and sometimes too many; the test records each turn that the program
/// announces.
#[test]
#[ignore = "slow: thousands of calls"]
fn turns_are_first_come_first_served_and_never_more_than_the_burst_and_the_rate() {
    // A token does not take a whole number of milliseconds.
    let (burst, count, period, longest) = (4_i64, 7_i64, 100_i64, 500_i64);
    let (clock, server) = Clock::start(START);
    let program = format!(
        "import sys, os, redis, waiting
queue = waiting.Queue(redis.Redis(port=int(os.environ['REDIS_PORT'])), 'key', {}, {count}, {period}, {longest})
for line in sys.stdin:
    try:
        print(queue.turn(int(line)))
    except waiting.TooLong as error:
        print(-error.args[0])",
        burst - 1
    );
    let mut queue = dialogue(&server, &program);
    let mut random = Random::new(2026);
    let mut now = 0;
    let mut turns = Vec::new();
    let (mut at_once, mut refused) = (0, 0);
    for number in 0..3_000 {
        now += random.below(if number % 400 < 200 { 10 } else { 60 }) as i64;
        clock.set(START + now * MILLISECOND);
        let tokens = if random.one_in(5) { burst } else { 1 };
        let wait: i64 = queue.ask(tokens).parse().unwrap();
        if wait < 0 {
            refused += 1;
            assert!(-wait <= period * burst / count + 1, "{wait}");
        } else {
            assert!(wait <= longest, "{wait}");
            at_once += i64::from(wait == 0);
            turns.push((now + wait, tokens));
        }
    }
    println!("{} turns, {at_once} at once, {refused} refused", turns.len());
    assert!(refused > 100 && at_once > 100 && turns.len() as i64 - at_once > 100);
    // The rounding up to a millisecond may put a later call's turn a millisecond before an earlier call's.
    assert!(turns.windows(2).all(|pair| pair[0].0 <= pair[1].0 + 1));
    turns.sort_unstable();
    for (first, (begin, _)) in turns.iter().enumerate() {
        let mut taken = 0;
        for (end, tokens) in &turns[first..] {
            taken += tokens;
            let most = burst + (end - begin + 1) * count / period;
            assert!(taken <= most, "{taken} from {begin} to {end}");
        }
    }
}

/// Makes an attempt with ban.lua, with these numbers for attempts and one ban of an hour. Returns the milliseconds to
/// wait, 0 to go on.
fn attempt(connection: &mut Connection, who: &str, numbers: &str) -> i64 {
    attempt_by(connection, who, &format!("{numbers} 86400 3600"))
}

fn attempt_by(connection: &mut Connection, who: &str, numbers: &str) -> i64 {
    let keys = ["attempts", "banned", "offences"].map(|name| format!("{name}:{{{who}}}"));
    let numbers: Vec<_> = numbers.split(' ').collect();
    redis::cmd("EVAL").arg(read("ban.lua")).arg(3).arg(&keys).arg(numbers).query(connection).unwrap()
}

#[test]
#[ignore = "slow: attacks"]
fn a_caller_with_too_many_wrong_passwords_is_kept_out_and_a_right_one_counts_for_nothing() {
    let (_clock, server) = Clock::start(START);
    let expected = "\
        correct horse is right\n\
        123456 is wrong\n\
        qwerty is wrong\n\
        secret is wrong\n\
        dragon is wrong\n\
        monkey is wrong\n\
        correct horse is not tried: kept out for 60 s\n";
    prints("ban.py", &server, expected);
    let mut connection = server.connect();
    assert_eq!(attempt(&mut connection, "account:alice", "4 1 60"), 60_000);
    let lift = "DEL attempts:{account:alice} banned:{account:alice} offences:{account:alice}";
    assert!(fs::read_to_string(path("../recipes.md")).unwrap().contains(lift));
    run::<()>(&mut connection, lift).unwrap();
    assert_eq!(attempt(&mut connection, "account:alice", "4 1 60"), 0, "the ban is lifted");
    // Guesses at an account with the name of an address do not ban the address. A restarted server does not know the
    // script.
    let program = "import os, redis, ban
client = redis.Redis(port=int(os.environ['REDIS_PORT']), retry=None)
accounts, addresses = ban.Door(client, 'account'), ban.Door(client, 'address')
for door in [accounts] * 6 + [addresses]:
    client.script_flush()
    try:
        door.attempt('192.0.2.7')
    except ban.KeptOut:
        print(door.kind)";
    assert_eq!(programs::output(python(&server).args(["-c", program])), "account\n");
}

#[test]
fn a_right_password_counts_even_if_its_attempt_cannot_be_given_back() {
    let server = Server::start();
    let program = "import os, signal, redis, ban
class Door(ban.Door):
    def attempt(self, who):
        super().attempt(who)
        os.kill(int(os.environ['SERVER_PID']), signal.SIGKILL)
door = Door(redis.Redis(port=int(os.environ['REDIS_PORT']), retry=None), 'account')
print(ban.log_in(door, 'alice', 'correct horse'))";
    let mut python = python(&server);
    python.args(["-c", program]).env("SERVER_PID", server.pid().to_string());
    assert_eq!(programs::output(&mut python), "True\n");
}

/// A user may choose any name. A hash tag that is empty is none, and a call on the keys would get CROSSSLOT.
#[test]
#[ignore = "slow: a cluster"]
fn names_with_braces_keep_their_keys_on_one_node_and_apart_from_those_of_other_names() {
    needs!("functions, Redis 7");
    let node = Server::start_with(&["--cluster-enabled", "yes"]);
    add_slots(&mut node.connect(), 0..SLOTS);
    wait_until("the cluster is up", || is_ok(&node));
    for library in ["reservation.lua", "calendar_quota.lua"] {
        load_function(&mut node.connect(), &read(library)).unwrap();
    }
    let program = "import os, zoneinfo, redis, ban, calendar_quota, gateway
client = redis.Redis(port=int(os.environ['REDIS_PORT']), retry=None)
plan = calendar_quota.Plan(client, zoneinfo.ZoneInfo('UTC'))
names = ['', '}', '}x', '{', '{}', 'a}b', 'a:b', 'a\\nb', 'acme}:bob', 'acme', 'bob}']
for name in names:
    ban.Door(client, 'account').attempt(name)
    plan.throttle(*plan.of(name))
    for user in names:
        with gateway.Gateway(client).admitted(name, user, 9_000):
            pass
# These keys last for seconds at least.
for keys, expected in [('attempts:*', 1), ('{plan:*:20*', 2), ('{gate:*:tokens', 1 + len(names))]:
    assert len(client.keys(keys)) == expected * len(names), client.keys(keys)";
    programs::output(python(&node).args(["-c", program]));
}

/// The check of a password takes so long that all guesses have arrived before the first check ends.
#[test]
#[ignore = "slow: attacks"]
fn eighty_guesses_at_once_get_no_more_attempts_than_the_limit() {
    let (_clock, server) = Clock::start(START);
    let program = "import os, threading, time, redis, ban
def guess():
    door = ban.Door(redis.Redis(port=int(os.environ['REDIS_PORT']), retry=None), 'account')
    ready.wait()
    try:
        door.attempt('alice')
        tried.append(1)
        time.sleep(0.2)
    except ban.KeptOut as error:
        waits.append(error.args[0])
ready, tried, waits = threading.Barrier(80), [], []
threads = [threading.Thread(target=guess) for _ in range(80)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(tried), len(waits), set(waits))";
    assert_eq!(programs::output(python(&server).args(["-c", program])), "5 75 {60}\n");
}

#[test]
fn a_ban_has_its_length_whatever_the_numbers_and_however_many_guesses() {
    let (clock, server) = Clock::start(START);
    let mut connection = server.connect();
    let hour = 3_600_000;
    for (numbers, limit) in [("4 1 60", 5), ("4 5 1", 5), ("4 7 60", 5), ("4 2 5", 5), ("0 1000 1", 1), ("99 1 1", 100)]
    {
        run::<()>(&mut connection, "FLUSHALL").unwrap();
        let mut now = START;
        clock.set(now);
        let tried = (0..1_000).take_while(|_| attempt(&mut connection, "alice", numbers) == 0).count();
        assert_eq!(tried, limit, "{numbers}");
        for _ in 0..300 {
            assert_eq!(attempt(&mut connection, "alice", numbers), hour - (now - START) / MILLISECOND, "{numbers}");
            now += SECOND;
            clock.set(now);
        }
        for (milliseconds, wait) in [(hour - 1, 1), (hour, 1), (hour + 1, 0)] {
            clock.set(START + milliseconds * MILLISECOND);
            assert_eq!(attempt(&mut connection, "alice", numbers), wait, "{numbers}, after {milliseconds} ms");
        }
    }
    // One attempt comes back a day, so that a wait of the ban's hour would only lead into the next ban.
    clock.set(START);
    assert_eq!(attempt(&mut connection, "bob", "0 1 86400"), 0);
    assert_eq!(attempt(&mut connection, "bob", "0 1 86400"), 86_400_000);
    clock.set(START + 86_401 * SECOND);
    assert_eq!(attempt(&mut connection, "bob", "0 1 86400"), 0);
}

/// A right password must not give back more: a guesser with an account would get all attempts back between two guesses.
#[test]
fn a_right_password_gives_back_its_own_attempt_and_no_other() {
    let (_clock, server) = Clock::start(START);
    let mut connection = server.connect();
    let succeeded = |connection: &mut Connection| throttle(connection, "attempts:{alice} 4 1 60 -1");
    for _ in 0..100 {
        assert_eq!(attempt(&mut connection, "alice", "4 1 60"), 0);
        succeeded(&mut connection);
    }
    let mut guesses = 0;
    while attempt(&mut connection, "alice", "4 1 60") == 0 {
        guesses += 1;
        if attempt(&mut connection, "alice", "4 1 60") == 0 {
            succeeded(&mut connection);
        }
    }
    assert_eq!(guesses, 5);
    // This attempt was being checked when the ban began.
    succeeded(&mut connection);
    assert_eq!(attempt(&mut connection, "alice", "4 1 60"), 3_600_000);
}

#[test]
fn a_ban_grows_with_each_offence_and_an_offence_is_forgiven_after_a_day() {
    let (clock, server) = Clock::start(START);
    let mut connection = server.connect();
    let mut now = START;
    let mut offend = |pause: i64| {
        now += pause * SECOND;
        clock.set(now);
        let wait = (0..6).map(|_| attempt_by(&mut connection, "alice", "4 1 1 86400 60 600 3600")).max().unwrap();
        now += (wait + 1) * MILLISECOND;
        wait / 1000
    };
    assert_eq!([0; 5].map(&mut offend), [60, 600, 3600, 3600, 3600]);
    // One ban is forgiven after a day without bans; after three days, all of them are.
    assert_eq!([86_400, 3 * 86_400].map(offend), [3600, 60]);
}

#[test]
fn a_plan_that_changes_counts_at_once_and_keeps_what_was_taken() {
    let (_clock, server) = Clock::start(START);
    let mut connection = server.connect();
    let script = read("change_plan.lua");
    let change = |connection: &mut Connection, key: &str, numbers: &str| -> RedisResult<[i64; 5]> {
        redis::cmd("EVAL").arg(&script).arg("1").arg(key).arg(numbers.split(' ').collect::<Vec<_>>()).query(connection)
    };
    throttle(&mut connection, "alice 9 10 86400 8");
    // The eight tokens would count as 80 without the function.
    assert_eq!(throttle(&mut connection, "alice 99 100 86400 0")[2], 20);
    assert_eq!(change(&mut connection, "alice", "9 10 86400 99 100 86400").unwrap()[..3], [0, 100, 92]);
    assert_eq!(throttle(&mut connection, "alice 99 100 86400 92")[..3], [0, 100, 0]);
    // The plan shrinks again: more tokens are taken than it holds, and they stay taken when it grows back.
    assert_eq!(change(&mut connection, "alice", "99 100 86400 9 10 86400").unwrap()[..3], [1, 10, 0]);
    assert_eq!(change(&mut connection, "alice", "9 10 86400 99 100 86400").unwrap()[..3], [0, 100, 0]);
    // A full limiter stays without a key.
    assert_eq!(change(&mut connection, "bob", "9 10 86400 99 100 86400").unwrap(), [0, 100, 100, -1, 0]);
    assert!(!run::<bool>(&mut connection, "EXISTS bob").unwrap());
    // The first of several quotas changes, and the second stays as it is.
    run::<Value>(&mut connection, "CL.THROTTLE erin 9 10 86400 8 99 100 3600").unwrap();
    let second = |connection: &mut Connection| run::<String>(connection, "GETRANGE erin 19 37").unwrap();
    let before = second(&mut connection);
    assert_eq!(change(&mut connection, "erin", "9 10 86400 99 100 86400").unwrap()[..3], [0, 100, 92]);
    assert_eq!((before.len(), second(&mut connection)), (19, before));
    // Redis 7.2 writes a number with this many zeros as 2e+8.
    run::<[i64; 5]>(&mut connection, "CL.CHARGE frank 199999999 1000 1 200000000").unwrap();
    let reply = change(&mut connection, "frank", "199999999 1000 1 299999999 1000 1").unwrap();
    assert_eq!(reply[..3], [0, 300_000_000, 100_000_000]);
    // The first three charges leave a debt of 1, of 2 and of 6 tokens.
    for (taken, remaining) in [(11, 89), (12, 88), (16, 84), (60, 40), (60_000, 0)] {
        run::<[i64; 5]>(&mut connection, &format!("CL.CHARGE k{taken} 9 10 86400 {taken}")).unwrap();
        let reply = change(&mut connection, &format!("k{taken}"), "9 10 86400 99 100 86400").unwrap();
        assert_eq!(reply[..3], [i64::from(remaining == 0), 100, remaining], "{taken}");
        assert_eq!(reply[4], taken * 864, "{taken}");
    }
}

/// The plan changes back and forth at random moments.
#[test]
#[ignore = "slow: Python"]
fn a_plan_that_changes_often_brings_back_no_tokens() {
    let (clock, server) = Clock::start(START);
    let mut connection = server.connect();
    let script = read("change_plan.lua");
    let plans = ["9 10 86400", "99 100 86400", "6 7 3600", "999999 1000000 1"];
    let mut random = Random::new(2026);
    for round in 0..40 {
        run::<()>(&mut connection, "FLUSHALL").unwrap();
        let mut now = START;
        clock.set(now);
        let mut plan = random.pick(&plans);
        run::<[i64; 5]>(&mut connection, &format!("CL.CHARGE key {plan} {}", 1 + random.below(60))).unwrap();
        for _ in 0..20 {
            let new = random.pick(&plans);
            // Look with a limit far above the plan's, so that debts are counted as well.
            let missing = |connection: &mut Connection, plan: &str| {
                let rate = plan.split_once(' ').unwrap().1;
                let look: [i64; 5] = run(connection, &format!("CL.LOOK key 99999 {rate} 0")).unwrap();
                look[1] - look[2]
            };
            let before = missing(&mut connection, plan);
            let numbers = format!("{plan} {new}");
            redis::cmd("EVAL")
                .arg(&script)
                .arg(&["1", "key"])
                .arg(numbers.split(' ').collect::<Vec<_>>())
                .query::<Value>(&mut connection)
                .unwrap_or_else(|error| panic!("round {round}: {numbers}, {before} missing: {error}"));
            assert_eq!(missing(&mut connection, new), before, "round {round}: {numbers}");
            plan = new;
            now += random.below(1_000_000_000) as i64;
            clock.set(now);
        }
    }
}

#[test]
fn a_plan_that_cannot_change_stays_as_it_was() {
    let (_clock, server) = Clock::start(START);
    let mut connection = server.connect();
    run::<()>(&mut connection, "ACL SETUSER app on nopass ~* +eval +cl.look +get +set +del").unwrap();
    let mut app = server.connect();
    run::<()>(&mut app, "AUTH app x").unwrap();
    throttle(&mut connection, "carol 99 100 86400 80");
    throttle(&mut connection, "dave 99 100 86400 100");
    let before = snapshot(&mut connection);
    let script = read("change_plan.lua");
    let change = |connection: &mut Connection, key: &str, numbers: &str| {
        let numbers: Vec<_> = numbers.split(' ').collect();
        redis::cmd("EVAL").arg(&script).arg("1").arg(key).arg(&numbers).query::<Value>(connection).unwrap_err();
        assert_eq!(snapshot(&mut server.connect()), before, "{key}: {numbers:?}");
    };
    for wrong in [
        "99 100 86400 99 0 86400",
        "9 0 86400 99 100 86400",
        "99 100 86400 99 100",
        "99 100 86400 -2 100 86400",
        // In the next two, the tokens would be back only after the year 2262.
        "99 100 86400 0 1 7000000000",
        "99 100 86400 0 1 99000000",
    ] {
        change(&mut connection, "carol", wrong);
        change(&mut connection, "dave", wrong);
    }
    // `app` may not call CL.CHARGE; a server at maxmemory refuses it as well.
    change(&mut app, "carol", "99 100 86400 9 10 86400");
    run::<()>(&mut connection, "CONFIG SET maxmemory 1").unwrap();
    change(&mut connection, "carol", "99 100 86400 9 10 86400");
}

#[test]
#[ignore = "slow: Python"]
fn named_policies_change_for_all_in_one_command_and_go_with_the_data() {
    needs!("functions, Redis 7");
    let mut server = Server::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let replica = Server::start();
    let mut connection = server.connect();
    let library = read("policies.lua");
    load_function(&mut connection, &library).unwrap();
    replicate(&replica, &server);
    let ask = |connection: &mut Connection, arguments: &str| -> RedisResult<Vec<i64>> {
        run(connection, &format!("FCALL throttle 1 {arguments}"))
    };
    // A policy of several quotas replies with the number of the one that decides.
    assert_eq!(ask(&mut connection, "user123 gold").unwrap(), [0, 100, 99, -1, 1, 1]);
    assert_eq!(ask(&mut connection, "user124 gold 90").unwrap()[..3], [0, 100, 10]);
    assert_eq!(ask(&mut connection, "user7 free").unwrap(), [0, 10, 9, -1, 6]);
    for wrong in ["user7 silver", "user7"] {
        let error = error_of(&mut connection, &format!("FCALL throttle 1 {wrong}"));
        assert_eq!(error, "ERR no policy of that name", "{wrong}");
    }

    // A function does not extend the permissions of its caller.
    run::<()>(&mut connection, "ACL SETUSER app on nopass ~user* +fcall").unwrap();
    let mut app = server.connect();
    run::<()>(&mut app, "AUTH app x").unwrap();
    ask(&mut app, "user11 gold").unwrap_err();
    run::<()>(&mut connection, "ACL SETUSER app +cl.throttle").unwrap();
    assert_eq!(ask(&mut app, "user11 gold").unwrap()[..3], [0, 100, 99]);

    let gold = "99, 100, 60, 9999, 10000, 86400";
    let tats = |connection: &mut Connection| -> Vec<i64> {
        let text: String = run(connection, "GET user124").unwrap();
        text.as_bytes().chunks(19).map(|tat| str::from_utf8(tat).unwrap().parse().unwrap()).collect()
    };
    let before = tats(&mut connection);
    load_function(&mut connection, &library.replace(gold, "99, 100, 60, 9999, 10000, 86400, 5, 1, 1")).unwrap();
    assert_eq!(ask(&mut connection, "user9 gold").unwrap(), [0, 6, 5, -1, 1, 3]);
    // A quota that is added at the end begins full, and the others go on.
    assert_eq!(ask(&mut connection, "user124 gold 6").unwrap(), [0, 6, 0, -1, 6, 3]);
    let after = tats(&mut connection);
    let moved: Vec<_> = before.iter().zip(&after).map(|(before, after)| after - before).collect();
    assert_eq!((after.len(), moved), (3, vec![6 * 600_000_000, 6 * 8_640_000_000]));

    // The replica, which needs the library once it is promoted, and the append-only file hold it.
    catch_up(&replica, &server);
    server.restart();
    let mut promoted = replica.connect();
    run::<()>(&mut promoted, "REPLICAOF NO ONE").unwrap();
    for mut connection in [server.connect(), promoted] {
        assert_eq!(ask(&mut connection, "user10 gold").unwrap(), [0, 6, 5, -1, 1, 3]);
    }
}

#[test]
fn a_file_of_policies_with_a_mistake_is_refused_and_the_old_one_stays() {
    needs!("functions, Redis 7");
    let server = Server::start();
    let mut connection = server.connect();
    let library = read("policies.lua");
    load_function(&mut connection, &library).unwrap();
    for (policy, mistake) in [
        ("{'free', 9, 10", "to close '{'"),
        ("{'free', 9, 10}", "not_three_numbers"),
        ("{'free', 9, 10, 60, 99}", "not_three_numbers"),
        ("{'free'}", "not_three_numbers"),
        (&format!("{{'free'{}}}", ", 9, 10, 60".repeat(9)), "1_to_8_quotas"),
        ("{'free', '9', 10, 60}", "compare"),
        ("{'free', 9, nil, 60}", "nil"),
        ("{'free', 9.5, 10, 60}", "not_whole"),
        ("{'free', 9, 10, 0.5}", "too_small"),
        ("{'free', -2, 10, 60}", "too_small"),
        ("{'free', 9, 0, 60}", "too_small"),
        ("{'free', 9, 10, 0}", "too_small"),
        ("{'free', 9, 1000000001, 1}", "more_than_one_token_a_nanosecond"),
        ("{'free', 9, 1, 1000000000}", "too_large"),
        ("{'free', -1, 10, 1e300}", "too_large"),
        ("{'fre', 9, 10, 60}", "no_policy_of_a_name_that_is_called"),
        ("{9, 10, 60, 1}", "no_policy_of_a_name_that_is_called"),
    ] {
        let mistaken = library.replace("{'free', 9, 10, 60}", policy);
        assert_ne!(mistaken, library);
        let error = load_function(&mut connection, &mistaken).expect_err(policy).to_string();
        assert!(error.contains(mistake), "{policy}: {error}");
        let answer: [i64; 5] = run(&mut connection, "FCALL throttle 1 key free 0").unwrap();
        assert_eq!(answer, [0, 10, 10, -1, 0], "{policy}");
    }
    // The module takes the least and the largest numbers that the file lets pass.
    for policy in ["-1, 1, 1", "0, 1000000000, 1", "0, 1, 6000000000", "5999999999, 1, 1"] {
        load_function(&mut connection, &library.replace("9, 10, 60}", &format!("{policy}}}"))).unwrap();
        run::<[i64; 5]>(&mut connection, "FCALL throttle 1 key free 0").unwrap();
    }
}

/// A row of the reply: limited, limit, remaining, retry after, reset after.
type Row = [i64; 5];

/// Calls calendar_throttle or calendar_look.
fn calendar(connection: &mut Connection, line: &str) -> RedisResult<(i64, Vec<Row>)> {
    let call = if line.starts_with("look") { "FCALL_RO" } else { "FCALL" };
    let mut reply: Vec<Value> = run(connection, &format!("{call} calendar_{line}"))?;
    let limited = redis::from_redis_value(reply.remove(0))?;
    Ok((limited, reply.into_iter().map(redis::from_redis_value).collect::<Result<_, _>>()?))
}

/// The test's model of a counter.
struct Counter {
    key: &'static str,
    quota: i64,
    used: i64,
    /// The length of a period, in seconds.
    period: i64,
}

impl Counter {
    fn row(&self, limited: bool, quantity: i64, rest: i64) -> Row {
        let retry_after = if limited && quantity <= self.quota { rest } else { -1 };
        [limited.into(), self.quota, self.quota - self.used, retry_after, if self.used > 0 { rest } else { 0 }]
    }
}

/// The calls are on two counters, whose periods end at any moment, and a limiter. The test compares each reply with its
/// model's.
#[test]
#[ignore = "slow: thousands of calls"]
fn calendar_quotas_and_a_limiter_are_taken_all_or_none_until_their_periods_end() {
    needs!("functions, Redis 7");
    let (clock, server) = Clock::start(START);
    let mut connection = server.connect();
    load_function(&mut connection, &read("calendar_quota.lua")).unwrap();
    let mut random = Random::new(2026);
    let mut counters = [("{a}:day", 7, 60), ("{a}:month", 20, 300)];
    let mut counters = counters.each_mut().map(|&mut (key, quota, period)| Counter { key, quota, used: 0, period });
    let (mut now, mut period_of) = (START, [0; 2]);
    let (mut allowed, mut limited_by, mut refunds) = (0, [0; 3], 0);
    for number in 0..3_000 {
        // The clock sometimes stands on a whole second, at which periods end.
        now += random.below(4_000) as i64 * MILLISECOND;
        now += if random.one_in(10) { SECOND - now % SECOND } else { 0 };
        clock.set(now);
        let mut ends = [0; 2];
        for (place, counter) in counters.iter_mut().enumerate() {
            let period = now / SECOND / counter.period;
            if std::mem::replace(&mut period_of[place], period) != period {
                counter.used = 0;
            }
            ends[place] = (period + 1) * counter.period;
        }
        let rest = ends.map(|end| (end * SECOND - now + SECOND - 1) / SECOND);
        let quantity = match random.below(10) {
            0 => 0,
            1 | 2 => -(random.below(4) as i64),
            3 => random.below(25) as i64,
            _ => 1 + random.below(2) as i64,
        };
        let limiter = |quantity| format!("{{a}}:twin 2 1 2 {quantity}");
        let look = run::<Row>(&mut connection, &format!("CL.LOOK {}", limiter(quantity.max(0)))).unwrap();
        let refuse = counters.each_ref().map(|counter| quantity >= 0 && counter.used + quantity > counter.quota);
        let limited = refuse[0] || refuse[1] || (quantity >= 0 && look[0] == 1);
        let looks = quantity >= 0 && random.one_in(4);
        let mut expected = Vec::new();
        for (place, counter) in counters.iter_mut().enumerate() {
            if !limited && !looks {
                counter.used = (counter.used + quantity).max(0);
            }
            expected.push(counter.row(refuse[place], quantity, rest[place]));
            limited_by[place] += i64::from(refuse[place] && !refuse[1 - place] && look[0] == 0);
        }
        expected.push(if limited || looks { look } else { throttle(&mut connection, &limiter(quantity)) });
        limited_by[2] += i64::from(limited && refuse == [false; 2]);
        allowed += i64::from(!limited && quantity > 0);
        refunds += i64::from(quantity < 0);
        let line = format!(
            "{} 3 {{a}}:day {{a}}:month {{a}}:rate {quantity} 7 {} 20 {} 2 1 2",
            if looks { "look" } else { "throttle" },
            ends[0],
            ends[1]
        );
        let place = format!("call {number} at {now}: {line}");
        assert_eq!(calendar(&mut connection, &line).unwrap(), (limited.into(), expected), "{place}");
        for (counter, end) in counters.iter().zip(ends) {
            let (text, expires): (Option<i64>, i64) =
                redis::pipe().get(counter.key).cmd("EXPIRETIME").arg(counter.key).query(&mut connection).unwrap();
            // A key is still there in the millisecond of its expiry.
            let found = if expires * SECOND > now { (text, expires) } else { (None, -2) };
            let expected = if counter.used > 0 { (Some(counter.used), end) } else { (None, -2) };
            assert_eq!(found, expected, "{place}");
        }
        let twins: Vec<Option<String>> = run(&mut connection, "MGET {a}:rate {a}:twin").unwrap();
        assert_eq!(twins[0], twins[1], "{place}");
    }
    println!("{allowed} allowed, limited by one alone: {limited_by:?}, {refunds} refunds");
    assert!(allowed > 300 && refunds > 300 && limited_by.iter().all(|&limited| limited > 50));
}

#[test]
fn a_calendar_quota_that_gets_an_error_takes_nothing() {
    needs!("functions, Redis 7");
    let (_clock, server) = Clock::start(START);
    let mut connection = server.connect();
    load_function(&mut connection, &read("calendar_quota.lua")).unwrap();
    let (now, end) = (START / SECOND, START / SECOND + 3_600);
    run::<()>(&mut connection, "MSET text x number 5 tat 1790000000123456789").unwrap();
    run::<()>(&mut connection, "RPUSH list x").unwrap();
    calendar(&mut connection, &format!("throttle 2 day rate 3 10 {end} 4 1 60")).unwrap();
    let before = snapshot(&mut connection);
    for (line, expected) in [
        (format!("throttle 2 day rate 1 10 {end}"), "ERR wrong number of arguments"),
        // The period of the second counter has ended long ago.
        (format!("throttle 2 day other 1 10 {end} 4 1"), "ERR the period has ended"),
        ("throttle 0".to_string(), "ERR wrong number of arguments"),
        (format!("throttle 1 day 1.5 10 {end}"), "ERR quantity must be a whole number from "),
        (format!("look 1 day -1 10 {end}"), "ERR quantity must be a whole number from 0 "),
        (format!("throttle 1 day 1 -1 {end}"), "ERR quota must be a whole number from 0 "),
        // The caller gave milliseconds for seconds: the period would never end.
        (format!("throttle 1 day 1 10 {end}000"), "ERR end must be a whole number from 0 "),
        // A period that has ended would count nothing and limit nothing.
        (format!("throttle 1 other 1 10 {now}"), "ERR the period has ended"),
        (format!("throttle 1 text 1 10 {end}"), "ERR the key holds no counter"),
        (format!("throttle 1 number 1 10 {end}"), "ERR the key holds no counter"),
        (format!("throttle 1 tat -1 10 {end}"), "ERR the key holds no counter"),
        (format!("throttle 1 list 1 10 {end}"), "WRONGTYPE "),
        (format!("throttle 2 day rate 1 10 {end} 4 0 60"), "ERR count must be 1 or more"),
        (format!("throttle 2 day text 1 10 {end} 4 1 60"), "ERR the key holds no rate limiter state"),
    ] {
        let error = calendar(&mut connection, &line).expect_err(&line);
        let error = format!("{} {}", error.code().unwrap(), error.detail().unwrap());
        assert!(error.starts_with(expected), "{line}: {error}");
        assert_eq!(snapshot(&mut connection), before, "{line}");
    }
}

#[test]
fn a_calendar_quota_needs_the_permissions_that_the_page_names() {
    needs!("functions, Redis 7");
    let server = Server::start();
    let mut connection = server.connect();
    load_function(&mut connection, &read("calendar_quota.lua")).unwrap();
    let commands = permissions("recipes.md", "## Calendar quotas");
    run::<()>(&mut connection, &format!("ACL SETUSER app on nopass ~{{a}}:* {}", commands.join(" "))).unwrap();
    let mut app = server.connect();
    run::<()>(&mut app, "AUTH app x").unwrap();
    let end = now() / SECOND + 3_600;
    for (function, quantity) in [("throttle", 2), ("throttle", 9), ("throttle", -2), ("look", 1)] {
        let call = format!("{function} 2 {{a}}:day {{a}}:rate {quantity} 5 {end} 4 1 60");
        assert_eq!(calendar(&mut app, &call).unwrap().0, i64::from(quantity == 9), "{call}");
    }
    for command in &commands {
        run::<()>(&mut connection, &format!("ACL SETUSER app -{}", &command[1..])).unwrap();
        let calls = ["throttle", "look"].map(|function| {
            [6, 2, -2].map(|quantity| {
                let call = format!("{function} 2 {{a}}:day {{a}}:rate {quantity} 5 {end} 4 1 60");
                calendar(&mut app, &call).is_err() && !(function == "look" && quantity < 0)
            })
        });
        assert!(calls.concat().contains(&true), "{command} is not needed");
        run::<()>(&mut connection, &format!("ACL SETUSER app {command}")).unwrap();
    }
}

/// The day ends sooner in a zone to the east: without this rule, a user who moves there and back would get a new day.
#[test]
fn a_calendar_period_ends_no_sooner_than_was_said_once_and_refunds_go_to_the_period_that_was_charged() {
    needs!("functions, Redis 7");
    let (clock, server) = Clock::start(START);
    let mut connection = server.connect();
    load_function(&mut connection, &read("calendar_quota.lua")).unwrap();
    let now = START / SECOND;
    let call = |connection: &mut Connection, quantity: i64, end: i64| {
        calendar(connection, &format!("throttle 1 {{a}}:2026-11-22 {quantity} 10 {}", now + end)).unwrap()
    };
    assert_eq!(call(&mut connection, 10, 3_600), (0, vec![[0, 10, 0, -1, 3_600]]));
    assert_eq!(call(&mut connection, 1, 60), (1, vec![[1, 10, 0, 3_600, 3_600]]));
    clock.set(START + 61 * SECOND);
    assert_eq!(call(&mut connection, 1, 60), (1, vec![[1, 10, 0, 3_539, 3_539]]));
    assert_eq!(call(&mut connection, -4, 60), (0, vec![[0, 10, 4, -1, 3_539]]));
    // A smaller quota applies at once, and a quantity above the quota is never allowed.
    let smaller = |connection: &mut Connection, quantity: i64| {
        calendar(connection, &format!("throttle 1 {{a}}:2026-11-22 {quantity} 5 {}", now + 3_600)).unwrap()
    };
    assert_eq!(smaller(&mut connection, 0), (1, vec![[1, 5, 0, 3_539, 3_539]]));
    assert_eq!(smaller(&mut connection, 6), (1, vec![[1, 5, 0, -1, 3_539]]));
    // Redis 7.2 writes a number with this many zeros as 1.8e+9.
    let far = "throttle 2 {a}:2027-01-15 {a}:rate 1000000000 1000000000 1800000000 999999999999 1000000000 1";
    assert_eq!(calendar(&mut connection, far).unwrap().0, 0);
    // A refund that comes after the end changes nothing.
    clock.set(START + 3_601 * SECOND);
    assert_eq!(call(&mut connection, -4, 3_600), (0, vec![[0, 10, 10, -1, 0]]));
    assert!(!run::<bool>(&mut connection, "EXISTS {a}:2026-11-22").unwrap());
}

#[test]
#[ignore = "slow: thousands of calls"]
fn a_replica_has_the_calendar_quotas_and_a_cluster_wants_one_hash_tag() {
    needs!("functions, Redis 7");
    let node = Server::start_with(&["--cluster-enabled", "yes"]);
    add_slots(&mut node.connect(), 0..SLOTS);
    wait_until("the cluster is up", || is_ok(&node));
    let server = Server::start();
    let replica = Server::start();
    let mut connection = server.connect();
    replicate(&replica, &server);
    let end = now() / SECOND + 3_600;
    let line = format!("3 {{a}}:day {{a}}:month {{a}}:rate 2 10 {end} 100 {end} 4 1 3600");
    for connection in [&mut connection, &mut node.connect()] {
        load_function(connection, &read("calendar_quota.lua")).unwrap();
        let (limited, rows) = calendar(connection, &format!("throttle {line}")).unwrap();
        assert_eq!((limited, rows.iter().map(|row| row[2]).collect()), (0, vec![8, 98, 3]));
    }
    let error = calendar(&mut node.connect(), &format!("throttle {}", line.replace("{a}:month", "month"))).unwrap_err();
    assert_eq!(error.code(), Some("CROSSSLOT"), "{error}");

    catch_up(&replica, &server);
    let mut replica = replica.connect();
    assert_eq!(snapshot(&mut replica), snapshot(&mut connection));
    let (limited, rows) = calendar(&mut replica, &format!("look {line}")).unwrap();
    assert_eq!((limited, rows.iter().map(|row| row[2]).collect()), (0, vec![8, 98, 3]));
    let error = calendar(&mut replica, &format!("throttle {line}")).unwrap_err();
    assert!(error.to_string().contains("READONLY") || error.code() == Some("READONLY"), "{error}");
}

#[test]
#[ignore = "slow: Python"]
fn the_program_of_calendar_quotas_prints_days_of_23_and_25_hours_and_what_remains() {
    needs!("functions, Redis 7");
    let server = Server::start();
    load_function(&mut server.connect(), &read("calendar_quota.lua")).unwrap();
    let expected = "\
        2026-03-29 has 23 hours\n\
        2026-10-25 has 25 hours\n\
        2026-11-22 has 24 hours\n\
        8 allowed [92, 992, 2]\n\
        8 limited [92, 992, 2]\n\
        -8 allowed [100, 1000, 10]\n\
        1001 limited [100, 1000, 10]\n";
    assert_eq!(output("calendar_quota.py", &server), expected);
}

/// A day, week or month must end at the first moment for which `periods` gives another name. The program checks two
/// years, in zones where midnight comes twice (Havana) or is skipped (Santiago, Beirut), and where a whole day was
/// skipped (Apia).
#[test]
#[ignore = "slow: every hour of years"]
fn days_weeks_and_months_end_when_the_zone_says_so() {
    let program = "from datetime import datetime
from zoneinfo import ZoneInfo
from calendar_quota import periods
changes = 0
for name, year in [('Europe/Berlin', 2026), ('America/Havana', 2026), ('America/Santiago', 2025), ('Asia/Beirut', 2026),
                   ('Pacific/Apia', 2011), ('Australia/Lord_Howe', 2026), ('Asia/Kathmandu', 2026), ('UTC', 2026)]:
    zone, now = ZoneInfo(name), int(datetime(year, 1, 1, 5, 17, tzinfo=ZoneInfo('UTC')).timestamp())
    for now in range(now, now + 2 * 366 * 86400, 5 * 3600):
        local = datetime.fromtimestamp(now, zone)
        assert [name for name, _ in periods(zone, now)] == [local.strftime(f) for f in ('%Y-%m-%d', '%G-W%V', '%Y-%m')]
        for place, (period, end) in enumerate(periods(zone, now)):
            assert end > now and periods(zone, end - 1)[place] == (period, end), (name, now, period, end)
            assert periods(zone, end)[place][0] != period, (name, now, period, end)
            changes += 1
print(changes)";
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-B", "-c", program]).env("PYTHONPATH", path(""));
    assert!(programs::output(&mut command).trim().parse::<u32>().unwrap() > 50_000);
}

#[test]
#[ignore = "slow: Python"]
fn a_shadow_refuses_nothing_and_the_day_on_which_it_counts_begins_with_all_tokens() {
    let (_clock, mut server) = Clock::start(START);
    let expected = "\
        shadow: 20 of 20 pass, {'allowed': 16, 'limited': 4}\n\
        enforced: 16 of 20 pass, {'allowed': 16, 'limited': 4}\n";
    prints("shadow.py", &server, expected);
    // If no server answers, the shadow allows and counts the call, and the limit leaves the choice to its caller.
    server.kill();
    let program = "import os, redis, shadow
client = redis.Redis(port=int(os.environ['REDIS_PORT']), retry=None)
limit = shadow.Limit(client, 'search', (15, 30, 60), enforced=False)
print(limit.allows('alice'), dict(limit.counts))
try:
    shadow.Limit(client, 'search', (15, 30, 60), enforced=True).allows('alice')
except redis.RedisError:
    print('an error')";
    let said = programs::output(python(&server).args(["-c", program]));
    assert_eq!(said, "True {'error': 1}\nan error\n");
}

#[test]
#[ignore = "slow: Python"]
fn a_greedy_tenant_has_its_share_and_background_work_leaves_half_of_the_pool() {
    let (_clock, server) = Clock::start(START);
    let expected = "\
        greedy has 40 of 100, refused by ['tenant']\n\
        modest in the background: 10 of 100, refused by ['pool']\n\
        modest has 30 of 100, refused by ['tenant']\n\
        third has 20 of 100, refused by ['pool']\n";
    prints("fairness.py", &server, expected);
}

/// The tenants' limits sum up to the pool's limit, so that no tenant takes the tokens of another.
#[test]
fn a_tenant_within_its_limit_is_never_refused_where_the_pool_has_the_sum_of_all_limits() {
    let (clock, server) = Clock::start(START);
    let mut connection = server.connect();
    let mut random = Random::new(2026);
    let (mut now, mut next, mut refused) = (START, START, 0);
    for _ in 0..2_000 {
        now += random.below(200) as i64 * MILLISECOND;
        clock.set(now);
        // The first tenant makes a call every two seconds; the others call all the time.
        let tenant = if now >= next { 0 } else { 1 + random.below(2) };
        let line = format!("CL.MTHROTTLE {{pool}}:tenant:{tenant} 4 1 2 1 {{pool}}:all 14 3 2 1");
        let (limited, _, whole): (i64, Row, Row) = run(&mut connection, &line).unwrap();
        assert_eq!(whole[0], 0, "the pool itself refuses at {now}");
        if tenant == 0 {
            assert_eq!(limited, 0, "at {now}");
            next = now + 2 * SECOND;
        } else {
            refused += limited;
        }
    }
    assert!(refused > 300, "{refused}");
}

#[test]
#[ignore = "slow: thousands of calls"]
fn the_fake_for_unit_tests_decides_as_the_module_does() {
    let (clock, server) = Clock::start(START);
    let mut connection = server.connect();
    let program = "import sys, fake
clock = [0]
client = fake.Fake(lambda: clock[0])
for line in sys.stdin:
    clock[0], key, *numbers = line.split()
    clock[0] = int(clock[0])
    print(*client.execute_command('CL.THROTTLE', key, *map(int, numbers)))";
    let mut fake = dialogue(&server, program);
    let mut random = Random::new(2026);
    let mut now = START;
    let (mut limited, mut refunds) = (0, 0);
    for round in 0..300 {
        let number = |random: &mut Random, end: i64| {
            let end = if random.one_in(3) { end } else { end.min(40) };
            random.of_any_length() % end
        };
        let (max_burst, count) = (number(&mut random, 1 << 40) - 1, 1 + number(&mut random, 1_000_000_000));
        let period = 1 + number(&mut random, 1 << 21);
        if i128::from(max_burst + 1) * i128::from(period) / i128::from(count) > 7_000_000_000 {
            continue;
        }
        for _ in 0..25 {
            let quantity = match random.below(8) {
                0 => 0,
                1 => -number(&mut random, 1 << 40),
                2 => number(&mut random, 1 << 40),
                3 => max_burst + 1,
                _ => 1 + random.below(3) as i64,
            };
            let numbers = format!("key{round} {max_burst} {count} {period} {quantity}");
            let expected = throttle(&mut connection, &numbers);
            let answer = fake.ask(format!("{now} {numbers}"));
            assert_eq!(answer, expected.map(|integer| integer.to_string()).join(" "), "at {now}: {numbers}");
            limited += expected[0];
            refunds += i64::from(quantity < 0);
            now += match random.below(4) {
                0 => expected[3].clamp(0, 1 << 20) * SECOND,
                1 => number(&mut random, 1 << 31),
                _ => 0,
            };
            clock.set(now);
        }
    }
    println!("{limited} limited, {refunds} refunds");
    assert!(limited > 500 && refunds > 500);
    let expected = "[0, 2, 1, -1, 60]\n[0, 2, 0, -1, 120]\n[1, 2, 0, 60, 120]\n[0, 2, 0, -1, 120]\n";
    assert_eq!(output("fake.py", &server), expected);
}
