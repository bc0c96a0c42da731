package latency

import (
	"context"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
)

// Kept returns the stored profile of a model for a function, nil if there is none, and the hash of the model's
// content. The error is that of [Models.Hash]. The profile must not be changed.
func (t *Finder) Kept(f *provider.Function, file string) (hash string, p *profiler.Profile, err error) {
	if hash, err = t.Models.Hash(file); err != nil {
		return "", nil, err
	}
	return hash, t.stored(t.Key(hash, f)), nil
}

// Amend stores a model's full profile, by the model's hash, as change leaves it. It stores nothing without such
// a profile, on a replica that does not lead, or if change reports that it changes nothing.
func (t *Finder) Amend(f *provider.Function, hash string, change func(*profiler.Profile) bool) {
	key := t.Key(hash, f)
	p := t.stored(key)
	if p == nil || p.Provisional {
		return
	}
	if with := *p; change(&with) {
		t.keep(f, key, &with)
	}
}

// Divide runs work, which finds how a model can be divided, in its turn: one for each function at a time, the
// smallest model first. Models that are measured do not wait for it.
func (t *Finder) Divide(ctx context.Context, f *provider.Function, file string, work func(context.Context) error) error {
	return t.dividing.do(ctx, f.Name, t.Models.Bytes(file), work)
}
