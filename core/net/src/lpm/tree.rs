//! One family's path-compressed binary trie, in an arena of nodes with 32-bit indexes.
//!
//! Invariants: a child's prefix extends its parent's and is longer; a node without a value has two
//! children (else it is spliced out); keys are masked to their length.

use super::Bits;

/// "No node".
const NIL: u32 = u32::MAX;

#[derive(Clone)]
struct Node<K, T> {
    key: K,
    len: u8,
    /// By the bit that follows the prefix. On the free list `child[0]` is the next free node.
    child: [u32; 2],
    value: Option<T>,
}

/// Where the index of a node is kept: the root, or a side of another node.
#[derive(Clone, Copy)]
enum Link {
    Root,
    Child(u32, usize),
}

/// What a search for a prefix ends at.
enum Spot {
    /// The node of exactly that prefix, which may have no value.
    Exact(u32),
    /// No node; the prefix belongs into this link, above the node that is there.
    Above(Link, u32),
    /// No node; the prefix belongs into this empty link.
    Empty(Link),
    /// No node; the prefix and the node at this link part after so many bits.
    Beside(Link, u32, u8),
}

#[derive(Clone)]
pub(super) struct Tree<K, T> {
    nodes: Vec<Node<K, T>>,
    root: u32,
    free: u32,
    len: usize,
}

impl<K: Bits, T> Tree<K, T> {
    pub(super) fn new() -> Self {
        Self { nodes: Vec::new(), root: NIL, free: NIL, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn insert(&mut self, key: K, len: u8, value: T) -> Option<T> {
        let at = self.make_node(key.mask(len), len);
        let old = self.nodes[at as usize].value.replace(value);
        self.len += usize::from(old.is_none());
        old
    }

    pub(super) fn get_or_insert_with(&mut self, key: K, len: u8, make: impl FnOnce() -> T) -> &mut T {
        let key = key.mask(len);
        if let Some(at) = self.find(key, len)
            && self.nodes[at as usize].value.is_some()
        {
            return self.nodes[at as usize].value.get_or_insert_with(make);
        }
        // Made before the node: a panic in `make` must not leave a node without value and children behind.
        let value = make();
        let at = self.make_node(key, len);
        self.len += 1;
        self.nodes[at as usize].value.insert(value)
    }

    pub(super) fn get(&self, key: K, len: u8) -> Option<&T> {
        self.nodes[self.find(key.mask(len), len)? as usize].value.as_ref()
    }

    pub(super) fn get_mut(&mut self, key: K, len: u8) -> Option<&mut T> {
        let at = self.find(key.mask(len), len)?;
        self.nodes[at as usize].value.as_mut()
    }

    pub(super) fn remove(&mut self, key: K, len: u8) -> Option<T> {
        let key = key.mask(len);
        let (mut above, mut link, mut at) = (Link::Root, Link::Root, self.root);
        loop {
            let node = self.nodes.get(at as usize)?;
            if node.len >= len || !self.covers(at, key, len) {
                break;
            }
            let side = key.bit(node.len);
            (above, link, at) = (link, Link::Child(at, side), node.child[side]);
        }
        let node = &mut self.nodes[at as usize];
        if node.len != len || node.key != key {
            return None;
        }
        let old = node.value.take()?;
        self.len -= 1;
        self.splice_if_needless(link, at);
        if let Link::Child(parent, _) = link {
            self.splice_if_needless(above, parent);
        }
        Some(old)
    }

    pub(super) fn longest_cover(&self, key: K, len: u8) -> Option<(K, u8, &T)> {
        self.covering(key, len).last()
    }

    pub(super) fn covering(&self, key: K, len: u8) -> Covering<'_, K, T> {
        Covering { tree: self, at: self.root, key: key.mask(len), len }
    }

    /// Entries inside the prefix in order; with `closest`, strictly inside and without those below another.
    pub(super) fn within(&self, key: K, len: u8, closest: bool) -> Within<'_, K, T> {
        let key = key.mask(len);
        let mut at = self.root;
        while let Some(node) = self.nodes.get(at as usize)
            && node.len < len
        {
            at = if self.covers(at, key, len) { node.child[key.bit(node.len)] } else { NIL };
        }
        if self.nodes.get(at as usize).is_some_and(|n| n.key.common(key) < len) {
            at = NIL;
        }
        Within { tree: self, at, stack: Vec::new(), closest: closest.then_some(len) }
    }

    /// True if node `at`, which exists, covers the prefix.
    fn covers(&self, at: u32, key: K, len: u8) -> bool {
        let node = &self.nodes[at as usize];
        node.len <= len && node.key.common(key) >= node.len
    }

    fn find(&self, key: K, len: u8) -> Option<u32> {
        match self.search(key, len) {
            Spot::Exact(at) => Some(at),
            _ => None,
        }
    }

