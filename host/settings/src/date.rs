//! Calendar dates, and Python's `strftime` for their midnight.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use allot_allocation::shown;
use serde::{Deserialize, Serialize};

const DAY: u64 = 24 * 60 * 60;
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// A date of the Gregorian calendar, in the years 1 to 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Date {
    year: u32,
    month: u32,
    day: u32,
}

impl Date {
    /// Returns the current date in UTC.
    pub fn today() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut date = Self { year: 1970, month: 1, day: 1 };
        let mut days = (now.as_secs() / DAY) as u32;
        while days >= date.days_of_year() {
            days -= date.days_of_year();
            date.year += 1;
        }
        while days >= date.days_of_month() {
            days -= date.days_of_month();
            date.month += 1;
        }
        date.day += days;
        date
    }

    fn is_leap(self) -> bool {
        self.year.is_multiple_of(4) && (!self.year.is_multiple_of(100) || self.year.is_multiple_of(400))
    }

    fn days_of_year(self) -> u32 {
        365 + u32::from(self.is_leap())
    }

    fn days_of_month(self) -> u32 {
        match self.month {
            2 => 28 + u32::from(self.is_leap()),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }

    /// Returns the day's number in its year, from 1.
    fn of_year(self) -> u32 {
        (1..self.month).map(|month| Self { month, ..self }.days_of_month()).sum::<u32>() + self.day
    }

    /// Returns the day's number in its week. Sunday is 0.
    fn of_week(self) -> u32 {
        let years = self.year - 1;
        (years * 365 + years / 4 - years / 100 + years / 400 + self.of_year()) % 7
    }

    /// Returns the ISO 8601 year and week.
    fn iso_week(self) -> (u32, u32) {
        // A week belongs to the year of its Thursday.
        let thursday = self.of_year() as i32 + 3 - (self.of_week() as i32 + 6) % 7;
        if thursday < 1 {
            let last = Self { year: self.year - 1, month: 12, day: 31 };
            (last.year, (thursday + last.days_of_year() as i32 - 1) as u32 / 7 + 1)
        } else if thursday > self.days_of_year() as i32 {
            (self.year + 1, 1)
        } else {
            (self.year, (thursday as u32 - 1) / 7 + 1)
        }
    }

    /// Formats the date like Python's `strftime`, at midnight, in English. Fails if the format is invalid.
    pub fn format(self, format: &str) -> Result<String, String> {
        let mut out = String::new();
        let mut rest = format.chars();
        while let Some(c) = rest.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let mut code = rest.next();
            let bare = code == Some('-');
            if bare {
                code = rest.next();
            }
            let code = code.ok_or_else(|| format!("the date format `{format}` ends within a code"))?;
            let Some(text) = self.code(code) else {
                let known = "%a %A %b %B %c %C %d %D %e %F %G %h %H %I %j %m %M %n %p %R %S %t %T %u %U %V %w %W %x %X %y %Y %%";
                return Err(format!(
                    "the date format `{format}` has the unknown code `%{code}`; expected one of {known}"
                ));
            };
            let shorter = text.trim_start_matches(['0', ' ']);
            match (bare, shorter) {
                (true, "") => out.push('0'),
                (true, _) => out.push_str(shorter),
                (false, _) => out.push_str(&text),
            }
        }
        Ok(out)
    }

    fn code(self, code: char) -> Option<String> {
        let Self { year, month, day } = self;
        let weekday = WEEKDAYS[self.of_week() as usize];
        let named = MONTHS[month as usize - 1];
        let monday = (self.of_week() + 6) % 7;
        Some(match code {
            'a' => weekday[..3].to_owned(),
            'A' => weekday.to_owned(),
            'b' | 'h' => named[..3].to_owned(),
            'B' => named.to_owned(),
            'c' => format!("{} {} {day:2} 00:00:00 {year}", &weekday[..3], &named[..3]),
            'C' => format!("{:02}", year / 100),
            'd' => format!("{day:02}"),
            'D' | 'x' => format!("{month:02}/{day:02}/{:02}", year % 100),
            'e' => format!("{day:2}"),
            'F' => format!("{year:04}-{month:02}-{day:02}"),
            'G' => self.iso_week().0.to_string(),
            'H' | 'M' | 'S' => "00".to_owned(),
            'I' => "12".to_owned(),
            'j' => format!("{:03}", self.of_year()),
            'm' => format!("{month:02}"),
            'n' => "\n".to_owned(),
            'p' => "AM".to_owned(),
            'R' => "00:00".to_owned(),
            't' => "\t".to_owned(),
            'T' | 'X' => "00:00:00".to_owned(),
            'u' => (monday + 1).to_string(),
            'U' => format!("{:02}", (self.of_year() + 6 - self.of_week()) / 7),
            'V' => format!("{:02}", self.iso_week().1),
            'w' => self.of_week().to_string(),
            'W' => format!("{:02}", (self.of_year() + 6 - monday) / 7),
            'y' => format!("{:02}", year % 100),
            'Y' => year.to_string(),
            '%' => "%".to_owned(),
            _ => return None,
        })
    }
}

impl Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

impl FromStr for Date {
    type Err = String;

    /// Parses a date such as `2026-11-25`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{}` is not a date; expected one such as `2026-11-25`", shown::word(text, 40));
        let is_dated =
            |(at, c): (usize, char)| if at == 4 || at == 7 { c == '-' } else { c.is_ascii_digit() };
        if text.len() != 10 || !text.char_indices().all(is_dated) {
            return Err(wrong());
        }
        let number = |part: &str| part.parse::<u32>().map_err(|_| wrong());
        let date = Self { year: number(&text[..4])?, month: number(&text[5..7])?, day: number(&text[8..])? };
        let exists =
            date.year > 0 && (1..=12).contains(&date.month) && (1..=date.days_of_month()).contains(&date.day);
        if exists { Ok(date) } else { Err(wrong()) }
    }
}

impl TryFrom<String> for Date {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Date> for String {
    fn from(date: Date) -> Self {
        date.to_string()
    }
}
