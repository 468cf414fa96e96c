//! Times as people write them.

const DAY_MS: i64 = 86_400_000;

/// Milliseconds since 1970 of `YYYY-MM-DD`, with `THH:MM[:SS[.fff]]` and `Z` or `+HH:MM` (RFC 3339; a
/// time without a zone is UTC).
pub fn parse_time_ms(text: &str) -> Option<i64> {
    let (date, time) = match text.split_once(['T', ' ']) {
        Some((date, time)) => (date, time),
        None => (text, "00:00"),
    };
    let (time, zone_ms) = split_zone(time)?;
    let mut date = date.split('-');
    let year = number(date.next()?, 4)?;
    let month = number(date.next()?, 2).filter(|month| (1..=12).contains(month))?;
    let day = number(date.next()?, 2).filter(|day| (1..=days_in(year, month)).contains(day))?;
    if date.next().is_some() {
        return None;
    }
    let day_ms = clock_ms(time)?;
    Some(days_since_1970(year, month, day) * DAY_MS + day_ms - zone_ms)
}

fn split_zone(time: &str) -> Option<(&str, i64)> {
    if let Some(time) = time.strip_suffix('Z') {
        return Some((time, 0));
    }
    let Some(at) = time.find(['+', '-']) else {
        return Some((time, 0));
    };
    let (time, zone) = time.split_at(at);
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    Some((time, sign * clock_ms(zone.get(1..)?)?))
}

fn clock_ms(clock: &str) -> Option<i64> {
    let (clock, millis) = match clock.split_once('.') {
        Some((clock, fraction)) => {
            let digits = fraction.get(..fraction.len().min(3))?;
            let scale = 10_i64.pow(3 - u32::try_from(digits.len()).ok()?);
            (clock, number(digits, digits.len())? * scale)
        }
        None => (clock, 0),
    };
    let mut parts = clock.split(':');
    let hours = number(parts.next()?, 2).filter(|hours| *hours < 24)?;
    let minutes = number(parts.next()?, 2).filter(|minutes| *minutes < 60)?;
    let seconds = match parts.next() {
        Some(seconds) => number(seconds, 2).filter(|seconds| *seconds < 60)?,
        None => 0,
    };
    let extra = parts.next();
    extra
        .is_none()
        .then_some(((hours * 60 + minutes) * 60 + seconds) * 1_000 + millis)
}

fn number(text: &str, digits: usize) -> Option<i64> {
    let plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok())?
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let days_of_year = |year: i64| 365 + i64::from(is_leap(year));
    let years: i64 = (1970..year).map(days_of_year).sum();
    let before: i64 = (year..1970).map(days_of_year).sum();
    let months: i64 = (1..month).map(|month| days_in(year, month)).sum();
    years - before + months + day - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_rfc_3339_says() {
        for (text, ms) in [
            ("1970-01-01", 0),
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01T01:00:00.5+01:00", 500),
            ("2000-03-01", 951_868_800_000),
            ("2026-12-01T17:29:03.123Z", 1_796_146_143_123),
            ("1969-12-31T23:59:59Z", -1_000),
        ] {
            assert_eq!(parse_time_ms(text), Some(ms), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "now",
            "2026",
            "2026-13-01",
            "2026-02-29",
            "2026-01-01T24:00",
            "2026-1-1",
            "2026-01-01T10",
            "2026-01-01T10:00:00:00",
            "2026-01-01T10:00.x",
        ] {
            assert_eq!(parse_time_ms(text), None, "{text}");
        }
    }
}
