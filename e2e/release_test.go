package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// anyDigest stands for the digest of the provider's image, which this test does not build.
const anyDigest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// A release of one commit has the same bytes, whatever directory it is made in. Its install.sh installs a program that
// tells its version, and refuses files that differ. The images, which take minutes, are not part of this test, nor are
// programs for other architectures, whose compiler a machine need not have.
func TestRelease(t *testing.T) {
	if onCluster != nil {
		t.Skip("a release is not made on a cluster")
	}
	providerTests.takeHere(t)
	source, err := guideSource()
	if err != nil {
		t.Fatal(err)
	}
	version := newestRelease(t, filepath.Join(source, "CHANGELOG.md"))
	var made []string
	for _, name := range []string{"first", "a/second-and-longer"} {
		made = append(made, makeRelease(t, source, filepath.Join(t.TempDir(), name), version))
	}
	first, second := readAll(filepath.Join(made[0], "SHA256SUMS")), readAll(filepath.Join(made[1], "SHA256SUMS"))
	if first != second || strings.Count(first, "\n") < 8 {
		t.Errorf("the release in one directory:\n%sin another:\n%s", first, second)
	}
	// A link leads out of a chart that is alone.
	chart := filepath.Join(made[0], "faas-infer-chart-"+version[1:]+".tgz")
	if out, err := exec.Command("tar", "-tvzf", chart).CombinedOutput(); err != nil || strings.Contains(string(out), " -> ") {
		t.Errorf("the chart: %v:\n%s", err, out)
	}
	prefix := t.TempDir()
	install := func(args ...string) (string, error) {
		args = append([]string{filepath.Join(made[0], "install.sh"), "--prefix", prefix, "--no-setup"}, args...)
		out, err := exec.Command("sh", args...).CombinedOutput()
		return string(out), err
	}
	if out, err := install("--from", made[0]); err == nil || !strings.Contains(out, "give --unsigned") {
		t.Errorf("install.sh of a release without a signature: %v: %s", err, out)
	}
	if out, err := install("--from", "http://127.0.0.1:1", "--unsigned"); err == nil || !strings.Contains(out, "use https") {
		t.Errorf("install.sh of a release without a signature by http: %v: %s", err, out)
	}
	if out, err := install("--from", made[0], "--unsigned"); err != nil {
		t.Fatalf("install.sh: %v: %s", err, out)
	}
	out, err := exec.Command(filepath.Join(prefix, "bin", "faas-infer"), "--version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), version) {
		t.Errorf("the installed program: %v: %s", err, out)
	}
	older := t.TempDir()
	write(t, "#!/bin/sh\necho glibc 2.31\n", 0o755, older, "getconf")
	c := exec.Command("sh", filepath.Join(made[0], "install.sh"), "--prefix", prefix, "--from", made[0], "--unsigned")
	c.Env = append(os.Environ(), "PATH="+older+":"+os.Getenv("PATH"))
	if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), "this machine has glibc 2.31") {
		t.Errorf("install.sh with an older glibc: %v: %s", err, out)
	}
	archives, err := filepath.Glob(filepath.Join(made[0], "*-linux-*.tar.gz"))
	if err != nil || len(archives) != 1 {
		t.Fatalf("archives %v, %v", archives, err)
	}
	if err := os.WriteFile(archives[0], []byte("something else"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := install("--from", made[0], "--unsigned"); err == nil || !strings.Contains(out, "another checksum") {
		t.Errorf("install.sh of a changed archive: %v: %s", err, out)
	}
	write(t, "another\n", 0o644, filepath.Join(filepath.Dir(made[0]), "programs-"+version), "commit")
	c = exec.Command("scripts/release.sh", version, "--architectures", "amd64")
	c.Dir = filepath.Join(made[0], "../..")
	if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), "of another commit") {
		t.Errorf("release.sh over files of another commit: %v: %s", err, out)
	}
}

// newestRelease returns the newest version in the changelog.
func newestRelease(t *testing.T, changelog string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^## \[(\d+\.\d+\.\d+)\]`).FindStringSubmatch(readAll(changelog))
	if m == nil {
		t.Fatalf("%s has no version", changelog)
	}
	return "v" + m[1]
}

// makeRelease clones a repository to a directory and makes a release there, without images.
func makeRelease(t *testing.T, source, dir, version string) string {
	t.Helper()
	if out, err := exec.Command("git", "-c", "safe.directory=*", "clone", "-q", source, dir).CombinedOutput(); err != nil {
		t.Fatalf("git clone: %v: %s", err, out)
	}
	at := filepath.Join(dir, "dist", version)
	commit, err := exec.Command("git", "-C", dir, "rev-parse", "HEAD").Output()
	if err != nil {
		t.Fatalf("git rev-parse: %v", err)
	}
	write(t, string(commit), 0o644, dir, "dist/programs-"+version, "commit")
	write(t, "registry.example.com/provider:"+version+"@"+anyDigest+"\n", 0o644, at, "images.txt")
	c := exec.Command("scripts/release.sh", version, "--only", "programs,packages,charts", "--architectures", "amd64")
	c.Dir = dir
	c.Env = append(os.Environ(), "RELEASE_KEY=", "RELEASE_REGISTRY=registry.example.com")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("release.sh: %v: %s", err, out)
	}
	return at
}
