use std::collections::{BTreeMap, VecDeque};

use async_trait::async_trait;
use calico_api::{EncapMode, IPPool, Kind, Tier};
use calico_model::process::processor_for;
use calico_model::{Key, KvPair, Revision, UpdateType, Value};
use parking_lot::Mutex;
use proptest::prelude::*;
use tokio::sync::broadcast;

use super::*;
use crate::{
    KvList, MemoryRaw, MemoryStore, RawStore, RawTxn, RawWrite, Store, Txn, Watch, WatchEvent, Write,
};

mod dedupe;

/// A store in memory whose lists and watches fail on demand.
struct Faulty {
    store: MemoryStore,
    list: Mutex<VecDeque<StoreError>>,
    watch: Mutex<VecDeque<StoreError>>,
    /// Ends running watches: with an error, or by closing.
    break_off: broadcast::Sender<Option<StoreError>>,
    lists: Mutex<usize>,
}

impl Faulty {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            store: Store::new(MemoryRaw::new()),
            list: Mutex::default(),
            watch: Mutex::default(),
            break_off: broadcast::Sender::new(100),
            lists: Mutex::default(),
        })
    }

    fn break_watches(&self, error: Option<StoreError>) {
        // Nobody may be watching.
        let _ = self.break_off.send(error);
    }

    async fn put_bytes(&self, path: &str, bytes: &[u8]) {
        let write = RawWrite::Put { path: path.into(), value: bytes.into(), ttl: None };
        self.store.raw().commit(RawTxn { writes: vec![write], ..RawTxn::default() }).await.unwrap();
    }

    async fn compact(&self) {
        let revision = self.store.list(&tiers(), None).await.unwrap().revision;
        self.store.raw().compact(revision.as_u64().unwrap()).await.unwrap();
    }
}

#[async_trait]
impl Backend for Faulty {
    fn description(&self) -> String {
        "faulty".into()
    }

    async fn create(&self, kv: KvPair) -> Result<KvPair, StoreError> {
        self.store.create(kv).await
    }

    async fn update(&self, kv: KvPair) -> Result<KvPair, StoreError> {
        self.store.update(kv).await
    }

    async fn apply(&self, kv: KvPair) -> Result<KvPair, StoreError> {
        self.store.apply(kv).await
    }

    async fn delete(&self, key: &Key, revision: Option<&Revision>) -> Result<KvPair, StoreError> {
        self.store.delete(key, revision).await
    }

    async fn delete_recursive(&self, key: &Key) -> Result<Vec<KvPair>, StoreError> {
        self.store.delete_recursive(key).await
    }

    async fn get(&self, key: &Key, revision: Option<&Revision>) -> Result<KvPair, StoreError> {
        self.store.get(key, revision).await
    }

    async fn list(&self, options: &ListOptions, revision: Option<&Revision>) -> Result<KvList, StoreError> {
        *self.lists.lock() += 1;
        let fault = self.list.lock().pop_front();
        match fault {
            Some(error) => Err(error),
            None => self.store.list(options, revision).await,
        }
    }

    async fn watch(&self, options: &ListOptions, revision: Option<&Revision>) -> Result<Watch, StoreError> {
        let fault = self.watch.lock().pop_front();
        if let Some(error) = fault {
            return Err(error);
        }
        let mut inner = self.store.watch(options, revision).await?;
        let mut break_off = self.break_off.subscribe();
        let (events, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    Ok(fault) = break_off.recv() => {
                        if let Some(error) = fault {
                            let _ = events.send(WatchEvent::Error(error)).await;
                        }
                        return;
                    }
                    event = inner.next() => {
                        let Some(event) = event else { return };
                        if events.send(event).await.is_err() {
                            return;
                        }
                    }
                }
            }
        });
        Ok(Watch::new(receiver, None))
    }

    async fn ensure_initialized(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn clean(&self) -> Result<(), StoreError> {
        self.store.clean().await
    }

    async fn close(&self) {
        self.store.close().await;
    }
}

/// Writes down what a syncer says and checks what always has to hold.
#[derive(Clone, Default)]
struct Recorder {
    shared: Arc<Recorded>,
}

