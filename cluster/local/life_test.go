package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

func TestAnInstanceStartsServesAndLeavesNothing(t *testing.T) {
	eachWay(t, func(t *testing.T, bare bool) {
		b := open(t, options(t.TempDir(), bare))
		instance := begin(t, b, spec("one", "forking"))
		if instance.State != cluster.Starting || instance.Network != "unix" || instance.StartedAt.IsZero() {
			t.Errorf("started %+v", instance)
		}
		ready := expect(t, b, "one", cluster.Ready)
		if !ready.ReadyAt.After(ready.StartedAt) {
			t.Errorf("ready at %v, started at %v", ready.ReadyAt, ready.StartedAt)
		}
		if got := len(processesOf(t, b)); got != 2 {
			t.Errorf("%d processes, want the instance and what it forked", got)
		}
		nodes, err := b.Nodes(t.Context())
		if err != nil || len(nodes) != 1 || nodes[0].Name != "here" || nodes[0].Free.CPU != 3500 {
			t.Errorf("nodes %+v, %v", nodes, err)
		}
		if err := b.Stop(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
		nothingLeft(t, b)
		expect(t, b, "one", cluster.Stopping)
		if exited := expect(t, b, "one", cluster.Exited); exited.Reason != "stopped" {
			t.Errorf("reason %q", exited.Reason)
		}
		if instances, err := b.Instances(t.Context()); err != nil || len(instances) != 0 {
			t.Errorf("instances %v, %v", instances, err)
		}
		if err := b.Stop(t.Context(), "one"); err != nil {
			t.Errorf("stop of one that is gone: %v", err)
		}
		if nodes, err := b.Nodes(t.Context()); err != nil || nodes[0].Free != nodes[0].Total {
			t.Errorf("nodes %+v, %v", nodes, err)
		}
	})
}

// TestAStartThatFailsLate fails a start when the process runs already but its record cannot
// be written. Nothing remains, and a Stop that waited for the start returns.
func TestAStartThatFailsLate(t *testing.T) {
	eachWay(t, func(t *testing.T, bare bool) {
		o := options(t.TempDir(), bare)
		command := o.Command
		var b *Backend
		var found *entry
		o.Command = func(spec cluster.InstanceSpec, socket string) (argv, env []string) {
			found, _ = b.find(spec.ID)
			if err := os.Mkdir(filepath.Join(b.layout.instance(spec.ID), "instance.json"), 0o700); err != nil {
				t.Error(err)
			}
			return command(spec, socket)
		}
		b = open(t, o)
		if _, err := b.Start(t.Context(), spec("one", "forking")); !errors.Is(err, syscall.EISDIR) {
			t.Fatalf("got %v", err)
		}
		nothingLeft(t, b)
		// As for a Stop that had looked it up before it was forgotten.
		b.mu.Lock()
		b.entries["one"] = found
		b.mu.Unlock()
		stopNow(t, b, "one")
		if _, err := b.Usage(t.Context(), "one"); err == nil {
			t.Error("it has a usage")
		}
		if found.instance.State != cluster.Starting {
			t.Errorf("it became %s", found.instance.State)
		}
		found.forget()
		select {
		case event := <-b.Events():
			t.Errorf("event %+v", event)
		default:
		}
	})
}

func TestAKilledInstanceIsNoticedAtOnce(t *testing.T) {
	eachWay(t, func(t *testing.T, bare bool) {
		b := open(t, options(t.TempDir(), bare))
		// On a machine that does other things too, one time may be slow.
		fastest := time.Hour
		const soon = time.Second
		for round := 0; round < 4 || round < 20 && fastest > soon; round++ {
			begin(t, b, spec("one", "forking"))
			expect(t, b, "one", cluster.Ready)
			pid := pidOf(t, b, "one")
			killed := time.Now()
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			exited := expect(t, b, "one", cluster.Exited)
			fastest = min(fastest, time.Since(killed))
			if exited.Reason != "killed by signal 9" {
				t.Errorf("reason %q", exited.Reason)
			}
			nothingLeft(t, b)
		}
		if fastest > soon {
			t.Errorf("it took %v", fastest)
		}
		t.Logf("noticed and cleared up within %v", fastest)
	})
}

func TestReasonsOfFailedStarts(t *testing.T) {
	eachWay(t, func(t *testing.T, bare bool) {
		for role, want := range map[string]string{
			"failing":     "exited with status 3: no such model",
			"closing":     "closed its ready pipe without becoming ready",
			"babbling":    `wrote "hello\n" to its ready pipe instead of "ready"`,
			"never ready": "not ready within 300ms",
		} {
			o := options(t.TempDir(), bare)
			if role == "never ready" {
				o.StartTimeout = 300 * time.Millisecond
			}
			b := open(t, o)
			id := strings.ReplaceAll(role, " ", "-")
			begin(t, b, spec(id, role))
			if exited := expect(t, b, cluster.InstanceID(id), cluster.Exited); exited.Reason != want {
				t.Errorf("%s: reason %q, want %q", role, exited.Reason, want)
			}
			nothingLeft(t, b)
		}
	})
}

func TestOneThatDoesNotStopIsKilled(t *testing.T) {
	eachWay(t, func(t *testing.T, bare bool) {
		b := open(t, options(t.TempDir(), bare))
		for _, role := range []string{"stubborn", "never ready"} {
			begin(t, b, spec("one", role))
			if role == "stubborn" {
				expect(t, b, "one", cluster.Ready)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			if err := b.Stop(ctx, "one"); err != nil {
				t.Fatal(err)
			}
			cancel()
			nothingLeft(t, b)
			expect(t, b, "one", cluster.Stopping)
			exited := expect(t, b, "one", cluster.Exited)
			// One that has not got as far as ignoring SIGTERM leaves by itself.
			if role == "stubborn" && !strings.HasPrefix(exited.Reason, "killed because it did not stop in time") {
				t.Errorf("reason %q", exited.Reason)
			}
		}
	})
}

func TestAStartThatCannotBeLeavesNothing(t *testing.T) {
	eachWay(t, func(t *testing.T, bare bool) {
		o := options(t.TempDir(), bare)
		program := "/no/such/program"
		o.Command = func(cluster.InstanceSpec, string) (argv, env []string) { return []string{program}, nil }
		b := open(t, o)
		if _, err := b.Start(t.Context(), spec("one", "serving")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a program that does not exist: %v", err)
		}
		// A file that may be executed but is no program fails at the very exec.
		program = filepath.Join(t.TempDir(), "garbage")
		if err := os.WriteFile(program, []byte("\x7fELF garbage"), 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Start(t.Context(), spec("one", "serving")); err == nil {
			t.Error("garbage was executed")
		}
		secret := spec("one", "serving")
		secret.Secrets = map[string]string{"../up": "x"}
		if _, err := b.Start(t.Context(), secret); err == nil {
			t.Error("a secret outside of its directory was taken")
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := b.Start(ended, spec("one", "serving")); !errors.Is(err, context.Canceled) {
			t.Errorf("a context that has ended: %v", err)
		}
		for _, change := range []func(*cluster.InstanceSpec){
			func(s *cluster.InstanceSpec) { s.ID = "../up" },
			func(s *cluster.InstanceSpec) { s.ID = "" },
			func(s *cluster.InstanceSpec) { s.Function = "../up" },
			func(s *cluster.InstanceSpec) { s.Node = "elsewhere" },
			func(s *cluster.InstanceSpec) { s.Config.CPU = 0 },
			func(s *cluster.InstanceSpec) { s.Config.Memory = -1 },
		} {
			wrong := spec("one", "serving")
			change(&wrong)
			if _, err := b.Start(t.Context(), wrong); err == nil {
				t.Errorf("%+v was started", wrong)
			}
		}
		nothingLeft(t, b)
		if nodes, err := b.Nodes(t.Context()); err != nil || nodes[0].Free != nodes[0].Total {
			t.Errorf("nodes %+v, %v", nodes, err)
		}
	})
}

func TestNeverAboveCapacity(t *testing.T) {
	b := open(t, options(t.TempDir(), true))
	var group sync.WaitGroup
	var mu sync.Mutex
	started, refused := 0, 0
	for i := range 12 {
		group.Go(func() {
			s := spec(fmt.Sprintf("i%d", i), "never ready")
			s.Config.CPU = 1000
			_, err := b.Start(context.Background(), s)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				started++
			case errors.Is(err, ErrNoCapacity):
				refused++
			default:
				t.Error(err)
			}
		})
	}
	group.Wait()
	if started != 4 || refused != 8 {
		t.Errorf("%d started and %d refused, want 4 and 8", started, refused)
	}
	large := spec("large", "never ready")
	large.Config.CPU, large.Config.GPU = 1, 50
	if _, err := b.Start(t.Context(), large); !errors.Is(err, ErrNoCapacity) {
		t.Errorf("a GPU that is not there: %v", err)
	}
	again := spec("i0", "never ready")
	again.Config.CPU = 1
	if _, err := b.Start(t.Context(), again); err == nil {
		t.Error("two instances of one name")
	}
}

func TestCloseEndsEvents(t *testing.T) {
	b, err := New(t.Context(), options(t.TempDir(), true))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	if _, open := <-b.Events(); open {
		t.Error("events after Close")
	}
	if _, err := b.Start(t.Context(), spec("one", "serving")); !errors.Is(err, ErrClosed) {
		t.Errorf("Start: %v", err)
	}
	if err := b.Stop(t.Context(), "one"); !errors.Is(err, ErrClosed) {
		t.Errorf("Stop: %v", err)
	}
}
