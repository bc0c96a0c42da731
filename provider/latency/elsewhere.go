package latency

import (
	"cmp"
	"context"
	"slices"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
)

// Elsewhere is implemented by stores of profiles that several machines share.
type Elsewhere interface {
	// ProfilesOf lists the stored profiles of a model, by its hash, of all engines and machines.
	ProfilesOf(hash string) ([]*profiler.Profile, error)
}

// Pace says how this machine compares to the one of a profile: by is the factor by which it is
// slower, off the relative error of that.
type Pace func(ctx context.Context, of *profiler.Profile) (by, off float64)

// PacedByYardstick is the relative error that is expected of times that were converted by the
// yardsticks of two machines, and Unpaced that of times that were not converted. Both are
// assumptions: the yardstick is one matrix product, and operators that wait for memory follow it
// less.
const PacedByYardstick, Unpaced = 0.2, 0.3

// elsewhere returns a stored profile of another machine, converted to this one; nil if there is
// none that this provider can use. All replicas choose the same: a full profile before a sketch,
// measured times before predicted ones, and the latest.
func (t *Finder) elsewhere(ctx context.Context, hash string, f *provider.Function) *profiler.Profile {
	store, ok := t.Profiles.(Elsewhere)
	if !ok {
		return nil
	}
	all, err := store.ProfilesOf(hash)
	if err != nil {
		t.Logger.Error().Str("function", f.Name).Err(err).Msg("could not read the model's profiles of other machines")
		return nil
	}
	all = slices.DeleteFunc(all, func(p *profiler.Profile) bool {
		return p.Machine == t.Machine || p.Sizes != SizesOf(f).Key() || !p.Usable(t.Engine, p.Machine) || !t.Predict && predicted(p) || !p.Provisional && !covers(p, f.Inference.MaxBatch, f.Inference.SLO/2)
	})
	if len(all) == 0 {
		return nil
	}
	best := slices.MinFunc(all, func(a, b *profiler.Profile) int {
		return cmp.Or(rank(a)-rank(b), b.MeasuredAt.Compare(a.MeasuredAt), cmp.Compare(a.Machine, b.Machine))
	})
	by, off := 1.0, Unpaced
	if t.Pace != nil {
		by, off = t.Pace(ctx, best)
	}
	return best.Scaled(by, off)
}

// rank is lower for a better profile.
func rank(p *profiler.Profile) int {
	switch {
	case p.Provisional:
		return 2
	case predicted(p):
		return 1
	}
	return 0
}

// known is the profile of this machine, otherwise that of another one; nil if there is neither.
func (t *Finder) known(ctx context.Context, hash string, f *provider.Function) *profiler.Profile {
	if p := t.stored(t.Key(hash, f)); p != nil {
		return p
	}
	return t.elsewhere(ctx, hash, f)
}

// foreign returns a profile of another machine that serves the function, nil if there is none.
// A replica that leads takes it as provisional and finds the times of its own machine later; the
// others keep it. A converted profile refuses no function: its margin may be all that is too slow.
func (t *Finder) foreign(ctx context.Context, hash string, f *provider.Function) *profiler.Profile {
	p := t.elsewhere(ctx, hash, f)
	if p == nil {
		return nil
	}
	if t.Leading() && !p.Provisional {
		later := *p
		later.Provisional = true
		p = &later
	}
	if !t.serves(f, p) || t.Rules.Hopeless(f, t.Rules.Promised(f, p)) != nil {
		return nil
	}
	return p
}
