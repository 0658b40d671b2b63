//! Rules by which gradients change rows, as a person types them: `--optimizer adam:beta1=0.8 --schedule cosine:steps=9000`.

mod growth;

use std::str::FromStr;

use clap::Args;
use growth::{parse_admission, parse_eviction};
use libra_store::{
    Admission, Clip, Decay, Eviction, Optimizer, OutOfRange, RowLifecycle, Schedule, UpdateRule,
};

const HEADING: &str = "How gradients change rows";

/// Rules by which gradients change the rows of embeddings, and those of layers.
#[derive(Args, Debug, Clone)]
pub struct RuleArguments {
    /// sgd, momentum, adagrad, rowwise-adagrad, adam, adamw, ftrl or rmsprop; with numbers as in `adam:lr=0.001,beta1=0.8`
    ///
    /// The numbers are those of the formula; those that are not given have the usual values:
    /// sgd (lr), momentum (lr, momentum, nesterov), adagrad and rowwise-adagrad (lr, epsilon), adam and adamw (lr, beta1,
    /// beta2, epsilon), ftrl (alpha, beta, l1, l2), rmsprop (lr, decay, epsilon). The usual rates of embeddings, and of layers:
    /// sgd as many as a batch has samples, and 0.5; momentum a twentieth of that, and 0.05; both the same of adagrad (0.05),
    /// rowwise-adagrad (0.2), adam and adamw (0.002), ftrl (0.05) and rmsprop (0.005). If a rate is given, that of the layers
    /// changes as much. The default suits the model: adam for gmf, mlp and neumf.
    #[arg(long, value_name = "NAME[:FIELD=N,..]", help_heading = HEADING)]
    optimizer: Option<OptimizerChoice>,
    /// Schedule of the rate: constant, step, exponential, linear, cosine or inverse-root, as in `cosine:steps=9000,warmup=100`
    ///
    /// step and exponential take every=N and factor=F; linear and cosine take steps=N and floor=F, which may be left out (0); all
    /// take warmup=N, steps over which the rate rises to its full value. A step is a push, or the sum of a round of a switch, that
    /// touches rows of the table at a server: N pushes of all workers together are at most N steps. ftrl takes no schedule.
    #[arg(long, value_name = "NAME[:FIELD=N,..]", help_heading = HEADING, value_parser = parse_schedule)]
    schedule: Option<Schedule>,
    /// So many times a row is added to its gradient; adamw makes the row smaller by itself
    #[arg(long, value_name = "F", help_heading = HEADING, value_parser = parse_decay)]
    weight_decay: Option<f32>,
    /// Limits gradients: none, value:LIMIT (each value of a row) or norm:LIMIT (the norm of a row)
    #[arg(long, value_name = "KIND:LIMIT", help_heading = HEADING, value_parser = parse_clip)]
    clip: Option<Clip>,
    /// Admission of a row of a user or item: occurrences:N[,keys=K] (its N-th gradient) or probability:P; any gradient if not given
    ///
    /// Other gradients are dropped, and rows read as their first values until then. Of keys without a row, K are counted at once (1000000),
    /// 5.3 bytes each at every server.
    #[arg(long, value_name = "KIND:N[,FIELD=N]", help_heading = HEADING, value_parser = parse_admission)]
    admission: Option<Admission>,
    /// Eviction of rows of users and items: idle:STEPS, least-used:ROWS[,half_life=STEPS] or lowest-norm:ROWS; none if not given
    ///
    /// idle: those without a gradient in so many steps (see --schedule). The others keep about ROWS users, and as many items, at every server: least-used those with the most
    /// gradients, of which after half_life (10000) steps one counts half; lowest-norm those that are farthest from zero. A row that
    /// went reads as its first value, and a gradient makes it again.
    #[arg(long, value_name = "KIND:N[,FIELD=N]", help_heading = HEADING, value_parser = parse_eviction)]
    eviction: Option<Eviction>,
    /// Optimizer of the layers, if it differs from that of the embeddings
    #[arg(long, value_name = "NAME[:FIELD=N,..]", help_heading = HEADING)]
    layer_optimizer: Option<OptimizerChoice>,
    /// Schedule of the layers, if it differs
    #[arg(long, value_name = "NAME[:FIELD=N,..]", help_heading = HEADING, value_parser = parse_schedule)]
    layer_schedule: Option<Schedule>,
    /// Weight decay of the layers, if it differs
    #[arg(long, value_name = "F", help_heading = HEADING, value_parser = parse_decay)]
    layer_weight_decay: Option<f32>,
    /// Limit of the layers' gradients, if it differs
    #[arg(long, value_name = "KIND:LIMIT", help_heading = HEADING, value_parser = parse_clip)]
    layer_clip: Option<Clip>,
}

