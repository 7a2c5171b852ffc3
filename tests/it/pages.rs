//! Man pages and completions name what the program takes.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::support::zarrfs;

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
