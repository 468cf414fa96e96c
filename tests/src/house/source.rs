//! Rust source without what is not code: comments, literals and test modules are blanked, lines stay in place.

/// A file of the repository.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Path from the root of the repository, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
}

impl SourceFile {
    /// A file from its path and text.
    pub fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    /// Whether it is Rust.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether all of it is test code by its place or name.
    pub fn is_test(&self) -> bool {
        let stem = self.path.trim_end_matches(".rs");
        let in_crate_tests = self.path.contains("/tests/") && !self.path.starts_with("tests/src/");
        in_crate_tests || stem.ends_with("/tests") || stem.ends_with("_tests")
    }
}

/// The text with comments and the insides of string and character literals replaced by blanks.
pub fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = skipped_end(bytes, at);
        for byte in &mut code[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    String::from_utf8_lossy(&code).into_owned()
}

/// Where the comment or literal that starts at `at` ends; `at` itself when none starts there.
fn skipped_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return find(bytes, at, b"\n");
    }
    if rest.starts_with(b"/*") {
        return block_comment_end(bytes, at);
    }
    let after_identifier = at > 0 && is_identifier(bytes[at - 1]);
    if rest.starts_with(b"r") && !after_identifier {
        let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
        if rest.get(1 + hashes) == Some(&b'"') {
            let closing = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
            return find(bytes, at + hashes + 2, &closing) + closing.len();
        }
    }
    match rest {
        [b'"', ..] => quoted_end(bytes, at, b'"'),
        // A lifetime has no closing quote right behind its first character.
        [b'\'', b'\\', ..] | [b'\'', _, b'\'', ..] => quoted_end(bytes, at, b'\''),
        _ => at,
    }
    .min(bytes.len())
}

fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0;
    let mut at = start;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at.min(bytes.len())
}

fn quoted_end(bytes: &[u8], start: usize, quote: u8) -> usize {
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

fn find(bytes: &[u8], from: usize, needle: &[u8]) -> usize {
    bytes[from.min(bytes.len())..]
        .windows(needle.len())
        .position(|window| window == needle)
        .map_or(bytes.len(), |found| from + found)
}

/// Code with each item under `#[cfg(test)]` blanked.
pub fn without_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut kept = code.to_owned();
    while let Some(start) = kept.find(MARK) {
        let end = item_end(kept.as_bytes(), start + MARK.len());
        let blank: String = kept[start..end]
            .chars()
            .map(|one| if one == '\n' { '\n' } else { ' ' })
            .collect();
        kept.replace_range(start..end, &blank);
    }
    kept
}

/// Behind the item that starts at `from`: its closing brace, or its semicolon when it has no body.
fn item_end(code: &[u8], from: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in code.iter().enumerate().skip(from) {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            b';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// Whether a byte can be part of an identifier.
pub fn is_identifier(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Whether `line` holds `word`, not as a part of a longer identifier.
pub fn has_word(line: &str, word: &str) -> bool {
    let bytes = line.as_bytes();
    let ends_in_identifier = word.bytes().last().is_some_and(is_identifier);
    let starts_in_identifier = word.bytes().next().is_some_and(is_identifier);
    line.match_indices(word).any(|(start, _)| {
        let end = start + word.len();
        let joined_before = starts_in_identifier && start > 0 && is_identifier(bytes[start - 1]);
        let joined_after = ends_in_identifier && bytes.get(end).copied().is_some_and(is_identifier);
        !joined_before && !joined_after
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_literals_and_test_modules_are_not_code() {
        let text = "a(); // std::x\n/* std::y /* z */ */ b(\"std::q\\\"\", r#\"std::\"r\"#, '\"', 'a');\nfn c<'a>() {}\n";
        let code = code_only(text);
        assert!(!code.contains("std"), "{code}");
        assert!(code.contains("fn c<'a>() {}"), "{code}");
        assert_eq!(code.lines().count(), 3);

        let code =
            without_tests("one();\n#[cfg(test)]\nmod tests {\n  fn x() { two(); }\n}\nthree();");
        assert!(!code.contains("two") && code.contains("three"));
        assert_eq!(code.lines().count(), 6);
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("use tokio::net;", "tokio"));
        assert!(!has_word("fn tokio_like()", "tokio"));
        assert!(has_word("x.unwrap()", ".unwrap()"));
        assert!(!has_word("no_std::x", "std::"));
    }
}