impl RuleArguments {
    /// Returns `usual` with the changes of the options, for a batch of so many samples.
    pub fn embeddings(&self, usual: &UpdateRule, batch: usize) -> UpdateRule {
        let chosen = self.optimizer.as_ref().map(|choice| choice.of_embeddings(batch));
        UpdateRule {
            optimizer: chosen.unwrap_or(usual.optimizer),
            schedule: self.schedule.unwrap_or(usual.schedule),
            weight_decay: self.weight_decay.unwrap_or(usual.weight_decay),
            clip: self.clip.unwrap_or(usual.clip),
            growth: RowLifecycle {
                admission: self.admission.or(usual.growth.admission),
                eviction: self.eviction.or(usual.growth.eviction),
            },
        }
    }

    /// The same for layers.
    pub fn layers(&self, usual: &UpdateRule, batch: usize) -> UpdateRule {
        let own = self.layer_optimizer.as_ref().map(OptimizerChoice::of_layers);
        let chosen = own.or_else(|| self.optimizer.as_ref().map(|choice| choice.of_layers_too(batch)));
        UpdateRule {
            optimizer: chosen.unwrap_or(usual.optimizer),
            schedule: self.layer_schedule.or(self.schedule).unwrap_or(usual.schedule),
            weight_decay: self.layer_weight_decay.or(self.weight_decay).unwrap_or(usual.weight_decay),
            clip: self.layer_clip.or(self.clip).unwrap_or(usual.clip),
            growth: RowLifecycle::default(),
        }
    }
}

/// Returns the number of values that an optimizer, such as `adam`, keeps for a row of so many.
pub fn state_values(optimizer: &str, width: usize) -> Result<usize, String> {
    // The rate of a batch does not change it.
    optimizer.parse().map(|choice: OptimizerChoice| choice.of_embeddings(1).state_len(width))
}

/// An optimizer that can be chosen.
#[derive(Debug)]
struct Kind {
    name: &'static str,
    /// The usual learning rate of embeddings.
    embeddings: UsualRate,
    /// The usual learning rate of layers.
    layers: f32,
    /// The other fields, with their usual values.
    fields: &'static [(&'static str, f32)],
    /// Makes it of its rate and the other fields, in their order.
    make: fn(f32, &[f32]) -> Optimizer,
}

const EPSILON: (&str, f32) = ("epsilon", 1e-8);
const MOMENTS: &[(&str, f32)] = &[("beta1", 0.9), ("beta2", 0.999), EPSILON];

