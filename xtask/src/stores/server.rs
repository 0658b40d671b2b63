//! Servers of stores on free ports of loopback, and rclone as another client of them.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::process::{self, Running, check_interrupt};
use crate::shell;

/// The bucket that is there.
pub(crate) const BUCKET: &str = "models";
const LOOK_EVERY: Duration = Duration::from_millis(100);
const START_LIMIT: Duration = Duration::from_secs(60);
const SIGN: &str = include_str!("sas.py");
/// The account that Azurite has, and its key, which is no secret.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Variables of a client whose writes are refused, and how.
type WithoutRights = (Vec<(&'static str, String)>, &'static str);

/// A kind of store, and a server that speaks its protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A directory of this machine.
    File,
    /// S3, in Python.
    Moto,
    /// S3, in Rust. It reads all of an object for each range of it.
    S3s,
    /// S3, in JavaScript: fast with ranges of large objects, for reads; it cannot abort an upload in parts.
    S3rver,
    /// Azure, by Microsoft.
    Azurite,
}

impl Kind {
    /// Those that checkpoints are kept at.
    pub(crate) const ALL: [Self; 4] = [Self::File, Self::Moto, Self::S3s, Self::Azurite];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Moto => "moto",
            Self::S3s => "s3s-fs",
            Self::S3rver => "s3rver",
            Self::Azurite => "azurite",
        }
    }

    fn programs(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::File => ("", &[]),
            Self::Moto => ("moto_server", &["moto/bin"]),
            Self::S3s => ("s3s-fs", &["bin"]),
            Self::S3rver => ("s3rver", &["s3rver/node_modules/.bin"]),
            Self::Azurite => ("azurite-blob", &["npm/node_modules/.bin"]),
        }
    }

    /// The command that installs its server.
    pub(crate) fn installation(self) -> &'static str {
        match self {
            Self::File => "",
            Self::Moto => {
                "python3 -m venv target/tools/moto && target/tools/moto/bin/pip install 'moto[server]'"
            }
            Self::S3s => {
                "cargo install s3s-fs --version 0.14.1 --features binary --locked --root target/tools"
            }
            Self::S3rver => "npm install --no-save --prefix target/tools/s3rver s3rver",
            Self::Azurite => "npm install --no-save --prefix target/tools/npm azurite",
        }
    }

    fn is_s3(self) -> bool {
        matches!(self, Self::Moto | Self::S3s | Self::S3rver)
    }

    /// Its server, if it is installed.
    fn find(self) -> Result<Option<PathBuf>> {
        let (program, folders) = self.programs();
        let tools = shell::target_directory()?.join("tools");
        // A wrapper on the path may have no program behind it, so own ones come first.
        let own = folders.iter().map(|folder| tools.join(folder));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let all = own.chain(std::env::split_paths(&path)).map(|folder| folder.join(program));
        Ok(all.into_iter().find(|program| program.is_file()))
    }
}

