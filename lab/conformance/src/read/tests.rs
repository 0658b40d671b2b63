//! Vectors that the reader accepts, and its errors for those that it does not.

use super::*;

const HEADER: &str = "4c 01 04 00 0007 0000 0003 0009 00 03 0000 0000 00000005 0000000000000000";

fn read(lines: &str) -> Result<Vector, ReadError> {
    Vector::read("a.txt", &format!("conformance 1\n{lines}"))
}

#[test]
fn every_line_comes_back_as_it_was_written() {
    let hex = |bytes: usize, first: usize| {
        (0..bytes).map(|byte| format!("{:02x}", (first + byte) % 256)).collect::<String>()
    };
    let (up, down, body) = (hex(16, 0), hex(16, 128), hex(BODY_KEY_BYTES, 0));
    let lines = format!(
        "needs lanes
needs f32
needs agent-packets
needs ip
needs one-lane
needs any-entries
needs counters
needs mac
needs cookie
needs strict
switch 10.0.0.1:4700
worker w7.0 10.0.0.2:5000
key w7.0 cookie 0123456789abcdef
key w7.1 mac up {up} down {down} body {body}
region r7.0 plan 3 view 9 lanes 4 cells 10 flows 2 bank 4096 fixed 524287 after 65408
seen r7.0 flow 0 0..5
seen r7.0 flow 0 7..9
region r7.1 plan 3 view 9 lanes 1 cells 10 flows 2 bank 4096 f32 after 0
< w7.0 {HEADER}
> none
times 3
< 10.0.0.9:1 {HEADER}
> {HEADER}
< agent empty
> none
< agent 4c
> none
< ip 4500
> pass
< ip 4500
> drop
< ip 4500
> {HEADER}
flip r7.0 = 65409
flip r7.0 = refused
drain r7.0 = 3:0000002a 9:ffffffff
drain r7.0 = none
install r7.0 3:0000002a
values r7.0 = none
durable r7.0 65409
readable r7.0 yes
active r7.0 no
acked r7.0 flow 1 = 0..5 7..9
acked r7.0 flow 1 = none
bank r7.0 = pushes 3 last 1
counters = packets 3 pushes 2 foreign 1
counters = none
close r7.0
"
    );
    assert_eq!(read(&lines).unwrap().to_string(), format!("conformance 1\n{lines}"));
}

#[test]
fn comments_and_blank_lines_are_skipped_but_counted() {
    let vector = read("\n  # why\nclose r7.0\n").unwrap();
    assert_eq!((vector.lines.len(), vector.lines[0].number), (1, 4));
}

#[test]
fn errors_name_the_line() {
    let long = format!("times 2\n< w7.0 {HEADER}\nflip r7.0 = 1");
    for (lines, said) in [
        ("flop", "a.txt:2: no line begins with `flop`"),
        ("close", "a.txt:2: the line ends where a region should be"),
        ("close w7.0", "a.txt:2: `w7.0` where a region should be"),
        ("close r7.256", "a.txt:2: `r7.256` where a region should be"),
        ("close r7.0 now", "a.txt:2: `now` where the end of the line should be"),
        ("\nflip r7.0 65409", "a.txt:3: `65409` where = should be"),
        ("< w7.0 4c0", "a.txt:2: `0` where two digits for each byte should be"),
        ("< w7.0 4g", "a.txt:2: `4g` where bytes in hexadecimal should be"),
        ("< w7.0", "a.txt:2: the line ends where bytes in hexadecimal should be"),
        ("< server 4c", "a.txt:2: `server` where a sender should be"),
        (
            "times 2\n< w7.0 4c",
            "a.txt:3: the line ends where a whole header, whose number is to be raised should be",
        ),
        (long.as_str(), "a.txt:4: `flip` where the answer, `>`, should be"),
        ("times 2\nclose r7.0", "a.txt:3: `close` where the datagram, `<`, should be"),
        ("> none", "a.txt:2: it must follow a datagram, `<`"),
        ("< w7.0 4c", "a.txt:0: the line ends where an answer, `>`, should be"),
        ("seen r7.0 flow 0 0..5", "a.txt:2: it must follow the line of its region"),
        ("acked r7.0 flow 0 = 5..5", "a.txt:2: `5..5` where a range such as 3..7 should be"),
        ("drain r7.0 = 3:x", "a.txt:2: `3:x` where slots such as 3:0000002a should be"),
        ("drain r7.0 =", "a.txt:2: the line ends where slots such as 3:0000002a should be"),
        ("counters = luck 3", "a.txt:2: `luck` where a counter should be"),
        ("key w7.0 luck", "a.txt:2: `luck` where cookie or mac should be"),
        ("key w7.0 cookie 1234", "a.txt:2: `1234` where 16 hexadecimal digits should be"),
        (
            "key w7.0 cookie 0123456789abcdeg",
            "a.txt:2: `0123456789abcdeg` where 16 hexadecimal digits should be",
        ),
        ("key w7.0 cookie 0123456789abcdef", "a.txt:0: the vector needs [Cookie], and declares []"),
        ("needs luck", "a.txt:2: `luck` where a need should be"),
        ("needs ip", "a.txt:0: the vector needs [], and declares [Ip]"),
        ("< agent 4c\n> none", "a.txt:0: the vector needs [AgentPackets], and declares []"),
        (
            "region r7.0 plan 3 view 9 lanes 1 cells 1 flows 2 bank 4096 f32 after 0",
            "a.txt:2: a region has 2 to 32768 cells, 1 were asked for",
        ),
    ] {
        assert_eq!(read(lines).unwrap_err().to_string(), said);
    }
    let version = "a.txt:1: the first line is not `conformance 1`";
    for text in ["", "conformance 2", "close r7.0"] {
        assert_eq!(Vector::read("a.txt", text).unwrap_err().to_string(), version);
    }
}
