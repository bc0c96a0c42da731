package workdir

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// childEnv names the directory in which the test program makes a work directory and waits.
const childEnv = "FAAS_INFER_TEST_WORKDIR"

func TestMain(m *testing.M) {
	if parent := os.Getenv(childEnv); parent != "" {
		d, err := Make(parent, ".work-")
		if err != nil {
			panic(err)
		}
		os.Stdout.WriteString(d.Path + "\n")
		io.Copy(io.Discard, os.Stdin) // Until it is killed.
	}
	os.Exit(m.Run())
}

// A sweep may open a directory just before another one is moved to its path, and lock it after. The other one stays:
// who moved it there removes it.
func TestSweepDuringExchange(t *testing.T) {
	dir := t.TempDir()
	path, moved := filepath.Join(dir, "staged"), filepath.Join(dir, "live")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	sweeping, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer sweeping.Close()
	if err := errors.Join(os.Rename(path, moved), os.Mkdir(path, 0o755)); err != nil {
		t.Fatal(err)
	}
	if gone, err := removeUnheld(path, sweeping); gone || err != nil || !Exists(path) || !Exists(moved) {
		t.Errorf("it is gone: %v, %v", gone, err)
	}
	if gone, err := RemoveUnheld(path); !gone || err != nil || Exists(path) {
		t.Errorf("nobody holds it: %v, %v", gone, err)
	}
}

// A process that is killed leaves its directory behind until the next sweep. Those that are
// in use, have another name or were made a moment ago stay.
func TestSweep(t *testing.T) {
	parent := t.TempDir()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), childEnv+"="+parent)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the child said nothing")
	}
	theirs := lines.Text()
	ours, err := Make(parent, ".work-")
	if err != nil {
		t.Fatal(err)
	}
	other, young := filepath.Join(parent, "work"), filepath.Join(parent, ".work-young")
	for _, dir := range []string{filepath.Join(theirs, "files"), filepath.Join(ours.Path, "files"), other, young} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	old := time.Now().Add(-2 * grace)
	for _, dir := range []string{theirs, ours.Path, other} {
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(when string, want ...string) {
		t.Helper()
		for _, dir := range Sweep(parent, ".work-*") {
			if when != "after one was killed" || dir != theirs {
				t.Errorf("%s: %s was removed", when, dir)
			}
		}
		all, err := os.ReadDir(parent)
		if err != nil || len(all) != len(want) {
			t.Errorf("%s: %v, %v", when, all, err)
		}
		for _, dir := range want {
			if _, err := os.Stat(dir); err != nil {
				t.Errorf("%s: %v", when, err)
			}
		}
	}
	expect("while both work", theirs, ours.Path, other, young)
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // It was killed.
	expect("after one was killed", ours.Path, other, young)
	if err := ours.Remove(); err != nil {
		t.Fatal(err)
	}
	expect("after the other one has finished", other, young)
}

// A directory that was renamed is not removed, nor is one that another process has made in its place since.
func TestRemoveLeavesWhatOthersMake(t *testing.T) {
	d, err := Make(t.TempDir(), "work-")
	if err != nil {
		t.Fatal(err)
	}
	finished := d.Path + "-finished"
	if err := errors.Join(os.Rename(d.Path, finished), os.Mkdir(d.Path, 0o700), d.Remove()); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{finished, d.Path} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}
