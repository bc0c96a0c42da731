// Package dividing finds which parts of a function's model shadows may hold: it keeps models' layer profiles with
// their other times, and asks package pairing, which chooses among the parts. Begin with [Finder.Divide].
package dividing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/faas-infer/faas-infer/papers/asyfunc/pairing"
	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// Finder finds layer profiles and divisions.
type Finder struct {
	// times has the models, and their profiles in the store.
	times *latency.Finder
	// blocks finds the times of a model's blocks.
	blocks func(ctx context.Context, file string) (*shadow.Model, error)
	// transfer is the time of tensors between a body and its shadow.
	transfer func() shadow.Transfer
}

// New returns a finder. blocks finds the times of a model's blocks, which may take some seconds; its error is a
// [shadow.UndividedError] if no later attempt can succeed. transfer is the time of tensors between a body and its
// shadow.
func New(times *latency.Finder, blocks func(ctx context.Context, file string) (*shadow.Model, error), transfer func() shadow.Transfer) *Finder {
	return &Finder{times: times, blocks: blocks, transfer: transfer}
}

// Divide chooses the parts for the shadows of a function's model, one for each share. planned is what the engine
// plans with, and is called when the model's layers are known. If there will never be any divisions, why says so.
// The error is why the layers were not found, for now if why is "".
func (d *Finder) Divide(ctx context.Context, f *provider.Function, file string, planned func() (scaling.Function, capacity.Options)) (found []*pairing.Division, why string, err error) {
	m, err := d.layers(ctx, f, file)
	switch {
	case errors.As(err, new(*shadow.UndividedError)):
		return nil, err.Error(), err
	case err != nil:
		return nil, "", err
	}
	x := pairing.Divider{Model: m, Transfer: d.transfer()}
	x.Planned, x.Limits = planned()
	all, err := x.Divide()
	switch {
	case err != nil:
		return nil, err.Error(), nil
	case len(all) == 0:
		return nil, "a shadow would gain too little on any share", nil
	}
	for i := range all {
		found = append(found, &all[i])
	}
	return found, "", nil
}

// layers returns the times of a model's blocks, from which the part of a shadow is chosen. They are
// stored with the model's profile. Otherwise blocks finds them. The error says why the model cannot be divided.
// That is stored, too, and the leader looks again after a restart: the model may have been prepared since. A
// replica that does not lead gets [latency.ErrFollowing] until the leader has stored either, and
// [latency.ErrStored] for a stored reason.
func (d *Finder) layers(ctx context.Context, f *provider.Function, file string) (*shadow.Model, error) {
	hash, p, err := d.times.Kept(f, file)
	if err != nil {
		return nil, err
	}
	if p != nil && len(p.Layers) > 0 {
		var m shadow.Model
		if err := json.Unmarshal(p.Layers, &m); err == nil && m.Check() == nil {
			return &m, nil
		}
	}
	switch {
	case d.times.Leading():
	case p != nil && p.Undivided != "":
		return nil, fmt.Errorf("%w: %s", latency.ErrStored, (&shadow.UndividedError{Why: p.Undivided}).Error())
	default:
		return nil, latency.ErrFollowing
	}
	var m *shadow.Model
	err = d.times.Divide(ctx, f, file, func(ctx context.Context) (err error) {
		m, err = d.blocks(ctx, file)
		return err
	})
	var why *shadow.UndividedError
	if errors.As(err, &why) {
		d.store(f, hash, nil, why.Reason())
	}
	if err != nil {
		return nil, err
	}
	if err := m.Check(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	d.store(f, hash, text, "")
	return m, nil
}

// store stores a model's layers, or why it cannot be divided, with its full profile.
func (d *Finder) store(f *provider.Function, hash string, layers json.RawMessage, undivided string) {
	d.times.Amend(f, hash, func(p *profiler.Profile) bool {
		changes := layers != nil || p.Undivided != undivided
		p.Layers, p.Undivided = layers, undivided
		return changes
	})
}
