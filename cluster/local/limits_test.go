package local

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

func TestOutOfMemoryIsReported(t *testing.T) {
	b := open(t, options(t.TempDir(), false))
	if b.tree == nil {
		t.Log("no cgroups; nothing more to try")
		return
	}
	s := spec("one", "serving")
	s.Config.Memory = 64 << 20
	instance := begin(t, b, s)
	expect(t, b, "one", cluster.Ready)
	ask(t, instance, "/eat")
	if exited := expect(t, b, "one", cluster.Exited); exited.Reason != "out of memory (limit 64 MiB)" {
		t.Errorf("reason %q", exited.Reason)
	}
	nothingLeft(t, b)
}

func TestQuotaIsObeyedAndUsageTold(t *testing.T) {
	b := open(t, options(t.TempDir(), false))
	instance := begin(t, b, spec("one", "serving"))
	expect(t, b, "one", cluster.Ready)
	ask(t, instance, "/burn")
	if got := usedBelow(t, b, "one", 600); b.tree != nil && got > 600 {
		t.Errorf("it used %dm of 500m", got)
	}
	usage, err := b.Usage(t.Context(), "one")
	if err != nil || usage.Memory < 1<<20 {
		t.Errorf("usage %+v, %v of one that burns CPU", usage, err)
	}
	// On a busy machine it does not get at once all that it may have.
	for deadline := time.Now().Add(time.Minute); used(t, b, "one") < 20; {
		if time.Now().After(deadline) {
			t.Fatal("it uses hardly anything, and burns CPU")
		}
	}
	if _, err := b.Usage(t.Context(), "none"); err == nil {
		t.Error("usage of one that does not exist")
	}
}

// A set's member that shares its CPU with others may use more than it holds, and has no cores of its
// own.
func TestMembersUseWhatOthersHold(t *testing.T) {
	b := open(t, options(t.TempDir(), false))
	set := cluster.Config{Batch: 1, Parts: 2, Active: 1, Resources: cluster.Resources{CPU: 600, Memory: 1 << 30}}
	s := spec("one", "serving")
	s.Set, s.Config = "one", set.Share()
	if wholeCores(s) != 0 {
		t.Error("it has cores of its own")
	}
	free := func() int {
		nodes, err := b.Nodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return nodes[0].Free.CPU
	}
	before := free()
	instance := begin(t, b, s)
	expect(t, b, "one", cluster.Ready)
	if held := before - free(); held != 300 {
		t.Errorf("it holds %dm", held)
	}
	ask(t, instance, "/burn")
	if b.tree == nil {
		t.Skip("no cgroups")
	}
	for deadline := time.Now().Add(time.Minute); used(t, b, "one") < 450; {
		if time.Now().After(deadline) {
			t.Fatal("it cannot use what the other member holds")
		}
	}
	if got := usedBelow(t, b, "one", 700); got > 700 {
		t.Errorf("it used %dm of 600m", got)
	}
}

func TestUsageWithoutCgroups(t *testing.T) {
	b := open(t, options(t.TempDir(), true))
	instance := begin(t, b, spec("one", "serving"))
	expect(t, b, "one", cluster.Ready)
	ask(t, instance, "/burn")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		usage, err := b.Usage(t.Context(), "one")
		if err != nil {
			t.Fatal(err)
		}
		if usage.CPU > 0 && usage.Memory > 1<<20 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("usage %+v of one that burns CPU", usage)
		}
	}
}

// allowed returns the cores that an instance's process may run on.
func allowed(t *testing.T, instance cluster.Instance) string {
	t.Helper()
	status := ask(t, instance, "/read?file=/proc/self/status")
	_, after, _ := strings.Cut(status, "Cpus_allowed_list:\t")
	list, _, _ := strings.Cut(after, "\n")
	return list
}

func TestInstancesStayOnTheirCores(t *testing.T) {
	eachWay(t, func(t *testing.T, bare bool) {
		o := options(t.TempDir(), bare)
		o.Cores = []int{0}
		b := open(t, o)
		instance := begin(t, b, spec("one", "serving"))
		expect(t, b, "one", cluster.Ready)
		if got := allowed(t, instance); got != "0" {
			t.Errorf("it may run on %q, want 0", got)
		}
	})
}

func TestWholeCoresAreExclusive(t *testing.T) {
	own, err := ownCores()
	if err != nil {
		t.Fatal(err)
	}
	o := options(t.TempDir(), false)
	o.PinCPUs = true
	b := open(t, o)
	if b.tree == nil || len(own) < 2 {
		t.Log("no cgroups or a single core; nothing more to try")
		return
	}
	shared := begin(t, b, spec("shared", "serving"))
	expect(t, b, "shared", cluster.Ready)
	everywhere := allowed(t, shared)
	whole := spec("whole", "serving")
	whole.Config.CPU = 1000
	exclusive := begin(t, b, whole)
	expect(t, b, "whole", cluster.Ready)
	core := allowed(t, exclusive)
	if !slices.Contains([]string{"0", "1", "2", "3"}, core) {
		t.Errorf("whole cores: %q", core)
	}
	if rest := allowed(t, shared); rest == everywhere || strings.HasPrefix(rest, core) {
		t.Errorf("the others may still run on %q, beside %q", rest, core)
	}
	if err := b.Stop(t.Context(), "whole"); err != nil {
		t.Fatal(err)
	}
	if got := allowed(t, shared); got != everywhere {
		t.Errorf("after it went the others may run on %q, want %q", got, everywhere)
	}
}

func TestTotalIsWhatTheMachineHas(t *testing.T) {
	o := options(t.TempDir(), true)
	o.Total, o.NodeName = nil, ""
	b := open(t, o)
	nodes, err := b.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	own, err := ownCores()
	if err != nil {
		t.Fatal(err)
	}
	if n := nodes[0]; n.Name != host || n.Total.CPU <= 0 || n.Total.CPU > 1000*len(own) || n.Total.Memory < 1<<20 {
		t.Errorf("node %+v on %q with %d cores", n, host, len(own))
	}
}

// BenchmarkStart measures what it takes from Start until the process speaks.
func BenchmarkStart(b *testing.B) {
	for name, bare := range map[string]bool{"cgroups and sandbox": false, "bare": true} {
		b.Run(name, func(b *testing.B) {
			o := options(b.TempDir(), bare)
			o.Command = func(cluster.InstanceSpec, string) (argv, env []string) {
				return []string{"/bin/sh", "-c", "echo ready >&3; exec sleep 1000"}, nil
			}
			backend, err := New(b.Context(), o)
			if err != nil {
				b.Fatal(err)
			}
			defer backend.Close()
			var start, speak, stop time.Duration
			for b.Loop() {
				began := time.Now()
				if _, err := backend.Start(b.Context(), spec("one", "")); err != nil {
					b.Fatal(err)
				}
				start += time.Since(began)
				<-backend.Events()
				speak += time.Since(began)
				began = time.Now()
				if err := backend.Stop(b.Context(), "one"); err != nil {
					b.Fatal(err)
				}
				stop += time.Since(began)
				<-backend.Events()
				<-backend.Events()
			}
			b.ReportMetric(float64(start.Microseconds())/float64(b.N), "start-µs")
			b.ReportMetric(float64(speak.Microseconds())/float64(b.N), "ready-µs")
			b.ReportMetric(float64(stop.Microseconds())/float64(b.N), "stop-µs")
		})
	}
}
