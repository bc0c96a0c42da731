package variant

import (
	"testing"
	"time"
)

// Fig. 4: a variant goes through its states as it is loaded, overloaded, interfered with and
// unloaded, and a single slow execution changes nothing.
func TestStates(t *testing.T) {
	const ms = time.Millisecond
	at := func(load float64, exec time.Duration) Seen {
		return Seen{Loaded: true, Load: load, Peak: 100, Exec: exec, Profile: 10 * ms}
	}
	var w Watch
	for i, step := range []struct {
		seen Seen
		want State
	}{
		{Seen{}, Inactive},
		{at(0, 0), Active},
		{at(99, 10*ms), Active},
		{at(100, 10*ms), Overloaded},
		{at(120, 20*ms), Overloaded}, // Overloaded, however slow.
		{at(50, 10*ms), Active},
		{at(50, 20*ms), Active}, {at(50, 20*ms), Active}, {at(50, 10*ms), Active}, // Twice is not enough.
		{at(50, 20*ms), Active}, {at(50, 20*ms), Active}, {at(50, 20*ms), Interfered},
		{at(50, 12*ms), Interfered}, {at(50, 0), Interfered}, // Neither slow nor calm, and no execution.
		{at(50, 10*ms), Interfered}, {at(50, 10*ms), Interfered}, {at(50, 12*ms), Interfered},
		{at(50, 10*ms), Interfered}, {at(50, 10*ms), Interfered}, {at(50, 10*ms), Active},
		{at(50, 20*ms), Active}, {at(50, 20*ms), Active}, {at(50, 20*ms), Interfered},
		{at(100, 20*ms), Overloaded},
		{at(50, 20*ms), Active}, {at(50, 0), Active}, {at(50, 20*ms), Active}, {at(50, 20*ms), Interfered}, // A pause says nothing.
		{Seen{}, Inactive},
	} {
		if w = w.After(step.seen); w.State() != step.want {
			t.Fatalf("step %d: %v, want %v", i, w.State(), step.want)
		}
	}
}

func TestParseState(t *testing.T) {
	for s := Inactive; s <= Interfered; s++ {
		if got, err := ParseState(s.String()); err != nil || got != s {
			t.Errorf("%v is read as %v, %v", s, got, err)
		}
	}
	if _, err := ParseState("Active"); err == nil {
		t.Error("Active with a capital is no state")
	}
}
