//! The order of the operations of one worker on hot keys.

use std::collections::VecDeque;

use libra_proto::WorkerCommand;

/// Pushes are under way together, and so are pulls; but not one with the other, as the roles of Libra promise no order. So a pull reads all
/// pushes before it, and none after it.
#[derive(Debug, Default)]
pub(super) struct Turns {
    waiting: VecDeque<WorkerCommand>,
    under_way: usize,
    /// True if those under way are pulls.
    are_pulls: bool,
}

impl Turns {
    /// Something that is to be done after all that was submitted before.
    pub(super) fn submit(&mut self, command: WorkerCommand) {
        self.waiting.push_back(command);
    }

    /// The next thing that may begin now.
    pub(super) fn next(&mut self) -> Option<WorkerCommand> {
        let is_pull = matches!(self.waiting.front()?, WorkerCommand::Pull { .. });
        if self.under_way > 0 && is_pull != self.are_pulls {
            return None;
        }
        self.are_pulls = is_pull;
        self.under_way += 1;
        self.waiting.pop_front()
    }

    /// One thing that had begun is done.
    pub(super) fn done(&mut self) {
        self.under_way -= 1;
    }
}

#[cfg(test)]
mod tests {
    use libra_proto::{Level, PullId};

    use super::*;

    fn push(number: u64) -> WorkerCommand {
        WorkerCommand::Push { number, keys: Vec::new(), gradients: Vec::new(), level: Level::Visible }
    }

    fn pull(number: u64) -> WorkerCommand {
        WorkerCommand::Pull { id: PullId(number), keys: Vec::new() }
    }

    #[test]
    fn pushes_and_pulls_take_turns_in_the_order_in_which_they_came() {
        let mut turns = Turns::default();
        [push(1), push(2), pull(3), pull(4), push(5)].into_iter().for_each(|command| turns.submit(command));
        let begin = |turns: &mut Turns| core::iter::from_fn(|| turns.next()).collect::<Vec<_>>();
        assert_eq!(begin(&mut turns), [push(1), push(2)]);
        turns.done();
        assert_eq!(begin(&mut turns), [], "one push is still under way");
        turns.done();
        assert_eq!(begin(&mut turns), [pull(3), pull(4)]);
        turns.submit(pull(6));
        turns.done();
        turns.done();
        assert_eq!(begin(&mut turns), [push(5)], "later operations do not overtake");
        turns.done();
        assert_eq!(begin(&mut turns), [pull(6)]);
    }
}
