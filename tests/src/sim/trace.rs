//! What happened in a run, as lines for a reader and as one number for comparison.

/// The record of a run.
#[derive(Debug)]
pub struct Trace {
    hash: u64,
    events: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    /// An empty one; lines are kept only if somebody wants to read them.
    pub fn new(keeps_lines: bool) -> Self {
        Self {
            hash: 0xcbf2_9ce4_8422_2325,
            events: 0,
            lines: keeps_lines.then(Vec::new),
        }
    }

    /// Takes note of an event: moment and `facts` go into the hash, `line` is only made where lines
    /// are kept.
    pub fn note(&mut self, at_us: u64, facts: &[u64], line: impl FnOnce() -> String) {
        for fact in core::iter::once(&at_us).chain(facts) {
            self.hash = (self.hash ^ fact)
                .wrapping_mul(0x0000_0100_0000_01b3)
                .rotate_left(29);
        }
        if let Some(lines) = &mut self.lines {
            lines.push(line());
        }
    }

    /// Counts a step of the core.
    pub fn count(&mut self) {
        self.events += 1;
    }

    /// Equal for equal runs.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Steps of the core.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The lines, if they were kept.
    pub fn lines(&self) -> &[String] {
        self.lines.as_deref().unwrap_or_default()
    }
}
