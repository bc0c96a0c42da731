package disturb

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

func TestEventsPassAsTheyAre(t *testing.T) {
	r := newRig(t, Plan{})
	w := r.watch()
	r.tell("a", "b", "c")
	r.want(w, "a", "b", "c")
	close(r.upstream.events)
	r.want(w, "ended")
}

func TestEventsComeTwice(t *testing.T) {
	r := newRig(t, Plan{Watch: Watch{Duplicate: 1}})
	w := r.watch()
	r.tell("a", "b")
	r.want(w, "a", "a", "b", "b")
	if c := r.Counts(); c.Duplicated != 2 || c.Events != 2 {
		t.Errorf("counts %+v, want 2 of 2 duplicated", c)
	}
}

// tellUntilDropped sends events of a config map until n events were dropped in all. The
// upstream may still have the end of the previous watch, which can take one event.
func (r *rig) tellUntilDropped(name string, n int) {
	r.t.Helper()
	r.eventually(name+" is dropped", func() bool {
		if r.Counts().Dropped >= n {
			return true
		}
		select {
		case r.upstream.events <- name:
		default:
		}
		return false
	})
}

// A watch with a dropped event ends with 410, not before its time, and however it ends.
func TestDroppedEventsEndTheWatch(t *testing.T) {
	const unseen = 100 * time.Millisecond
	r := newRig(t, Plan{Watch: Watch{Drop: 1, Unseen: unseen}})
	w := r.watch()
	began := time.Now()
	r.tell("a") // One: the watch may have ended before another is taken.
	r.want(w, "ERROR 410", "ended")
	if took := time.Since(began); took < unseen {
		t.Errorf("the watch ended after %v, before %v", took, unseen)
	}
	if err := r.Follow(Plan{Watch: Watch{Drop: 1, Unseen: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	w = r.watch()
	r.tellUntilDropped("c", 2)
	r.Cut()
	r.want(w, "ERROR 410", "ended")
	w = r.watch()
	r.tellUntilDropped("d", 3)
	close(r.upstream.events)
	r.want(w, "ERROR 410", "ended")
}

func TestWatchesBreakOff(t *testing.T) {
	r := newRig(t, Plan{Watch: Watch{Cut: 1}})
	w := r.watch()
	r.tell("a")
	r.want(w, "a")
	r.breaks(w)
	if err := r.Follow(Plan{}); err != nil {
		t.Fatal(err)
	}
	// A watch that a client has is open, and one that it sees end is not any more.
	first, second := r.watch(), r.watch()
	if n := r.Cut(); n != 2 {
		t.Errorf("%d watches are cut, want 2", n)
	}
	r.breaks(first)
	r.breaks(second)
	w = r.watch()
	if n := r.Expire(); n != 1 {
		t.Errorf("%d watches end, want 1", n)
	}
	r.want(w, "ERROR 410", "ended")
}

func TestDelaysKeepTheOrder(t *testing.T) {
	r := newRig(t, Plan{Seed: 4, Watch: Watch{Delay: 0.5, Latest: 10 * time.Millisecond}})
	w := r.watch()
	var names []string
	for i := range 50 {
		names = append(names, fmt.Sprint("n", i))
	}
	go r.tell(names...)
	r.want(w, names...)
	if c := r.Counts(); c.Delayed < 10 || c.Delayed > 40 {
		t.Errorf("%d of 50 events delayed, want about half", c.Delayed)
	}
}

func TestFrozenEventsComeWhenThawed(t *testing.T) {
	r := newRig(t, Plan{})
	w := r.watch()
	r.Freeze()
	r.Freeze() // Twice is once.
	r.tell("a")
	select {
	case e := <-w.ResultChan():
		t.Fatalf("a frozen watch tells of %v", e)
	case <-time.After(50 * time.Millisecond):
	}
	r.Thaw()
	r.Thaw()
	r.want(w, "a")
	r.Freeze()
	r.tell("b")
	r.Cut() // A frozen watch can break off, and a next one begin.
	r.breaks(w)
}

// The objects at the beginning of a watch take the place of a list. None of them may be
// missing.
func TestInitialEventsAreLeftAlone(t *testing.T) {
	r := newRig(t, Plan{Watch: Watch{Drop: 1, Unseen: 50 * time.Millisecond}})
	yes := true
	w, err := r.client.CoreV1().ConfigMaps("x").Watch(t.Context(), metav1.ListOptions{SendInitialEvents: &yes, ResourceVersionMatch: "NotOlderThan"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	r.tell("a", "b", string(initialEnd), "c")
	r.want(w, "a", "b", string(initialEnd), "ERROR 410")
}

func TestOnlyWhatThePlanIsOn(t *testing.T) {
	r := newRig(t, Plan{Only: func(path string) bool { return path != "/api/v1/namespaces/x/configmaps" },
		Watch: Watch{Drop: 1, Unseen: time.Millisecond}, Write: Write{Refuse: 1}})
	w := r.watch()
	r.tell("a")
	r.want(w, "a")
	if err := r.client.CoreV1().ConfigMaps("y").Delete(t.Context(), "b", metav1.DeleteOptions{}); err == nil {
		t.Error("a write that the plan refuses was done")
	}
}

// breaks checks that a watch ends without an event, in one of the two ways in which
// client-go reports it.
func (r *rig) breaks(w watch.Interface) {
	r.t.Helper()
	switch got := r.got(w); got {
	case "ended":
	case "ERROR 500":
		r.want(w, "ended")
	default:
		r.t.Errorf("the next event is %q, want the watch broken", got)
	}
}

func (r *rig) eventually(what string, condition func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
