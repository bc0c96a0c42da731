package scaling

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

const (
	// loadingMargin is how much longer than before an instance may take to load.
	loadingMargin = 1.5
	// maxPause is how long after a request that waited in vain the wait of the next one
	// counts from the earlier one.
	maxPause = 10 * time.Minute
)

// note remembers since when requests wait without a ready instance, and how long v's
// instances take to load.
//
// A client that hangs up, or a request that is refused, ends a wait but not the need: the next
// request's wait counts from the first one that no instance has served since. Otherwise
// clients that wait for less than patient allows would never be served while the others'
// instances are used now and then.
func (m *patience) note(now time.Time, v *view) {
	if m.revision != v.Revision {
		m.revision, m.loading = v.Revision, 0
	}
	latest := time.Duration(0)
	for _, set := range [][]Running{v.live, v.parked} {
		for i := range set {
			latest = max(latest, set[i].Loading)
		}
	}
	if latest > 0 {
		m.loading = latest
	}
	serves := func(in Running) bool { return in.State == cluster.Ready && !in.Parked }
	switch {
	case slices.ContainsFunc(v.live, serves) || slices.ContainsFunc(v.old, serves):
		m.unserved = time.Time{}
	case v.Waiting <= 0:
	case m.unserved.IsZero() || now.Sub(m.asked) > maxPause:
		m.unserved, m.asked = now, now
	default:
		m.asked = now
	}
}

// patient reports whether v, which has no ready instance, lets the others' instances live for
// EvictLoads times as long as they took to load (see Running.lives).
//
// v's requests wait for that at most half the time that they may wait altogether
// (SLO + ColdWait), and only as long as v can then load in what is left, with a margin. With
// an SLO of 0.2 s and a cold wait of 30 s, they wait for at most 15.1 s if v loads in 5 s,
// 30.2 − 1.5·15 = 7.7 s if it loads in 15 s, and not at all from 20.1 s on. A function of
// which the engine has seen no instance load does not wait either.
func (v *view) patient(now time.Time) bool {
	m := &v.memory.patience
	if v.ColdWait <= 0 || m.loading <= 0 {
		return false
	}
	waited, whole := time.Duration(0), v.SLO+v.ColdWait
	if v.Waiting > 0 && !m.unserved.IsZero() {
		waited = now.Sub(m.unserved)
	}
	return waited < min(whole/2, whole-time.Duration(loadingMargin*float64(m.loading)))
}
