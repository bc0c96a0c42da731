// Package debian makes base images from Debian's packages: the C and C++ libraries of
// faas-infer and ONNX Runtime, root certificates and time zones. A shell and Python
// are optional. It downloads the packages with the machine's own apt, which checks
// their signatures. Begin with [Function.Image].
package debian

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Packages are the packages of every image, Tools those of images with a shell and the usual
// commands. Python are those of images for functions in Python: the interpreter, and the module
// with which the provider makes virtual environments. Their dependencies come with them.
var (
	Packages = []string{"base-files", "libc6", "libgcc-s1", "libstdc++6", "ca-certificates", "netbase", "tzdata"}
	Tools    = []string{"busybox-static"}
	Python   = []string{"python3", "python3-venv"}
)

// installOnly are packages that only the installation scripts of others need. Images run no such
// scripts, so apt is told that these packages are installed.
var installOnly = []string{
	"debconf", "dpkg", "install-info", "mawk", "openssl", "perl", "perl-base", "readline-common", "tar",
}

// Source is where packages come from: the machine's own apt, for one architecture.
type Source struct {
	// Dir is the directory that caches packages.
	Dir string
	// Architecture is Debian's name of it, which for amd64 and arm64 is Go's, too.
	Architecture string
	// options are apt's, for another architecture with lists of packages of its own.
	options []string
}

// listsAge is the age above which the lists of packages of another architecture are read again.
const listsAge = 24 * time.Hour

// NewSource returns the source for an architecture. For this machine's own it uses the machine's lists of
// packages. For another it keeps lists of its own below dir, so that the machine need not know that architecture.
func NewSource(ctx context.Context, dir, architecture string) (*Source, error) {
	s := &Source{Dir: dir, Architecture: architecture}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return nil, errors.New("this machine has no apt-get, which downloads the packages of the base image; give an image with --base, or build on Debian or Ubuntu")
	}
	if architecture != runtime.GOARCH {
		s.Dir = filepath.Join(dir, architecture)
	}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return nil, err
	}
	// What this machine has installed does not matter. apt's own user cannot write to Dir.
	s.options = []string{"-o", "Dir::State::status=/dev/null", "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User="}
	if architecture == runtime.GOARCH {
		return s, nil
	}
	return s, s.readLists(ctx)
}

// readLists gives apt lists of packages of its own, and reads them unless they are young.
func (s *Source) readLists(ctx context.Context) error {
	lists := filepath.Join(s.Dir, "lists")
	if err := os.MkdirAll(filepath.Join(lists, "partial"), 0o755); err != nil {
		return err
	}
	config := filepath.Join(s.Dir, "apt.conf")
	// Images of containers have hooks that only root can run.
	if err := os.WriteFile(config, []byte("#clear APT::Update::Post-Invoke;\n"), 0o644); err != nil {
		return err
	}
	for _, option := range []string{
		"APT::Architecture=" + s.Architecture, "APT::Architectures=" + s.Architecture, "Dir::State::lists=" + lists,
		"Dir::Cache=" + s.Dir,
	} {
		s.options = append(s.options, "-o", option)
	}
	s.options = append(s.options, "-c", config)
	read := filepath.Join(s.Dir, "lists-read")
	if info, err := os.Stat(read); err == nil && time.Since(info.ModTime()) < listsAge {
		return nil
	}
	if _, err := run(ctx, "", "apt-get", s.arguments("update", "-qq")...); err != nil {
		return fmt.Errorf("read the lists of Debian's packages for %s: %w", s.Architecture, err)
	}
	return os.WriteFile(read, nil, 0o644)
}

// arguments adds apt's options to a command of apt.
func (s *Source) arguments(command ...string) []string {
	return append(slices.Clone(s.options), command...)
}

// Download fetches packages, and those that they depend on, into the directory and returns their
// files, sorted by name. It skips packages that are there in the version that apt knows.
func (s *Source) Download(ctx context.Context, packages []string) ([]string, error) {
	out, err := s.find(ctx, packages)
	if err != nil {
		return nil, fmt.Errorf("find packages: %w; run `apt-get update`", err)
	}
	names, missing := plan(out, s.Dir)
	if len(missing) > 0 {
		if err := s.fetch(ctx, missing); err != nil {
			return nil, err
		}
	}
	var files []string
	for _, name := range names {
		files = append(files, filepath.Join(s.Dir, name))
	}
	slices.Sort(files)
	return files, nil
}

// find lists the addresses of packages, and of those that they depend on, with apt. It gives apt an
// empty directory of packages, because apt leaves out those that it has.
func (s *Source) find(ctx context.Context, packages []string) (_ string, err error) {
	fresh, err := os.MkdirTemp(s.Dir, ".find-*")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(fresh)) }()
	installed := filepath.Join(fresh, "installed")
	if err := os.WriteFile(installed, []byte(standIns()), 0o644); err != nil {
		return "", err
	}
	install := []string{
		"install", "--print-uris", "-qq", "--no-install-recommends",
		"-o", "Dir::Cache::archives=" + fresh, "-o", "Dir::State::status=" + installed,
	}
	out, err := run(ctx, "", "apt-get", s.arguments(append(install, packages...)...)...)
	return string(out), err
}

// standIns are entries of dpkg's list for the packages of [installOnly]. Their version is above any
// that a package asks for.
func standIns() string {
	var all strings.Builder
	for _, name := range installOnly {
		fmt.Fprintf(&all, "Package: %s\nStatus: install ok installed\nVersion: 99:0\nArchitecture: all\nMulti-Arch: foreign\n", name)
		if name == "mawk" {
			all.WriteString("Provides: awk\n")
		}
		all.WriteString("Maintainer: none\nDescription: not in images\n\n")
	}
	return all.String()
}

// uri is a line of apt-get's --print-uris: the quoted address, the file's name, its
// size and its checksum.
var uri = regexp.MustCompile(`(?m)^'[^']+' ([^ /_]+)(_[^ /]+\.deb) \d+`)

// plan reads the file names in apt's list, and names the packages whose file dir does
// not have.
func plan(lines, dir string) (names, missing []string) {
	for _, m := range uri.FindAllStringSubmatch(lines, -1) {
		names = append(names, m[1]+m[2])
		if _, err := os.Stat(filepath.Join(dir, m[1]+m[2])); err != nil {
			missing = append(missing, m[1])
		}
	}
	return names, missing
}

// fetch downloads packages into a temporary directory, and moves them when they are complete.
func (s *Source) fetch(ctx context.Context, packages []string) (err error) {
	fresh, err := os.MkdirTemp(s.Dir, ".fetch-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(fresh)) }()
	download := append([]string{"download", "-qq"}, packages...)
	if _, err := run(ctx, fresh, "apt-get", s.arguments(download...)...); err != nil {
		return fmt.Errorf("download packages: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(fresh, "*.deb"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := os.Rename(file, filepath.Join(s.Dir, filepath.Base(file))); err != nil {
			return err
		}
	}
	return nil
}

// run returns a command's output. The error of a failed command contains its standard
// error.
func run(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	var out, problem bytes.Buffer
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.Stdout, c.Stderr = dir, &out, &problem
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(problem.String()))
	}
	return out.Bytes(), nil
}
