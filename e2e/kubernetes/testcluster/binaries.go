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

// Version is the version of Kubernetes that scripts/kubernetes.sh builds.
const Version = "1.36.3"

// Binaries returns the directory of Kubernetes' programs. It runs scripts/kubernetes.sh,
// which builds missing ones, if the working directory or one above it has the script.
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
		return "", errors.New("Kubernetes' programs are not built: run scripts/kubernetes.sh once")
	}
	return dir, nil
}

// script runs a script of the folder "scripts" and returns the path that it prints.
func script(ctx context.Context, name string) (string, error) {
	path, found := findScript(name)
	if !found {
		return "", fmt.Errorf("scripts/%s is not in this folder or one above: run the test in a checkout", name)
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
