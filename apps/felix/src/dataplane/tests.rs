//! The whole dataplane: against a kernel in memory, and against the running one in namespaces of its own.

mod bed;
mod kernel;
mod looping;
mod memory;
mod node;
mod objects;
mod order;
mod tunnels;
