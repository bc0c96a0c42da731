package infaas

import (
	"slices"
	"testing"
	"time"
)

// §4.2.2: capacity is loaded at once, and unloaded one instance at a time after as many polls as
// loading takes, once the others have loaded.
func TestAutoscaler(t *testing.T) {
	var a Autoscaler
	app := &Application{Load: 4, Options: []Option{{Rate: 5, Cost: 1, Loading: 0.9}, {Rate: 100, Cost: 3, Loading: 2.5}}}
	poll := func(load float64, plan, running, ready, want []int) {
		t.Helper()
		app.Load, app.Options[0].Running, app.Options[1].Running = load, running[0], running[1]
		if got := a.Poll(app, plan, ready, time.Second); !slices.Equal(got, want) {
			t.Errorf("%v of %v for %v/s: %v, want %v", plan, running, load, got, want)
		}
	}
	poll(80, []int{0, 1}, []int{1, 0}, []int{1, 0}, []int{1, 1}) // An upgrade keeps what serves.
	poll(80, []int{0, 1}, []int{1, 1}, []int{1, 0}, []int{1, 1}) // The new one has not loaded.
	poll(80, []int{0, 1}, []int{1, 1}, []int{1, 1}, []int{0, 1})
	poll(4, []int{1, 0}, []int{0, 1}, []int{0, 1}, []int{0, 1}) // A downgrade waits three polls.
	poll(4, []int{1, 0}, []int{0, 1}, []int{0, 1}, []int{0, 1})
	poll(4, []int{1, 0}, []int{0, 1}, []int{0, 1}, []int{1, 1})
	poll(4, []int{1, 0}, []int{1, 1}, []int{1, 1}, []int{1, 0})
	poll(4, []int{1, 0}, []int{3, 0}, []int{3, 0}, []int{2, 0}) // One at a time.
	poll(0, []int{0, 0}, []int{1, 0}, []int{1, 0}, []int{0, 0})
}

// A plan of the heuristic has room.
func TestGreedyKeepsToRoom(t *testing.T) {
	app := table2(10, 300*time.Millisecond)
	if got := Greedy(app, 0); !slices.Equal(got, []int{2, 0, 0}) {
		t.Errorf("with room: %v", got)
	}
	app.Options[0].Most = 1
	if got := Greedy(app, 0); !slices.Equal(got, []int{0, 1, 0}) {
		t.Errorf("with room for one A: %v", got)
	}
	app.Options[1].Rate, app.Options[2].Rate = 0, 0
	if got := Greedy(app, 0); got != nil {
		t.Errorf("with room for one A and no other: %v", got)
	}
}
