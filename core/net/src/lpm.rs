//! Longest-prefix-match maps keyed by CIDR.
