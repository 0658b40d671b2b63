use std::{collections::HashSet, fs};

use tempfile::TempDir;

use super::*;

fn directory(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

fn open(files: &[(&str, &str)]) -> Result<Dataset, DataError> {
    Dataset::open(directory(files).path().to_str().unwrap(), 1)
}

const PAIRS: (&str, &str) = ("ncf.train.pairs.tsv", "0\t0\n0\t2\n1\t1\n");
const RATING: (&str, &str) = ("x.test.rating", "0\t3\t5\t978824351\n1\t0\t4\t978300174\n");
const NEGATIVE: (&str, &str) = ("x.test.negative", "(0,3)\t1\t4\n(1,0)\t3\t2\n");

#[test]
fn the_split_of_the_paper_is_read() {
    let dataset = open(&[PAIRS, RATING, NEGATIVE]).unwrap();
    assert_eq!((dataset.users, dataset.items), (2, 5));
    assert_eq!(dataset.train, [(0, 0), (0, 2), (1, 1)]);
    let first = TestCase { user: 0, item: 3, negatives: vec![1, 4] };
    assert_eq!(dataset.test, [first, TestCase { user: 1, item: 0, negatives: vec![3, 2] }]);
    assert_eq!(dataset.popularity(), [1.0, 1.0, 1.0, 0.0, 0.0]);
    let files: Vec<(&str, u64)> = dataset.files.iter().map(|file| (&*file.name, file.bytes)).collect();
    assert_eq!(files, [(PAIRS.0, 12), (RATING.0, 32), (NEGATIVE.0, 20)]);
    dataset.check().unwrap();

    // As upstream publishes it, and with the line ends of another system.
    let upstream = ("x.train.rating", "0\t0\t5\t978824268\r\n0\t2\t3\t1\r\n1\t1\t3\t1\r\n\r\n");
    assert_eq!(open(&[upstream, RATING, NEGATIVE]).unwrap().train, dataset.train);
}

#[test]
fn movielens_100k_is_read_and_split() {
    // User 1: the latest is item 2, and of the two at second 30 the later in the file. User 2 has one item only.
    let text = "1\t1\t5\t30\n1\t3\t3\t10\n1\t2\t3\t30\n2\t5\t1\t99\n3\t4\t1\t5\n3\t1\t1\t4\n";
    let files = [("u.data", text)];
    let dataset = open(&files).unwrap();
    assert_eq!((dataset.users, dataset.items), (3, 5));
    assert_eq!(dataset.train, [(0, 0), (0, 2), (1, 4), (2, 0)]);
    let tested: Vec<(u32, u32)> = dataset.test.iter().map(|case| (case.user, case.item)).collect();
    assert_eq!(tested, [(0, 1), (2, 3)]);
    // Only two items were never touched by user 1; both become negatives.
    let negatives: HashSet<u32> = dataset.test[0].negatives.iter().copied().collect();
    assert_eq!(negatives, HashSet::from([3, 4]));
    assert_eq!(open(&files).unwrap().test, dataset.test);
    let directory = directory(&files);
    let file = directory.path().join("u.data");
    assert_eq!(
        Dataset::open(file.to_str().unwrap(), 1).unwrap(),
        Dataset::open(directory.path().to_str().unwrap(), 1).unwrap()
    );
}

#[test]
fn a_pair_rated_twice_is_not_trained_on_when_it_is_tested() {
    let dataset =
        open(&[("u.data", "1\t1\t5\t1\n1\t2\t5\t2\n1\t1\t5\t3\n2\t3\t1\t1\n2\t1\t1\t2\n")]).unwrap();
    assert_eq!((dataset.test[0].item, &dataset.train[..]), (0, &[(0, 1), (1, 2)][..]));
}

#[test]
fn synthetic_data_match_the_recipe() {
    let recipe = Synthetic { users: 80, items: 200, picks_min: 8, ..Synthetic::default() };
    let dataset = recipe.generate();
    dataset.check().unwrap();
    assert_eq!(dataset, recipe.generate());
    assert_ne!(dataset, Synthetic { seed: 2, ..recipe.clone() }.generate());
    assert_eq!((dataset.users, dataset.items, dataset.test.len()), (80, 200, 80));
    let pairs: HashSet<(u32, u32)> = dataset.train.iter().copied().collect();
    assert_eq!(pairs.len(), dataset.train.len());
    for case in &dataset.test {
        assert!(!pairs.contains(&(case.user, case.item)));
        let distinct: HashSet<u32> = case.negatives.iter().copied().collect();
        assert_eq!(distinct.len(), TEST_NEGATIVES);
        assert!(!distinct.contains(&case.item));
        assert!(case.negatives.iter().all(|&item| !pairs.contains(&(case.user, item))));
    }
    let mut popularity = dataset.popularity();
    popularity.sort_by(f32::total_cmp);
    let top: f32 = popularity.iter().rev().take(20).sum();
    assert!(top > 0.25 * dataset.train.len() as f32, "a tenth of the items takes much more than a tenth");

    // Recipes that make no sense make a small data set, and no panic.
    for (users, items, picks_min, tastes) in [(0, 0, 0, 0), (1, 3, 100, 1), (2, 4, u32::MAX, 0)] {
        let odd = Synthetic { users, items, picks_min, tastes, strength: f32::NAN, ..Synthetic::default() };
        odd.generate().check().unwrap();
    }
}

fn message(files: &[(&str, &str)]) -> String {
    let directory = directory(files);
    let path = directory.path().to_str().unwrap();
    let error = Dataset::open(path, 1).unwrap_err().to_string();
    error.replace(path, "DIR")
}

#[test]
fn missing_files_are_named() {
    let error = Dataset::open("/nowhere/at/all", 1).unwrap_err();
    assert!(matches!(error, DataError::Missing { .. }));
    assert!(error.to_string().contains("/nowhere/at/all"));
    let accepted = message(&[("README", "")]);
    assert!(
        ["DIR", "*.train.pairs.tsv", "*.test.negative", "u.data"].iter().all(|name| accepted.contains(name))
    );
    assert_eq!(message(&[PAIRS, RATING]), "DIR has a training file but no file `*.test.negative`");
    assert_eq!(message(&[PAIRS, NEGATIVE]), "DIR has a training file but no file `*.test.rating`");
    assert_eq!(
        message(&[PAIRS, RATING, NEGATIVE, ("y.test.rating", "")]),
        "DIR holds more than one file `*.test.rating` (x.test.rating, y.test.rating): keep one data set in a directory"
    );
}

#[test]
fn malformed_lines_are_named() {
    let train = |text: &str| message(&[("a.train.rating", text), RATING, NEGATIVE]);
    let four = "expected `user<tab>item`, optionally followed by `<tab>rating<tab>timestamp`";
    assert_eq!(train("0\t1\n0\n"), format!("DIR/a.train.rating line 2: {four}, found \"0\""));
    assert_eq!(train("0\t1\t5\n"), format!("DIR/a.train.rating line 1: {four}, found \"0\\t1\\t5\""));
    assert_eq!(
        train("\n0\tone\n"),
        "DIR/a.train.rating line 2: expected an item id, a whole number from 0, found \"one\""
    );
    assert_eq!(
        train("-1\t0\n"),
        "DIR/a.train.rating line 1: expected a user id, a whole number from 0, found \"-1\""
    );
    assert_eq!(
        train("0\t67108864\n"),
        "DIR/a.train.rating line 1: the id 67108864 is too large, ids go up to 67108863"
    );
    assert_eq!(train("\n"), "DIR/a.train.rating holds no rows");
    let long = "x".repeat(100);
    assert!(train(&long).ends_with(&format!("found \"{}…\"", "x".repeat(60))));

    let test = |text: &str| message(&[PAIRS, ("x.test.rating", text), NEGATIVE]);
    assert!(
        test("0\t3\n").contains("x.test.rating line 1: expected `user<tab>item<tab>rating<tab>timestamp`")
    );
    assert!(test("").contains("x.test.rating holds no rows"));

    let data = |text: &str| message(&[("u.data", text)]);
    assert!(data("1\t1\t1\n").contains("u.data line 1: expected `user<tab>item<tab>rating<tab>timestamp`"));
    assert!(data("1\t1\t1\t1\n0\t1\t1\t1\n").contains("line 2: expected a user id, a whole number from 1"));
    assert!(data("1\t1\t1\tnoon\n").contains("expected a timestamp in whole seconds, found \"noon\""));
    assert!(data("").contains("u.data holds no rows"));
    assert!(data("1\t1\t1\t1\n").contains("has no test case"));
}

#[test]
fn test_files_that_disagree_are_named() {
    let negative = |text: &str| message(&[PAIRS, RATING, ("x.test.negative", text)]);
    let other = "line 2 of DIR/x.test.rating has (1,0)";
    assert_eq!(
        negative("(0,3)\t1\n(1,4)\t2\n"),
        format!("DIR/x.test.negative line 2: the pair is (1,4), but {other}")
    );
    assert_eq!(
        negative("(0,3)\t1\n"),
        format!("DIR/x.test.negative line 2: the pair is missing: the file ends before, but {other}")
    );
    assert!(negative("(0,3)\t1\n(1,0)\t2\n(2,0)\t1\n").contains("line 3: the pair is (2,0)"));
    let expected = "expected `(user,item)<tab>negative<tab>negative…` with at least one negative";
    for head in ["(0,3)", "(0,3\t1", "0,3)\t1", "(0,3,4)\t1", "(03)\t1"] {
        let error = negative(&format!("{head}\n"));
        assert!(error.contains(expected), "{head}: {error}");
    }
    assert!(
        negative("(0,3)\t1\tx\n").contains("line 1: expected an item id, a whole number from 0, found \"x\"")
    );
}

#[test]
fn no_bytes_make_a_panic() {
    use proptest::prelude::*;
    let pieces = prop::sample::select(vec![
        "0",
        "1",
        "3",
        "(0,3)",
        "(",
        ")",
        "\t",
        "\n",
        "\r",
        "-",
        "99999999999",
        "é",
        "\0",
    ]);
    let text = prop::collection::vec(pieces, 0..30).prop_map(|pieces| pieces.concat());
    let kinds = ["x.train.rating", "x.test.rating", "x.test.negative", "u.data"];
    proptest!(ProptestConfig::with_cases(64), |(text in text, kind in 0usize..4)| {
        let mut files = vec![(kinds[kind], &text[..])];
        if kind < 3 {
            files.extend([("x.train.rating", PAIRS.1), RATING, NEGATIVE].into_iter().filter(|file| file.0 != kinds[kind]));
        }
        if let Ok(dataset) = open(&files) {
            dataset.check().unwrap();
        }
    });
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("u.data"), b"1\t1\t\xff\t1\n\xfe\t1\t1\t1\n").unwrap();
    let error = Dataset::open(directory.path().to_str().unwrap(), 1).unwrap_err().to_string();
    assert!(error.contains("line 2: expected a user id"), "{error}");
}
