//! The calculation graph: from what the datastore says to what one node's dataplane must do.
//!
//! Owns: which policies and profiles apply to this node's endpoints and in which order, which addresses are in the
//! sets that their rules name, and which routes, tunnel endpoints and pools the node must know. In: changes in the
//! model that update processors make ([`calico_model`]). Out: [`calico_dpmsg::Message`]s, in an order in which
//! nothing is named before it was told and nothing is removed while something names it.
//!
//! Pure and synchronous: no clock, no lock, no I/O. [`CalcGraph::on_update`] only records and indexes;
//! [`CalcGraph::flush`] compares what must be with what the dataplane was told and tells the difference. So a value
//! that changes and changes back between two flushes costs nothing, and the order of changes does not matter.
//!
//! # How it scales
//!
//! Labels are interned pairs; an item keeps the numbers of its pairs, and each pair lists its items. A new set is
//! filled by evaluating only the items under the rarest label value that its selector demands; a changed item is
//! evaluated only against the selectors filed under one of its labels. Rules are interned, so equal rules of many
//! policies are stored once.
//!
//! # Bad input
//!
//! A value that is of no use counts as absent and is listed by [`CalcGraph::problems`]. Where it guards something
//! it fails closed ([`Reason`] says how each case does): a missing profile denies everything, a missing tier denies
//! what it leaves undecided, an allow rule with a selector that does not parse is left out, a deny rule matches as
//! if that selector were not there. A policy whose own selector does not parse applies to nothing, since which
//! endpoints it guards cannot be known; it is listed.
//!
//! Services, BGP peers, Istio and live migration are not followed here.

mod filing;
mod graph;
mod hosts;
mod idset;
mod items;
mod labels;
mod locals;
mod members;
mod nets;
mod order;
mod policies;
mod pools;
mod problem;
mod profiles;
mod routes;
mod ruleid;
mod rules;
mod scan;
mod sets;
mod slab;

pub use graph::{CalcConfig, CalcGraph, Counts};
pub use hosts::derived_mac;
pub use pools::EncapSettings;
pub use problem::{Problem, Reason};
pub use routes::RouteSource;
