//! Sets as they should be and as they are.

use std::collections::{BTreeMap, BTreeSet};

use calico_dpmsg::Member;
use calico_net::IpVersion;
use calico_rules::nft::SetKey;
use hashbrown::{HashMap, HashSet};
use smol_str::SmolStr;

use crate::delta::DeltaTracker;
use crate::kernel::SeenSet;
use crate::op::Op;
use crate::overlap::{Change, Nets};

/// One set.
#[derive(Debug, Clone)]
pub(crate) struct SetState {
    key: SetKey,
    /// Networks, if its members are networks; decides which of them are programmed.
    nets: Nets,
    /// Programmed members.
    tracker: DeltaTracker<Member, ()>,
    /// It is in the kernel.
    exists: bool,
    /// What it holds is not known, or not all ours, so that it is emptied before it is filled.
    flush: bool,
    /// Members that the kernel refused, with its words.
    refused: HashMap<Member, String>,
    /// The kernel refused the set itself.
    refused_set: Option<String>,
}

impl SetState {
    fn new(key: SetKey) -> Self {
        Self {
            key,
            nets: Nets::default(),
            tracker: DeltaTracker::default(),
            exists: false,
            flush: false,
            refused: HashMap::new(),
            refused_set: None,
        }
    }

    /// The member as this set holds it; none if it is of the other family, an error if it is of no use here.
    fn fit(&self, member: Member, version: IpVersion) -> Result<Option<Member>, Member> {
        if member.version() != version {
            return Ok(None);
        }
        match (self.key, member) {
            (SetKey::Net, Member::Net(net)) => Ok(Some(Member::Net(net.masked()))),
            (SetKey::Addr, Member::Net(net)) if net.is_host() => Ok(Some(member)),
            (SetKey::AddrProtoPort, Member::IpPort { .. }) => Ok(Some(member)),
            _ => Err(member),
        }
    }

    fn add(&mut self, member: Member) {
        let tracker = &mut self.tracker;
        match (self.key, member) {
            (SetKey::Net, Member::Net(net)) => self.nets.insert(net, |c| follow(tracker, c)),
            _ => tracker.set(member, ()),
        }
    }

    fn remove(&mut self, member: &Member) {
        let tracker = &mut self.tracker;
        self.refused.remove(member);
        match (self.key, member) {
            (SetKey::Net, Member::Net(net)) => self.nets.remove(*net, |c| follow(tracker, c)),
            _ => tracker.remove(member),
        }
    }

    fn wanted(&self) -> HashSet<Member> {
        match self.key {
            SetKey::Net => self.nets.all().map(Member::Net).collect(),
            _ => self.tracker.all_desired().map(|(m, ())| *m).collect(),
        }
    }

    /// Members that are to come, those that the kernel refused left out.
    fn coming(&self) -> Vec<Member> {
        let all = self.tracker.updates();
        all.into_iter().map(|(m, ())| *m).filter(|m| !self.refused.contains_key(m)).collect()
    }

    fn is_dirty(&self) -> bool {
        if self.refused.is_empty() {
            return self.flush || !self.tracker.is_clean();
        }
        self.flush || !self.coming().is_empty() || !self.tracker.deletes().is_empty()
    }
}

fn follow(tracker: &mut DeltaTracker<Member, ()>, change: Change) {
    match change {
        Change::Expose(net) => tracker.set(Member::Net(net), ()),
        Change::Hide(net) => tracker.remove(&Member::Net(net)),
    }
}

/// All sets of a table.
#[derive(Debug, Clone)]
pub(crate) struct Sets {
    version: IpVersion,
    sets: BTreeMap<SmolStr, SetState>,
    /// Sets with something to do.
    dirty: BTreeSet<SmolStr>,
    /// Sets in the kernel that nobody wants, with their types as far as known.
    doomed: BTreeMap<SmolStr, Option<SetKey>>,
    /// A set of another type than wanted is in the kernel.
    retyped: bool,
}

/// What one set needs.
#[derive(Debug, Clone)]
pub(crate) struct SetWork {
    pub(crate) set: SmolStr,
    pub(crate) ops: Vec<Op>,
    pub(crate) elements: usize,
}

impl Sets {
    pub(crate) fn new(version: IpVersion) -> Self {
        Self {
            version,
            sets: BTreeMap::new(),
            dirty: BTreeSet::new(),
            doomed: BTreeMap::new(),
            retyped: false,
        }
    }

