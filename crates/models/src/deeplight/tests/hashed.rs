//! Data sets of `libra-data`.

use std::fs;

use libra_client::{Budget, DEFAULT_HEADROOM_BITS, Plan};
use libra_data::{
    Category, ColumnKind, Columns, DataSet, Description, Keys, Make, Options, Output, OutputFormat, Schema,
    Text, Writer,
};
use tempfile::TempDir;

use super::*;
use crate::{HASHED_KEYS, LAYER_KEYS, provenance, shapes};

const FORMATS: [OutputFormat; 4] =
    [OutputFormat::Text, OutputFormat::Gzip, OutputFormat::Zstd, OutputFormat::Parquet];

fn place(directory: &TempDir, name: &str) -> String {
    directory.path().join(name).to_str().unwrap().to_owned()
}

fn make(place: &str, rows: u64, format: OutputFormat, file_rows: u64, group_rows: usize) {
    let output = Output { format, file_rows, group_rows };
    Make { rows, seed: 5, strength: 3.0, ..Make::default() }
        .write(Path::new(place), &output, &mut |_| ())
        .unwrap();
}

fn config() -> TrainConfig {
    let config = super::config();
    let settings = DeepLightConfig { dropout: 0.2, ..settings(&config) };
    TrainConfig { model: ModelConfig::Deeplight(settings), batch: 256, ..config }
}

fn all_rows(place: &str) -> (Schema, Columns) {
    let set = DataSet::open(place, &Options::default()).unwrap();
    let mut columns = set.schema().columns();
    for chunk in set.chunks() {
        let mut reader = set.read(chunk).unwrap();
        while reader.read(1000, &mut columns).unwrap() > 0 {}
    }
    (set.schema().clone(), columns)
}

/// Batches of all chunks of an epoch, and the keys of each.
fn batches(place: &str, epoch: u32, chunks: u32) -> Vec<(Samples, Vec<u64>)> {
    let source = super::super::open(place, settings(&config()).reading(), &config()).unwrap();
    let mut feed = source.feed(1.0, 100, 1).unwrap();
    feed.start_epoch(epoch);
    let mut found = Vec::new();
    for number in 0..chunks {
        feed.start_chunk(Chunk { number, chunks }).unwrap();
        loop {
            let (mut samples, mut keys) = (Samples::default(), Vec::new());
            feed.next_batch(&mut samples, &mut keys).unwrap();
            if samples.len() == 0 {
                break;
            }
            found.push((samples, keys));
        }
    }
    found
}

#[test]
fn all_formats_of_a_set_give_equal_batches() {
    let directory = TempDir::new().unwrap();
    let groups = [1, 130, 1500].map(|rows| (OutputFormat::Parquet, rows));
    let sets = FORMATS.map(|format| (format, 900)).into_iter().chain(groups);
    let found = sets.map(|(format, group_rows)| {
        let place = place(&directory, &format!("{format:?}{group_rows}"));
        make(&place, 1500, format, 600, group_rows);
        batches(&place, 2, 7)
    });
    let found: Vec<_> = found.collect();
    let rows: Vec<usize> = found[0].iter().map(|(samples, _)| samples.len()).collect();
    // Each chunk has 171 rows, or some more or fewer, in two batches of equal size.
    assert_eq!((rows.iter().sum::<usize>(), rows.len()), (1200, 14));
    assert!(rows.iter().all(|rows| (83..=89).contains(rows)), "{rows:?}");
    assert!(found.iter().all(|batches| *batches == found[0]));
}

#[test]
fn a_chunk_that_is_dealt_again_gives_the_same_batches() {
    let directory = TempDir::new().unwrap();
    let place = place(&directory, "set");
    make(&place, 12_000, OutputFormat::Parquet, 5000, 700);
    let workload = open(&config(), &place).unwrap();
    assert_chunks_are_the_same_for_any_worker(&workload);
    let mut parameters = local(&*workload);
    let (whole, _) = train(&mut *workload.clone().training(1.0).unwrap(), &mut parameters, 1);
    let sum = clicks(evaluation_in_parts(&workload, &mut parameters));
    assert_eq!((sum.cases(), sum.auc()), (whole.cases(), whole.auc()));
    assert_eq!(sum.cases(), 2400);
}

/// The rows to train on in another order, those to test on as they are.
fn sorted(from: &str, to: &str, group_rows: usize, key: fn(&Columns, usize) -> f64) {
    let (schema, columns) = all_rows(from);
    let train = columns.rows() * 4 / 5;
    let mut order: Vec<usize> = (0..columns.rows()).collect();
    order[..train].sort_by(|&a, &b| key(&columns, a).total_cmp(&key(&columns, b)));
    let output = Output { group_rows, ..Output::default() };
    let mut writer = Writer::create(Path::new(to), &schema, &output).unwrap();
    let mut rows = schema.columns();
    order.into_iter().for_each(|row| rows.push_row(&columns, row));
    writer.write(&rows).unwrap();
    writer.finish().unwrap();
}

