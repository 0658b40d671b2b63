//! Reading vectors.

use std::net::SocketAddrV4;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::{FromStr, SplitWhitespace};

use libra_dataplane::{
    Arithmetic, BODY_KEY_BYTES, BankPackets, BodyKey, Counters, HEADER_BYTES, PathKeys, RegionConfig,
    TAG_KEY_BYTES, TagKey,
};

use crate::key::Key;
use crate::need::Need;
use crate::vector::{
    COUNTERS, Exchange, FlowSeqs, IpVerdict, Line, RegionName, Sender, Slots, Step, VERSION, Vector,
    WorkerName,
};

/// A fault of a vector, and its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {problem}")]
pub struct ReadError {
    /// The name of the file.
    pub file: String,
    /// Counted from 1; 0 if it is not of one line.
    pub line: usize,
    /// The fault.
    pub problem: Problem,
}

/// A fault of a line of a vector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// The first line is not that of a vector of this version.
    #[error("the first line is not `conformance {VERSION}`")]
    Version,
    /// The first word is none that begins a line.
    #[error("no line begins with `{0}`")]
    Line(String),
    /// The line ends too early.
    #[error("the line ends where {0} should be")]
    Ends(&'static str),
    /// Another word should be there.
    #[error("`{found}` where {expected} should be")]
    Word {
        /// The word that should be there.
        expected: &'static str,
        /// The word that is there.
        found: String,
    },
    /// The numbers make no region.
    #[error("{0}")]
    Config(#[from] libra_dataplane::ConfigError),
    /// A line that belongs behind another one is behind something else.
    #[error("it must follow {0}")]
    MustFollow(&'static str),
    /// The lines ask for more, or less, of a target than `needs` declares.
    #[error("the vector needs {needs:?}, and declares {said:?}")]
    Needs {
        /// Needs that its lines show.
        needs: Vec<Need>,
        /// Needs that it declares.
        said: Vec<Need>,
    },
}

/// Returns the folder of the vectors of this project.
#[must_use]
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance")
}

/// All vectors of a folder, the files that end in `.txt`, by name.
///
/// # Errors
/// The first file that cannot be read, or the first line that makes no sense.
pub fn read_folder(folder: &Path) -> Result<Vec<Vector>, ReadError> {
    let unreadable = |path: &Path, error: std::io::Error| ReadError {
        file: path.display().to_string(),
        line: 0,
        problem: Problem::Unreadable(error.to_string()),
    };
    let entries = std::fs::read_dir(folder).map_err(|error| unreadable(folder, error))?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths: Vec<_> = paths.collect::<Result<_, _>>().map_err(|error| unreadable(folder, error))?;
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "txt"));
    paths.sort();
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, error))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Vector::read(&name, &text)
    };
    paths.iter().map(read).collect()
}

impl Vector {
    /// Reads a vector; `file` is its name.
    ///
    /// # Errors
    /// The first line that makes no sense, and why.
    pub fn read(file: &str, text: &str) -> Result<Self, ReadError> {
        let error = |(line, problem)| ReadError { file: file.to_owned(), line, problem };
        let mut reader = Reader::default();
        for (number, line) in (1..).zip(text.lines()) {
            reader.read(number, line).map_err(|problem| error((number, problem)))?;
        }
        reader.finish(file).map_err(error)
    }
}

/// The words of a line that are not yet read.
struct Words<'a>(SplitWhitespace<'a>);

/// A question that waits for the line of its answer.
enum Question {
    Datagram { from: Sender, times: u32, datagram: Vec<u8> },
    Ip(Vec<u8>),
}

/// The part that was read so far.
#[derive(Default)]
struct Reader {
    has_version: bool,
    needs: Vec<Need>,
    lines: Vec<Line>,
    times: Option<u32>,
    /// It was asked in the line of this number.
    question: Option<(usize, Question)>,
}

