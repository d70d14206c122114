//! A store in memory with the semantics of the real ones: revisions, conditional writes, transactions.

use std::collections::BTreeMap;

use calico_ipam::{Answers, Fault, Plan};
use calico_model::{Key, KvPair, ListOptions, Revision};

#[derive(Default, Clone)]
pub struct Store {
    pub entries: BTreeMap<Key, KvPair>,
    revision: u64,
}

impl Store {
    pub fn get(&self, key: &Key) -> Option<KvPair> {
        self.entries.get(key).cloned()
    }

    pub fn list(&self, list: &ListOptions) -> Vec<KvPair> {
        self.entries.values().filter(|kv| belongs(list, &kv.key)).cloned().collect()
    }

    pub fn read(&self, set: &calico_ipam::ReadSet) -> Answers {
        Answers {
            keys: set.keys.iter().map(|k| Ok(self.get(k))).collect(),
            lists: set.lists.iter().map(|l| Ok(self.list(l))).collect(),
        }
    }

    pub fn create(&mut self, kv: KvPair) -> Result<KvPair, Fault> {
        if self.entries.contains_key(&kv.key) {
            return Err(Fault::Exists);
        }
        Ok(self.put(kv))
    }

    pub fn update(&mut self, kv: KvPair) -> Result<KvPair, Fault> {
        self.expect(&kv)?;
        Ok(self.put(kv))
    }

    pub fn delete(&mut self, kv: &KvPair) -> Result<KvPair, Fault> {
        self.expect(kv)?;
        self.revision += 1;
        self.entries.remove(&kv.key).ok_or(Fault::Missing)
    }

    pub fn commit(&mut self, plan: Plan) -> Result<Revision, Fault> {
        let written: Vec<&Key> = plan.writes.iter().map(|(key, _)| key).collect();
        let mut unique = written.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(written.len(), unique.len(), "a plan writes a key twice");
        for key in &written {
            assert!(plan.conditions.iter().any(|(k, _)| k == *key), "a write without condition: {key:?}");
        }
        let holds = |(key, wanted): &(Key, Option<Revision>)| {
            self.entries.get(key).map(|kv| &kv.revision) == wanted.as_ref()
        };
        if !plan.conditions.iter().all(holds) {
            return Err(Fault::Conflict);
        }
        self.revision += 1;
        let revision = Revision::from(self.revision);
        for (key, value) in plan.writes {
            match value {
                Some(kv) => drop(self.entries.insert(key, kv.at(revision.clone()))),
                None => drop(self.entries.remove(&key)),
            }
        }
        Ok(revision)
    }

    fn expect(&self, kv: &KvPair) -> Result<(), Fault> {
        match self.entries.get(&kv.key) {
            None => Err(Fault::Missing),
            Some(stored) if stored.revision != kv.revision => Err(Fault::Conflict),
            Some(_) => Ok(()),
        }
    }

    fn put(&mut self, kv: KvPair) -> KvPair {
        self.revision += 1;
        let kv = kv.at(Revision::from(self.revision));
        self.entries.insert(kv.key.clone(), kv.clone());
        kv
    }
}

fn belongs(list: &ListOptions, key: &Key) -> bool {
    match (list, key) {
        (ListOptions::Resource { kind, .. }, Key::Resource(r)) => r.kind == *kind,
        (ListOptions::Blocks { version }, Key::Block(c)) => version.is_none_or(|v| v == c.version()),
        (
            ListOptions::BlockAffinities { affinity, owner, version },
            Key::BlockAffinity { affinity: a, owner: o, cidr },
        ) => {
            a == affinity
                && owner.as_ref().is_none_or(|wanted| wanted == o)
                && version.is_none_or(|v| v == cidr.version())
        }
        (ListOptions::Handles, Key::IpamHandle(_)) => true,
        _ => false,
    }
}
