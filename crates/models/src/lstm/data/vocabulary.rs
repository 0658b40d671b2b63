//! The vocabulary: words by their frequency.

use std::collections::HashMap;

use foldhash::fast::FixedState;

/// The end of a sentence.
pub(super) const END: &str = "<eos>";

/// Every word that is not in the vocabulary.
pub(super) const UNKNOWN: &str = "<unk>";

/// Counts words.
#[derive(Debug, Default)]
pub(super) struct Census {
    counts: HashMap<Box<str>, u64, FixedState>,
}

impl Census {
    /// Counts the words of a sentence, and its end.
    pub(super) fn add<'a>(&mut self, sentence: impl Iterator<Item = &'a str>) {
        for word in sentence.chain([END]) {
            match self.counts.get_mut(word) {
                Some(count) => *count += 1,
                None => {
                    self.counts.insert(word.into(), 1);
                }
            }
        }
    }

    /// The `limit` most frequent words that occur at least `occurrences_min` times; the end of a sentence and the unknown word are
    /// among them always, and all that is left out counts as the latter.
    pub(super) fn finish(mut self, limit: usize, occurrences_min: u64) -> Vocabulary {
        let end = self.counts.remove(END).unwrap_or(0);
        let mut unknown = self.counts.remove(UNKNOWN).unwrap_or(0);
        let mut words: Vec<(Box<str>, u64)> = self.counts.into_iter().collect();
        by_count(&mut words);
        let enough = words.partition_point(|(_, count)| *count >= occurrences_min);
        let left_out = words.drain(enough.min(limit.saturating_sub(2))..);
        unknown += left_out.map(|(_, count)| count).sum::<u64>();
        words.push((END.into(), end));
        words.push((UNKNOWN.into(), unknown));
        by_count(&mut words);
        let counts = words.iter().map(|(_, count)| *count).collect();
        let ids: HashMap<_, _, _> = words.into_iter().map(|(word, _)| word).zip(0..).collect();
        Vocabulary { end: ids[END], unknown: ids[UNKNOWN], ids, counts }
    }
}

fn by_count(words: &mut [(Box<str>, u64)]) {
    words.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
}

/// The number of each word.
pub(super) struct Vocabulary {
    ids: HashMap<Box<str>, u32, FixedState>,
    /// By number.
    pub(super) counts: Vec<u64>,
    end: u32,
    unknown: u32,
}

impl Vocabulary {
    /// An empty text: the end of a sentence that was before.
    pub(super) fn start(&self) -> Vec<u32> {
        vec![self.end]
    }

    /// Adds a sentence to a text.
    pub(super) fn append<'a>(&self, text: &mut Vec<u32>, sentence: impl Iterator<Item = &'a str>) {
        text.extend(sentence.map(|word| self.ids.get(word).copied().unwrap_or(self.unknown)));
        text.push(self.end);
    }
}
