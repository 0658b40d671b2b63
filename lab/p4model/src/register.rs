//! An array of words beside a stage of the pipeline.

/// Hardware lets a packet access each register once. So does this: a second access is a bug of the program.
#[derive(Debug, Clone)]
pub(crate) struct Register {
    name: &'static str,
    words: Vec<u32>,
    /// Of which packet the last access was.
    accessed_by: u64,
}

impl Register {
    pub(crate) fn new(name: &'static str, words: usize) -> Self {
        Self { name, words: vec![0; words], accessed_by: 0 }
    }

    /// Changes a word by `action`, and returns its result. Packets are numbered from 1.
    pub(crate) fn access<T>(&mut self, packet: u64, index: usize, action: impl FnOnce(&mut u32) -> T) -> T {
        assert_ne!(self.accessed_by, packet, "a packet accesses {} twice", self.name);
        self.accessed_by = packet;
        action(&mut self.words[index])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "a packet accesses sums twice")]
    fn a_second_access_of_a_packet_is_a_bug() {
        let mut register = Register::new("sums", 8);
        register.access(1, 3, |word| *word += 1);
        register.access(2, 3, |word| *word += 1);
        register.access(2, 4, |word| *word += 1);
    }
}
