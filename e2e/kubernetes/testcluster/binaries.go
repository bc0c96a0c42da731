package testcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Version is the Kubernetes' that scripts/kubernetes.sh builds.
const Version = "1.36.3"

// Binaries is the directory of the programs, which scripts/kubernetes.sh makes sure
// of where it can be found: in the folder "scripts" of the working directory or one
// above it.
func Binaries(ctx context.Context) (string, error) {
	if path, found := findScript("kubernetes.sh"); found {
		return printed(ctx, path)
	}
	caches, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find Kubernetes' programs: %w", err)
	}
	dir := filepath.Join(caches, "faas-infer", "kubernetes", Version)
	if _, err := os.Stat(filepath.Join(dir, "bin", "kube-apiserver")); err != nil {
		return "", errors.New("the programs of Kubernetes are not built; run scripts/kubernetes.sh once")
	}
	return dir, nil
}

// script runs one of the folder "scripts" and returns the path that it prints.
func script(ctx context.Context, name string) (string, error) {
	path, found := findScript(name)
	if !found {
		return "", fmt.Errorf("scripts/%s is in no folder above this one: run the test in a checkout", name)
	}
	return printed(ctx, path)
}

func printed(ctx context.Context, script string) (string, error) {
	c := exec.CommandContext(ctx, script)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", script, err)
	}
	return strings.TrimSpace(string(out)), nil
}

func findScript(name string) (string, bool) {
	dir, err := os.Getwd()
	if err != nil {
		return "", false
	}
	for {
		script := filepath.Join(dir, "scripts", name)
		if _, err := os.Stat(script); err == nil {
			return script, true
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", false
		}
		dir = parent
	}
}