const KINDS: [Kind; 8] = [
    Kind {
        name: "sgd",
        embeddings: UsualRate::OfBatch(1.0),
        layers: 0.5,
        fields: &[],
        make: |rate, _| Optimizer::Sgd { rate },
    },
    Kind {
        name: "momentum",
        embeddings: UsualRate::OfBatch(0.05),
        layers: 0.05,
        fields: &[("momentum", 0.9), ("nesterov", 0.0)],
        make: |rate, of| Optimizer::Momentum { rate, momentum: of[0], nesterov: of[1] != 0.0 },
    },
    Kind {
        name: "adagrad",
        embeddings: UsualRate::Plain(0.05),
        layers: 0.05,
        fields: &[EPSILON],
        make: |rate, of| Optimizer::Adagrad { rate, epsilon: of[0] },
    },
    Kind {
        name: "rowwise-adagrad",
        embeddings: UsualRate::Plain(0.2),
        layers: 0.2,
        fields: &[EPSILON],
        make: |rate, of| Optimizer::RowAdagrad { rate, epsilon: of[0] },
    },
    Kind {
        name: "adam",
        embeddings: UsualRate::Plain(0.002),
        layers: 0.002,
        fields: MOMENTS,
        make: |rate, of| Optimizer::Adam { rate, beta1: of[0], beta2: of[1], epsilon: of[2] },
    },
    Kind {
        name: "adamw",
        embeddings: UsualRate::Plain(0.002),
        layers: 0.002,
        fields: MOMENTS,
        make: |rate, of| Optimizer::AdamW { rate, beta1: of[0], beta2: of[1], epsilon: of[2] },
    },
    Kind {
        name: "ftrl",
        embeddings: UsualRate::Plain(0.05),
        layers: 0.05,
        // A larger beta draws rows to 0 at their first gradient, which is small, and a model of zeros learns nothing.
        fields: &[("beta", 1e-6), ("l1", 0.0), ("l2", 0.0)],
        make: |alpha, of| Optimizer::Ftrl { alpha, beta: of[0], l1: of[1], l2: of[2] },
    },
    Kind {
        name: "rmsprop",
        embeddings: UsualRate::Plain(0.005),
        layers: 0.005,
        fields: &[("decay", 0.9), EPSILON],
        make: |rate, of| Optimizer::RmsProp { rate, decay: of[0], epsilon: of[1] },
    },
];

impl Kind {
    /// Returns the name of its learning rate: FTRL's falls by itself, and has another name in its formula.
    fn rate_name(&self) -> &'static str {
        if self.name == "ftrl" { "alpha" } else { "lr" }
    }

    /// Returns the old name of its learning rate, which is an alias.
    fn old_rate_name(&self) -> Option<&'static str> {
        (self.name != "ftrl").then_some("rate")
    }
}

/// The usual learning rate of embeddings. With each of them the built-in data is learnt within a few epochs, by far better than
/// by popularity; those of Adam and AdamW are from MovieLens 1M (see `ModelKind::config`), the others from some runs on the built-in
/// data with the usual batch.
#[derive(Debug, Clone, Copy)]
enum UsualRate {
    Plain(f32),
    /// So many times the samples of a batch. A gradient is that of the mean over the batch, and the row of a user or item is in
    /// few of its samples: where nothing divides by the size of gradients, the rate must undo the mean.
    OfBatch(f32),
}

impl UsualRate {
    fn at(self, batch: usize) -> f32 {
        match self {
            Self::Plain(rate) => rate,
            Self::OfBatch(rate) => rate * batch as f32,
        }
    }
}

/// An optimizer as it was typed.
#[derive(Debug, Clone)]
struct OptimizerChoice {
    kind: &'static Kind,
    /// None if it is to be the usual one.
    rate: Option<f32>,
    fields: Vec<f32>,
}

impl OptimizerChoice {
    /// That of the rows of users and items, where a batch has so many samples.
    fn of_embeddings(&self, batch: usize) -> Optimizer {
        self.at(self.rate.unwrap_or_else(|| self.kind.embeddings.at(batch)))
    }

    /// Returns that of the layers, if the text is for the embeddings, too: their rate is to be as far from the usual one.
    fn of_layers_too(&self, batch: usize) -> Optimizer {
        let usual = self.kind.embeddings.at(batch);
        // Where both are usually the same, they are so to the last bit.
        let of_layers =
            |rate: f32| if usual == self.kind.layers { rate } else { rate / usual * self.kind.layers };
        self.at(self.rate.map_or(self.kind.layers, of_layers))
    }

    /// Returns that of the layers, if the text is for them alone.
    fn of_layers(&self) -> Optimizer {
        self.at(self.rate.unwrap_or(self.kind.layers))
    }

