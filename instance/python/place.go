package python

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/faas-infer/faas-infer/instance/python/environment"
	"github.com/faas-infer/faas-infer/model/bundle"
)

// inPlace prepares a bundle beside which all is that it needs, as in an image: it is
// neither installed nor copied. In an image that nobody may write to, what tells of it
// is among the temporary files.
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
