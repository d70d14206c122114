//! The calico binary.
fn main() {}
