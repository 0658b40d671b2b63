//! `include/libra.h` declares the functions of C. `LIBRA_WRITE_HEADER=1` (`cargo xtask header`) writes it again.

use std::fs;
use std::path::Path;

#[test]
fn the_header_is_that_of_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_root_or_default(root);
    let sources =
        ["customer", "message", "node", "status"].map(|name| root.join(format!("src/ffi/{name}.rs")));
    let builder =
        sources.iter().fold(cbindgen::Builder::new().with_config(config), cbindgen::Builder::with_src);
    let mut generated = Vec::new();
    builder.generate().expect("cbindgen understands the sources").write(&mut generated);
    let generated = String::from_utf8(generated).unwrap();
    let path = root.join("include/libra.h");
    if std::env::var_os("LIBRA_WRITE_HEADER").is_some() {
        fs::write(&path, &generated).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == generated, "include/libra.h is stale: run `cargo xtask header`");
}
