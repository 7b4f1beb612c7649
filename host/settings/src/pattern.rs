//! Grader `pattern`: a regular expression that an answer must match. Mostly used as one part of a reward.

use regex::Regex;

use crate::reward::PatternConfig;

impl PatternConfig {
    /// Compiles the expression.
    ///
    /// # Errors
    ///
    /// The error is the end of a sentence that begins with the key's name.
    pub fn compiled(&self) -> Result<Regex, String> {
        Regex::new(&self.regex).map_err(|error| match error {
            regex::Error::CompiledTooBig(limit) => format!("needs more than {limit} bytes when compiled"),
            // The last line is the error's message. The lines before it show its place.
            error => {
                let said = error.to_string();
                let why = said.lines().last().unwrap_or_default();
                format!("is not a regular expression: {}", why.strip_prefix("error: ").unwrap_or(why))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_an_expression_is_said_in_a_line() {
        let why = |regex: &str| PatternConfig { regex: regex.to_owned() }.compiled().err();
        assert_eq!(why(r"(?s)^<think>.*</think>\s*<answer>.*</answer>$"), None);
        assert_eq!(why("(").as_deref(), Some("is not a regular expression: unclosed group"));
        assert!(why("(?:a{1000}){1000}").is_some_and(|why| why.contains("bytes when compiled")));
    }
}
