//! Figures for columns of a few characters.

use libra_monitor::{Gathering, Places};

/// Returns a count or a rate in at most 6 characters: `0.4`, `850`, `9,999`, `421k`, `4.2M`.
pub(crate) fn count(number: f64) -> String {
    const UNITS: [(f64, char); 4] = [(1e12, 'T'), (1e9, 'G'), (1e6, 'M'), (1e3, 'k')];
    let rounded = number.round();
    if number > 0.0 && number < 9.95 && (number - rounded).abs() > 0.04 {
        return format!("{number:.1}");
    }
    if rounded < 1e3 {
        return format!("{rounded}");
    }
    if rounded < 1e4 {
        return format!("{},{:03}", (rounded / 1e3).floor(), rounded % 1e3);
    }
    // What is rounded up to 1,000 of a unit is 1 of the next.
    let unit = UNITS.iter().find(|(unit, _)| number >= 0.9995 * unit);
    let (unit, letter) = *unit.expect("it is above a thousand");
    let scaled = number / unit;
    if scaled < 99.95 { format!("{scaled:.1}{letter}") } else { format!("{scaled:.0}{letter}") }
}

/// Returns a number of bytes in at most 6 characters: `12K`, `3.4M`, `1.2G`, in powers of 1,024.
pub(crate) fn bytes(bytes: u64) -> String {
    let (mut scaled, mut unit) = (bytes as f64, 0);
    while scaled >= 1023.5 && unit < 4 {
        (scaled, unit) = (scaled / 1024.0, unit + 1);
    }
    let letter = ["B", "K", "M", "G", "T"][unit];
    if unit > 0 && scaled < 99.95 { format!("{scaled:.1}{letter}") } else { format!("{scaled:.0}{letter}") }
}

/// Returns the members that have come: `1 of 2 servers, 1 of 1 switches, 0 of 2 workers are there`.
pub(crate) fn places(gathering: &Gathering) -> String {
    let Gathering { servers, switches, workers } = gathering;
    let kinds = [(servers, "servers"), (switches, "switches"), (workers, "workers")];
    let of_kind =
        |(Places { there, expected }, kind): (&Places, &str)| format!("{there} of {expected} {kind}");
    format!("{} are there", kinds.map(of_kind).join(", "))
}

/// Returns a share of 1 as a percentage, with a decimal where it is small: `0.3%`, `83%`.
pub(crate) fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent > 0.0 && percent < 9.95 { format!("{percent:.1}%") } else { format!("{percent:.0}%") }
}

/// Returns a time in microseconds: `850us`, `12ms`, `1.2s`.
pub(crate) fn microseconds(us: u64) -> String {
    match us {
        0..1_000 => format!("{us}us"),
        1_000..10_000 => format!("{:.1}ms", us as f64 / 1e3),
        10_000..1_000_000 => format!("{}ms", us / 1_000),
        _ => format!("{:.1}s", us as f64 / 1e6),
    }
}

/// Returns a duration for a person: `3.4 s`, `42 s`, `02:13`, `1:02:13`, `3 d 04:05`.
pub(crate) fn duration(seconds: f64) -> String {
    if seconds < 9.95 {
        return format!("{:.1} s", seconds.max(0.0));
    }
    let whole = libra_launch::report::whole(seconds.round());
    let (days, hours, minutes) = (whole / 86_400, whole / 3_600 % 24, whole / 60 % 60);
    match whole {
        0..60 => format!("{whole} s"),
        60..3_600 => format!("{minutes:02}:{:02}", whole % 60),
        3_600..86_400 => format!("{hours}:{minutes:02}:{:02}", whole % 60),
        _ => format!("{days} d {hours:02}:{minutes:02}"),
    }
}

/// Returns a number with its noun: `1 switch`, `2 switches`.
pub(crate) fn number_of(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", libra_launch::report::group(number), if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_take_six_characters_at_most() {
        let expected = [
            (0.0, "0"),
            (0.04, "0"),
            (0.44, "0.4"),
            (3.0, "3"),
            (9.96, "10"),
            (850.4, "850"),
            (999.6, "1,000"),
            (9_999.4, "9,999"),
            (9_999.6, "10.0k"),
            (421_000.0, "421k"),
            (999_499.0, "999k"),
            (999_600.0, "1.0M"),
            (4.25e6, "4.2M"),
            (123.4e9, "123G"),
            (7e15, "7000T"),
        ];
        for (number, text) in expected {
            assert_eq!(count(number), text, "{number}");
            assert!(text.len() <= 6);
        }
    }

    #[test]
    fn bytes_are_in_powers_of_1024() {
        let expected = [
            (0, "0B"),
            (1_023, "1023B"),
            (1_024, "1.0K"),
            (12 << 20, "12.0M"),
            (1 << 40, "1.0T"),
            (u64::MAX, "16777216T"),
        ];
        for (number, text) in expected {
            assert_eq!(bytes(number), text);
        }
        assert_eq!(bytes((1 << 20) - 1), "1.0M");
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        assert_eq!([850, 1_250, 12_345, 2_500_000].map(microseconds), ["850us", "1.2ms", "12ms", "2.5s"]);
        let durations = [0.44, 9.96, 59.7, 133.0, 3_733.0, 280_000.0].map(duration);
        assert_eq!(durations, ["0.4 s", "10 s", "01:00", "02:13", "1:02:13", "3 d 05:46"]);
        assert_eq!([0.0, 0.003, 0.0996, 0.834, 1.0].map(percent), ["0%", "0.3%", "10%", "83%", "100%"]);
    }
}
