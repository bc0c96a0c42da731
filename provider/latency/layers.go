package latency

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/shadow"
)

// Layers returns the times of a model's blocks, from which the part of a shadow is chosen. They are
// stored with the model's profile. Otherwise [Finder.Blocks] finds them, which may take some
// seconds. The error says why the model cannot be divided. That is stored, too, and the leader looks
// again after a restart: the model may have been prepared since. A replica that does not lead gets
// ErrFollowing until the leader has stored either, and ErrStored for a stored reason.
func (t *Finder) Layers(ctx context.Context, f *provider.Function, file string) (*shadow.Model, error) {
	hash, err := t.Models.Hash(file)
	if err != nil {
		return nil, err
	}
	key := t.Key(hash, f)
	p := t.stored(key)
	if p != nil && len(p.Layers) > 0 {
		var m shadow.Model
		if err := json.Unmarshal(p.Layers, &m); err == nil && m.Check() == nil {
			t.undivided.Store(hash, "")
			return &m, nil
		}
	}
	switch {
	case t.Leading():
	case p != nil && p.Undivided != "":
		return nil, fmt.Errorf("%w: %s", ErrStored, (&shadow.UndividedError{Why: p.Undivided}).Error())
	default:
		return nil, ErrFollowing
	}
	// Models that are measured do not wait: functions without shadows may need their times.
	var m *shadow.Model
	err = t.dividing.do(ctx, f.Name, t.Models.Bytes(file), func(ctx context.Context) (err error) {
		m, err = t.Blocks(ctx, file)
		return err
	})
	var why *shadow.UndividedError
	if errors.As(err, &why) {
		t.undivided.Store(hash, why.Reason())
		t.divided(f, key, nil, why.Reason())
	}
	if err != nil {
		return nil, err
	}
	t.undivided.Store(hash, "")
	if err := m.Check(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	t.divided(f, key, text, "")
	return m, nil
}

// ErrStored is wrapped by a reason why a model cannot be divided that a replica which leads has stored. It may pass.
var ErrStored = errors.New("the leader found")

// divided stores a model's layers, or why it cannot be divided, with its full profile.
func (t *Finder) divided(f *provider.Function, key string, layers json.RawMessage, undivided string) {
	p := t.stored(key)
	if p == nil || p.Provisional || layers == nil && p.Undivided == undivided {
		return
	}
	with := *p
	with.Layers, with.Undivided = layers, undivided
	t.keep(f, key, &with)
}

// lookAgain is how long Undivided may take to look at a model again.
const lookAgain = 10 * time.Second

// Undivided returns why the model of a function cannot be divided, "" if it can or if that is not known. An
// earlier provider may have stored a reason that has passed, so the leader looks again before it repeats
// it. A replica that does not lead knows of no reason that cannot pass: it may have led before, or its machine
// may be of another kind than the leader's.
func (t *Finder) Undivided(ctx context.Context, f *provider.Function, file string) string {
	if !t.Leading() {
		return ""
	}
	hash, err := t.Models.Hash(file)
	if err != nil {
		return ""
	}
	p := t.stored(t.Key(hash, f))
	if p != nil && len(p.Layers) > 0 { // Maybe another leader's, since this one looked.
		return ""
	}
	if why, looked := t.undivided.Load(hash); looked {
		if text, _ := why.(string); text != "" {
			return (&shadow.UndividedError{Why: text}).Error()
		}
		return ""
	}
	if p == nil || p.Undivided == "" {
		return ""
	}
	ctx, end := context.WithTimeout(ctx, lookAgain)
	defer end()
	if _, err = t.Layers(ctx, f, file); errors.As(err, new(*shadow.UndividedError)) {
		return err.Error()
	}
	return ""
}
