package latency

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/shadow"
)

// Layers returns the times of a model's blocks, from which the part of a shadow is chosen. They are
// stored with the model's profile. Otherwise [Finder.Blocks] finds them, which may take some
// seconds. The error says why the model cannot be divided. A replica that does not lead gets
// ErrFollowing until the leader has stored them.
func (t *Finder) Layers(ctx context.Context, f *provider.Function, file string) (*shadow.Model, error) {
	hash, err := t.Models.Hash(file)
	if err != nil {
		return nil, err
	}
	key := t.Key(hash, f)
	if p := t.stored(key); p != nil && len(p.Layers) > 0 {
		var m shadow.Model
		if err := json.Unmarshal(p.Layers, &m); err == nil && m.Check() == nil {
			return &m, nil
		}
	}
	if !t.Leading() {
		return nil, ErrFollowing
	}
	// Models that are measured do not wait: functions without shadows may need their times.
	if err := take(ctx, t.dividing); err != nil {
		return nil, err
	}
	defer give(t.dividing)
	m, err := t.Blocks(ctx, file)
	var why *shadow.UndividedError
	if errors.As(err, &why) {
		t.undivided.Store(hash, err.Error())
	}
	if err != nil {
		return nil, err
	}
	t.undivided.Delete(hash)
	if err := m.Check(); err != nil {
		return nil, err
	}
	if p := t.stored(key); p != nil && !p.Provisional {
		with := *p
		if with.Layers, err = json.Marshal(m); err != nil {
			return nil, err
		}
		t.keep(f, key, &with)
	}
	return m, nil
}

// Undivided returns why a model cannot be divided, "" if it can or if Layers has not looked since this
// process began.
func (t *Finder) Undivided(file string) string {
	hash, err := t.Models.Hash(file)
	if err != nil {
		return ""
	}
	why, _ := t.undivided.Load(hash)
	text, _ := why.(string)
	return text
}
