//! Who goes on next: by a seed, or by every way there is.

/// Makes the choices of a run.
pub trait Chooser {
    /// One of `n`.
    fn below(&mut self, n: usize) -> usize;

    /// Whether the answer of a write is lost; if so, whether the write took place.
    fn lose_answer(&mut self) -> Option<bool>;

    /// The order of reads that may come in any order.
    fn shuffle_len(&mut self, _len: usize) -> bool {
        false
    }
}

impl dyn Chooser + '_ {
    pub fn shuffle<T>(&mut self, items: &mut [T], swap: impl Fn(&mut [T], (usize, usize))) {
        if self.shuffle_len(items.len()) {
            for i in (1..items.len()).rev() {
                let j = self.below(i + 1);
                swap(items, (i, j));
            }
        }
    }
}

/// Choices by a seed (splitmix64).
pub struct Seeded {
    state: u64,
    /// Lost answers per 1,000 writes.
    pub lost: usize,
}

impl Seeded {
    pub fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0x2545_f491_4f6c_dd1d).wrapping_add(1), lost: 0 }
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

impl Chooser for Seeded {
    fn below(&mut self, n: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    fn lose_answer(&mut self) -> Option<bool> {
        if self.lost > 0 && self.below(1000) < self.lost { Some(self.one_in(2)) } else { None }
    }

    fn shuffle_len(&mut self, len: usize) -> bool {
        len > 1
    }
}

/// Every sequence of choices, depth first: replays a prefix, then takes the first option, and remembers how many
/// there were.
#[derive(Default)]
pub struct Every {
    path: Vec<(usize, usize)>,
    at: usize,
}

impl Every {
    /// Prepares the next run. False when all have been made.
    pub fn next_run(&mut self) -> bool {
        self.at = 0;
        while let Some((choice, options)) = self.path.pop() {
            if choice + 1 < options {
                self.path.push((choice + 1, options));
                return true;
            }
        }
        false
    }

    pub fn path(&self) -> Vec<usize> {
        self.path.iter().map(|(choice, _)| *choice).collect()
    }
}

impl Chooser for Every {
    fn below(&mut self, n: usize) -> usize {
        if n < 2 {
            return 0;
        }
        if self.at == self.path.len() {
            self.path.push((0, n));
        }
        let (choice, options) = self.path[self.at];
        assert_eq!(options, n, "the run is not the same when repeated");
        self.at += 1;
        choice
    }

    fn lose_answer(&mut self) -> Option<bool> {
        None
    }
}
