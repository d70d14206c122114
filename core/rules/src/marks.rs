//! Which bits of the packet mark mean what.

/// Why marks could not be allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("mark mask {mask:#x} has {have} bits, {need} are needed")]
pub struct MarkError {
    /// The mask.
    pub mask: u32,
    /// Bits that it has.
    pub have: u32,
    /// Bits that are needed.
    pub need: u32,
}

/// Single bits of the packet mark, handed out from the mask's lowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkBits {
    /// Policy accepted; survives from layer to layer.
    pub accept: u32,
    /// Go to the next tier.
    pub pass: u32,
    /// A rule that denies matched.
    pub drop: u32,
    /// All match blocks so far matched; in the raw layer, the packet is a workload's.
    pub scratch0: u32,
    /// The current match block matched.
    pub scratch1: u32,
}

impl MarkBits {
    /// Takes five bits from `mask`, the lowest first.
    ///
    /// # Errors
    /// If the mask has fewer.
    pub fn allocate(mask: u32) -> Result<Self, MarkError> {
        let have = mask.count_ones();
        if have < 5 {
            return Err(MarkError { mask, have, need: 5 });
        }
        let mut rest = mask;
        let mut take = || {
            let bit = rest & rest.wrapping_neg();
            rest &= !bit;
            bit
        };
        Ok(Self { accept: take(), pass: take(), drop: take(), scratch0: take(), scratch1: take() })
    }

    /// The bits that are cleared when a packet begins afresh. The drop bit is not among them: no packet lives
    /// on with it.
    pub fn all(self) -> u32 {
        self.accept | self.pass | self.scratch0 | self.scratch1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_mask() {
        let m = MarkBits::allocate(0xffff_0000).unwrap();
        assert_eq!((m.accept, m.pass, m.drop), (0x10000, 0x20000, 0x40000));
        assert_eq!((m.scratch0, m.scratch1, m.all()), (0x80000, 0x10_0000, 0x1b_0000));
    }

    #[test]
    fn holes_are_skipped_and_few_bits_refused() {
        let m = MarkBits::allocate(0x8000_0249).unwrap();
        assert_eq!((m.accept, m.pass, m.drop, m.scratch0, m.scratch1), (1, 8, 0x40, 0x200, 0x8000_0000));
        assert_eq!(MarkBits::allocate(0xf).unwrap_err().have, 4);
    }
}