    fn search(&self, key: K, len: u8) -> Spot {
        let (mut link, mut at) = (Link::Root, self.root);
        loop {
            let Some(node) = self.nodes.get(at as usize) else {
                return Spot::Empty(link);
            };
            let common = node.key.common(key).min(node.len).min(len);
            if common < node.len {
                return if common == len { Spot::Above(link, at) } else { Spot::Beside(link, at, common) };
            }
            if node.len == len {
                return Spot::Exact(at);
            }
            let side = key.bit(node.len);
            (link, at) = (Link::Child(at, side), node.child[side]);
        }
    }

    /// The node of the prefix, made if absent; a made one has no value yet.
    fn make_node(&mut self, key: K, len: u8) -> u32 {
        match self.search(key, len) {
            Spot::Exact(at) => at,
            Spot::Empty(link) => {
                let at = self.alloc(key, len, [NIL; 2]);
                self.set(link, at);
                at
            }
            Spot::Above(link, below) => {
                let mut child = [NIL; 2];
                child[self.nodes[below as usize].key.bit(len)] = below;
                let at = self.alloc(key, len, child);
                self.set(link, at);
                at
            }
            Spot::Beside(link, other, common) => {
                let at = self.alloc(key, len, [NIL; 2]);
                let child = if key.bit(common) == 0 { [at, other] } else { [other, at] };
                let branch = self.alloc(key.mask(common), common, child);
                self.set(link, branch);
                at
            }
        }
    }

    fn alloc(&mut self, key: K, len: u8, child: [u32; 2]) -> u32 {
        let node = Node { key, len, child, value: None };
        match self.nodes.get_mut(self.free as usize) {
            Some(slot) => {
                let at = self.free;
                self.free = slot.child[0];
                *slot = node;
                at
            }
            None => {
                let at =
                    u32::try_from(self.nodes.len()).expect("fewer than 2^32 prefixes are stored at once");
                self.nodes.push(node);
                at
            }
        }
    }

    fn set(&mut self, link: Link, to: u32) {
        match link {
            Link::Root => self.root = to,
            Link::Child(parent, side) => self.nodes[parent as usize].child[side] = to,
        }
    }

    /// Takes node `at` out, if it has neither a value nor two children, and links its only child instead.
    fn splice_if_needless(&mut self, link: Link, at: u32) {
        let node = &self.nodes[at as usize];
        let only = match node.child {
            [only, NIL] | [NIL, only] if node.value.is_none() => only,
            _ => return,
        };
        self.set(link, only);
        self.nodes[at as usize].child = [self.free, NIL];
        self.free = at;
        if self.root == NIL {
            *self = Self::new();
        }
    }

    /// Nodes in use, and nodes that break an invariant.
    #[cfg(test)]
    pub(super) fn audit(&self) -> (usize, usize) {
        let (mut used, mut bad, mut stack) = (0, 0, vec![self.root]);
        while let Some(at) = stack.pop() {
            let Some(node) = self.nodes.get(at as usize) else { continue };
            used += 1;
            bad += usize::from(node.value.is_none() && node.child.contains(&NIL));
            bad += usize::from(node.key != node.key.mask(node.len));
            for side in [0, 1] {
                if let Some(below) = self.nodes.get(node.child[side] as usize) {
                    let ok = below.len > node.len
                        && below.key.common(node.key) >= node.len
                        && below.key.bit(node.len) == side;
                    bad += usize::from(!ok);
                    stack.push(node.child[side]);
                }
            }
        }
        (used, bad)
    }
}

/// Entries on the way from the root to a prefix.
pub(super) struct Covering<'a, K, T> {
    tree: &'a Tree<K, T>,
    at: u32,
    key: K,
    len: u8,
}

impl<'a, K: Bits, T> Iterator for Covering<'a, K, T> {
    type Item = (K, u8, &'a T);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let node = self.tree.nodes.get(self.at as usize)?;
            if !self.tree.covers(self.at, self.key, self.len) {
                self.at = NIL;
                return None;
            }
            self.at = if node.len < self.len { node.child[self.key.bit(node.len)] } else { NIL };
            if let Some(value) = &node.value {
                return Some((node.key, node.len, value));
            }
        }
    }
}

/// Entries of a subtree in order.
pub(super) struct Within<'a, K, T> {
    tree: &'a Tree<K, T>,
    at: u32,
    stack: Vec<u32>,
    /// Only entries longer than this, and none below another entry.
    closest: Option<u8>,
}

impl<'a, K: Bits, T> Iterator for Within<'a, K, T> {
    type Item = (K, u8, &'a T);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let node = match self.tree.nodes.get(self.at as usize) {
                Some(node) => node,
                None => {
                    self.at = self.stack.pop()?;
                    continue;
                }
            };
            let hit = node.value.as_ref().filter(|_| self.closest.is_none_or(|len| node.len > len));
            if hit.is_some() && self.closest.is_some() {
                self.at = NIL;
            } else {
                self.at = node.child[0];
                if node.child[1] != NIL {
                    self.stack.push(node.child[1]);
                }
            }
            if let Some(value) = hit {
                return Some((node.key, node.len, value));
            }
        }
    }
}
