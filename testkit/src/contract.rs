//! The contract of stores as tests: one suite that every backend has to pass.
//!
//! [`run_all`] runs each case on a clean store. Cases that put broken bytes into the store or compact it need
//! the database below the backend ([`Subject::raw`]) and are skipped where there is none.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use calico_datastore::{Backend, RawStore, Store};

mod crud;
mod support;
mod together;
mod watching;

/// A store under test.
#[derive(Clone)]
pub struct Subject {
    /// The backend.
    pub backend: Arc<dyn Backend>,
    /// The same database below the backend.
    pub raw: Option<Arc<dyn RawStore>>,
}

impl Subject {
    /// Tests `store`.
    pub fn new<R: RawStore>(store: Store<R>) -> Self {
        let raw: Arc<dyn RawStore> = Arc::clone(store.raw()) as Arc<dyn RawStore>;
        Self { backend: Arc::new(store), raw: Some(raw) }
    }
}

/// A case: what it shows, and the test.
pub type Case = (&'static str, fn(Subject) -> Pin<Box<dyn Future<Output = ()> + Send>>);

/// Turns async functions into cases.
macro_rules! cases {
    ($($module:ident :: $name:ident),* $(,)?) => {
        &[$((concat!(stringify!($module), "::", stringify!($name)), |subject| Box::pin($module::$name(subject)))),*]
    };
}

/// All cases.
pub const CASES: &[Case] = cases![
    crud::create_stores_once,
    crud::update_needs_the_current_revision,
    crud::apply_replaces_whatever_is_there,
    crud::delete_compares_the_revision_if_one_is_given,
    crud::lists_select_by_kind_namespace_name_and_prefix,
    crud::lists_of_ipam_entries_keep_types_apart,
    crud::reads_of_the_past,
    crud::compaction_forgets_the_past,
    crud::revisions_that_are_none,
    crud::odd_names_and_big_values,
    crud::long_lists_come_whole,
    crud::broken_values_are_skipped_in_lists_and_reported_by_get,
    crud::entries_with_a_life_time_expire,
    crud::clean_removes_everything,
    crud::the_built_in_profile_is_there,
    crud::deleting_a_tier_with_its_policies,
    watching::watch_from_nothing_lists_first,
    watching::watch_from_a_revision_sees_what_came_after,
    watching::watch_sees_only_what_it_asked_for,
    watching::watch_passes_broken_values,
    watching::watch_from_a_forgotten_revision_ends,
    watching::watch_sees_expiry,
    watching::a_slow_receiver_loses_nothing,
    watching::every_change_comes_once_and_in_order,
    together::transactions_are_all_or_nothing,
    together::transactions_have_one_revision,
    together::transactions_refuse_what_is_too_much,
    together::concurrent_updates_lose_nothing,
    together::one_of_many_creates_wins,
    together::calls_after_close_fail,
];

/// Runs every case on a store of `make`, and fails with the names of the cases that failed.
///
/// `make` may return the same database each time: it is cleaned before each case. It has to give each case a
/// connection of its own, because one case closes it.
pub async fn run_all<F, Made>(make: F)
where
    F: Fn() -> Made,
    Made: Future<Output = Subject>,
{
    let mut failed = Vec::new();
    for (name, case) in CASES {
        let subject = make().await;
        subject.backend.clean().await.expect("clean");
        if tokio::spawn(case(subject)).await.is_err() {
            failed.push(*name);
        }
    }
    assert!(failed.is_empty(), "cases that failed: {failed:?}");
}
