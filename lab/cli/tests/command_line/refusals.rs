//! Bad input of the laboratory.

use crate::process::assert_refused;

#[test]
fn bad_options_are_refused_by_name() {
    assert_refused(&["bench", "push-pull", "--keys", "10", "--batch", "11"], 1, &["--batch 11", "--keys 10"]);
    assert_refused(&["bench", "push-pull", "--zipf", "NaN"], 1, &["--zipf NaN"]);
    assert_refused(&["bench", "push-pull", "--op", "pop"], 2, &["pop", "--op"]);
    assert_refused(
        &["bench", "hot-path", "--slots", "100", "--batch", "51"],
        1,
        &["--batch 51", "--slots 100"],
    );
    assert_refused(
        &["bench", "hot-path", "--lanes", "16", "--profile", "tofino"],
        2,
        &["--lanes", "--profile"],
    );
    assert_refused(&["bench", "hot-path", "--lanes", "16", "--plane", "xdp"], 1, &["--plane udp"]);
    assert_refused(&["soak", "--lanes", "16", "--plane", "xdp"], 1, &["--plane udp"]);
    assert_refused(
        &["soak", "--lanes", "2", "--kill", "worker@5s"],
        1,
        &["--lanes 2", "3 values", "as many lanes"],
    );
    assert_refused(&["bench", "store", "--fill", "most"], 2, &["most", "--fill", "`all`"]);
    assert_refused(&["bench", "store", "--seconds", "0"], 1, &["--seconds 0"]);
    assert_refused(
        &["bench", "store", "--keys", "100000000000000"],
        1,
        &["--keys 100000000000000", "memory"],
    );
}
