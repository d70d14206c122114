//! A cluster on one machine: nodes are network namespaces, everything else is real.

mod expect;
mod flood;
mod matrix;
mod probe;
mod scenario;
