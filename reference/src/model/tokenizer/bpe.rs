//! Byte-pair merging of one piece of text.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    hash::{BuildHasherDefault, Hasher},
};

/// Hashes eight bytes a step by a multiplication, folded so that low bits depend on all bits. Tables are read
/// three times a merge while loading and about twice a byte of text; their keys come from the model's file.
#[derive(Default)]
pub(super) struct FoldHasher(u64);

impl Hasher for FoldHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, key: u64) {
        // 2^64 divided by the golden ratio.
        let product = u128::from(self.0.rotate_left(32) ^ key) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        let (chunks, rest) = bytes.as_chunks::<8>();
        chunks.iter().for_each(|chunk| self.write_u64(u64::from_le_bytes(*chunk)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.write_u64(u64::from_le_bytes(last));
    }
}

/// A hash table for keys of the model's file.
pub(super) type Table<K, V> = HashMap<K, V, BuildHasherDefault<FoldHasher>>;

/// What a pair of neighbouring tokens becomes.
#[derive(Clone, Copy)]
pub(super) struct Merge {
    /// Lower ranks merge first.
    pub(super) rank: u32,
    /// The token that the pair becomes.
    pub(super) id: u32,
}

/// The merges by pair; see [`pair`].
pub(super) type Merges = Table<u64, Merge>;

/// The key of the pair `left`, `right` in [`Merges`].
pub(super) fn pair(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

/// A byte-level BPE model.
pub(super) struct Bpe {
    /// The token of each single byte.
    pub(super) byte_ids: [u32; 256],
    pub(super) merges: Merges,
    /// With `ignore_merges`: a piece that is itself a token becomes it without any merging.
    pub(super) whole_pieces: Option<Table<Vec<u8>, u32>>,
}

/// A token of the piece being merged, linked to its neighbours.
struct Symbol {
    id: u32,
    prev: usize,
    next: usize,
    /// Merged into its left neighbour.
    gone: bool,
}

/// Past either end of the piece.
const END: usize = usize::MAX;

/// The buffers of [`Bpe::encode`], kept from piece to piece.
#[derive(Default)]
pub(super) struct Scratch {
    symbols: Vec<Symbol>,
    /// (rank, index of the left symbol): the lowest rank first, then the leftmost.
    heap: BinaryHeap<Reverse<(u32, usize)>>,
}

impl Bpe {
    /// Appends the tokens of `piece`: starting from single bytes, the pair with the lowest rank (the leftmost
    /// of several) is merged until no pair has a merge.
    ///
    /// A heap holds every candidate, so a piece of n bytes costs O(n log n), whatever it holds.
    pub(super) fn encode(&self, piece: &[u8], scratch: &mut Scratch, out: &mut Vec<u32>) {
        if let Some(&id) = self.whole_pieces.as_ref().and_then(|whole| whole.get(piece)) {
            out.push(id);
            return;
        }
        let Scratch { symbols, heap } = scratch;
        symbols.clear();
        symbols.extend(piece.iter().enumerate().map(|(i, &byte)| Symbol {
            id: self.byte_ids[byte as usize],
            prev: i.checked_sub(1).unwrap_or(END),
            next: if i + 1 < piece.len() { i + 1 } else { END },
            gone: false,
        }));
        for i in 1..symbols.len() {
            self.push(symbols, heap, i - 1, i);
        }
        while let Some(Reverse((rank, left))) = heap.pop() {
            // An entry is stale when a neighbour's merge has changed or removed the pair since it was pushed.
            if symbols[left].gone || symbols[left].next == END {
                continue;
            }
            let right = symbols[left].next;
            let Some(merge) = self.merges.get(&pair(symbols[left].id, symbols[right].id)) else { continue };
            if merge.rank != rank {
                continue;
            }
            let (prev, next) = (symbols[left].prev, symbols[right].next);
            symbols[left].id = merge.id;
            symbols[left].next = next;
            symbols[right].gone = true;
            if prev != END {
                self.push(symbols, heap, prev, left);
            }
            if next != END {
                symbols[next].prev = left;
                self.push(symbols, heap, left, next);
            }
        }
        out.extend(symbols.iter().filter(|symbol| !symbol.gone).map(|symbol| symbol.id));
    }

    /// Pushes the pair of the symbols `left` and `right` if it has a merge.
    fn push(
        &self,
        symbols: &[Symbol],
        heap: &mut BinaryHeap<Reverse<(u32, usize)>>,
        left: usize,
        right: usize,
    ) {
        if let Some(merge) = self.merges.get(&pair(symbols[left].id, symbols[right].id)) {
            heap.push(Reverse((merge.rank, left)));
        }
    }
}
