//! Devices that carry packets out: the program as this crate has it, or a switch that runs it.

use std::convert::Infallible;
use std::fmt::{Debug, Display};

use libra_p4::{Link, Sizes, TableChange};
use libra_p4model::{Port, Switch};

/// Something that carries packets out.
pub(crate) trait Device: Link<Error: Debug + Display> {
    /// Hands over datagrams that come by this port, and returns the answers, in order. If it is known how many there will be, no more
    /// are waited for.
    fn hand_over(&mut self, port: Port, datagrams: &[Vec<u8>], answers: Option<usize>) -> Vec<Vec<u8>>;

    /// Forgets everything, as if the program had just been started.
    fn reset(&mut self, sizes: Sizes);
}

impl<D: Device> Device for &mut D {
    fn hand_over(&mut self, port: Port, datagrams: &[Vec<u8>], answers: Option<usize>) -> Vec<Vec<u8>> {
        (**self).hand_over(port, datagrams, answers)
    }

    fn reset(&mut self, sizes: Sizes) {
        (**self).reset(sizes);
    }
}

/// The program as this crate has it.
pub(crate) struct Here(pub(crate) Switch);

impl Link for Here {
    type Error = Infallible;

    fn exchange(&mut self, packets: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, Infallible> {
        let answer =
            |packet: &Vec<u8>| self.0.process(Port::Agent, packet).expect("the agent is always answered");
        Ok(packets.iter().map(answer).collect())
    }

    fn change(&mut self, changes: &[TableChange]) -> Result<(), Infallible> {
        changes.iter().for_each(|change| self.0.change(change));
        Ok(())
    }
}

impl Device for Here {
    fn hand_over(&mut self, port: Port, datagrams: &[Vec<u8>], _: Option<usize>) -> Vec<Vec<u8>> {
        datagrams.iter().filter_map(|datagram| self.0.process(port, datagram)).collect()
    }

    fn reset(&mut self, sizes: Sizes) {
        self.0 = Switch::new(sizes);
    }
}