#[derive(Default)]
struct Recorded {
    log: Mutex<Vec<String>>,
    mirror: Mutex<BTreeMap<Key, KvPair>>,
    status: Mutex<Option<SyncStatus>>,
    changed: tokio::sync::Notify,
}

impl Recorder {
    fn note(&self, line: String) {
        self.shared.log.lock().push(line);
        self.shared.changed.notify_one();
    }

    /// Waits until `line` was said, and returns everything up to it.
    async fn until(&self, line: &str) -> Vec<String> {
        let wait = async {
            loop {
                {
                    let mut log = self.shared.log.lock();
                    if let Some(place) = log.iter().position(|l| l == line) {
                        return log.drain(..=place).collect();
                    }
                }
                self.shared.changed.notified().await;
            }
        };
        match tokio::time::timeout(Duration::from_secs(3600), wait).await {
            Ok(lines) => lines,
            Err(_) => panic!("{line:?} does not come, but {:?}", self.shared.log.lock()),
        }
    }
}

impl SyncerCallbacks for Recorder {
    fn on_status(&mut self, status: SyncStatus) {
        let before = self.shared.status.lock().replace(status);
        assert_ne!(before, Some(status), "a status came twice");
        assert!(before.is_some() || status == SyncStatus::WaitForDatastore, "{status}");
        self.note(status.to_string());
    }

    fn on_updates(&mut self, updates: Vec<Update>) {
        let status = *self.shared.status.lock();
        assert!(!matches!(status, None | Some(SyncStatus::WaitForDatastore)), "updates while {status:?}");
        assert!(!updates.is_empty());
        for Update { kv, kind } in updates {
            let mut mirror = self.shared.mirror.lock();
            let before = match kv.value {
                Some(_) => mirror.insert(kv.key.clone(), kv.clone()),
                None => mirror.remove(&kv.key),
            };
            drop(mirror);
            let wanted = match (before, &kv.value) {
                (None, Some(_)) => UpdateType::New,
                (Some(_), Some(_)) => UpdateType::Updated,
                (Some(_), None) => UpdateType::Deleted,
                (None, None) => panic!("deletion of unknown {}", kv.key),
            };
            assert_eq!(kind, wanted, "{}", kv.key);
            let sign = match kind {
                UpdateType::New => '+',
                UpdateType::Updated => '~',
                _ => '-',
            };
            self.note(format!("{sign}{}", kv.key));
        }
    }

    fn parse_failed(&mut self, failure: ParseFailure) {
        self.note(format!("bad {}", failure.path));
    }

    fn sync_failed(&mut self, _: &StoreError) {
        self.note("failed".into());
    }
}

fn tiers() -> ListOptions {
    ListOptions::kind(Kind::Tier)
}

fn tier(name: &str, order: f64) -> KvPair {
    let mut tier = Tier::default();
    tier.metadata.name = name.into();
    tier.spec.order = Some(order);
    KvPair::new(Key::resource(Kind::Tier, "", name), Value::resource(tier))
}

fn pool(name: &str, ipip: EncapMode) -> KvPair {
    let mut pool = IPPool::default();
    pool.metadata.name = name.into();
    pool.spec.cidr = "10.0.0.0/16".into();
    pool.spec.ipip_mode = ipip;
    KvPair::new(Key::resource(Kind::IPPool, "", name), Value::resource(pool))
}

fn away() -> StoreError {
    StoreError::Unreachable { store: "faulty".into(), reason: "told so".into() }
}

fn compacted() -> StoreError {
    StoreError::Compacted { revision: "1".into() }
}

fn start(backend: &Arc<Faulty>, sources: Vec<ResourceSource>) -> (Recorder, RunningSyncer) {
    let recorder = Recorder::default();
    let backend: Arc<dyn Backend> = Arc::clone(backend) as Arc<dyn Backend>;
    (recorder.clone(), Syncer::new(backend, sources, recorder).start())
}

fn raw_tiers() -> Vec<ResourceSource> {
    vec![ResourceSource::raw(tiers())]
}

