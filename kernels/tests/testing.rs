//! What is said of tests that cannot run, in processes of their own with and without `CI`.

use std::process::{Command, Output};

use moss_kernels::testing;

/// Set in the child process.
const CHILD: &str = "MOSS_KERNELS_TEST_CHILD";

/// True in the child process; else that process's output, with `CI` set to `ci`.
fn child(test: &str, ci: Option<&str>) -> Option<Output> {
    if std::env::var_os(CHILD).is_some() {
        return None;
    }
    let mut command = Command::new(std::env::current_exe().expect("a test has a path"));
    command.args(["--exact", test, "--test-threads", "2"]).env(CHILD, "1").env_remove("CI");
    command.envs(ci.map(|ci| ("CI", ci)));
    Some(command.output().expect("starts itself"))
}

#[test]
fn a_missing_tool_is_said_and_fails_only_in_ci() {
    let test = "a_missing_tool_is_said_and_fails_only_in_ci";
    for (ci, passes) in [(None, true), (Some(""), true), (Some("1"), false), (Some("true"), false)] {
        let Some(output) = child(test, ci) else {
            assert!(!testing::has_tool("no-such-tool-19", "llvm-19"));
            return;
        };
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.success(), passes, "CI={ci:?}: {out}{err}");
        if passes {
            assert_eq!(
                err.trim_end(),
                format!("not run: {test}: no-such-tool-19 is not installed (Debian: llvm-19)")
            );
        } else {
            assert!(out.contains("cannot run: no-such-tool-19 is not installed (Debian: llvm-19)"), "{out}");
        }
    }
}

#[test]
fn an_architecture_that_was_not_built_is_said() {
    let test = "an_architecture_that_was_not_built_is_said";
    let Some(output) = child(test, None) else {
        for _ in 0..2 {
            assert_eq!(testing::built(&["gfx1"]), [""; 0]);
        }
        return;
    };
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    let line = match moss_kernels::why_empty() {
        None => format!("not run on gfx1: {test}: not in MOSS_KERNELS_ARCHS\n"),
        Some(_) => format!("not run: {test}: there was no compiler of GPU code"),
    };
    assert!(err.starts_with(&line), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
}
