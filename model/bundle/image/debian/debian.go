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
	"slices"
	"strings"
)

// Packages are the packages of every image, Tools those of images with a shell and
// the usual commands.
var (
	Packages = []string{"base-files", "libc6", "libgcc-s1", "libstdc++6", "ca-certificates", "netbase", "tzdata"}
	Tools    = []string{"busybox-static"}
)

// Download fetches packages into a directory and returns their files, sorted by name.
// It skips packages that are there in the version that apt knows.
func Download(ctx context.Context, dir string, packages []string) ([]string, error) {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return nil, errors.New("this machine has no apt-get, which downloads the packages of the base image; give an image with --base, or build on Debian or Ubuntu")
	}
	out, err := find(ctx, dir, packages)
	if err != nil {
		return nil, fmt.Errorf("find packages: %w; run `apt-get update`", err)
	}
	names, missing := plan(out, dir)
	if len(names) != len(packages) {
		return nil, fmt.Errorf("apt-get names %d files for the packages %s; run `apt-get update`", len(names), strings.Join(packages, ", "))
	}
	if len(missing) > 0 {
		if err := fetch(ctx, dir, missing); err != nil {
			return nil, err
		}
	}
	var files []string
	for _, name := range names {
		files = append(files, filepath.Join(dir, name))
	}
	slices.Sort(files)
	return files, nil
}

// find lists the addresses of packages with apt. It runs apt in an empty directory,
// because apt leaves out packages that are in its working directory.
func find(ctx context.Context, dir string, packages []string) (_ string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	fresh, err := os.MkdirTemp(dir, ".find-*")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(fresh)) }()
	out, err := run(ctx, fresh, "apt-get", append([]string{"download", "--print-uris"}, packages...)...)
	return string(out), err
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

// fetch downloads packages into a temporary directory in dir, and moves them to dir
// when they are complete.
func fetch(ctx context.Context, dir string, packages []string) (err error) {
	fresh, err := os.MkdirTemp(dir, ".fetch-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(fresh)) }()
	// apt's own user cannot write here. Without the option apt would warn.
	if _, err := run(ctx, fresh, "apt-get", append([]string{"download", "-qq", "-o", "APT::Sandbox::User="}, packages...)...); err != nil {
		return fmt.Errorf("download packages: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(fresh, "*.deb"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := os.Rename(file, filepath.Join(dir, filepath.Base(file))); err != nil {
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
