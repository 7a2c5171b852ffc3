//! Man pages, completions and `docs/commands.md` match `--help`.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::support::zarrfs;
use zarrfs::codec::table;

/// The names of all commands, from `--help`.
fn commands() -> Vec<String> {
    let help = zarrfs().arg("--help").output().unwrap().stdout;
    let help = String::from_utf8(help).unwrap();
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let list = list.take_while(|line| !line.is_empty());
    // Lines that continue a description are indented further.
    let names = list.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.map(|line| line.split_whitespace().next().unwrap().to_owned());
    names.filter(|name| name != "help").collect()
}

/// The long options in a text.
fn options(text: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_lowercase() || c == '-';
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices("--") {
        let name: String = text[at + 2..].chars().take_while(|c| is_name(*c)).collect();
        let before = text[..at].chars().next_back();
        if !name.is_empty() && before.is_none_or(|c| !c.is_alphanumeric() && c != '-') {
            found.insert(name.trim_end_matches('-').to_owned());
        }
    }
    found
}

#[test]
fn each_command_has_a_man_page_with_all_its_options() {
    let dir = tempfile::tempdir().unwrap();
    assert!(zarrfs().arg("man").arg(dir.path()).status().unwrap().success());
    assert!(dir.path().join("man5/zarrfs-formats.5").is_file());
    assert!(dir.path().join("man8/mount.zarrfs.8").is_file());
    let page = |name: &str| {
        let text = fs::read_to_string(dir.path().join(format!("man1/{name}.1")));
        text.expect("a page").replace("\\-", "-").replace("\\fB", "").replace("\\fR", "")
    };
    assert!(page("zarrfs").contains("zarrfs-mount(1)") || page("zarrfs").contains("zarrfs-mount"));
    let commands = commands();
    assert!(commands.len() >= 10, "{commands:?}");
    for command in commands {
        let help = zarrfs().args([&command, "--help"]).output().unwrap().stdout;
        let help = String::from_utf8(help).unwrap();
        let list = help.split_once("Options:").map_or("", |(_, list)| list);
        let typed = list.lines().filter(|line| line.trim_start().starts_with('-'));
        let typed = typed.flat_map(|line| {
            options(line.split("  ").find(|part| part.contains("--")).unwrap_or(""))
        });
        let page = options(&page(&format!("zarrfs-{command}")));
        for option in typed {
            assert!(page.contains(&option), "--{option} is not in zarrfs-{command}(1)");
        }
    }
}

/// The text of `--help` for a command or for the program.
fn help_of(command: Option<&str>) -> String {
    let done = zarrfs().args(command).arg("--help").env("COLUMNS", "100").output().unwrap();
    String::from_utf8(done.stdout).unwrap()
}

/// The contents of brackets such as `[default: zstd]`, with line breaks joined.
fn in_brackets(text: &str, word: &str) -> BTreeSet<String> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let start = format!("[{word}: ");
    let parts = text.split(&start).skip(1);
    parts.filter_map(|part| Some(part.split_once(']')?.0.to_owned())).collect()
}

/// The names in lists of possible values: `- zarr2: the hierarchy as Zarr 2` or `[possible values:
/// v3, v2]`.
fn values(help: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for list in in_brackets(help, "possible values") {
        found.extend(list.split(", ").map(str::to_owned));
    }
    let items = help.lines().filter_map(|line| line.trim_start().strip_prefix("- "));
    found.extend(items.filter_map(|item| Some(item.split_once(':')?.0.to_owned())));
    found
}

#[test]
fn man_pages_have_the_defaults_and_values_of_the_help() {
    let dir = tempfile::tempdir().unwrap();
    assert!(zarrfs().arg("man").arg(dir.path()).status().unwrap().success());
    let mut seen = 0;
    for command in commands() {
        let help = help_of(Some(&command));
        let page = fs::read_to_string(dir.path().join(format!("man1/zarrfs-{command}.1"))).unwrap();
        let page = page.replace("\\-", "-").replace("\\fB", "").replace("\\fR", "");
        let (wanted, found) = (in_brackets(&help, "default"), in_brackets(&page, "default"));
        assert_eq!(wanted, found, "the defaults of {command}");
        for value in values(&help) {
            let is_item = |line: &str| line == value || line.starts_with(&format!("{value}: "));
            assert!(page.lines().any(is_item), "{command}: no value {value} in the man page");
            seen += 1;
        }
    }
    assert!(seen > 50, "{seen} values");
}

