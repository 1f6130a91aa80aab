//! Dates as the tools print and read them.

use crate::time::{Clock, SystemClock};
use crate::types::TimestampMs;

const DAY_MS: i64 = 86_400_000;

pub(crate) fn now_ms() -> TimestampMs {
    SystemClock.wall_ms()
}

/// Year, month, day and milliseconds of the day, in UTC.
pub(crate) fn civil(ms: TimestampMs) -> (i64, u32, u32, i64) {
    // Howard Hinnant's days-to-civil: years begin in March, eras have 400 years.
    let days = ms.div_euclid(DAY_MS) + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let small = |number: i64| u32::try_from(number).unwrap_or(0);
    (year, small(month), small(day), ms.rem_euclid(DAY_MS))
}

/// Days since 1970 of a date.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// `2026-11-30 03:04:05,678`, as log4j prints it, in UTC.
pub(crate) fn local_time(ms: TimestampMs) -> String {
    let (year, month, day, rest) = civil(ms);
    let (hour, minute) = (rest / 3_600_000, rest / 60_000 % 60);
    let (second, milli) = (rest / 1000 % 60, rest % 1000);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02},{milli:03}")
}

/// `YYYY-MM-DDTHH:mm:SS.sss` with an optional `Z`, `+hh`, `+hhmm` or `+hh:mm`; without one it is UTC (Kafka's
/// `Utils.getDateTime`).
pub(crate) fn date_time(text: &str) -> Option<TimestampMs> {
    let (date, time) = text.split_once('T')?;
    let date: Vec<i64> = numbers(date, '-')?;
    let [year, month @ 1..=12, day @ 1..=31] = date[..] else {
        return None;
    };
    let (clock, zone) = match time.find(['Z', '+', '-']) {
        Some(at) => time.split_at(at),
        None => (time, "Z"),
    };
    let (clock, millis) = clock.split_once('.').unwrap_or((clock, "0"));
    let clock: Vec<i64> = numbers(clock, ':')?;
    let (hour, minute, second) = match clock[..] {
        [hour, minute, second] => (hour, minute, second),
        [hour, minute] => (hour, minute, 0),
        _ => return None,
    };
    let millis: i64 = millis.parse().ok()?;
    let of_day = ((hour * 60 + minute) * 60 + second) * 1000 + millis;
    Some(days(year, month, day) * DAY_MS + of_day - zone_ms(zone)?)
}

fn numbers(text: &str, separator: char) -> Option<Vec<i64>> {
    text.split(separator)
        .map(|part| part.parse().ok())
        .collect()
}

fn zone_ms(zone: &str) -> Option<i64> {
    if zone == "Z" {
        return Some(0);
    }
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let digits = zone[1..].replace(':', "");
    let (hours, minutes) = match digits.len() {
        2 => (digits.parse::<i64>().ok()?, 0),
        4 => (
            digits[..2].parse::<i64>().ok()?,
            digits[2..].parse::<i64>().ok()?,
        ),
        _ => return None,
    };
    Some(sign * (hours * 60 + minutes) * 60_000)
}

/// `PnDTnHnMn.nS` of `java.time.Duration`, in milliseconds.
pub(crate) fn duration_ms(text: &str) -> Option<i64> {
    let upper = text.to_ascii_uppercase();
    let (sign, rest) = match upper.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, upper.strip_prefix('+').unwrap_or(&upper)),
    };
    let rest = rest.strip_prefix('P')?;
    let (date, time) = match rest.split_once('T') {
        Some((date, time)) if !time.is_empty() => (date, time),
        Some(_) => return None,
        None => (rest, ""),
    };
    if date.is_empty() && time.is_empty() {
        return None;
    }
    let days = units(date, &[('D', 86_400_000.0)])?;
    let hours = units(time, &[('H', 3_600_000.0), ('M', 60_000.0), ('S', 1000.0)])?;
    Some((sign * (days + hours)).round() as i64)
}

fn units(text: &str, units: &[(char, f64)]) -> Option<f64> {
    let (mut sum, mut digits) = (0.0, String::new());
    let mut units = units.iter();
    for character in text.chars() {
        if character.is_ascii_digit() || matches!(character, '.' | '-' | '+') {
            digits.push(character);
            continue;
        }
        let (_, factor) = units.find(|(unit, _)| *unit == character)?;
        sum += digits.parse::<f64>().ok()? * factor;
        digits.clear();
    }
    digits.is_empty().then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(local_time(0), "1970-01-01 00:00:00,000");
        assert_eq!(local_time(1_709_210_096_789), "2024-02-29 12:34:56,789");
        assert_eq!(
            date_time("2024-02-29T12:34:56.789"),
            Some(1_709_210_096_789)
        );
        assert_eq!(
            date_time("2024-02-29T13:34:56.789+01:00"),
            Some(1_709_210_096_789)
        );
        assert_eq!(
            date_time("2024-02-29T13:34:56.789+01"),
            Some(1_709_210_096_789)
        );
        assert_eq!(
            date_time("2024-02-29T11:34:56.789-0100"),
            Some(1_709_210_096_789)
        );
        assert_eq!(date_time("2024-02-29T12:34:56Z"), Some(1_709_210_096_000));
        for bad in [
            "",
            "2024-02-29",
            "2024-13-01T00:00:00",
            "xT",
            "2024-02-29T1:x:0",
        ] {
            assert_eq!(date_time(bad), None, "{bad}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(duration_ms("P1D"), Some(86_400_000));
        assert_eq!(duration_ms("PT1H30M"), Some(5_400_000));
        assert_eq!(duration_ms("P2DT3H4M5.5S"), Some(183_845_500));
        assert_eq!(duration_ms("-PT1S"), Some(-1000));
        for bad in ["", "P", "PT", "1D", "P1H", "PT1", "PT1X", "PT1M1H"] {
            assert_eq!(duration_ms(bad), None, "{bad}");
        }
    }
}
