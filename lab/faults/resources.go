package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/lab/rig"
)

// Resources are what a provider and its instances hold that they may not keep.
type Resources struct {
	// Processes are those of the provider's that belong to no instance that it knows of,
	// Cgroups those of no such instance.
	Processes, Cgroups int
	// Descriptors and Goroutines are the provider's; MiB is its memory, less what its
	// collector has free.
	Descriptors, Goroutines int
	MiB                     float64
	// names are of the processes.
	names []string
}

// Leaks are by how much more there is afterwards than before of each kind, where it is
// more than chance.
type Leaks struct {
	Processes, Cgroups, Descriptors, Goroutines int
	MiB                                         float64
	names                                       []string
}

// By so many more of them chance explains: connections that are kept, workers that rest,
// and memory that is to be collected.
const (
	chanceDescriptors = 24
	chanceGoroutines  = 48
	chanceMiB         = 48
)

// leaked compares resources afterwards with those before.
func leaked(before, after Resources) (l Leaks) {
	over := func(before, after, chance int) int {
		if after-before > chance {
			return after - before
		}
		return 0
	}
	l.Processes = over(before.Processes, after.Processes, 0)
	l.Cgroups = over(before.Cgroups, after.Cgroups, 0)
	l.Descriptors = over(before.Descriptors, after.Descriptors, chanceDescriptors)
	l.Goroutines = over(before.Goroutines, after.Goroutines, chanceGoroutines)
	if more := after.MiB - before.MiB; more > chanceMiB {
		l.MiB = more
	}
	if l.Processes > 0 {
		l.names = after.names
	}
	return l
}

// sum is one figure for all kinds: a MiB counts as much as a process.
func (l Leaks) sum() float64 {
	return float64(l.Processes+l.Cgroups+l.Descriptors+l.Goroutines) + l.MiB
}

func (l Leaks) plus(o Leaks) Leaks {
	return Leaks{l.Processes + o.Processes, l.Cgroups + o.Cgroups, l.Descriptors + o.Descriptors, l.Goroutines + o.Goroutines, l.MiB + o.MiB, append(l.names, o.names...)}
}

// String lists the kinds.
func (l Leaks) String() string {
	text := fmt.Sprintf("processes %d, cgroups %d, descriptors %d, goroutines %d, MiB %.0f", l.Processes, l.Cgroups, l.Descriptors, l.Goroutines, l.MiB)
	if len(l.names) > 0 {
		text += " (" + strings.Join(l.names, ", ") + ")"
	}
	return text
}

// resources are those of now.
func (w *world) resources(ctx context.Context) (r Resources, err error) {
	records, err := w.records()
	if err != nil {
		return r, err
	}
	d := w.now()
	all, err := processes()
	if err != nil {
		return r, err
	}
	ours := map[int]bool{os.Getpid(): true, w.gatewayPID: true, d.Process.Pid: true}
	instances := map[string]bool{}
	for _, i := range records {
		instances[string(i.Spec.ID)] = true
		ours[i.Process.PID] = true
		for _, pid := range descendants(all, i.Process.PID) {
			ours[pid] = true
		}
	}
	for _, pid := range descendants(all, os.Getppid()) {
		// A process that was forked from a warm one is no descendant of its instance's.
		if !ours[pid] && !within(instances, pid) {
			r.Processes++
			r.names = append(r.names, fmt.Sprintf("%s (%c)", all[pid].name, all[pid].state))
		}
	}
	if r.Cgroups, err = w.strangeGroups(instances); err != nil {
		return r, err
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.Process.Pid))
	if err != nil {
		return r, fmt.Errorf("descriptors of the provider: %w", err)
	}
	// A connection that its client keeps is no leak of the provider's. An idle one has a
	// goroutine.
	kept, err := connections(w.address)
	if err != nil {
		return r, err
	}
	r.Descriptors = len(fds) - kept
	values := map[string]float64{}
	for _, name := range []string{"go_goroutines", "process_resident_memory_bytes", "go_memstats_heap_idle_bytes", "go_memstats_heap_released_bytes"} {
		if values[name], err = d.Metric(ctx, name); err != nil {
			return r, fmt.Errorf("the provider's metrics: %w", err)
		}
	}
	r.Goroutines = int(values["go_goroutines"]) - kept
	r.MiB = (values["process_resident_memory_bytes"] - values["go_memstats_heap_idle_bytes"] + values["go_memstats_heap_released_bytes"]) / (1 << 20)
	return r, nil
}

// strangeGroups counts the cgroups that are no instance's.
func (w *world) strangeGroups(instances map[string]bool) (n int, err error) {
	strange := map[string]bool{}
	for tree := range w.trees {
		found, err := filepath.Glob(filepath.Join(tree, "*", "cgroup.procs"))
		if err != nil {
			return 0, err
		}
		for _, file := range found {
			if name := filepath.Base(filepath.Dir(file)); !instances[name] {
				strange[name] = true
			}
		}
	}
	return len(strange), nil
}

// settling is how long resources may take to come back: the collector runs every two
// minutes at least.
const settling = 150 * time.Second

// settle waits until nothing more than before is held, or for as long as it may take.
func (w *world) settle(ctx context.Context, before Resources) (l Leaks, err error) {
	for began, told := time.Now(), false; ; {
		after, failed := w.resources(ctx)
		if failed == nil {
			if l = leaked(before, after); l.sum() == 0 {
				return l, nil
			}
		}
		if took := time.Since(began); took > settling {
			return l, failed
		} else if took > 5*time.Second && !told {
			fmt.Fprintf(w.o.Log, "waiting up to %v for what is held: %s\n", settling, l)
			told = true
		}
		if err := rig.Pause(ctx, 500*time.Millisecond); err != nil {
			return l, err
		}
	}
}