#[test]
fn the_page_of_all_commands_is_their_help() {
    let mut page = "# Commands\n\nThe `--help` of the program and of each command.\n".to_owned();
    let names = commands();
    for command in std::iter::once(None).chain(names.iter().map(|name| Some(name.as_str()))) {
        let title = command.map_or("zarrfs".to_owned(), |name| format!("zarrfs {name}"));
        let help = help_of(command);
        let help: Vec<&str> = help.lines().map(str::trim_end).collect();
        let help = help.join("\n");
        page.extend(["\n## ", &title, "\n\n```text\n", help.trim_end(), "\n```\n"]);
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/commands.md");
    if std::env::var_os("ZARRFS_UPDATE").is_some() {
        fs::write(path, &page).unwrap();
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    let differs = found.lines().zip(page.lines()).find(|(found, wanted)| found != wanted);
    assert!(
        found == page,
        "docs/commands.md is outdated: {differs:?}; `ZARRFS_UPDATE=1 cargo test --test it page_of_all` writes it"
    );
}

#[test]
fn the_pages_of_stores_name_each_option_for_urls() {
    let help = help_of(Some("mount"));
    let lines = help.lines().skip_while(|line| *line != "Options for URLs:").skip(1);
    let section = lines.take_while(|line| line.is_empty() || line.starts_with(' '));
    let typed = section.filter(|line| line.trim_start().starts_with("--"));
    let typed: BTreeSet<String> = typed.flat_map(options).collect();
    assert!(typed.len() > 10, "{typed:?}");
    let pages = ["http", "s3", "references"].map(|page| {
        fs::read_to_string(format!("{}/docs/{page}.md", env!("CARGO_MANIFEST_DIR"))).unwrap()
    });
    for option in typed {
        let is_named = pages.iter().any(|page| options(page).contains(&option));
        assert!(is_named, "docs/http.md, s3.md and references.md do not name --{option}");
    }
}

#[test]
fn the_help_names_each_codec_with_a_short_name() {
    let help = help_of(Some("mount"));
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let names = table::ids(|row| row.is_option).join(", ");
    assert!(help.contains(&format!("Codecs with a short name: {names}.")), "{names}");
}

#[test]
fn completions_complete_each_option_of_each_command() {
    let script = |shell: &str| {
        let printed = zarrfs().args(["completions", shell]).output().unwrap().stdout;
        String::from_utf8(printed).unwrap()
    };
    let (bash, zsh, fish) = (script("bash"), script("zsh"), script("fish"));
    for command in commands() {
        let help = help_of(Some(&command));
        let list = help.split_once("Options:").map_or("", |(_, list)| list);
        // Lines that continue a description are indented further.
        let is_option = |line: &&str| line.starts_with("  -") || line.starts_with("      --");
        let names: BTreeSet<String> = list
            .lines()
            .filter(is_option)
            .flat_map(|line| {
                options(line.split("  ").find(|part| part.contains("--")).unwrap_or(""))
            })
            .collect();
        let case = format!("zarrfs__subcmd__{command})");
        let case = if bash.contains(&case) { case } else { format!("zarrfs__{command})") };
        let in_bash = bash.rsplit_once(&case).expect("a case of bash").1;
        let in_bash = in_bash.split_once("return 0").expect("its words").0;
        for name in names {
            assert!(in_bash.contains(&format!("--{name}")), "bash: {command} --{name}");
            assert!(zsh.contains(&format!("--{name}")), "zsh: {command} --{name}");
            let is_of =
                |line: &str| line.contains(&command) && line.contains(&format!("-l {name}"));
            assert!(fish.lines().any(is_of), "fish: {command} --{name}");
        }
    }
}

#[test]
fn completions_have_all_commands_and_are_valid() {
    for shell in ["bash", "zsh", "fish"] {
        let printed = zarrfs().args(["completions", shell]).output().unwrap();
        assert!(printed.status.success());
        let text = String::from_utf8(printed.stdout).unwrap();
        for command in commands() {
            assert!(text.contains(&command), "{command} is not completed in {shell}");
        }
    }
    let script = "source <(\"$0\" completions bash)
        COMP_WORDS=(zarrfs che) COMP_CWORD=1
        _zarrfs zarrfs che zarrfs
        echo \"${COMPREPLY[@]}\"
        COMP_WORDS=(zarrfs check --expe) COMP_CWORD=2
        _zarrfs zarrfs --expe check
        echo \"${COMPREPLY[@]}\"";
    let bash = Command::new("bash").args(["-c", script, env!("CARGO_BIN_EXE_zarrfs")]).output();
    let bash = bash.expect("bash");
    assert_eq!(String::from_utf8_lossy(&bash.stdout), "check\n--expect-all\n", "{bash:?}");
}