impl Reader {
    fn read(&mut self, number: usize, line: &str) -> Result<(), Problem> {
        let mut words = Words(line.split_whitespace());
        let Some(first) = words.0.next().filter(|word| !word.starts_with('#')) else { return Ok(()) };
        if !self.has_version {
            let is_ours = first == "conformance" && words.number::<u32>("a version") == Ok(VERSION);
            self.has_version = is_ours;
            return if is_ours { Ok(()) } else { Err(Problem::Version) };
        }
        if self.question.is_some() && first != ">" {
            return Err(Problem::Word { expected: "the answer, `>`,", found: first.to_owned() });
        }
        if self.times.is_some() && first != "<" {
            return Err(Problem::Word { expected: "the datagram, `<`,", found: first.to_owned() });
        }
        let step = match first {
            "needs" => {
                self.needs.push(words.need()?);
                return words.end();
            }
            "times" => {
                self.times = Some(words.number("how many times")?);
                return words.end();
            }
            "<" => {
                let question = words.question(self.times.take())?;
                self.question = Some((number, question));
                return words.end();
            }
            "seen" => {
                let (region, flow) = (words.region()?, words.named("flow")?);
                let seqs = words.range()?;
                match self.lines.last_mut().map(|line| &mut line.step) {
                    Some(Step::Open { config, seen, .. }) if RegionName::of(config) == region => {
                        seen.push(FlowSeqs { flow, seqs });
                    }
                    _ => return Err(Problem::MustFollow("the line of its region")),
                }
                return words.end();
            }
            ">" => {
                let (asked, question) = self.question.take().ok_or(Problem::MustFollow("a datagram, `<`"))?;
                let step = words.answer(question)?;
                self.lines.push(Line { number: asked, step });
                return words.end();
            }
            first => words.step(first)?,
        };
        self.lines.push(Line { number, step });
        words.end()
    }

    fn finish(self, file: &str) -> Result<Vector, (usize, Problem)> {
        let Self { has_version, needs: mut said, lines, times, question } = self;
        if !has_version {
            return Err((1, Problem::Version));
        }
        if question.is_some() || times.is_some() {
            return Err((0, Problem::Ends("an answer, `>`,")));
        }
        said.sort();
        said.dedup();
        let needs = Need::shown_by(lines.iter().map(|line| &line.step));
        if !said.iter().filter(|need| need.is_shown()).eq(&needs) {
            return Err((0, Problem::Needs { needs, said }));
        }
        Ok(Vector { file: file.to_owned(), needs: said, lines })
    }
}