#[tokio::test(start_paused = true)]
async fn everything_listed_comes_before_in_sync() {
    let backend = Faulty::new();
    backend.apply(tier("a", 1.0)).await.unwrap();
    backend.apply(tier("b", 1.0)).await.unwrap();
    let mut sources = raw_tiers();
    sources.push(ResourceSource::raw(ListOptions::Handles));
    let (recorder, _syncer) = start(&backend, sources);
    assert_eq!(
        recorder.until("in-sync").await,
        ["wait-for-ready", "resync", "+Tier(a)", "+Tier(b)", "in-sync"]
    );
    backend.apply(tier("a", 2.0)).await.unwrap();
    backend.delete(&tier("b", 1.0).key, None).await.unwrap();
    backend.apply(tier("b", 1.0)).await.unwrap();
    assert_eq!(recorder.until("+Tier(b)").await, ["~Tier(a)", "-Tier(b)", "+Tier(b)"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_to_follow_is_in_sync() {
    let (recorder, _syncer) = start(&Faulty::new(), Vec::new());
    assert_eq!(recorder.until("in-sync").await, ["wait-for-ready", "in-sync"]);
    let (recorder, _syncer) = start(&Faulty::new(), raw_tiers());
    assert_eq!(recorder.until("in-sync").await, ["wait-for-ready", "resync", "in-sync"]);
}

#[tokio::test(start_paused = true)]
async fn compaction_lists_again_at_once_and_tells_only_the_difference() {
    let backend = Faulty::new();
    for name in ["a", "b", "c"] {
        backend.apply(tier(name, 1.0)).await.unwrap();
    }
    let (recorder, _syncer) = start(&backend, raw_tiers());
    recorder.until("in-sync").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Changes behind the back of a watch that ends by being too old.
    backend.watch.lock().push_back(compacted());
    backend.break_watches(None);
    backend.store.apply(tier("a", 2.0)).await.unwrap();
    backend.store.delete(&tier("b", 1.0).key, None).await.unwrap();
    backend.store.apply(tier("d", 1.0)).await.unwrap();
    let before = tokio::time::Instant::now();
    let lines = recorder.until("in-sync").await;
    assert_eq!(lines, ["resync", "~Tier(a)", "+Tier(d)", "-Tier(b)", "in-sync"]);
    assert!(before.elapsed() < Duration::from_secs(1), "{:?}", before.elapsed());
    let before = tokio::time::Instant::now();
    tokio::time::sleep(Duration::from_secs(1)).await;
    backend.break_watches(Some(compacted()));
    assert_eq!(recorder.until("in-sync").await, ["resync", "in-sync"]);
    assert!(before.elapsed() < Duration::from_millis(1100), "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn lost_watches_go_on_and_after_some_failures_list() {
    let backend = Faulty::new();
    let (recorder, _syncer) = start(&backend, raw_tiers());
    recorder.until("in-sync").await;
    backend.apply(tier("a", 1.0)).await.unwrap();
    recorder.until("+Tier(a)").await;
    let lists = *backend.lists.lock();
    for n in 0..3 {
        backend.break_watches((n == 1).then(away));
        backend.apply(tier("a", f64::from(n) + 2.0)).await.unwrap();
        assert_eq!(recorder.until("~Tier(a)").await, ["~Tier(a)"]);
    }
    assert_eq!(*backend.lists.lock(), lists);
    backend.watch.lock().extend(vec![away(); 5]);
    backend.break_watches(Some(away()));
    assert_eq!(recorder.until("in-sync").await, ["resync", "in-sync"]);
    assert_eq!(*backend.lists.lock(), lists + 1);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_waited_for() {
    let backend = Faulty::new();
    backend.apply(tier("a", 1.0)).await.unwrap();
    backend.list.lock().extend(vec![away(); 2]);
    let (recorder, _syncer) = start(&backend, raw_tiers());
    let lines = recorder.until("in-sync").await;
    assert_eq!(lines, ["wait-for-ready", "failed", "failed", "resync", "+Tier(a)", "in-sync"]);
    // For a while nobody is told.
    backend.watch.lock().extend(vec![away(); 5]);
    backend.list.lock().extend(vec![away(); 700]);
    backend.break_watches(Some(away()));
    let before = tokio::time::Instant::now();
    assert_eq!(recorder.until("failed").await, ["resync", "wait-for-ready", "failed"]);
    assert!((595..610).contains(&before.elapsed().as_secs()), "{:?}", before.elapsed());
    backend.delete(&tier("a", 1.0).key, None).await.unwrap();
    let lines = recorder.until("in-sync").await;
    assert_eq!(lines[lines.len() - 3..], ["resync", "-Tier(a)", "in-sync"]);
}

#[tokio::test(start_paused = true)]
async fn entries_that_cannot_be_read_are_not_there() {
    let backend = Faulty::new();
    backend.apply(tier("a", 1.0)).await.unwrap();
    let path = tier("a", 1.0).key.to_path();
    let other = tier("new", 1.0).key.to_path();
    let (recorder, _syncer) = start(&backend, raw_tiers());
    recorder.until("in-sync").await;
    backend.put_bytes(&path, b"{").await;
    backend.put_bytes(&other, b"{").await;
    backend.apply(tier("a", 2.0)).await.unwrap();
    backend.put_bytes(&path, b"{").await;
    backend.delete(&tier("a", 1.0).key, None).await.unwrap();
    backend.apply(tier("new", 2.0)).await.unwrap();
    let bad = format!("bad {path}");
    let lines = recorder.until("+Tier(new)").await;
    assert_eq!(
        lines,
        ["-Tier(a)", &bad, &format!("bad {other}"), "+Tier(a)", "-Tier(a)", &bad, "+Tier(new)"]
    );
    backend.put_bytes(&other, b"{").await;
    recorder.until(&format!("bad {other}")).await;
    backend.break_watches(Some(compacted()));
    assert_eq!(recorder.until("in-sync").await, ["resync", "in-sync"]);
}

#[tokio::test(start_paused = true)]
async fn objects_of_one_meaning_and_one_revision() {
    let backend = Faulty::new();
    let source =
        ResourceSource { list: ListOptions::kind(Kind::IPPool), processor: processor_for(Kind::IPPool) };
    let (recorder, _syncer) = start(&backend, vec![source]);
    recorder.until("in-sync").await;
    let (first, second) = (pool("first", EncapMode::Always), pool("second", EncapMode::Never));
    let writes = vec![Write::Put(first.clone()), Write::Put(second)];
    let transactions = backend.store.transactions().unwrap();
    transactions.commit(Txn { conditions: Vec::new(), writes }).await.unwrap();
    let key = "IPPool(cidr=10.0.0.0/16)";
    recorder.until(&format!("+{key}")).await;
    let mode = || match recorder.shared.mirror.lock().values().next().map(|kv| kv.value.clone()) {
        Some(Some(Value::IpPool(pool))) => pool.ipip,
        other => panic!("{other:?}"),
    };
    let before = mode();
    backend.delete(&first.key, None).await.unwrap();
    recorder.until(&format!("~{key}")).await;
    assert_ne!(mode(), before);
    backend.delete(&pool("second", EncapMode::Never).key, None).await.unwrap();
    recorder.until(&format!("-{key}")).await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_watched_is_listed_now_and_then() {
    let backend = Faulty::new();
    let unsupported =
        StoreError::NotSupported { operation: "watch".into(), id: "Tier".into(), reason: String::new() };
    backend.watch.lock().extend(vec![unsupported; 3]);
    let (recorder, _syncer) = start(&backend, raw_tiers());
    recorder.until("in-sync").await;
    backend.apply(tier("a", 1.0)).await.unwrap();
    let before = tokio::time::Instant::now();
    // The status stays as it is.
    assert_eq!(recorder.until("+Tier(a)").await, ["+Tier(a)"]);
    assert!(before.elapsed() <= Duration::from_secs(5), "{:?}", before.elapsed());
    backend.apply(tier("b", 1.0)).await.unwrap();
    assert_eq!(recorder.until("+Tier(b)").await, ["+Tier(b)"]);
}

#[tokio::test(start_paused = true)]
async fn stopping_takes_everything_back() {
    let backend = Faulty::new();
    backend.apply(tier("b", 1.0)).await.unwrap();
    backend.apply(tier("a", 1.0)).await.unwrap();
    let (recorder, syncer) = start(&backend, raw_tiers());
    recorder.until("in-sync").await;
    syncer.stop().await;
    assert_eq!(*recorder.shared.log.lock(), ["-Tier(a)", "-Tier(b)"]);
    // Also before anything came.
    backend.list.lock().extend(vec![away(); 100]);
    let (recorder, syncer) = start(&backend, raw_tiers());
    recorder.until("wait-for-ready").await;
    syncer.stop().await;
    // Dropped, it says nothing more.
    backend.list.lock().clear();
    let (recorder, syncer) = start(&backend, raw_tiers());
    recorder.until("in-sync").await;
    drop(syncer);
    backend.apply(tier("c", 1.0)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(recorder.shared.log.lock().is_empty());
}

#[test]
fn felix_follows_what_it_understands() {
    let sources = felix_sources(false);
    let with_model = |kind| {
        let list = ListOptions::kind(kind);
        sources.iter().any(|source| source.list == list && source.processor.is_some())
    };
    for kind in
        [Kind::Node, Kind::IPPool, Kind::WorkloadEndpoint, Kind::NetworkPolicy, Kind::Tier, Kind::Profile]
    {
        assert!(with_model(kind), "{kind}");
    }
    let blocks = |sources: &[ResourceSource]| {
        sources.iter().any(|source| source.list == ListOptions::Blocks { version: None })
    };
    assert!(blocks(&sources) && !blocks(&felix_sources(true)));
}

/// Something that happens to a store or to its watchers.
#[derive(Debug, Clone)]
enum Happening {
    Put(u8, u8),
    Delete(u8),
    Bad(u8),
    BreakWatches(bool),
    Compact,
    FailLists(u8),
    FailWatches(u8),
    Wait(u16),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        6 => (0..6u8, any::<u8>()).prop_map(|(name, order)| Happening::Put(name, order)),
        3 => (0..6u8).prop_map(Happening::Delete),
        1 => (0..6u8).prop_map(Happening::Bad),
        1 => any::<bool>().prop_map(Happening::BreakWatches),
        1 => Just(Happening::Compact),
        1 => (1..4u8).prop_map(Happening::FailLists),
        1 => (1..7u8).prop_map(Happening::FailWatches),
        2 => (0..1500u16).prop_map(Happening::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_happens_the_receiver_ends_up_knowing_the_store(
        before in proptest::collection::vec(happening(), 0..10),
        after in proptest::collection::vec(happening(), 0..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let backend = Faulty::new();
            let name = |n: &u8| format!("t{n}");
            let act = async |happening: &Happening| match happening {
                Happening::Put(n, order) => drop(backend.apply(tier(&name(n), f64::from(*order))).await.unwrap()),
                Happening::Delete(n) => drop(backend.delete(&tier(&name(n), 0.0).key, None).await),
                Happening::Bad(n) => backend.put_bytes(&tier(&name(n), 0.0).key.to_path(), b"{").await,
                Happening::BreakWatches(closed) => backend.break_watches((!closed).then(away)),
                Happening::Compact => backend.compact().await,
                Happening::FailLists(n) => backend.list.lock().extend(vec![away(); usize::from(*n)]),
                Happening::FailWatches(n) => backend.watch.lock().extend(vec![away(); usize::from(*n)]),
                Happening::Wait(ms) => tokio::time::sleep(Duration::from_millis(u64::from(*ms))).await,
            };
            for happening in &before {
                act(happening).await;
            }
            let (recorder, _syncer) = start(&backend, raw_tiers());
            for happening in &after {
                act(happening).await;
            }
            backend.apply(tier("end", 0.0)).await.unwrap();
            recorder.until("+Tier(end)").await;
            if *recorder.shared.status.lock() != Some(SyncStatus::InSync) {
                recorder.until("in-sync").await;
            }
            let stored = backend.store.list(&tiers(), None).await.unwrap().items;
            let known: Vec<KvPair> = recorder.shared.mirror.lock().values().cloned().collect();
            assert_eq!(known, stored);
        });
    }
}
