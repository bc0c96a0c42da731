package latency

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/correction"
)

// memoryStore stores corrections and histories, unless fails is set.
type memoryStore struct {
	corrections map[string]correction.State
	histories   map[string][]byte
	fails       error
}

func newMemory() *memoryStore {
	return &memoryStore{corrections: map[string]correction.State{}, histories: map[string][]byte{}}
}

func (m *memoryStore) Correction(function string) (correction.State, error) {
	if s, ok := m.corrections[function]; ok && m.fails == nil {
		return s, nil
	}
	return correction.State{}, errors.Join(m.fails, errors.New("there is none"))
}

func (m *memoryStore) PutCorrections(states map[string]correction.State) error {
	maps.Copy(m.corrections, states)
	return m.fails
}

func (m *memoryStore) DeleteCorrection(function string) error {
	delete(m.corrections, function)
	return m.fails
}

func (m *memoryStore) CorrectionNames() ([]string, error) {
	if m.fails != nil {
		return nil, m.fails
	}
	return slices.Collect(maps.Keys(m.corrections)), nil
}

func (m *memoryStore) History(function string) ([]byte, error) {
	if h, ok := m.histories[function]; ok && m.fails == nil {
		return h, nil
	}
	return nil, errors.Join(m.fails, errors.New("there is none"))
}

func (m *memoryStore) PutHistories(histories map[string][]byte) error {
	maps.Copy(m.histories, histories)
	return m.fails
}

func (m *memoryStore) DeleteHistory(function string) error {
	delete(m.histories, function)
	return m.fails
}

func learnedProfile(us float64) *profiler.Profile {
	return &profiler.Profile{Model: "m", Engine: "e", Machine: "x", Measurements: []profiler.Measurement{
		{Batch: 1, Threads: 1, Median: us, P95: us, CPU: us}, {Batch: 2, Threads: 1, Median: 2 * us, P95: 2 * us, CPU: 2 * us},
	}}
}

// seen is the correction of instances that take 1.6 times the profile's times.
func seen(p *profiler.Profile, now time.Time) correction.State {
	c := correction.New(p, 0.95)
	promised, _ := p.ExecTime(1, profiler.Share{CPU: 1000})
	for i := range 300 {
		c.Observe(now.Add(time.Duration(i-300)*100*time.Millisecond), []correction.Observation{{Share: profiler.Share{CPU: 1000}, Batch: 1, Exec: promised * 8 / 5}})
	}
	c.Update(now)
	return c.State()
}

// The next provider reads the corrections of the one before. It ignores those that cannot
// be read or belong to another profile.
func TestCorrection(t *testing.T) {
	p := learnedProfile(10_000)
	promised, _ := p.ExecTime(1, profiler.Share{CPU: 1000})
	m := newMemory()
	store := Records{Corrections: m, Logger: zerolog.Nop()}
	store.Write(map[string]correction.State{"f": seen(p, time.Now())}, func(string) bool { return true })
	for name, c := range map[string]struct {
		store    Records
		function string
		profile  *profiler.Profile
		fails    error
		knows    bool
	}{
		"the same":          {store, "f", p, nil, true},
		"another function":  {store, "g", p, nil, false},
		"another profile":   {store, "f", learnedProfile(20_000), nil, false},
		"it cannot be read": {store, "f", p, errors.New("the disk is gone"), false},
		"nothing is kept":   {Records{}, "f", p, nil, false},
	} {
		m.fails = c.fails
		times := c.store.Correction(c.function, c.profile, 0.95)
		said, ok := times.ExecTime(1, profiler.Share{CPU: 1000})
		own, _ := c.profile.ExecTime(1, profiler.Share{CPU: 1000})
		if knows := said > own*5/4; !ok || knows != c.knows {
			t.Errorf("%s: it says %v where %v was promised, and instances took %v", name, said, own, promised*8/5)
		}
	}
}

// Histories of idle times are stored in the same way.
func TestHistory(t *testing.T) {
	m := newMemory()
	store := Records{Histories: m, Logger: zerolog.Nop()}
	store.WriteHistories(map[string][]byte{"f": []byte("idle")}, func(string) bool { return true })
	if got := store.History("f"); !bytes.Equal(got, []byte("idle")) {
		t.Errorf("%q", got)
	}
	if m.fails = errors.New("no"); store.History("f") != nil || store.History("g") != nil || (Records{}).History("f") != nil {
		t.Error("there is a history where none can be read")
	}
}

// Functions that are removed during a write leave nothing behind. An empty write does
// nothing.
func TestNothingIsLeftBehind(t *testing.T) {
	m := newMemory()
	store := Records{Corrections: m, Histories: m, Logger: zerolog.Nop()}
	has := func(name string) bool { return name == "stays" }
	store.Write(map[string]correction.State{"stays": {}, "gone": {}}, has)
	store.WriteHistories(map[string][]byte{"stays": nil, "gone": nil}, has)
	if got := slices.Collect(maps.Keys(m.corrections)); len(got) != 1 || got[0] != "stays" {
		t.Errorf("corrections of %v are kept", got)
	}
	if got := slices.Collect(maps.Keys(m.histories)); len(got) != 1 || got[0] != "stays" {
		t.Errorf("histories of %v are kept", got)
	}
	of := func(record string) string { return strings.TrimSuffix(record, " on CPU A") }
	store.Write(map[string]correction.State{"stays on CPU A": {}}, func(string) bool { return true })
	store.Forget("stays", of)
	if len(m.corrections)+len(m.histories) != 0 {
		t.Error("something of a function that was forgotten is kept")
	}
	Records{}.Write(nil, has)
	Records{}.WriteHistories(nil, has)
	Records{}.Forget("f", of)
}

// A failed write is logged once each, and stops nothing.
func TestFailures(t *testing.T) {
	var log bytes.Buffer
	m := newMemory()
	m.fails = errors.New("the disk is full")
	store := Records{Corrections: m, Histories: m, Logger: zerolog.New(&log)}
	has := func(string) bool { return true }
	store.Write(map[string]correction.State{"f": {}}, has)
	store.WriteHistories(map[string][]byte{"f": nil}, has)
	store.Forget("f", strings.Clone)
	if got := strings.Count(log.String(), "the disk is full"); got != 4 {
		t.Errorf("it is said %d times:\n%s", got, &log)
	}
}
