package control

import (
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/correction"
)

// countedCorrections counts the records that are written.
type countedCorrections struct {
	*fakeCorrections
	records int
}

func (s *countedCorrections) PutCorrections(states map[string]correction.State) error {
	s.records += len(states)
	return s.fakeCorrections.PutCorrections(states)
}

// busyFunctions gives a controller n functions whose times are known, without instances.
func (r *rig) busyFunctions(n int) (paces []*pace) {
	profile := fakeProfile("model", 8, 0)
	for i := range n {
		f := r.function(fmt.Sprint("f", i), "model")
		p := &pace{profile: profile, times: correction.New(profile, 0.95)}
		r.functions[f.Name] = &function{Function: f, served: served{artefacts: []*artefact{{paces: []*pace{p}}}}}
		paces = append(paces, p)
	}
	return paces
}

// In a minute so many corrections are written as the options say, however many functions are busy.
// Each is written in its turn, and when the provider ends all that has changed.
func TestWritesDoNotGrowWithBusyFunctions(t *testing.T) {
	const limit, minutes = 5, 40
	for _, n := range []int{100, 400} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			store := &countedCorrections{fakeCorrections: r.corrections}
			r.options.Corrections, r.options.MaxSaves = store, limit
			r.open()
			paces := r.busyFunctions(n)
			for range minutes * 60 {
				time.Sleep(time.Second)
				for _, p := range paces {
					p.unsaved = true
				}
				r.saver.due(time.Now())
				synctest.Wait()
			}
			// A write follows the one before after a minute and up to an eighth of one.
			if most, least := limit*minutes, limit*minutes*8/9-limit; store.records > most || store.records < least {
				t.Errorf("of %d busy functions %d corrections were written in %d minutes, not %d to %d", n, store.records, minutes, least, most)
			}
			if kept, _ := store.written(); kept != min(n, store.records) {
				t.Errorf("%d functions of %d have a stored correction after %d writes", kept, n, store.records)
			}
			r.saver.flush()
			for i, p := range paces {
				if got, err := store.Correction(full(fmt.Sprint("f", i))); err != nil || !reflect.DeepEqual(got, p.times.State()) {
					t.Fatalf("function %d of %d: %+v, %v", i, n, got, err)
				}
			}
			clear(r.functions) // They have no dispatchers.
			if err := r.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Of changed corrections those are written that a restart would miss: new ones, then those that
// differ, and the same ones again only when the stored evidence is old.
func TestWhatIsWorthAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.options.MaxSaves = 2
		r.open()
		paces := r.busyFunctions(3)
		name := func(p *pace) string {
			for full, fn := range r.functions {
				if fn.artefacts[0].paces[0] == p {
					return full
				}
			}
			return ""
		}
		written := func(after time.Duration, want ...*pace) {
			t.Helper()
			for _, p := range paces {
				p.unsaved = true
			}
			time.Sleep(after)
			states, _ := r.saver.mostUrgent(time.Now())
			for _, p := range want {
				if _, ok := states[name(p)]; !ok {
					t.Errorf("%s is not written", name(p))
				}
			}
			if len(states) != len(want) {
				t.Errorf("%d are written, not %d", len(states), len(want))
			}
		}
		written(0, paces[0], paces[1])
		written(time.Minute, paces[2])
		written(time.Minute)
		slow := func(p *pace) {
			p.times.Observe(time.Now(), slowly(p.times.Profile()))
			p.times.Update(time.Now())
		}
		slow(paces[2])
		written(time.Minute, paces[2])
		written(time.Minute)
		written(correctionAge-4*time.Minute, paces[0], paces[1])
		written(4*time.Minute, paces[2])
		clear(r.functions) // They have no dispatchers.
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// slowly returns executions that take three times as long as a profile says.
func slowly(p *profiler.Profile) (all []correction.Observation) {
	m := p.Measurements[0]
	for range 50 {
		all = append(all, correction.Observation{Share: profiler.Share{CPU: 1000 * m.Threads}, Batch: m.Batch, Exec: time.Duration(3 * m.Median * float64(time.Microsecond))})
	}
	return all
}
