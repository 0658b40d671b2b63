//! MovieLens 100K: `u.data`, split here by leaving out the latest interaction of each user (He et al. 2017, section 4.1).

use std::path::Path;

use rand::{SeedableRng, rngs::SmallRng};

use super::{Dataset, Interactions, TEST_NEGATIVES, TestCase};
use crate::data::{DataError, TextFile, name_of};

/// The name of the file.
pub(super) const FILE: &str = "u.data";

const LINE: &str = "`user<tab>item<tab>rating<tab>timestamp`";
const USER: &str = "a user id, a whole number from 1";
const ITEM: &str = "an item id, a whole number from 1";
const TIMESTAMP: &str = "a timestamp in whole seconds";

struct Rating {
    user: u32,
    item: u32,
    timestamp: i64,
}

pub(super) fn read(path: &Path, seed: u64) -> Result<Dataset, DataError> {
    let file = TextFile::read(path)?;
    let mut ratings = Vec::new();
    for line in file.lines() {
        let [user, item, _rating, timestamp] = line.exactly(LINE)?;
        let from_one = |field, expected| match line.id(field, expected)?.checked_sub(1) {
            Some(id) => Ok(id),
            None => Err(line.malformed(expected, field)),
        };
        ratings.push(Rating {
            user: from_one(user, USER)?,
            item: from_one(item, ITEM)?,
            timestamp: line.number(timestamp, TIMESTAMP)?,
        });
    }
    if ratings.is_empty() {
        return Err(DataError::Empty { path: path.to_owned() });
    }
    let name =
        path.parent().filter(|parent| !parent.as_os_str().is_empty()).map_or_else(|| name_of(path), name_of);
    let dataset = Dataset { files: vec![file.data_file()], ..leave_one_out(name, &ratings, seed) };
    dataset.check()?;
    Ok(dataset)
}

fn leave_one_out(name: String, ratings: &[Rating], seed: u64) -> Dataset {
    let users = ratings.iter().map(|rating| rating.user + 1).max().unwrap_or(0);
    let items = ratings.iter().map(|rating| rating.item + 1).max().unwrap_or(0);
    // The latest of each user; of two at the same second, the one further down in the file.
    let mut latest: Vec<Option<&Rating>> = vec![None; users as usize];
    for rating in ratings {
        let slot = &mut latest[rating.user as usize];
        if slot.is_none_or(|known| known.timestamp <= rating.timestamp) {
            *slot = Some(rating);
        }
    }
    let pairs = ratings.iter().map(|rating| (rating.user, rating.item));
    let touched = Interactions::new(users, items, pairs.clone());
    let mut random = SmallRng::seed_from_u64(seed ^ 0x5eed_0f7e_57ca_5e50);
    let mut test = Vec::new();
    // What is tested is no training pair, not even when it was rated twice.
    let mut left_out = vec![None; users as usize];
    for rating in latest.into_iter().flatten() {
        // A user with one item only has nothing left to learn from, so it stays in training whole.
        if touched.of(rating.user).len() < 2 {
            continue;
        }
        let negatives = draw_negatives(&touched, rating.user, TEST_NEGATIVES, &mut random);
        if !negatives.is_empty() {
            left_out[rating.user as usize] = Some(rating.item);
            test.push(TestCase { user: rating.user, item: rating.item, negatives });
        }
    }
    let train = pairs.filter(|&(user, item)| left_out[user as usize] != Some(item)).collect();
    Dataset { name, users, items, train, test, files: Vec::new() }
}

/// `count` different items that `user` never touched; all of them when there are fewer.
pub(super) fn draw_negatives(
    touched: &Interactions,
    user: u32,
    count: usize,
    random: &mut SmallRng,
) -> Vec<u32> {
    let untouched = touched.untouched(user) as usize;
    rand::seq::index::sample(random, untouched, count.min(untouched))
        .into_iter()
        .map(|rank| touched.untouched_item(user, u32::try_from(rank).expect("below the number of items")))
        .collect()
}