    fn at(&self, rate: f32) -> Optimizer {
        (self.kind.make)(rate, &self.fields)
    }
}

impl FromStr for OptimizerChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, mut typed) = split(text)?;
        let names = KINDS.map(|kind| kind.name);
        let kind = KINDS.iter().find(|kind| kind.name == name);
        let kind =
            kind.ok_or_else(|| format!("there is no optimizer `{name}`: there are {}", names.join(", ")))?;
        let mut rate = typed.take(kind.rate_name(), number)?;
        if let (None, Some(old)) = (rate, kind.old_rate_name()) {
            rate = typed.take(old, number)?;
        }
        let field = |(field, usual): &(&str, f32)| {
            let parse = if *field == "nesterov" { truth } else { number };
            Ok(typed.take(field, parse)?.unwrap_or(*usual))
        };
        let fields = kind.fields.iter().map(field).collect::<Result<_, String>>()?;
        typed.end([&[(kind.rate_name(), 0.0)], kind.fields].concat().iter().map(|(field, _)| *field))?;
        let choice = Self { kind, rate, fields };
        // The store calls it a rate: the message has the name of the field.
        choice.of_layers().check().map_err(|wrong| wrong.to_string().replace("rate =", "lr ="))?;
        Ok(choice)
    }
}

fn parse_schedule(text: &str) -> Result<Schedule, String> {
    let (name, mut typed) = split(text)?;
    let warmup = typed.take("warmup", steps)?.unwrap_or(0);
    let (decay, fields): (Decay, &[&str]) = match name {
        "constant" => (Decay::None, &[]),
        "inverse-root" => (Decay::InverseRoot, &[]),
        "step" | "exponential" => {
            let (every, factor) = (typed.need("every", steps)?, typed.need("factor", number)?);
            let is_step = name == "step";
            let decay =
                if is_step { Decay::Step { every, factor } } else { Decay::Exponential { every, factor } };
            (decay, &["every", "factor"])
        }
        "linear" | "cosine" => {
            let (steps, floor) = (typed.need("steps", steps)?, typed.take("floor", number)?.unwrap_or(0.0));
            let is_linear = name == "linear";
            let decay =
                if is_linear { Decay::Linear { steps, floor } } else { Decay::Cosine { steps, floor } };
            (decay, &["steps", "floor"])
        }
        _ => {
            return Err(format!(
                "there is no schedule `{name}`: there are constant, step, exponential, linear, cosine, inverse-root"
            ));
        }
    };
    typed.end(fields.iter().copied().chain(["warmup"]))?;
    let schedule = Schedule { warmup, decay };
    checked(UpdateRule { schedule, ..plain() }).map(|rule| rule.schedule)
}

fn parse_decay(text: &str) -> Result<f32, String> {
    let weight_decay = number("weight decay", text)?;
    checked(UpdateRule { weight_decay, ..plain() }).map(|rule| rule.weight_decay)
}

fn parse_clip(text: &str) -> Result<Clip, String> {
    let clip = match text.split_once(':') {
        Some(("value", limit)) => Clip::Value { limit: number("limit", limit)? },
        Some(("norm", limit)) => Clip::Norm { limit: number("limit", limit)? },
        None if text == "none" => Clip::None,
        _ => return Err("expected none, value:LIMIT or norm:LIMIT, as in norm:1.0".to_owned()),
    };
    checked(UpdateRule { clip, ..plain() }).map(|rule| rule.clip)
}

/// A rule in which nothing is wrong.
fn plain() -> UpdateRule {
    Optimizer::Sgd { rate: 1.0 }.into()
}

fn checked(rule: UpdateRule) -> Result<UpdateRule, String> {
    rule.check().map_err(|wrong: OutOfRange| wrong.to_string())?;
    Ok(rule)
}

/// The text behind a name: fields, until they are taken.
struct Typed<'a> {
    name: &'a str,
    fields: Vec<(&'a str, &'a str)>,
}

