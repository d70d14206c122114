//! What the project's tests share: the contract suite of stores and an etcd server to run it against.
//!
//! Nothing here is part of the product.

#![allow(clippy::unwrap_used, reason = "all of this is test code")]

pub mod contract;
pub mod etcd;
