//! A certification authority such as an operator has, with certificates for roles.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};

/// An authority, and a folder for its files.
pub(super) struct Authority {
    folder: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// Makes an authority. Its files are in a folder of its name.
    pub(super) fn new(folder: &Path, name: &str) -> Result<Self> {
        let mut parameters = CertificateParams::new(Vec::new())?;
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(parameters, KeyPair::generate()?)?;
        let folder = folder.join(name);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let authority = Self { folder, issuer };
        authority.write("ca.pem", &authority.issuer.pem())?;
        Ok(authority)
    }

    /// Gives a command of `libra` a certificate for a role.
    pub(super) fn certify(&self, command: &mut Command, role: &str) -> Result<()> {
        let mut parameters = CertificateParams::new(Vec::new())?;
        parameters.subject_alt_names.push(SanType::URI(format!("libra://role/{role}").try_into()?));
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &self.issuer)?;
        command.arg("--tls-ca").arg(self.folder.join("ca.pem"));
        command.arg("--tls-cert").arg(self.write(&format!("{role}.pem"), &certificate.pem())?);
        command.arg("--tls-key").arg(self.write(&format!("{role}.key"), &key.serialize_pem())?);
        Ok(())
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}
