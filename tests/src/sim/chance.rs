//! Chance, fixed by the seed.

use crate::power_cut::seeded::Seeded;

/// The one source of chance of a run.
#[derive(Clone, Debug)]
pub struct Chance(Seeded);

impl Chance {
    /// That of a seed. Neighbouring seeds have nothing in common.
    pub fn new(seed: u64) -> Self {
        let mut first = Seeded::new(seed ^ 0x6a09_e667_f3bc_c908);
        Self(Seeded::new(first.draw()))
    }

    /// 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0.draw()
    }

    /// A number below `bound`; zero if that is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.0.below(bound) }
    }

    /// A number from `least` to `most`, both included.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least) + 1)
    }

    /// True once in `times`; never if that is zero.
    pub fn one_in(&mut self, times: u64) -> bool {
        times > 0 && self.0.below(times) == 0
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// A duration that is mostly short, and sometimes `longest`.
    pub fn skewed(&mut self, longest: u64) -> u64 {
        let halvings = self.below(8);
        self.below((longest >> halvings).max(1) + 1)
    }

    /// Sixteen bytes that nobody else has.
    pub fn id(&mut self) -> [u8; 16] {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.draw().to_be_bytes());
        id[8..].copy_from_slice(&self.draw().to_be_bytes());
        id
    }
}
