//! Finds credentials for S3 where other programs have them: in the environment, in the files of
//! profiles, from a program that a profile names, or from the machine.
//!
//! The crate `reqsign-aws-v4` (3.3) also has SSO, and would add 22 crates, with a second XML parser
//! and a second SHA-2. With SSO, a profile names `aws configure export-credentials` as its program.
//!
//! <https://docs.aws.amazon.com/sdkref/latest/guide/standardized-credentials.html>

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use chrono::DateTime;
use serde_json::Value;

use super::environment::{denied, firmware, variable};
use zarrfs_base::error::{Error, Result};
use zarrfs_base::sys::MemoryFile;

/// The settings of a profile, by name.
pub(super) type Profile = BTreeMap<String, String>;

/// How long a program that prints credentials may run.
const LONGEST_RUN: Duration = Duration::from_secs(60);

/// How much of what it prints is read, in bytes.
const LONGEST_OUTPUT: usize = 64 << 10;

/// Where credentials come from.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CredentialSource {
    /// The environment has keys.
    Environment,
    /// A profile, or what it names.
    Profile(String),
    /// A server that the client knows: that of a web identity, a container or a machine.
    Server(&'static str),
}

/// Keys to sign requests with.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct SigningKeys {
    pub id: String,
    pub secret: String,
    pub token: Option<String>,
    /// When they end, if that is known.
    pub until: Option<SystemTime>,
}

impl std::fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("until", &self.until).finish_non_exhaustive()
    }
}

/// Returns the name of the profile in use: the one that the user named, or that of the environment.
pub(super) fn profile_name(named: Option<&str>) -> String {
    let named = named.map(str::to_owned).or_else(|| variable("AWS_PROFILE"));
    named.unwrap_or_else(|| "default".to_owned())
}

/// Returns where credentials are. `profile` is the one that the user named.
pub(super) fn find(profile: Option<&str>) -> Result<CredentialSource> {
    if let Some(profile) = profile {
        return Ok(CredentialSource::Profile(profile.to_owned()));
    }
    let is_set = |name: &str| variable(name).is_some();
    if is_set("AWS_ACCESS_KEY_ID") {
        if !is_set("AWS_SECRET_ACCESS_KEY") {
            return Err(denied("AWS_ACCESS_KEY_ID is set, but AWS_SECRET_ACCESS_KEY is not"));
        }
        return Ok(CredentialSource::Environment);
    }
    if let Some(file) = variable("AWS_WEB_IDENTITY_TOKEN_FILE").filter(|_| is_set("AWS_ROLE_ARN")) {
        fs::metadata(&file).map_err(|error| denied(format!("{file}: {error}")))?;
        return Ok(CredentialSource::Server("the web identity"));
    }
    let name = profile_name(None);
    if is_set("AWS_PROFILE") || has_keys(&settings(&name)?) {
        return Ok(CredentialSource::Profile(name));
    }
    if is_set("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") {
        return Ok(CredentialSource::Server("the container"));
    }
    if is_set("AWS_CONTAINER_CREDENTIALS_FULL_URI") {
        let Some(file) = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") else {
            // The client would ask the machine.
            return Err(denied(
                "AWS_CONTAINER_CREDENTIALS_FULL_URI needs AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
            ));
        };
        fs::metadata(&file).map_err(|error| denied(format!("{file}: {error}")))?;
        return Ok(CredentialSource::Server("the container"));
    }
    if is_machine_of_amazon() {
        return Ok(CredentialSource::Server("the machine"));
    }
    Err(denied(
        "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile with \
         --profile; a bucket that all users may read needs none with --anonymous",
    ))
}

/// Whether a machine has roles that it can ask for credentials. Elsewhere the request would end
/// after seconds of silence.
fn is_machine_of_amazon() -> bool {
    if variable("AWS_EC2_METADATA_DISABLED").is_some_and(|value| value == "true") {
        return false;
    }
    let vendor = firmware("sys_vendor");
    let uuid = fs::read_to_string("/sys/hypervisor/uuid").unwrap_or_default();
    vendor.trim() == "Amazon EC2" || uuid.starts_with("ec2")
}

/// Returns the keys of a profile, from its settings or from the program that it names.
pub(super) fn keys_of(profile: &str) -> Result<SigningKeys> {
    let settings = settings(profile)?;
    if settings.is_empty() {
        return Err(denied(format!("no profile {profile:?} in {}", shown_files())));
    }
    let get = |name: &str| settings.get(name).cloned();
    if let (Some(id), Some(secret)) = (get("aws_access_key_id"), get("aws_secret_access_key")) {
        return Ok(SigningKeys { id, secret, token: get("aws_session_token"), until: None });
    }
    let named = |error: Error| denied(format!("the profile {profile:?}: {}", error.detail()));
    if let Some(command) = get("credential_process") {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(&command);
        return keys_from(&mut shell, "its credential_process").map_err(named);
    }
    if !WAYS_OF_AWS.iter().any(|name| settings.contains_key(*name)) {
        let missing =
            if has_keys(&settings) { "no aws_secret_access_key" } else { "no credentials" };
        return Err(denied(format!("the profile {profile:?} has {missing}")));
    }
    // The program of Amazon knows single sign-on, roles and their second factors.
    let mut aws = Command::new("aws");
    aws.args(["configure", "export-credentials", "--format", "process", "--profile", profile]);
    keys_from(&mut aws, "aws configure export-credentials").map_err(named)
}

/// The settings of a profile whose credentials the program `aws` can get.
const WAYS_OF_AWS: [&str; 4] = ["sso_session", "sso_start_url", "role_arn", "login_session"];