/// A store with one bucket. Dropping it ends its server.
pub(crate) struct Store {
    pub(crate) kind: Kind,
    pub(crate) port: u16,
    folder: PathBuf,
    /// Settings of a client that may do everything.
    pub(crate) environment: Vec<(&'static str, String)>,
    rclone: Vec<(&'static str, String)>,
    server: Option<Running>,
}

impl Store {
    /// Starts it on this address, with its data in a folder; `None` if it is not installed.
    pub(crate) fn start(kind: Kind, folder: &Path, host: &str) -> Result<Option<Self>> {
        let folder = folder.join(kind.name());
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let mut store =
            Self { kind, port: 0, folder, environment: Vec::new(), rclone: Vec::new(), server: None };
        if kind == Kind::File {
            store.rclone = vec![("TYPE", "alias".to_owned()), ("REMOTE", store.data().display().to_string())];
            fs::create_dir_all(store.data().join(BUCKET))?;
            return Ok(Some(store));
        }
        let Some(program) = kind.find()? else { return Ok(None) };
        store.port = process::free_address()?.port();
        fs::create_dir_all(store.data())?;
        let command = store.command(&program, host);
        let mut server = Running::start(kind.name(), command, store.folder.join("server.log"))?;
        let deadline = Instant::now() + START_LIMIT;
        while TcpStream::connect(("127.0.0.1", store.port)).is_err() {
            check_interrupt()?;
            // As on the path, but without the program behind it.
            if server.status()?.is_some() {
                return Ok(None);
            }
            ensure!(Instant::now() < deadline, "the store does not listen\n{}", server.tail());
            std::thread::sleep(LOOK_EVERY);
        }
        store.server = Some(server);
        store.configure()?;
        Ok(Some(store))
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn command(&self, program: &Path, host: &str) -> Command {
        let port = self.port.to_string();
        let mut command = shell::program(program, &[]);
        match self.kind {
            Kind::File => unreachable!("it has no server"),
            Kind::Moto => command.args(["-H", host, "-p", &port]),
            Kind::S3s => {
                command.args(["--host", host, "--port", &port]);
                command.args(["--access-key", "libra", "--secret-key", "libra"]).arg(self.data())
            }
            Kind::S3rver => command.args(["-s", "-a", host, "-p", &port, "-d"]).arg(self.data()),
            Kind::Azurite => {
                command.args(["--silent", "--skipApiVersionCheck", "--blobHost", host, "--blobPort", &port]);
                command.arg("--location").arg(self.data())
            }
        };
        command
    }

    fn configure(&mut self) -> Result<()> {
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        let of = |text: &str| text.to_owned();
        if self.kind.is_s3() {
            let key = of(if self.kind == Kind::S3rver { "S3RVER" } else { "libra" });
            self.environment = vec![
                ("AWS_ENDPOINT_URL", endpoint.clone()),
                ("AWS_ALLOW_HTTP", of("true")),
                ("AWS_REGION", of("us-east-1")),
                ("AWS_ACCESS_KEY_ID", key.clone()),
                ("AWS_SECRET_ACCESS_KEY", key.clone()),
            ];
            self.rclone = vec![
                ("TYPE", of("s3")),
                ("PROVIDER", of("Other")),
                ("ENDPOINT", endpoint),
                ("REGION", of("us-east-1")),
                ("ACCESS_KEY_ID", key.clone()),
                ("SECRET_ACCESS_KEY", key),
            ];
        } else {
            let account = format!("{endpoint}/{ACCOUNT}");
            self.rclone = vec![
                ("TYPE", of("azureblob")),
                ("SAS_URL", format!("{account}?{}", shared_access("rwdlacup")?)),
            ];
            self.environment = vec![
                ("AZURE_STORAGE_ACCOUNT_NAME", of(ACCOUNT)),
                ("AZURE_STORAGE_ENDPOINT", account),
                ("AZURE_ALLOW_HTTP", of("true")),
                ("AZURE_STORAGE_ACCOUNT_KEY", of(KEY)),
            ];
        }
        Ok(())
    }

    /// Settings of a client whose writes are refused, and how; `None` if the store looks at no credentials.
    pub(crate) fn without_rights(&self) -> Result<Option<WithoutRights>> {
        let replaced = |removed: &str, added: (&'static str, String)| {
            let kept = self.environment.iter().filter(|(name, _)| *name != removed).cloned();
            kept.chain([added]).collect()
        };
        Ok(match self.kind {
            Kind::File | Kind::Moto => None,
            Kind::S3s | Kind::S3rver => {
                let secret = ("AWS_SECRET_ACCESS_KEY", "wrong".to_owned());
                Some((replaced("AWS_SECRET_ACCESS_KEY", secret), "a wrong secret"))
            }
            Kind::Azurite => {
                let query = ("AZURE_STORAGE_SAS_KEY", shared_access("rl")?);
                Some((replaced("AZURE_STORAGE_ACCOUNT_KEY", query), "rights to read alone"))
            }
        })
    }

    /// The URL of something in a bucket.
    pub(crate) fn url(&self, bucket: &str, path: &str) -> String {
        match self.kind {
            Kind::File => format!("file://{}/{bucket}/{path}", self.data().display()),
            Kind::Moto | Kind::S3s | Kind::S3rver => format!("s3://{bucket}/{path}"),
            Kind::Azurite => format!("az://{bucket}/{path}"),
        }
    }

    /// A command of a program that uses it.
    pub(crate) fn client(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = shell::program(program, arguments);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// A command of rclone, in which `store:` is this one.
    pub(crate) fn rclone(&self, arguments: &[&str]) -> Result<String> {
        let mut command = shell::program("rclone", arguments);
        command.args(["--retries=1", "--low-level-retries=2", "--contimeout=5s", "--timeout=30s"]);
        // Certificates of a proxy, for which its client of S3 has no place.
        command.env("RCLONE_CONFIG", "/dev/null").env("NO_PROXY", "*").env_remove("AWS_CA_BUNDLE");
        let variables =
            self.rclone.iter().map(|(name, value)| (format!("RCLONE_CONFIG_STORE_{name}"), value));
        command.envs(variables);
        shell::output(command)
    }

    /// Makes the bucket.
    pub(crate) fn make_bucket(&self) -> Result<()> {
        self.rclone(&["mkdir", &format!("store:{BUCKET}")]).map(drop)
    }

    /// All objects below a path of the bucket.
    pub(crate) fn objects(&self, path: &str) -> Result<Vec<String>> {
        let listed = self.rclone(&["lsf", "-R", "--files-only", &format!("store:{BUCKET}/{path}")])?;
        Ok(listed.lines().map(str::to_owned).collect())
    }

    /// Uploads in parts that were begun and not finished; `None` if the store does not tell.
    pub(crate) fn open_uploads(&self) -> Result<Option<usize>> {
        if !self.kind.is_s3() {
            return Ok(None);
        }
        let bucket = format!("store:{BUCKET}");
        // Some servers have no such list.
        let Ok(listed) = self.rclone(&["backend", "list-multipart-uploads", &bucket]) else {
            return Ok(None);
        };
        let parsed: serde_json::Value = serde_json::from_str(&listed)?;
        let of_buckets = parsed.as_object().into_iter().flat_map(|buckets| buckets.values());
        Ok(Some(of_buckets.filter_map(serde_json::Value::as_array).map(Vec::len).sum()))
    }

    /// The last output of its server.
    pub(crate) fn tail(&self) -> String {
        self.server.as_ref().map(Running::tail).unwrap_or_default()
    }
}

/// Rights at the account of Azurite, as the query of a URL.
fn shared_access(rights: &str) -> Result<String> {
    shell::output(shell::program("python3", &["-c", SIGN, ACCOUNT, KEY, rights]))
}
