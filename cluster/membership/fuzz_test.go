package membership

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// order is that of the states: a set never returns to an earlier one.
var order = []cluster.State{cluster.Starting, cluster.Ready, cluster.Stopping, cluster.Exited}

// FuzzSet plays any sequence of events against a set. The set's state only advances, no member
// has two starts in progress, no action is repeated before its result is told, and a set has
// exited when its last member is gone, and not before.
func FuzzSet(f *testing.F) {
	f.Add([]byte{0, 1, 2, 9, 10, 11, 30, 12, 40, 13, 30, 99}, true)
	f.Add([]byte{9, 10, 30, 12, 12, 12, 30, 30, 7, 8, 60, 30, 61, 15, 16, 17}, false)
	f.Fuzz(func(t *testing.T, events []byte, own bool) {
		w := newWorld(t)
		w.leads = own
		// latest are the members' present instances, by number.
		var latest [3]cluster.InstanceID
		if own {
			s, specs, err := New(w.spec, w.newID, w.now)
			if err != nil {
				t.Fatal(err)
			}
			w.set = s
			for i, spec := range specs {
				latest[i] = spec.ID
				s.Began(i, spec.ID, w.instance(spec.ID, "starting", ""), nil, w.now)
			}
			s.Whole()
		} else {
			latest = [3]cluster.InstanceID{"s", "s-1-100", "s-2-100"}
			w.set = Found(w.instance(latest[events0(events)%3], "ready", ""), w.newID, w.now)
		}
		at, running := 0, map[string]cluster.Instance{}
		// The events of one instance come in the order of its life.
		was := map[cluster.InstanceID]int{}
		seen := func(id cluster.InstanceID, state cluster.State) {
			if now := slices.Index(order, state); now >= was[id] {
				was[id] = now
				w.set.Seen(w.instance(id, string(state), "killed"), w.now)
			}
		}
		for _, e := range events {
			n := int(e) % 3
			switch kind := int(e) / 3 % 12; kind {
			case 0, 1:
				seen(latest[n], order[kind])
			case 2:
				seen(latest[n], cluster.Stopping)
			case 3, 4:
				seen(latest[n], cluster.Exited)
			case 5:
				w.now = w.now.Add(time.Duration(1+n) * 3 * time.Second)
			case 6:
				w.leads = n > 0
			case 7:
				for key, in := range running {
					if key == fmt.Sprint("start ", n) {
						delete(running, key)
						w.set.Began(n, in.ID, in, nil, w.now)
					}
				}
			case 8:
				if in, ok := running[fmt.Sprint("start ", n)]; ok {
					delete(running, fmt.Sprint("start ", n))
					w.set.Began(n, in.ID, in, errors.New("no room"), w.now)
				}
			case 9:
				if _, ok := running["connect"]; ok {
					delete(running, "connect")
					w.set.Connected(w.members, []error{nil, nil, errors.New("refused")}[n], w.now)
				}
			case 10:
				if _, ok := running["stop"]; ok {
					delete(running, "stop")
					w.set.Stopped([]error{nil, errors.New("no answer"), nil}[n], w.now)
				}
			case 11:
				w.set.Left(latest[n], w.now)
			}
			due, _ := w.set.Look(w.now, w.leads)
			if len(due) > 0 && !w.leads {
				t.Fatalf("a follower does %v", due)
			}
			for _, a := range due {
				key := string(a.Do)
				switch a.Do {
				case Start:
					key += fmt.Sprint(" ", a.Spec.Member)
					latest[a.Spec.Member] = a.Spec.ID
				case Connect:
					w.members = a.Members
				case Dismiss, Share:
					continue
				}
				if _, twice := running[key]; twice {
					t.Fatalf("%s is done twice at a time", key)
				}
				running[key] = cluster.Instance{InstanceSpec: a.Spec, State: cluster.Starting}
			}
			in, shown := w.set.Instance()
			switch {
			case w.set.Gone() && shown && in.State != cluster.Exited:
				t.Fatalf("it is gone, and %s: %v", in.State, w.set)
			case w.set.Gone():
				return // What is seen later belongs to a new set.
			case !shown:
				continue
			}
			if now := slices.Index(order, in.State); now < at {
				t.Fatalf("from %s to %s: %v", order[at], in.State, w.set)
			} else {
				at = now
			}
			if in.State == cluster.Exited {
				t.Fatalf("it is not gone, and has exited: %v", w.set)
			}
		}
	})
}

func events0(events []byte) int {
	if len(events) == 0 {
		return 0
	}
	return int(events[0])
}