    /// Makes `name` a set of exactly `members`; returns those that cannot be in it.
    pub(crate) fn replace(
        &mut self,
        name: &SmolStr,
        key: SetKey,
        members: impl IntoIterator<Item = Member>,
    ) -> Vec<Member> {
        if self.sets.get(name).is_some_and(|s| s.key != key) {
            self.remove(name);
        }
        let (doomed, retyped) = (&mut self.doomed, &mut self.retyped);
        let state = self.sets.entry(name.clone()).or_insert_with(|| {
            let mut state = SetState::new(key);
            if let Some(old) = doomed.remove(name) {
                // Its members were forgotten with the old set.
                state.exists = true;
                state.flush = true;
                *retyped |= old != Some(key);
            }
            state
        });
        let mut bad = Vec::new();
        let mut new = HashSet::new();
        for m in members {
            match state.fit(m, self.version) {
                Ok(fitting) => new.extend(fitting),
                Err(m) => bad.push(m),
            }
        }
        let mut old = state.wanted();
        old.retain(|m| !new.contains(m));
        old.iter().for_each(|m| state.remove(m));
        new.into_iter().for_each(|m| state.add(m));
        self.touch(name);
        bad
    }

    /// Takes members out and puts members in; returns those that cannot be in it, or none if there is no such
    /// set.
    pub(crate) fn delta(
        &mut self,
        name: &SmolStr,
        added: &[Member],
        removed: &[Member],
    ) -> Option<Vec<Member>> {
        let version = self.version;
        let state = self.sets.get_mut(name)?;
        for m in removed {
            if let Ok(Some(m)) = state.fit(*m, version) {
                state.remove(&m);
            }
        }
        let mut bad = Vec::new();
        for m in added {
            match state.fit(*m, version) {
                Ok(Some(m)) => state.add(m),
                Ok(None) => {}
                Err(m) => bad.push(m),
            }
        }
        self.touch(name);
        Some(bad)
    }

    pub(crate) fn remove(&mut self, name: &SmolStr) {
        if let Some(s) = self.sets.remove(name).filter(|s| s.exists) {
            self.doomed.insert(name.clone(), Some(s.key));
        }
        self.dirty.remove(name);
    }

    fn touch(&mut self, name: &SmolStr) {
        let dirty = self
            .sets
            .get(name)
            .is_some_and(|s| (!s.exists && s.refused_set.is_none()) || (s.exists && s.is_dirty()));
        if dirty {
            self.dirty.insert(name.clone());
        } else {
            self.dirty.remove(name);
        }
    }

    /// Learns what is there.
    pub(crate) fn saw(&mut self, mut seen: HashMap<SmolStr, SeenSet>) {
        self.retyped = false;
        for (name, state) in &mut self.sets {
            state.refused.clear();
            state.refused_set = None;
            match seen.remove(name) {
                Some(s) => {
                    state.exists = true;
                    state.flush = s.odd;
                    self.retyped |= s.key != Some(state.key);
                    if s.odd {
                        state.tracker.saw_nothing();
                    } else {
                        state.tracker.saw_all(s.members.into_iter().map(|m| (m, ())));
                    }
                }
                None => {
                    state.exists = false;
                    state.flush = false;
                    state.tracker.saw_nothing();
                }
            }
        }
        self.doomed = seen.into_iter().map(|(n, s)| (n, s.key)).collect();
        let names: Vec<SmolStr> = self.sets.keys().cloned().collect();
        names.iter().for_each(|n| self.touch(n));
    }

    /// True if a set of another type than wanted is there, which only a new table mends.
    pub(crate) fn is_retyped(&self) -> bool {
        self.retyped
    }

    /// Number of differences.
    pub(crate) fn differences(&self) -> usize {
        let one = |n: &SmolStr| self.sets.get(n).map_or(0, |s| s.tracker.dirty_len().max(1));
        self.dirty.iter().map(one).sum::<usize>() + self.doomed.len()
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.sets.get(name).is_some_and(|s| s.exists) || self.doomed.contains_key(name)
    }

    /// Sets to be made.
    pub(crate) fn missing(&self) -> Vec<(SmolStr, SetKey)> {
        let one = |n: &SmolStr| {
            let s = self.sets.get(n)?;
            (!s.exists).then(|| (n.clone(), s.key))
        };
        self.dirty.iter().filter_map(one).collect()
    }

    pub(crate) fn made(&mut self, name: &SmolStr) {
        if let Some(s) = self.sets.get_mut(name) {
            s.exists = true;
        }
        self.touch(name);
    }

    pub(crate) fn refuse_set(&mut self, name: &SmolStr, reason: &str) {
        if let Some(s) = self.sets.get_mut(name) {
            s.refused_set = Some(reason.to_owned());
        }
        self.touch(name);
    }

    /// What each set in the kernel needs.
    pub(crate) fn work(&self) -> Vec<SetWork> {
        let one = |n: &SmolStr| self.sets.get(n).filter(|s| s.exists).map(|s| self.work_of(n, s, s.flush));
        self.dirty.iter().filter_map(one).collect()
    }