#[test]
fn a_sorted_set_is_learned_as_well_as_a_shuffled_one() {
    let directory = TempDir::new().unwrap();
    let [shuffled, by_label, by_number] = ["shuffled", "label", "number"].map(|name| place(&directory, name));
    make(&shuffled, 30_000, OutputFormat::Parquet, 30_000, 8192);
    sorted(&shuffled, &by_label, 8192, |columns, row| columns.labels[row].into());
    // A number of the rows that decides about clicks, as a time may.
    sorted(&shuffled, &by_number, 8192, |columns, row| columns.numbers[0][row]);
    // The mean of some seeds: AUC varies by 0.001 with the order of training. Read in order, the sorted set loses 0.012.
    let auc = |place: &str| {
        let of_seed = |seed| {
            let small = DeepLightConfig { width: 1, hidden: Vec::new(), ..settings(&config()) };
            let model = ModelConfig::Deeplight(small);
            let adam = Optimizer::Adam { rate: 0.002, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };
            let rules = TrainConfig { embeddings: adam.into(), layers: adam.into(), ..config() };
            let workload = open(&TrainConfig { model, seed, ..rules }, place).unwrap();
            let mut parameters = local(&*workload);
            train(&mut *workload.training(1.0).unwrap(), &mut parameters, 2).0.auc()
        };
        (1..=3).map(of_seed).sum::<f64>() / 3.0
    };
    let [shuffled, by_label, by_number] = [&shuffled, &by_label, &by_number].map(|place| auc(place));
    assert!(shuffled > 0.7, "{shuffled}");
    assert!(by_label > shuffled - 0.003, "{by_label} {shuffled}");
    assert!(by_number > shuffled - 0.003, "{by_number} {shuffled}");
}

#[test]
fn lists_and_weights_are_trained() {
    let directory = TempDir::new().unwrap();
    let place = place(&directory, "set");
    let category = |name: &str| Category { name: name.to_owned(), text: Text::Any };
    let description = Description {
        keys: Keys::Values,
        label: "clicked".to_owned(),
        weight: Some("weight".to_owned()),
        time: None,
        numbers: vec!["price".to_owned()],
        categories: vec![category("user"), category("tags")],
    };
    let schema = Schema {
        description,
        numbers: vec![ColumnKind::Float],
        categories: vec![ColumnKind::Id, ColumnKind::List],
    };
    let mut rows = schema.columns();
    for row in 0..2000u32 {
        let (tag, count) = (row % 5, row % 4);
        rows.labels.push(if tag == 0 && count > 0 { 1.0 } else { 0.0 });
        // Rows that contradict the others have no weight.
        rows.weights.push(if row % 3 == 0 { 0.0 } else { 2.0 });
        if row % 3 == 0 {
            rows.labels[row as usize] = f32::from(u8::from(tag == 1));
        }
        rows.numbers[0].push(if tag == 2 { f64::NAN } else { f64::from(row % 7) / 4.0 });
        let ids = [vec![7], vec![tag.into(); count as usize]];
        for (column, ids) in rows.categories.iter_mut().zip(ids) {
            column.ids.extend(ids);
            column.offsets.push(u32::try_from(column.ids.len()).unwrap());
        }
    }
    let mut writer = Writer::create(Path::new(&place), &schema, &Output::default()).unwrap();
    writer.write(&rows).unwrap();
    writer.finish().unwrap();

    let found = batches(&place, 0, 1);
    let (samples, keys) = &found[0];
    // Five tags and a list without, eight numbers with the one that is missing, one user.
    assert_eq!(keys.len(), 5 + 1 + 8 + 1);
    assert!(keys.iter().all(|key| HASHED_KEYS.contains(key)));
    for sample in 0..samples.len() {
        let fields: Vec<(usize, f32)> =
            samples.fields(sample).map(|(field, _, part)| (field, part)).collect();
        let of_list = fields.len() - 2;
        assert_eq!((fields[0], fields[1]), ((0, 1.0), (1, 1.0)));
        assert!(fields[2..].iter().all(|&of| of == (2, 1.0 / of_list as f32)), "{fields:?}");
    }
    let workload = open(&config(), &place).unwrap();
    let mut parameters = local(&*workload);
    let mut training = workload.training(1.0).unwrap();
    let mut loss = 0.0;
    for epoch in 0..20 {
        loss = training.train_epoch(&mut parameters, epoch, 4, &mut |_| ()).unwrap().loss;
    }
    // What has weight can be told apart; a third of the rows cannot.
    assert!(loss < 0.1, "{loss}");
}

#[test]
fn a_plan_of_hashed_keys_is_a_file_that_fits() {
    let directory = TempDir::new().unwrap();
    let place = place(&directory, "set");
    make(&place, 20_000, OutputFormat::Parquet, 5000, 1000);
    let workload = open(&config(), &place).unwrap();
    let frequencies = profile(&workload, &config(), 0.2, &mut |_| ()).unwrap();
    assert_eq!(frequencies.pushes(), 13, "3,200 rows in batches of 256");
    let provenance = provenance(&*workload, &config(), 0.2, &frequencies);
    let plan = Plan::new(1, provenance, &frequencies, Budget::default(), DEFAULT_HEADROOM_BITS).unwrap();
    assert!(plan.rows.len() > 100 && plan.rows.iter().all(|row| row.key > LAYER_KEYS));
    let read = Plan::from_toml(&plan.to_toml()).unwrap();
    read.fits(&shapes(workload.tables())).unwrap();
    assert_eq!(read, plan);
}

