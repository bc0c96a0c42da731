package python

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/faas-infer/faas-infer/instance/python/environment"
	"github.com/faas-infer/faas-infer/model/bundle"
)

// inPlace prepares a bundle whose environment is already installed, as in an image. It
// installs and copies nothing: it only writes the record. If it cannot write below cache,
// it writes to a temporary directory.
func inPlace(b *bundle.Bundle, program, cache string) (dir string, err error) {
	own, err := filepath.Abs(b.Dir)
	if err != nil {
		return "", err
	}
	dir = filepath.Join(cache, "in-place")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		if dir, err = os.MkdirTemp("", "faas-infer-python-"); err != nil {
			return "", fmt.Errorf("prepare the bundle: %w", err)
		}
	}
	p := Prepared{Dir: own, Engine: b.Engine, Model: b.Model, Handler: b.Handler, Environment: environment.ReadyName, Python: program, Warm: warmModules(b)}
	return dir, record.Write(dir, p)
}
