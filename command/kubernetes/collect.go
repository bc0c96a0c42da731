package kubernetes

import (
	"context"
	"time"

	"github.com/faas-infer/faas-infer/provider/control"
)

// collectPeriod is the time between two looks for profiles that no function needs. The first is
// after one period: by then the functions of a provider that starts are there.
const collectPeriod = 6 * time.Hour

// collect deletes the profiles of models that no function has had for long, while this replica
// leads, until ctx ends.
func (p *platform) collect(ctx context.Context) {
	ticker := time.Tick(collectPeriod)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker:
		}
		if !p.election.Leading() {
			continue
		}
		hashes, err := control.Hashes(p.control)
		if err == nil { // Otherwise the profile of a model in use might go.
			err = p.history.Collect(ctx, func(hash string) bool { return hashes[hash] }, time.Now())
		}
		if err != nil && ctx.Err() == nil {
			p.base.Log.Warn().Err(err).Msg("old profiles stay")
		}
	}
}
