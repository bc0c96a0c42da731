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
const Version = "1.34.4"

// Binaries is the directory of the programs, which scripts/kubernetes.sh makes sure
// of where it can be found: in the folder "scripts" of the working directory or one
// above it.
func Binaries(ctx context.Context) (string, error) {
	script, found := findScript()
	if found {
		c := exec.CommandContext(ctx, script)
		c.Stderr = os.Stderr
		out, err := c.Output()
		if err != nil {
			return "", fmt.Errorf("scripts/kubernetes.sh: %w", err)
		}
		return strings.TrimSpace(string(out)), nil
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

func findScript() (string, bool) {
	dir, err := os.Getwd()
	if err != nil {
		return "", false
	}
	for {
		script := filepath.Join(dir, "scripts", "kubernetes.sh")
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