/// `name` or `name:field=value,field=value`.
fn split(text: &str) -> Result<(&str, Typed<'_>), String> {
    let (name, rest) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
    Ok((name, Typed::of(name, rest)?))
}

impl<'a> Typed<'a> {
    /// `field=value,field=value`.
    fn of(name: &'a str, text: Option<&'a str>) -> Result<Self, String> {
        let mut fields: Vec<(&str, &str)> = Vec::new();
        for part in text.into_iter().flat_map(|text| text.split(',')) {
            let (field, value) = part
                .split_once('=')
                .ok_or_else(|| format!("expected FIELD=VALUE behind `{name}:`, not `{part}`"))?;
            if fields.iter().any(|(other, _)| *other == field) {
                return Err(format!("`{field}` comes twice"));
            }
            fields.push((field, value));
        }
        Ok(Self { name, fields })
    }

    fn take<T>(
        &mut self,
        field: &str,
        parse: fn(&str, &str) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        let Some(position) = self.fields.iter().position(|(name, _)| *name == field) else { return Ok(None) };
        let (name, value) = self.fields.remove(position);
        parse(name, value).map(Some)
    }

    fn need<T>(&mut self, field: &str, parse: fn(&str, &str) -> Result<T, String>) -> Result<T, String> {
        self.take(field, parse)?.ok_or_else(|| format!("`{}` needs {field}=N", self.name))
    }

    /// Refuses fields that were not taken, and lists the known ones.
    fn end(self, known: impl Iterator<Item = &'a str>) -> Result<(), String> {
        let Some((field, _)) = self.fields.first() else { return Ok(()) };
        Err(format!(
            "`{}` has no field `{field}`: it has {}",
            self.name,
            known.collect::<Vec<_>>().join(", ")
        ))
    }
}

fn number(field: &str, text: &str) -> Result<f32, String> {
    text.parse().map_err(|_| format!("{field} = `{text}` is no number"))
}

fn steps(field: &str, text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{field} = `{text}` is no whole number of steps"))
}

