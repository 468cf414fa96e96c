//! A real file to publish: Debian's package index, line by line, keyed by the package that a line belongs to.

use std::fs;
use std::io;
use std::process::Command;

/// Where apt keeps the indexes that it has fetched.
const LISTS: &str = "/var/lib/apt/lists";
/// What every Debian machine has: the state of the installed packages.
const INSTALLED: &str = "/var/lib/dpkg/status";

/// A line with its key. Neither holds a line feed, the key no tab, and the line is not empty.
pub type KeyedLine = (String, String);

/// The first `count` lines.
///
/// apt's indexes are taken where there are any, then what `apt-cache dumpavail` tells; without either, the state of
/// the installed packages, with numbers put before its lines, as often as it takes.
///
/// # Errors
/// When the machine has none of them.
pub fn keyed_lines(count: usize) -> io::Result<Vec<KeyedLine>> {
    let mut lines = Vec::with_capacity(count);
    for path in index_files()? {
        let text = output(Command::new("/usr/lib/apt/apt-helper").args(["cat-file", &path]))?;
        collect(&text, count, &mut lines);
    }
    if lines.len() < count
        && let Ok(text) = output(Command::new("apt-cache").arg("dumpavail"))
    {
        collect(&text, count, &mut lines);
    }
    let mut round = 0;
    while lines.len() < count {
        let text = fs::read_to_string(INSTALLED)?;
        let mut more = Vec::new();
        collect(&text, count - lines.len(), &mut more);
        if more.is_empty() {
            return Err(io::Error::other(format!("{INSTALLED} holds no package")));
        }
        round += 1;
        lines.extend(
            more.into_iter()
                .map(|(key, line)| (key, format!("{round} {line}"))),
        );
    }
    Ok(lines)
}

fn index_files() -> io::Result<Vec<String>> {
    let Ok(entries) = fs::read_dir(LISTS) else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path().to_string_lossy().into_owned();
        let plain = path.ends_with("_Packages");
        if plain || path.contains("_Packages.") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn output(command: &mut Command) -> io::Result<String> {
    let output = command.output()?;
    if !output.status.success() {
        let program = command.get_program().to_string_lossy().into_owned();
        return Err(io::Error::other(format!("{program}: {}", output.status)));
    }
    String::from_utf8(output.stdout).map_err(io::Error::other)
}

/// Adds the lines of an index until there are `count`. Empty lines only part packages and are passed over.
fn collect(text: &str, count: usize, lines: &mut Vec<KeyedLine>) {
    let mut package = "";
    for line in text.lines().filter(|line| !line.is_empty()) {
        if lines.len() >= count {
            return;
        }
        if let Some(name) = line.strip_prefix("Package: ") {
            package = name;
        }
        lines.push((package.to_owned(), line.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_carries_the_package_above_it() {
        let mut lines = Vec::new();
        collect(
            "Package: a\nSize: 1\n\nPackage: b\nSize: 2\n",
            3,
            &mut lines,
        );
        let expected = [("a", "Package: a"), ("a", "Size: 1"), ("b", "Package: b")];
        let expected: Vec<KeyedLine> = expected
            .iter()
            .map(|(key, line)| ((*key).to_owned(), (*line).to_owned()))
            .collect();
        assert_eq!(lines, expected);
    }
}