impl<'a> Words<'a> {
    fn next(&mut self, expected: &'static str) -> Result<&'a str, Problem> {
        self.0.next().ok_or(Problem::Ends(expected))
    }

    fn end(&mut self) -> Result<(), Problem> {
        self.0.next().map_or(Ok(()), |word| Err(wrong("the end of the line", word)))
    }

    /// Reads the next word if it is this one, and returns true if so.
    fn is_next(&mut self, word: &str) -> bool {
        let is = self.0.clone().next() == Some(word);
        if is {
            self.0.next();
        }
        is
    }

    /// This very word.
    fn word(&mut self, expected: &'static str) -> Result<(), Problem> {
        let found = self.next(expected)?;
        if found == expected { Ok(()) } else { Err(wrong(expected, found)) }
    }

    fn number<T: FromStr>(&mut self, expected: &'static str) -> Result<T, Problem> {
        let word = self.next(expected)?;
        word.parse().map_err(|_| wrong(expected, word))
    }

    /// A name, and the number behind it.
    fn named<T: FromStr>(&mut self, name: &'static str) -> Result<T, Problem> {
        self.word(name)?;
        self.number(name)
    }

    fn need(&mut self) -> Result<Need, Problem> {
        let word = self.next("a need")?;
        Need::ALL.into_iter().find(|need| need.to_string() == word).ok_or_else(|| wrong("a need", word))
    }

    fn region(&mut self) -> Result<RegionName, Problem> {
        let word = self.next("a region")?;
        let (job, region) = name(word, 'r').ok_or_else(|| wrong("a region", word))?;
        Ok(RegionName { job, region })
    }

    fn worker(&mut self) -> Result<WorkerName, Problem> {
        let word = self.next("a worker")?;
        let (job, worker) = name(word, 'w').ok_or_else(|| wrong("a worker", word))?;
        Ok(WorkerName { job, worker })
    }

    fn yes_or_no(&mut self) -> Result<bool, Problem> {
        match self.next("yes or no")? {
            "yes" => Ok(true),
            "no" => Ok(false),
            word => Err(wrong("yes or no", word)),
        }
    }

    fn range(&mut self) -> Result<Range<u32>, Problem> {
        const EXPECTED: &str = "a range such as 3..7";
        let word = self.next(EXPECTED)?;
        let (start, end) = word.split_once("..").ok_or_else(|| wrong(EXPECTED, word))?;
        match (start.parse(), end.parse()) {
            (Ok(start), Ok(end)) if start < end => Ok(start..end),
            _ => Err(wrong(EXPECTED, word)),
        }
    }

    /// Reads the rest of the line item by item, or nothing for `none`.
    fn list<T>(
        &mut self,
        expected: &'static str,
        read: impl Fn(&mut Self) -> Result<T, Problem>,
    ) -> Result<Vec<T>, Problem> {
        let mut list = Vec::new();
        if self.is_next("none") {
            return Ok(list);
        }
        while self.0.clone().next().is_some() {
            list.push(read(self)?);
        }
        if list.is_empty() { Err(Problem::Ends(expected)) } else { Ok(list) }
    }

    fn slots(&mut self) -> Result<Slots, Problem> {
        const EXPECTED: &str = "slots such as 3:0000002a";
        let slots = self.list(EXPECTED, |words| {
            let word = words.next(EXPECTED)?;
            let (slot, value) = word.split_once(':').ok_or_else(|| wrong(EXPECTED, word))?;
            match (slot.parse::<u32>(), u32::from_str_radix(value, 16)) {
                (Ok(slot), Ok(value)) => Ok((slot, value)),
                _ => Err(wrong(EXPECTED, word)),
            }
        })?;
        Ok(Slots(slots.into_iter().collect()))
    }

    fn counters(&mut self) -> Result<Counters, Problem> {
        const EXPECTED: &str = "a counter";
        let counted = self.list(EXPECTED, |words| {
            let word = words.next(EXPECTED)?;
            let counter = COUNTERS.iter().find(|counter| counter.name == word);
            let counter = counter.ok_or_else(|| wrong(EXPECTED, word))?;
            Ok((counter, words.number::<u64>("a count")?))
        })?;
        let mut counters = Counters::default();
        for (counter, count) in counted {
            *(counter.of)(&mut counters) = count;
        }
        Ok(counters)
    }

    /// The bytes that are left of the line.
    fn hex(&mut self) -> Result<Vec<u8>, Problem> {
        const EXPECTED: &str = "bytes in hexadecimal";
        if self.is_next("empty") {
            return Ok(vec![]);
        }
        let mut digits = String::new();
        for word in &mut self.0 {
            if !word.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(wrong(EXPECTED, word));
            }
            digits += word;
        }
        if digits.is_empty() {
            return Err(Problem::Ends(EXPECTED));
        }
        let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
        if let [odd] = rest {
            return Err(wrong("two digits for each byte", &char::from(*odd).to_string()));
        }
        Ok(pairs.iter().map(byte).collect())
    }

    fn key(&mut self) -> Result<Key, Problem> {
        match self.next("cookie or mac")? {
            "cookie" => Ok(Key::Cookie(u64::from_be_bytes(self.hex_of("16 hexadecimal digits")?))),
            "mac" => {
                self.word("up")?;
                let up = TagKey::from_bytes(self.hex_of::<TAG_KEY_BYTES>("32 hexadecimal digits")?);
                self.word("down")?;
                let down = TagKey::from_bytes(self.hex_of::<TAG_KEY_BYTES>("32 hexadecimal digits")?);
                self.word("body")?;
                let body = BodyKey::from_bytes(&self.hex_of::<BODY_KEY_BYTES>("3104 hexadecimal digits")?);
                Ok(Key::Mac { body: Box::new(body), keys: PathKeys { up, down } })
            }
            word => Err(wrong("cookie or mac", word)),
        }
    }

    /// So many bytes in one word.
    fn hex_of<const BYTES: usize>(&mut self, expected: &'static str) -> Result<[u8; BYTES], Problem> {
        let word = self.next(expected)?;
        let is_hex = word.len() == 2 * BYTES && word.bytes().all(|digit| digit.is_ascii_hexdigit());
        if !is_hex {
            return Err(wrong(expected, word));
        }
        let pairs = word.as_bytes().as_chunks::<2>().0;
        Ok(std::array::from_fn(|at| byte(&pairs[at])))
    }