fn truth(field: &str, text: &str) -> Result<f32, String> {
    match text {
        "true" => Ok(1.0),
        "false" => Ok(0.0),
        _ => Err(format!("{field} = `{text}` must be true or false")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        rules: RuleArguments,
    }

    pub(super) fn rules(words: &[&str]) -> Result<[UpdateRule; 2], String> {
        let line = Line::try_parse_from([&["libra"], words].concat()).map_err(|error| error.to_string())?;
        let usual = libra_models::ModelKind::Neumf.config();
        Ok([line.rules.embeddings(&usual.embeddings, 1000), line.rules.layers(&usual.layers, 1000)])
    }

    fn optimizers(text: &str) -> [Optimizer; 2] {
        rules(&["--optimizer", text]).unwrap().map(|rule| rule.optimizer)
    }

    #[test]
    fn without_options_it_is_what_training_takes_by_default() {
        let config = libra_models::ModelKind::Neumf.config();
        assert_eq!(rules(&[]).unwrap(), [config.embeddings, config.layers]);
        // The name alone means the same.
        assert_eq!(rules(&["--optimizer", "adam"]).unwrap(), [config.embeddings, config.layers]);
    }

    #[test]
    fn every_optimizer_can_be_had_with_and_without_numbers() {
        let sgd = |rate| Optimizer::Sgd { rate };
        assert_eq!(optimizers("sgd"), [sgd(1000.0), sgd(0.5)]);
        // As far from what is usual.
        assert_eq!(optimizers("sgd:lr=250"), [sgd(250.0), sgd(0.125)]);
        assert_eq!(optimizers("sgd:rate=250"), optimizers("sgd:lr=250"), "the name that it had before");
        let own = rules(&["--optimizer", "sgd:lr=250", "--layer-optimizer", "sgd:lr=2"]).unwrap();
        assert_eq!(own.map(|rule| rule.optimizer), [sgd(250.0), sgd(2.0)]);
        let momentum = |rate, momentum, nesterov| Optimizer::Momentum { rate, momentum, nesterov };
        assert_eq!(optimizers("momentum"), [momentum(50.0, 0.9, false), momentum(0.05, 0.9, false)]);
        assert_eq!(
            optimizers("momentum:nesterov=true,lr=25,momentum=0.5"),
            [momentum(25.0, 0.5, true), momentum(0.025, 0.5, true)]
        );
        assert_eq!(optimizers("adagrad"), [Optimizer::Adagrad { rate: 0.05, epsilon: 1e-8 }; 2]);
        assert_eq!(optimizers("adagrad:epsilon=1e-3"), [Optimizer::Adagrad { rate: 0.05, epsilon: 1e-3 }; 2]);
        assert_eq!(optimizers("rowwise-adagrad"), [Optimizer::RowAdagrad { rate: 0.2, epsilon: 1e-8 }; 2]);
        let adam = Optimizer::Adam { rate: 0.002, beta1: 0.5, beta2: 0.999, epsilon: 1e-8 };
        assert_eq!(optimizers("adam:beta1=0.5"), [adam; 2]);
        let adamw = Optimizer::AdamW { rate: 0.01, beta1: 0.9, beta2: 0.99, epsilon: 1.0 };
        assert_eq!(optimizers("adamw:lr=0.01,beta2=0.99,epsilon=1"), [adamw; 2]);
        assert_eq!(optimizers("ftrl"), [Optimizer::Ftrl { alpha: 0.05, beta: 1e-6, l1: 0.0, l2: 0.0 }; 2]);
        let ftrl = Optimizer::Ftrl { alpha: 1.0, beta: 2.0, l1: 3.0, l2: 4.0 };
        assert_eq!(optimizers("ftrl:l2=4,l1=3,beta=2,alpha=1"), [ftrl; 2]);
        assert_eq!(optimizers("rmsprop"), [Optimizer::RmsProp { rate: 0.005, decay: 0.9, epsilon: 1e-8 }; 2]);
        assert_eq!(
            optimizers("rmsprop:decay=0.99")[0],
            Optimizer::RmsProp { rate: 0.005, decay: 0.99, epsilon: 1e-8 }
        );
    }

    #[test]
    fn an_optimizer_tells_its_state_by_its_name() {
        assert_eq!(state_values("adam", 16), Ok(33));
        assert_eq!(state_values("sgd:lr=0.1", 16), Ok(0));
        assert!(state_values("adom", 16).unwrap_err().contains("adam"));
    }

    #[test]
    fn every_schedule_limit_and_decay_can_be_had() {
        let schedule = |text: &str| rules(&["--schedule", text]).unwrap()[1].schedule;
        let of = |warmup, decay| Schedule { warmup, decay };
        assert_eq!(schedule("constant"), Schedule::default());
        assert_eq!(schedule("constant:warmup=9"), of(9, Decay::None));
        assert_eq!(schedule("step:every=9,factor=0.5"), of(0, Decay::Step { every: 9, factor: 0.5 }));
        assert_eq!(
            schedule("exponential:warmup=1,factor=0.5,every=9"),
            of(1, Decay::Exponential { every: 9, factor: 0.5 })
        );
        assert_eq!(schedule("linear:steps=9"), of(0, Decay::Linear { steps: 9, floor: 0.0 }));
        assert_eq!(
            schedule("cosine:steps=9,floor=0.1,warmup=2"),
            of(2, Decay::Cosine { steps: 9, floor: 0.1 })
        );
        assert_eq!(schedule("inverse-root:warmup=2"), of(2, Decay::InverseRoot));
        let both = rules(&["--clip", "norm:1.5", "--weight-decay", "0.01"]).unwrap();
        assert!(both.iter().all(|rule| rule.clip == Clip::Norm { limit: 1.5 } && rule.weight_decay == 0.01));
        assert_eq!(rules(&["--clip", "value:2"]).unwrap()[0].clip, Clip::Value { limit: 2.0 });
    }

    #[test]
    fn layers_may_have_their_own() {
        let words = [
            &["--optimizer", "ftrl", "--clip", "norm:1", "--layer-optimizer", "adam", "--layer-clip", "none"]
                [..],
            &["--layer-schedule", "cosine:steps=9", "--layer-weight-decay", "0.5"],
        ];
        let [embeddings, layers] = rules(&words.concat()).unwrap();
        assert!(matches!(embeddings.optimizer, Optimizer::Ftrl { .. }));
        assert_eq!((embeddings.schedule, embeddings.weight_decay), (Schedule::default(), 0.0));
        assert!(matches!(layers.optimizer, Optimizer::Adam { .. }));
        assert_eq!((layers.clip, layers.weight_decay), (Clip::None, 0.5));
        assert_eq!(layers.schedule.decay, Decay::Cosine { steps: 9, floor: 0.0 });
    }

    #[test]
    fn wrong_names_are_listed_with_the_valid_ones() {
        for (option, text, words) in [
            (
                "--optimizer",
                "adamax",
                &[
                    "no optimizer `adamax`",
                    "sgd, momentum, adagrad, rowwise-adagrad, adam, adamw, ftrl, rmsprop",
                ][..],
            ),
            ("--optimizer", "adam:bta1=0.5", &["`adam` has no field `bta1`", "lr, beta1, beta2, epsilon"]),
            ("--optimizer", "sgd:momentum=0.5", &["`sgd` has no field `momentum`: it has lr"]),
            ("--optimizer", "ftrl:lr=0.5", &["`ftrl` has no field `lr`: it has alpha, beta, l1, l2"]),
            ("--optimizer", "adam:0.5", &["expected FIELD=VALUE behind `adam:`, not `0.5`"]),
            ("--optimizer", "adam:", &["expected FIELD=VALUE"]),
            ("--optimizer", "adam:lr=fast", &["lr = `fast` is no number"]),
            ("--optimizer", "adam:lr=1,lr=2", &["`lr` comes twice"]),
            ("--optimizer", "adam:lr=-1", &["lr = -1 must be finite and above 0"]),
            ("--optimizer", "adam:beta2=1", &["beta2 = 1 must be at least 0 and below 1"]),
            ("--optimizer", "momentum:nesterov=1", &["nesterov = `1` must be true or false"]),
            ("--optimizer", "ftrl:beta=0", &["beta = 0 must be above 0 where l2 is 0"]),
            ("--layer-optimizer", "adam:lr=NaN", &["--layer-optimizer", "lr = NaN"]),
            (
                "--schedule",
                "triangle",
                &["no schedule `triangle`", "constant, step, exponential, linear, cosine, inverse-root"],
            ),
            ("--schedule", "cosine", &["`cosine` needs steps=N"]),
            ("--schedule", "step:every=9", &["`step` needs factor=N"]),
            ("--schedule", "constant:steps=9", &["`constant` has no field `steps`: it has warmup"]),
            ("--schedule", "cosine:steps=0", &["steps = 0 must be at least 1"]),
            ("--schedule", "cosine:steps=9,floor=2", &["floor = 2 must be from 0 to 1"]),
            ("--schedule", "linear:steps=1.5", &["steps = `1.5` is no whole number of steps"]),
            ("--clip", "1.0", &["expected none, value:LIMIT or norm:LIMIT"]),
            ("--clip", "norm:0", &["limit = 0 must be finite and above 0"]),
            ("--clip", "value:x", &["limit = `x` is no number"]),
            ("--weight-decay=-1", "", &["weight_decay = -1 must be finite and not negative"]),
            ("--weight-decay", "much", &["weight decay = `much` is no number"]),
        ] {
            let typed: Vec<_> = [option, text].into_iter().filter(|word| !word.is_empty()).collect();
            let error = rules(&typed).unwrap_err();
            for word in words {
                assert!(error.contains(word), "{option} {text}: {word:?} is not in {error}");
            }
        }
    }
}
