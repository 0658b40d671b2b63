//! Time of the kernel for a push, dedup and acknowledgement included: `cargo run --release -p libra-xdp --example packets`
//! as root. It is run by the kernel on a frame that stays in the cache; an interface adds its own.

#[cfg(has_programs)]
mod measure;

#[cfg(has_programs)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    measure::run()
}

#[cfg(not(has_programs))]
fn main() {
    eprintln!("the programs were left out of this build: there was no clang");
}
