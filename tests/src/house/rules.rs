//! Rules over single source files: which words may stand where, names, lengths, reasons for `unsafe`.

use super::Violation;
use super::source::{SourceFile, code_only, has_word, is_identifier, without_tests};

/// The most lines that a Rust file may have.
pub const FILE_LINES_MAX: usize = 650;

/// Words that say nothing of what a thing does, and so may not stand in names of files and types.
pub const EMPTY_WORDS: [&str; 9] = [
    "manager", "helper", "helpers", "util", "utils", "common", "misc", "impl", "v2",
];

/// Words that may be named in some places only. Test code is free.
#[derive(Clone, Copy, Debug)]
pub struct WordRule {
    /// What is kept in one place.
    pub subject: &'static str,
    /// The words that name it.
    pub words: &'static [&'static str],
    /// Starts of paths to which the rule applies; all of the repository when empty.
    pub within: &'static [&'static str],
    /// Starts of paths where the words may stand all the same.
    pub allowed: &'static [&'static str],
}

/// The table of words.
pub const WORD_RULES: &[WordRule] = &[
    WordRule {
        subject: "the engine uses core and alloc only",
        words: &["std::"],
        within: &["engine/src/"],
        allowed: &[],
    },
    WordRule {
        subject: "the runtime of a core",
        words: &["glommio", "compio"],
        within: &[],
        allowed: &["shard/src/uring/"],
    },
    WordRule {
        subject: "tokio, which is not for the message path",
        words: &["tokio"],
        within: &[],
        allowed: &[
            "control/",
            "client/",
            "shard/src/support",
            "shard/src/uring/channel",
            "src/",
            "tests/",
            "benches/",
        ],
    },
    WordRule {
        subject: "the clock",
        words: &["Instant::now", "SystemTime"],
        within: &[],
        allowed: &[
            "shard/src/clock",
            "shard/src/uring/clock",
            "client/src/transport",
            "control/",
            "src/",
            "tests/",
            "benches/",
        ],
    },
    WordRule {
        subject: "randomness",
        words: &["getrandom", "rand::", "thread_rng"],
        within: &[],
        allowed: &[
            "shard/src/randomness",
            "shard/src/uring/randomness",
            "client/src/transport",
            "src/",
            "tests/",
            "benches/",
        ],
    },
    WordRule {
        subject: "channels",
        words: &["flume", "shared_channel", "mpsc"],
        within: &[],
        allowed: &[
            "shard/src/uring/",
            "shard/src/support",
            "control/",
            "tests/",
            "benches/",
        ],
    },
    WordRule {
        subject: "a queue without a bound",
        words: &["unbounded", "unbounded_channel"],
        within: &[],
        allowed: &["tests/src/house/"],
    },
    WordRule {
        subject: "a panic on what may be absent",
        words: &[".unwrap()"],
        within: &[
            "engine/", "net/", "shard/", "control/", "client/", "tuning/", "src/",
        ],
        allowed: &[],
    },
    WordRule {
        subject: "a thread, a file or a socket in a crate that only computes",
        words: &["std::thread", "std::fs", "std::net", "std::process"],
        within: &["engine/", "net/wire/"],
        allowed: &[],
    },
];

/// Words that stand where they may not.
pub fn words_stay_in_their_place(files: &[SourceFile], rules: &[WordRule]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in files
        .iter()
        .filter(|file| file.is_rust() && !file.is_test())
    {
        let code = without_tests(&code_only(&file.text));
        for rule in rules.iter().filter(|rule| applies(rule, &file.path)) {
            for (index, line) in code.lines().enumerate() {
                if let Some(word) = rule.words.iter().find(|word| has_word(line, word)) {
                    let place = match rule.allowed {
                        [] => "nowhere here".to_owned(),
                        places => format!("only in {}", places.join(", ")),
                    };
                    let reason = format!("`{word}`: {} stands {place}", rule.subject);
                    violations.push(Violation::new(&file.path, index + 1, reason));
                }
            }
        }
    }
    violations
}

fn applies(rule: &WordRule, path: &str) -> bool {
    let within = rule.within.is_empty() || rule.within.iter().any(|start| path.starts_with(start));
    within && !rule.allowed.iter().any(|start| path.starts_with(start))
}

/// The engine's crate says `no_std`.
pub fn engine_is_no_std(files: &[SourceFile]) -> Vec<Violation> {
    const HEAD: &str = "engine/src/lib.rs";
    let told = files.iter().any(|file| {
        let code = code_only(&file.text);
        let plain = code.contains("#![no_std]");
        file.path == HEAD && (plain || code.contains("#![cfg_attr(not(test), no_std)]"))
    });
    if told {
        return Vec::new();
    }
    vec![Violation::new(HEAD, 1, "the engine is `#![no_std]`")]
}

/// Rust files that are too long.
pub fn files_are_short(files: &[SourceFile]) -> Vec<Violation> {
    files
        .iter()
        .filter(|file| file.is_rust())
        .filter_map(|file| {
            let lines = file.text.lines().count();
            let reason = format!("{lines} lines; at most {FILE_LINES_MAX}");
            (lines > FILE_LINES_MAX).then(|| Violation::new(&file.path, lines, reason))
        })
        .collect()
}