    /// Changes that empty the set and fill it anew.
    pub(crate) fn rewrite(&self, name: &SmolStr) -> Vec<Op> {
        let Some(state) = self.sets.get(name) else { return Vec::new() };
        let wanted = state.tracker.all_desired().map(|(m, ())| *m);
        let mut members: Vec<Member> = wanted.filter(|m| !state.refused.contains_key(m)).collect();
        members.sort_unstable();
        let mut ops = vec![Op::FlushSet { set: name.clone() }];
        if !members.is_empty() {
            ops.push(Op::AddMembers { set: name.clone(), key: state.key, members });
        }
        ops
    }

    /// Learns that one member's wish was carried out.
    pub(crate) fn done_member(&mut self, name: &SmolStr, member: &Member) {
        if let Some(s) = self.sets.get_mut(name) {
            s.tracker.done(member);
        }
    }

    /// Learns that the set is empty.
    pub(crate) fn emptied(&mut self, name: &SmolStr) {
        if let Some(s) = self.sets.get_mut(name) {
            s.flush = false;
            s.tracker.saw_nothing();
        }
    }

    fn work_of(&self, name: &SmolStr, state: &SetState, flush: bool) -> SetWork {
        let mut ops = Vec::new();
        let mut elements = 0;
        if flush {
            ops.push(Op::FlushSet { set: name.clone() });
        } else {
            let members: Vec<Member> = state.tracker.deletes().into_iter().copied().collect();
            elements += members.len();
            if !members.is_empty() {
                ops.push(Op::DeleteMembers { set: name.clone(), key: state.key, members });
            }
        }
        let members = state.coming();
        elements += members.len();
        if !members.is_empty() {
            ops.push(Op::AddMembers { set: name.clone(), key: state.key, members });
        }
        SetWork { set: name.clone(), ops, elements }
    }

    /// The set's work was carried out.
    pub(crate) fn done(&mut self, name: &SmolStr) {
        if let Some(s) = self.sets.get_mut(name) {
            s.flush = false;
            if s.refused.is_empty() {
                s.tracker.done_all();
            } else {
                let all: Vec<Member> = s.tracker.updates().into_iter().map(|(m, ())| *m).collect();
                let gone: Vec<Member> = s.tracker.deletes().into_iter().copied().collect();
                for m in all.iter().filter(|m| !s.refused.contains_key(*m)).chain(&gone) {
                    s.tracker.done(m);
                }
            }
        }
        self.touch(name);
    }

    pub(crate) fn refuse_member(&mut self, name: &SmolStr, member: Member, reason: &str) {
        if let Some(s) = self.sets.get_mut(name) {
            s.refused.insert(member, reason.to_owned());
        }
        self.touch(name);
    }

    pub(crate) fn doomed(&self) -> Vec<SmolStr> {
        self.doomed.keys().cloned().collect()
    }

    pub(crate) fn deleted(&mut self, name: &SmolStr) {
        self.doomed.remove(name);
    }

    /// What stays undone because the kernel refused it: set, member, reason.
    pub(crate) fn refusals(&self) -> Vec<(SmolStr, Option<Member>, String)> {
        let mut out = Vec::new();
        for (name, s) in &self.sets {
            out.extend(s.refused_set.iter().map(|r| (name.clone(), None, r.clone())));
            let mut members: Vec<_> = s.refused.iter().collect();
            members.sort_unstable_by_key(|(m, _)| **m);
            out.extend(members.into_iter().map(|(m, r)| (name.clone(), Some(*m), r.clone())));
        }
        out
    }

    /// All sets with all programmed members, for a new table.
    pub(crate) fn whole(&self) -> Vec<Op> {
        let mut ops = Vec::new();
        for (name, s) in &self.sets {
            ops.push(Op::AddSet { set: name.clone(), key: s.key });
            let mut members: Vec<Member> = s.tracker.all_desired().map(|(m, ())| *m).collect();
            members.sort_unstable();
            if !members.is_empty() {
                ops.push(Op::AddMembers { set: name.clone(), key: s.key, members });
            }
        }
        ops
    }

    /// The new table holds all that [`Sets::whole`] said.
    pub(crate) fn whole_done(&mut self) {
        self.doomed.clear();
        self.retyped = false;
        let names: Vec<SmolStr> = self.sets.keys().cloned().collect();
        for name in names {
            if let Some(s) = self.sets.get_mut(&name) {
                s.exists = true;
                s.refused.clear();
                s.refused_set = None;
            }
            self.done(&name);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.sets.values().filter(|s| s.exists).count()
    }

    pub(crate) fn members(&self) -> usize {
        self.sets.values().map(|s| s.tracker.actual_len()).sum()
    }
}