#[test]
fn data_of_libra_data_are_told_from_logs() {
    let directory = TempDir::new().unwrap();
    let is_set = |name: &str| data::is_data_set(&place(&directory, name)).unwrap();
    let files = "log/train.txt log/test.txt one/clicks one/README days/day_0 days/day_1 packed/train.txt.gz \
                 set/a.parquet set/_SUCCESS parts/d=1/a.parquet described/train.txt described/dataset.toml";
    for file in files.split_whitespace() {
        let path = directory.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    for log in ["log", "log/train.txt", "one", "one/clicks", "none"] {
        assert!(!is_set(log), "{log}");
    }
    let sets = "days days/day_1 packed packed/train.txt.gz set set/a.parquet parts described \
                described/train.txt set/*.parquet";
    for set in sets.split_whitespace() {
        assert!(is_set(set), "{set}");
    }
    assert!(["s3://ads/set", "file:///ads"].iter().all(|url| data::is_data_set(url).unwrap()));
    let error = open(&config(), &place(&directory, "set")).err().unwrap().to_string();
    assert!(error.ends_with("a.parquet: holds no rows"), "{error}");
}

#[test]
fn the_last_day_of_a_terabyte_is_tested_on() {
    let directory = TempDir::new().unwrap();
    let [days, fewer] = ["days", "fewer"].map(|name| place(&directory, name));
    make(&days, 24 * 20, OutputFormat::Text, 20, 1);
    make(&fewer, 23 * 20, OutputFormat::Text, 20, 1);
    let size = |place: &str| -> Vec<u64> {
        let size = open(&config(), place).unwrap().size();
        size.into_iter().map(|(count, _)| count).collect()
    };
    assert_eq!(size(&days), [23 * 20, 10, 39, 24]);
    assert_eq!(size(&fewer), [368, 92, 39, 23]);
}

#[test]
fn bad_rows_are_named_as_they_are_by_the_reader() {
    let directory = TempDir::new().unwrap();
    let place = place(&directory, "days");
    make(&place, 200, OutputFormat::Text, 100, 1);
    let workload = open(&config(), &place).unwrap();
    let files: Vec<String> = workload.files().into_iter().map(|file| file.name).collect();
    assert_eq!(files, ["day_0", "day_1"]);
    let path = directory.path().join("days/day_0");
    let text = fs::read_to_string(&path).unwrap();
    let line = text.lines().nth(6).unwrap();
    fs::write(&path, text.replacen(line, &format!("2{}", &line[1..]), 1)).unwrap();
    let train = |workload: Arc<dyn Workload>| {
        let mut parameters = local(&*workload);
        let mut training = workload.training(1.0).unwrap();
        training.train_epoch(&mut parameters, 0, 1, &mut |_| ()).unwrap_err().to_string()
    };
    let error = train(workload);
    assert!(error.contains("day_0: the file has changed since the data set was opened"), "{error}");
    let error = train(open(&config(), &place).unwrap());
    let expected = "day_0, column label, line 7: expected a label, 0 or 1, found \"2\"";
    assert!(error.ends_with(expected), "{error}");
}

#[test]
fn settings_that_need_a_vocabulary_are_refused() {
    let directory = TempDir::new().unwrap();
    let place = place(&directory, "set");
    make(&place, 100, OutputFormat::Parquet, 100, 100);
    let prune = Prune { pairs: 0.5, ..Prune::default() };
    let model = ModelConfig::Deeplight(DeepLightConfig { prune, ..settings(&config()) });
    let error = open(&TrainConfig { model, ..config() }, &place).err().unwrap().to_string();
    assert!(error.starts_with("prune = ") && error.contains("keys of these data are hashes"), "{error}");
}

/// Chunks are as large as reading makes worth it, and each worker has several, whatever the row groups.
#[test]
fn workers_have_several_chunks_of_equal_size() {
    let directory = TempDir::new().unwrap();
    for group_rows in [1, 100, 1000] {
        let place = place(&directory, &group_rows.to_string());
        make(&place, 1000, OutputFormat::Parquet, 1000, group_rows);
        let workload = open(&TrainConfig { batch: 10, ..config() }, &place).unwrap();
        for workers in [1, 7, 64] {
            let Chunks { training, evaluation } = workload.chunks(workers);
            // 80 batches to train on, and 20 to test on.
            let least = |batches| (4 * u32::from(workers)).min(batches);
            assert!((least(80)..=80).contains(&training), "{training} for {workers} workers");
            assert!((least(20)..=20).contains(&evaluation), "{evaluation} for {workers} workers");
        }
    }
}
