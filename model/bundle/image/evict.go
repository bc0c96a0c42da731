package image

import (
	"errors"
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/filelock/workdir"
	"github.com/faas-infer/faas-infer/model/bundle"
)

// store has the bundles that [Pull] leaves on this machine. Nothing else would notice a shortened file of one.
func store(cacheDir string) workdir.Store { return workdir.Store{Dir: cacheDir, Durable: true} }

// Evict removes bundles from a directory that [Pull] fills, least recently used
// first, until the rest have at most maxBytes together. It keeps every bundle that
// was used after the given time, because a process may be reading it. It returns the
// number of bytes removed.
func Evict(cacheDir string, maxBytes int64, used time.Time) (freed int64, err error) {
	err = bundle.Sweep(cacheDir) // Earlier versions worked there.
	_, freed, wrong := store(cacheDir).Collect("sha256-*", used, maxBytes)
	if err := errors.Join(err, wrong); err != nil {
		return freed, fmt.Errorf("remove a bundle: %w", err)
	}
	return freed, nil
}