/// Whether a profile says how to get credentials.
fn has_keys(settings: &Profile) -> bool {
    let ways = WAYS_OF_AWS.iter().chain(&["aws_access_key_id", "credential_process"]);
    ways.into_iter().any(|name| settings.contains_key(*name))
}

/// Runs a program that prints credentials as JSON.
fn keys_from(command: &mut Command, name: &str) -> Result<SigningKeys> {
    let output = output_of(command).map_err(|error| match error.kind() {
        ErrorKind::NotFound => denied(format!("{name}: the program is not installed")),
        _ => denied(format!("{name}: {error}")),
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains("Invalid choice") {
            return Err(denied(format!("{name}: version 2 of the program aws is needed")));
        }
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it failed");
        return Err(denied(format!("{name}: {}", last.trim())));
    }
    parse_keys(&output.stdout).map_err(|error| denied(format!("{name}: {}", error.detail())))
}

/// Runs a program for a while, and returns what it printed. It prints into files in memory, which
/// never fill up, and which its own children may keep open.
fn output_of(command: &mut Command) -> io::Result<Output> {
    let (stdout, stderr) = (MemoryFile::new()?, MemoryFile::new()?);
    let command = command.stdin(Stdio::null());
    let command = command.stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
    let (mut child, began) = (command.spawn()?, Instant::now());
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if began.elapsed() > LONGEST_RUN {
            child.kill()?;
            child.wait()?;
            let detail = format!("it did not end within {} s", LONGEST_RUN.as_secs());
            return Err(io::Error::new(ErrorKind::TimedOut, detail));
        }
        thread::sleep(Duration::from_millis(5));
    };
    let [stdout, stderr] = [stdout, stderr].map(|file| file.first(LONGEST_OUTPUT));
    Ok(Output { status, stdout: stdout?, stderr: stderr? })
}

fn parse_keys(text: &[u8]) -> Result<SigningKeys> {
    let found: Value = serde_json::from_slice(text)
        .map_err(|error| Error::invalid(format!("it printed no JSON: {error}")))?;
    let get = |name: &str| found.get(name).and_then(Value::as_str).map(str::to_owned);
    let (Some(id), Some(secret)) = (get("AccessKeyId"), get("SecretAccessKey")) else {
        return Err(Error::invalid("it printed no AccessKeyId and SecretAccessKey"));
    };
    let until = get("Expiration").and_then(|time| DateTime::parse_from_rfc3339(&time).ok());
    Ok(SigningKeys { id, secret, token: get("SessionToken"), until: until.map(SystemTime::from) })
}

/// The files that have profiles: that of keys, and that of all else.
fn files() -> [Option<PathBuf>; 2] {
    let home = variable("HOME").map(PathBuf::from);
    let file = |name: &str, default: &str| {
        let named = variable(name).map(PathBuf::from);
        named.or_else(|| home.as_ref().map(|home| home.join(default)))
    };
    [
        file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"),
        file("AWS_CONFIG_FILE", ".aws/config"),
    ]
}

fn shown_files() -> String {
    let files = files().into_iter().flatten().map(|path| path.display().to_string());
    files.collect::<Vec<_>>().join(" or ")
}

/// Returns the settings of a profile, also its region and endpoint; none if there is no such one.
pub(super) fn settings(profile: &str) -> Result<Profile> {
    let [keys, others] = files();
    let mut settings = Profile::new();
    for (path, section) in [(others, format!("profile {profile}")), (keys, profile.to_owned())] {
        let Some(path) = path else { continue };
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(denied(format!("{}: {error}", path.display()))),
        };
        settings.extend(section_of(&text, &section));
        if profile == "default" {
            settings.extend(section_of(&text, profile));
        }
    }
    Ok(settings)
}

/// Returns the settings in a section of a file. Lines that are indented belong to a setting above.
fn section_of(text: &str, section: &str) -> Profile {
    let mut settings = Profile::new();
    let mut is_in = false;
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = trimmed.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            let words: Vec<&str> =
                name.split_whitespace().map(|word| word.trim_matches('"')).collect();
            is_in = words.join(" ") == section;
        } else if is_in
            && !line.starts_with([' ', '\t'])
            && let Some((name, value)) = trimmed.split_once('=')
        {
            settings.insert(name.trim().to_lowercase(), value.trim().to_owned());
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_a_profile_are_read_as_other_programs_read_them() {
        let text = "[default]\nregion=eu-west-1\n# a comment\n[profile  climate]\n\
                    Region = us-west-2\ns3 =\n  max_concurrent_requests = 20\nsso_session = x\n\
                    [ other ]\nregion = no\n";
        let found = section_of(text, "profile climate");
        let found: Vec<_> = found.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(found, [("region", "us-west-2"), ("s3", ""), ("sso_session", "x")]);
        assert_eq!(section_of(text, "other").len(), 1);
        assert_eq!(section_of(text, "nobody"), Profile::new());
    }

    #[test]
    fn a_program_prints_keys_with_the_time_of_their_end() {
        let text = br#"{"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "S",
                        "SessionToken": "T", "Expiration": "1970-01-01T00:01:00Z"}"#;
        let minute = SystemTime::UNIX_EPOCH + Duration::from_secs(60);
        let keys = parse_keys(text).expect("keys");
        assert_eq!((&*keys.id, keys.token.as_deref(), keys.until), ("A", Some("T"), Some(minute)));
        assert!(parse_keys(br#"{"AccessKeyId": "A"}"#).is_err());
        let failed = keys_from(Command::new("sh").args(["-c", "echo why >&2; exit 1"]), "it");
        assert_eq!(failed.expect_err("failed").detail(), "it: why");
    }
}