    fn question(&mut self, times: Option<u32>) -> Result<Question, Problem> {
        if self.is_next("ip") {
            return match times {
                Some(_) => Err(wrong("the sender of a datagram", "ip")),
                None => Ok(Question::Ip(self.hex()?)),
            };
        }
        let from = if self.is_next("agent") {
            Sender::Agent
        } else if self.0.clone().next().is_some_and(|word| word.starts_with('w')) {
            Sender::Worker(self.worker()?)
        } else {
            Sender::Stranger(self.number::<SocketAddrV4>("a sender")?)
        };
        let datagram = self.hex()?;
        if times.is_some() && datagram.len() < HEADER_BYTES {
            return Err(Problem::Ends("a whole header, whose number is to be raised"));
        }
        Ok(Question::Datagram { from, times: times.unwrap_or(1), datagram })
    }

    fn answer(&mut self, question: Question) -> Result<Step, Problem> {
        match question {
            Question::Datagram { from, times, datagram } => {
                let answer = if self.is_next("none") { None } else { Some(self.hex()?) };
                Ok(Step::Exchange(Exchange { from, times, datagram, answer }))
            }
            Question::Ip(packet) => {
                let verdict = if self.is_next("pass") {
                    IpVerdict::Pass
                } else if self.is_next("drop") {
                    IpVerdict::Drop
                } else {
                    IpVerdict::Answer(self.hex()?)
                };
                Ok(Step::Ip { packet, verdict })
            }
        }
    }

    fn step(&mut self, first: &str) -> Result<Step, Problem> {
        Ok(match first {
            "switch" => Step::Switch(self.number("an address")?),
            "worker" => Step::Worker(self.worker()?, self.number("an address")?),
            "key" => Step::Key(self.worker()?, self.key()?),
            "region" => self.open()?,
            "close" => Step::Close(self.region()?),
            "flip" => {
                let region = self.region()?;
                self.word("=")?;
                let closed = if self.is_next("refused") { None } else { Some(self.number("a round")?) };
                Step::Flip(region, closed)
            }
            "drain" => Step::Drain(self.region_is()?, self.slots()?),
            "install" => Step::Install(self.region()?, self.slots()?),
            "values" => Step::Values(self.region_is()?, self.slots()?),
            "durable" => Step::Durable(self.region()?, self.number("a round")?),
            "readable" => Step::Readable(self.region()?, self.yes_or_no()?),
            "active" => Step::Active(self.region()?, self.yes_or_no()?),
            "acked" => {
                let (region, flow) = (self.region()?, self.named("flow")?);
                self.word("=")?;
                Step::Acked(region, flow, self.list("a range such as 3..7", Self::range)?)
            }
            "bank" => {
                let region = self.region_is()?;
                Step::Bank(region, BankPackets { pushes: self.named("pushes")?, last: self.named("last")? })
            }
            "counters" => {
                self.word("=")?;
                Step::Counters(self.counters()?)
            }
            _ => return Err(Problem::Line(first.to_owned())),
        })
    }

    /// A region, and the sign that what it must have follows.
    fn region_is(&mut self) -> Result<RegionName, Problem> {
        let region = self.region()?;
        self.word("=")?;
        Ok(region)
    }

    fn open(&mut self) -> Result<Step, Problem> {
        let RegionName { job, region } = self.region()?;
        let config = RegionConfig {
            job,
            region,
            plan: self.named("plan")?,
            view: self.named("view")?,
            lanes: self.named("lanes")?,
            cells: self.named("cells")?,
            flows: self.named("flows")?,
            bank_packets_max: self.named("bank")?,
            arithmetic: match self.next("fixed, f32 or table")? {
                "fixed" => Arithmetic::Fixed { bound: self.number("a bound")? },
                "f32" => Arithmetic::F32,
                "table" => Arithmetic::Table,
                word => return Err(wrong("fixed, f32 or table", word)),
            },
        };
        config.check()?;
        Ok(Step::Open { config, after: self.named("after")?, seen: vec![] })
    }
}

/// A job and a number behind a letter, such as `r7.0`.
fn name<T: FromStr>(word: &str, letter: char) -> Option<(u16, T)> {
    let (job, number) = word.strip_prefix(letter)?.split_once('.')?;
    Some((job.parse().ok()?, number.parse().ok()?))
}

/// Returns the value of two digits that were checked.
fn byte(pair: &[u8; 2]) -> u8 {
    pair.iter().fold(0, |byte, &digit| byte << 4 | nibble(digit))
}

/// Returns the value of a digit that was checked.
const fn nibble(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

fn wrong(expected: &'static str, found: &str) -> Problem {
    Problem::Word { expected, found: found.to_owned() }
}

#[cfg(test)]
mod tests;
