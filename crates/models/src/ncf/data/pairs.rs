//! The split of He et al. 2017 (arXiv:1708.05031), in the files of their repository.

use std::path::Path;

use super::{Dataset, TestCase};
use crate::data::{DataError, Directory, Line, TextFile};

const TRAIN_LINE: &str = "`user<tab>item`, optionally followed by `<tab>rating<tab>timestamp`";
const TEST_LINE: &str = "`user<tab>item<tab>rating<tab>timestamp`";
const NEGATIVE_LINE: &str = "`(user,item)<tab>negative<tab>negative…` with at least one negative";
const USER: &str = "a user id, a whole number from 0";
const ITEM: &str = "an item id, a whole number from 0";

pub(super) fn read(directory: &Directory, train: &Path) -> Result<Dataset, DataError> {
    let ratings = TextFile::read(&directory.require("test.rating")?)?;
    let negatives = TextFile::read(&directory.require("test.negative")?)?;
    let pairs = TextFile::read(train)?;
    let train = read_train(&pairs)?;
    let test = read_test(&ratings, &negatives)?;

    let mut users = 0;
    let mut items = 0;
    let tested = test.iter().flat_map(|case| {
        let candidates = case.negatives.iter().chain([&case.item]);
        candidates.map(|&item| (case.user, item))
    });
    for (user, item) in train.iter().copied().chain(tested) {
        users = users.max(user + 1);
        items = items.max(item + 1);
    }
    let files = [pairs, ratings, negatives].iter().map(TextFile::data_file).collect();
    Ok(Dataset { name: directory.name(), users, items, train, test, files })
}

fn read_train(file: &TextFile) -> Result<Vec<(u32, u32)>, DataError> {
    let mut pairs = Vec::new();
    for line in file.lines() {
        let mut fields = line.fields();
        let user = fields.next().unwrap_or_default();
        let item = fields.next().ok_or_else(|| line.malformed(TRAIN_LINE, user))?;
        // Two fields, or the four of the upstream file, whose last two are not needed.
        if !matches!(fields.count(), 0 | 2) {
            return Err(line.malformed(TRAIN_LINE, line.bytes()));
        }
        pairs.push((line.id(user, USER)?, line.id(item, ITEM)?));
    }
    if pairs.is_empty() {
        return Err(DataError::Empty { path: file.path().to_owned() });
    }
    Ok(pairs)
}

fn read_test(ratings: &TextFile, negatives: &TextFile) -> Result<Vec<TestCase>, DataError> {
    let mut cases = Vec::new();
    let mut negative_lines = negatives.lines();
    for line in ratings.lines() {
        let [user, item, _rating, _timestamp] = line.exactly(TEST_LINE)?;
        let pair = (line.id(user, USER)?, line.id(item, ITEM)?);
        let disagreement = |line_number, found| DataError::Disagreement {
            path: negatives.path().to_owned(),
            other: ratings.path().to_owned(),
            line: line_number,
            expected: format!("({},{})", pair.0, pair.1),
            found,
        };
        let Some(negative_line) = negative_lines.next() else {
            return Err(disagreement(line.number, "missing: the file ends before".to_owned()));
        };
        let case = read_case(negative_line)?;
        if (case.user, case.item) != pair || negative_line.number != line.number {
            return Err(disagreement(negative_line.number, format!("({},{})", case.user, case.item)));
        }
        cases.push(case);
    }
    if cases.is_empty() {
        return Err(DataError::Empty { path: ratings.path().to_owned() });
    }
    if let Some(line) = negative_lines.next() {
        return Err(DataError::Disagreement {
            path: negatives.path().to_owned(),
            other: ratings.path().to_owned(),
            line: line.number,
            expected: "nothing: the file ends before".to_owned(),
            found: String::from_utf8_lossy(line.fields().next().unwrap_or_default()).into_owned(),
        });
    }
    Ok(cases)
}

fn read_case(line: Line<'_>) -> Result<TestCase, DataError> {
    let mut fields = line.fields();
    let head = fields.next().unwrap_or_default();
    let pair = head.strip_prefix(b"(").and_then(|rest| rest.strip_suffix(b")"));
    let mut parts = pair.ok_or_else(|| line.malformed(NEGATIVE_LINE, head))?.split(|&byte| byte == b',');
    let (Some(user), Some(item), None) = (parts.next(), parts.next(), parts.next()) else {
        return Err(line.malformed(NEGATIVE_LINE, head));
    };
    let negatives = fields.map(|field| line.id(field, ITEM)).collect::<Result<Vec<u32>, _>>()?;
    if negatives.is_empty() {
        return Err(line.malformed(NEGATIVE_LINE, head));
    }
    Ok(TestCase { user: line.id(user, USER)?, item: line.id(item.trim_ascii(), ITEM)?, negatives })
}
