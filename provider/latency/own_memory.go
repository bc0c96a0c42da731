package latency

import (
	"context"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// OwnUnknown reports whether a function's instances map weights together and their profile does not say what
// each has to itself, as those of earlier versions do not. All memory of each counts then.
func OwnUnknown(f *provider.Function, p *profiler.Profile) bool {
	return p.Own <= 0 && p.Mapped.Bytes > 0 && p.Members() == 1 && f.Inference.Limits.Memory <= 0 && f.Inference.Device != annotation.DeviceCUDA
}

// Own returns p, a model's full profile, with what an instance has to itself, and stores it so. That comes from a sketch of
// the model, within seconds; p's times stay, and with them what executions have shown of them.
func (t *Finder) Own(ctx context.Context, f *provider.Function, file string, p *profiler.Profile) (own *profiler.Profile, err error) {
	hash, err := t.Models.Hash(file)
	if err != nil {
		return nil, err
	}
	key := t.Key(hash, f)
	_, own, err = t.sketching.find(ctx, f.Name, t.Models.Bytes(file), func(ctx context.Context) (string, *profiler.Profile, error) {
		with := *p
		if stored := t.stored(key); stored != nil && stored.Own > 0 { // Another function has the model, too.
			with.Own = stored.Own
			return "", &with, nil
		}
		until := f.Inference.SLO / 2
		for _, m := range largestBatches(p) { // The memory is that of the profile's largest batch.
			until = max(until, time.Duration(m.Median)*time.Microsecond)
		}
		_, sketch, err := t.models(f).Sketch(ctx, file, f.Inference.MaxBatch, until)
		if err != nil {
			return "", nil, err
		}
		with.Own = sketch.Own
		if stored := t.stored(key); stored != nil && !stored.Provisional && stored.Own <= 0 {
			later := *stored
			later.Own = with.Own
			t.keep(f, key, &later)
		}
		return "", &with, nil
	})
	return own, err
}
