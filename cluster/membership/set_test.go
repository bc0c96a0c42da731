package membership

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

var epoch = time.Unix(1_000_000, 0).UTC()

// world plays a script against one set. It holds what the backend would know.
type world struct {
	t     *testing.T
	set   *Set
	now   time.Time
	leads bool
	// ids counts new IDs; latest holds each member's latest ID.
	ids      int
	latest   map[int]cluster.InstanceID
	spec     cluster.InstanceSpec
	members  []cluster.Instance
	readySet map[cluster.InstanceID]time.Time
}

func newWorld(t *testing.T) *world {
	return &world{t: t, now: epoch, latest: map[int]cluster.InstanceID{}, readySet: map[cluster.InstanceID]time.Time{}, spec: cluster.InstanceSpec{
		ID: "s", Function: "f.n", Node: "a", Config: cluster.Config{Batch: 4, Parts: 3, Resources: cluster.Resources{CPU: 3000, Memory: 300}},
	}}
}

func (w *world) newID(number int) cluster.InstanceID {
	w.ids++
	return cluster.InstanceID(fmt.Sprintf("s-%d-%d", number, w.ids))
}

// instance is a member with an ID in a state. The member's number is in its ID.
func (w *world) instance(id cluster.InstanceID, state, reason string) cluster.Instance {
	spec := w.spec
	spec.ID, spec.Set, spec.Config, spec.Nodes = id, "s", w.spec.Config.Share(), nil
	if parts := strings.Split(string(id), "-"); len(parts) > 1 {
		spec.Member, _ = strconv.Atoi(parts[1])
	}
	in := cluster.Instance{InstanceSpec: spec, State: cluster.State(state), Reason: reason, StartedAt: w.now, Address: "/" + string(id)}
	if state == "ready" {
		w.readySet[id] = w.now
	}
	in.ReadyAt = w.readySet[id]
	return in
}

// do carries out one command of a script and returns what it shows.
func (w *world) do(line string) string {
	words := strings.Fields(line)
	switch words[0] {
	case "new":
		w.spec.Nodes = words[1:]
		s, specs, err := New(w.spec, w.newID, w.now)
		if err != nil {
			return err.Error()
		}
		w.set = s
		return w.specs(specs)
	case "began":
		for _, id := range words[1:] {
			in := w.instance(cluster.InstanceID(id), "starting", "")
			w.set.Began(in.Member, in.ID, in, nil, w.now)
		}
	case "failed":
		in := w.instance(cluster.InstanceID(words[1]), "starting", "")
		w.set.Began(in.Member, in.ID, cluster.Instance{}, errors.New(strings.Join(words[2:], " ")), w.now)
	case "whole":
		w.set.Whole()
	case "abandon":
		w.set.Abandon()
	case "leave":
		w.set.Leave()
	case "ready", "starting", "stopping":
		for _, id := range words[1:] {
			w.seen(w.instance(cluster.InstanceID(id), words[0], ""))
		}
	case "exited":
		w.seen(w.instance(cluster.InstanceID(words[1]), words[0], strings.Join(words[2:], " ")))
	case "leads":
		w.leads = words[1] == "yes"
	case "connected":
		var err error
		if len(words) > 1 {
			err = errors.New(strings.Join(words[1:], " "))
		}
		w.set.Connected(w.members, err, w.now)
	case "stopped":
		var err error
		if len(words) > 1 {
			err = errors.New(strings.Join(words[1:], " "))
		}
		w.set.Stopped(err, w.now)
	case "left":
		w.set.Left(cluster.InstanceID(words[1]), w.now)
	case "dismissed":
		w.set.Dismissed(cluster.InstanceID(words[1]), nil, w.now)
	case "config":
		w.spec.Config.CPU, _ = strconv.Atoi(words[1])
	case "change":
		members, err := w.set.Change()
		if err != nil {
			return err.Error()
		}
		w.members = members
		return ids(members)
	case "changed":
		w.spec.Config.CPU, _ = strconv.Atoi(words[1])
		w.set.Changed(w.members, w.spec.Config, len(words) > 2)
	case "unchanged":
		w.set.Unchanged([]cluster.InstanceID{cluster.InstanceID(words[1])})
	case "shared":
		w.set.Shared(cluster.InstanceID(words[1]), w.spec.Config.Share(), len(words) > 2, nil, w.now)
	case "remaining":
		return fmt.Sprint(w.set.Remaining(func(id cluster.InstanceID) bool { return strings.Contains(line, " "+string(id)+",") }))
	case "wait":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			w.t.Fatal(err)
		}
		w.now = w.now.Add(d)
	case "look":
		return w.look()
	case "show":
		return w.show()
	default:
		w.t.Fatalf("unknown command %q", line)
	}
	return ""
}

func (w *world) seen(in cluster.Instance) {
	if w.set == nil {
		w.set = Found(in, w.newID, w.now)
		return
	}
	w.set.Seen(in, w.now)
}

func (w *world) specs(specs []cluster.InstanceSpec) string {
	var all []string
	for _, s := range specs {
		w.latest[s.Member] = s.ID
		all = append(all, fmt.Sprintf("%s of %s member %d on %s with %dm", s.ID, s.Set, s.Member, s.Node, s.Config.CPU))
	}
	return strings.Join(all, ", ")
}

func ids(members []cluster.Instance) string {
	var all []string
	for _, in := range members {
		all = append(all, string(in.ID))
	}
	return strings.Join(all, " ")
}

func (w *world) look() string {
	due, next := w.set.Look(w.now, w.leads)
	var all []string
	for _, a := range due {
		switch a.Do {
		case Start:
			all = append(all, "start "+w.specs([]cluster.InstanceSpec{a.Spec}))
		case Connect:
			w.members = a.Members
			all = append(all, "connect "+ids(a.Members))
		case Stop:
			all = append(all, "stop: "+a.Why)
		case Dismiss, Share:
			all = append(all, string(a.Do)+" "+string(a.ID))
		}
	}
	if !next.IsZero() {
		all = append(all, "look in "+next.Sub(w.now).String())
	}
	return strings.Join(all, "; ")
}

func (w *world) show() string {
	in, shown := w.set.Instance()
	if !shown {
		return "hidden"
	}
	text := fmt.Sprintf("%s %s %dm on %s", in.ID, in.State, in.Config.CPU, in.Node)
	if in.Nodes != nil {
		text += fmt.Sprint(in.Nodes)
	}
	if in.Parked {
		text += " parked"
	}
	if in.State == cluster.Ready {
		text += " after " + in.ReadyAt.Sub(epoch).String()
	}
	if in.Reason != "" {
		text += ": " + in.Reason
	}
	if in.Set != "" || in.Member != 0 || in.Address != "/s" {
		text += fmt.Sprintf(" (member %d of %q at %s)", in.Member, in.Set, in.Address)
	}
	return text
}

// The files in testdata are scripts: a command, and after "=>" what it must show.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for script := range strings.SplitSeq(string(text), "\n\n# ") {
			title, body, _ := strings.Cut(strings.TrimPrefix(script, "# "), "\n")
			t.Run(title, func(t *testing.T) {
				w := newWorld(t)
				for n, line := range strings.Split(strings.TrimSpace(body), "\n") {
					command, want, shows := strings.Cut(line, "=>")
					got := w.do(strings.TrimSpace(command))
					if (shows || got != "") && got != strings.TrimSpace(want) {
						t.Errorf("%s: line %d: %s\ngot  %s\nwant %s", filepath.Base(file), n+2, command, got, strings.TrimSpace(want))
					}
				}
			})
		}
	}
}
