use std::fs;

use tempfile::TempDir;

use super::*;

fn directory(files: &[(&str, &[u8])]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    directory
}

fn open(files: &[(&str, &[u8])], vocabulary: usize) -> Result<Text, DataError> {
    Text::open(directory(files).path().to_str().unwrap(), 1, vocabulary)
}

const TRAIN: (&str, &[u8]) = ("x.train.txt", b" the cat saw the dog \n the dog saw the <unk>\r\n\n");
const VALID: (&str, &[u8]) = ("x.valid.txt", b"the bird saw\n");

#[test]
fn words_are_numbered_by_how_often_they_occur() {
    let text = open(&[TRAIN, VALID], 100).unwrap();
    // the, then <eos>, dog and saw twice each, by their bytes; then <unk> and cat.
    assert_eq!(text.counts, [4, 2, 2, 2, 1, 1]);
    assert_eq!(text.train, [1, 0, 5, 3, 0, 2, 1, 0, 2, 3, 0, 4, 1]);
    assert_eq!(text.valid, [1, 0, 4, 3, 1]);
    assert_eq!((text.samples(), text.cases(), text.vocabulary()), (12, 4, 6));
    let files: Vec<(&str, u64)> = text.files.iter().map(|file| (&*file.name, file.bytes)).collect();
    assert_eq!(files, [("x.train.txt", 47), ("x.valid.txt", 13)]);
    // With room for three words, the rest is unknown.
    let text = open(&[TRAIN, VALID], 3).unwrap();
    assert_eq!(text.counts, [6, 4, 2]);
    assert_eq!(text.train, [2, 1, 0, 0, 1, 0, 2, 1, 0, 0, 1, 0, 2]);
}

#[test]
fn the_one_billion_word_benchmark_is_read() {
    let path = |name: &str| format!("{TRAINING}/news.en-000{name}-of-00100");
    let held_out = |name: &str| format!("{HELD_OUT}/news.en.heldout-000{name}-of-00050");
    const TRAINING: &str = "training-monolingual.tokenized.shuffled";
    const HELD_OUT: &str = "heldout-monolingual.tokenized.shuffled";
    let (first, second) = (path("01"), path("02"));
    let (test, valid) = (held_out("00"), held_out("07"));
    let files: [(&str, &[u8]); 5] = [
        (&second, b"b a a\n"),
        (&first, b"a b b c\n"),
        (&test, b"c\n"),
        (&valid, b"a\nb\n"),
        ("training-monolingual.tokenized.shuffled/notes", b"z z z z\n"),
    ];
    // c occurs once only.
    let text = open(&files, 100).unwrap();
    assert_eq!(text.counts, [3, 3, 2, 1]);
    assert_eq!(text.train, [2, 0, 1, 1, 3, 2, 1, 0, 0, 2]);
    assert_eq!(text.valid, [2, 0, 2, 1, 2]);
    assert_eq!(open(&files[..3], 100).unwrap().valid, [2, 3, 2]);
    assert!(matches!(open(&files[..2], 100), Err(DataError::Missing { .. })));
}

#[test]
fn errors_name_the_place() {
    let error = |files: &[(&str, &[u8])]| open(files, 100).unwrap_err().to_string();
    let bad: (&str, &[u8]) = ("x.train.txt", b"good\nb\xffd\n");
    let message = error(&[bad, VALID]);
    assert!(message.contains("x.train.txt line 2: expected words in UTF-8"), "{message}");
    let message = error(&[TRAIN, ("x.valid.txt", b"a\n\nb\0\n")]);
    assert!(message.contains("x.valid.txt line 3: expected words in UTF-8"), "{message}");
    let message = error(&[TRAIN]);
    assert!(message.contains("no file `*.valid.txt`"), "{message}");
    let message = error(&[TRAIN, ("x.valid.txt", b"\n")]);
    assert!(message.ends_with("x.valid.txt holds no rows"), "{message}");
    let message = error(&[("x.train.txt", b" \n"), VALID]);
    assert!(message.ends_with("x.train.txt holds no rows"), "{message}");
    let message = error(&[VALID]);
    assert!(message.contains("holds no text that Libra can read"), "{message}");
    let message = error(&[TRAIN, ("y.train.txt", b"a"), VALID]);
    assert!(message.contains("more than one file"), "{message}");
    assert!(matches!(Text::open("/no/such/place", 1, 9), Err(DataError::Missing { .. })));
}

#[test]
fn a_text_put_together_by_hand_is_checked() {
    let (train, valid) = (vec![0, 1, 0], vec![0, 1]);
    let good = Text { name: "x".into(), counts: vec![2, 1], train, valid, files: Vec::new() };
    good.check().unwrap();
    let error = |text: Text| text.check().unwrap_err();
    let short = error(Text { train: vec![0], ..good.clone() });
    assert!(matches!(short, DataError::NoWords { which: "training", .. }), "{short}");
    let short = error(Text { valid: Vec::new(), ..good.clone() });
    assert!(matches!(short, DataError::NoWords { which: "validation", .. }), "{short}");
    let beyond = error(Text { valid: vec![0, 2], ..good });
    assert!(matches!(beyond, DataError::OutOfRange { id: 2, limit: 2, .. }), "{beyond}");
}

#[test]
fn the_synthetic_text_has_frequent_words_and_followers() {
    let recipe = Synthetic { sentences: 2000, ..Synthetic::default() };
    let text = recipe.generate(1 << 20);
    text.check().unwrap();
    assert_eq!(text, recipe.generate(1 << 20));
    assert_ne!(text, Synthetic { seed: 2, ..recipe.clone() }.generate(1 << 20));
    assert_eq!((text.samples(), text.cases()), (2000 * 20, 200 * 20));
    assert!(text.counts.is_sorted_by(|a, b| a >= b) && text.counts[1] > 50 * text.counts[500]);
    assert_eq!(text.counts.iter().sum::<u64>(), 2000 * 20);
    assert_eq!(recipe.generate(10).vocabulary(), 10);
    Synthetic { vocabulary: 0, sentences: 0, length: 0, topics: 0, ..recipe }.generate(0).check().unwrap();
}