/// Files and types with names that say nothing.
pub fn names_say_what_they_do(files: &[SourceFile]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in files {
        let parts = file.path.split(|one: char| !one.is_ascii_alphanumeric());
        for word in parts.filter(|part| is_empty_word(part)) {
            violations.push(Violation::new(
                &file.path,
                1,
                format!("`{word}` in a file name"),
            ));
        }
        if !file.is_rust() {
            continue;
        }
        for (index, line) in code_only(&file.text).lines().enumerate() {
            let Some(name) = declared_type(line) else {
                continue;
            };
            for word in camel_words(name).iter().filter(|word| is_empty_word(word)) {
                let reason = format!("`{word}` in the type name `{name}`");
                violations.push(Violation::new(&file.path, index + 1, reason));
            }
        }
    }
    violations
}

fn is_empty_word(word: &str) -> bool {
    EMPTY_WORDS.contains(&word.to_ascii_lowercase().as_str())
}

/// The name of the type that a line declares.
fn declared_type(line: &str) -> Option<&str> {
    const KEYWORDS: [&str; 5] = ["struct", "enum", "trait", "type", "union"];
    let mut words = line.split_whitespace();
    words.find(|word| KEYWORDS.contains(word))?;
    let name = words.next()?;
    let end = name
        .bytes()
        .position(|byte| !is_identifier(byte))
        .unwrap_or(name.len());
    (end > 0).then(|| &name[..end])
}

/// The words of a name in camel case.
fn camel_words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for one in name.chars() {
        match words.last_mut() {
            Some(word) if !one.is_ascii_uppercase() => word.push(one),
            _ => words.push(one.to_string()),
        }
    }
    words
}

/// `unsafe` without a reason close above it.
pub fn unsafe_code_has_its_reason(files: &[SourceFile]) -> Vec<Violation> {
    /// A reason may be long, and an attribute may stand between it and the block.
    const LINES_ABOVE_MAX: usize = 12;
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let lines: Vec<&str> = file.text.lines().collect();
        for (index, line) in code_only(&file.text).lines().enumerate() {
            let block = ["unsafe {", "unsafe impl", "unsafe fn"]
                .iter()
                .any(|start| has_word(line, start));
            let above = &lines[index.saturating_sub(LINES_ABOVE_MAX)..=index];
            let told = above
                .iter()
                .any(|line| line.contains("SAFETY:") || line.contains("# Safety"));
            if block && !told {
                violations.push(Violation::new(
                    &file.path,
                    index + 1,
                    "`unsafe` without a `// SAFETY:` reason",
                ));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(violations: &[Violation]) -> Vec<usize> {
        violations.iter().map(|one| one.line).collect()
    }

    #[test]
    fn each_word_rule_catches_each_of_its_words_and_lets_the_allowed_places_be() {
        for rule in WORD_RULES {
            for word in rule.words {
                let text = format!("// {word}\nfn f() {{ x {word} ; }}\n");
                let within = rule.within.first().unwrap_or(&"engine/src/");
                let bad = SourceFile::new(&format!("{within}sample.rs"), &text);
                let found = words_stay_in_their_place(&[bad], &[*rule]);
                assert_eq!(lines(&found), [2], "{word} is not caught");
                for place in rule.allowed {
                    let good = SourceFile::new(&format!("{place}sample.rs"), &text);
                    assert!(words_stay_in_their_place(&[good], &[*rule]).is_empty());
                }
                let tested = format!("#[cfg(test)]\nmod tests {{\n{text}}}\n");
                let test = SourceFile::new(&format!("{within}sample.rs"), &tested);
                assert!(words_stay_in_their_place(&[test], &[*rule]).is_empty());
            }
        }
    }

    #[test]
    fn engine_without_no_std_is_caught() {
        let good = SourceFile::new("engine/src/lib.rs", "//! x\n#![no_std]\n");
        assert!(engine_is_no_std(&[good]).is_empty());
        let bad = SourceFile::new("engine/src/lib.rs", "//! #![no_std]\n");
        assert_eq!(lines(&engine_is_no_std(&[bad])), [1]);
    }

    #[test]
    fn long_file_is_caught() {
        let at_limit = SourceFile::new("src/a.rs", &"\n".repeat(FILE_LINES_MAX));
        assert!(files_are_short(&[at_limit]).is_empty());
        let above = SourceFile::new("src/a.rs", &"\n".repeat(FILE_LINES_MAX + 1));
        assert_eq!(lines(&files_are_short(&[above])), [FILE_LINES_MAX + 1]);
    }

    #[test]
    fn empty_words_in_names_are_caught() {
        for word in EMPTY_WORDS {
            let file = SourceFile::new(&format!("src/log_{word}.rs"), "");
            assert_eq!(lines(&names_say_what_they_do(&[file])), [1]);
            let mut camel = word.to_owned();
            camel[..1].make_ascii_uppercase();
            let text = format!("fn f() {{}}\npub(crate) struct Log{camel}<T>(T);\n");
            let file = SourceFile::new("src/a.rs", &text);
            assert_eq!(lines(&names_say_what_they_do(&[file])), [2]);
        }
        let good = SourceFile::new("src/commonly.rs", "struct Utility;\nimpl Utility {}\n");
        assert!(names_say_what_they_do(&[good]).is_empty());
    }

    #[test]
    fn unsafe_without_a_reason_is_caught() {
        let bad = SourceFile::new("src/a.rs", "fn f() {\n unsafe { g() }\n}\n");
        assert_eq!(lines(&unsafe_code_has_its_reason(&[bad])), [2]);
        let good = SourceFile::new("src/a.rs", "// SAFETY: g is fine\nunsafe { g() }\n");
        assert!(unsafe_code_has_its_reason(&[good]).is_empty());
    }
}
