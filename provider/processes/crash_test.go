package processes

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
)

// An instance that has answered is replaced at once, and requests wait for its successor.
func TestInstanceThatDiesIsReplaced(t *testing.T) {
	try(t, func(r *rig) {
		r.deploy("f", "a")
		r.ready("f", 1)
		for range 5 {
			r.answered("f", "a")
			r.backend.crash(r.only().ID, "killed by signal 9")
			// A request that it may have received already could not be sent again.
			synctest.Wait()
			began := time.Now()
			r.answered("f", "a")
			if took := time.Since(began); took > 2*coldStart {
				t.Errorf("the next answer took %v", took)
			}
		}
	})
}

func TestCrashLoopBacksOff(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.becomes(func(int, cluster.InstanceSpec) behaviour {
			return behaviour{ReadyAfter: -1, ExitAfter: 10 * time.Millisecond, ExitReason: "exit status 3: no such file"}
		})
		r.deploy("f", "a", between(3, 3))
		time.Sleep(5 * time.Second)
		_, err := r.invoke("f", "x")
		if err == nil || !strings.Contains(err.Error(), "exit status 3: no such file") {
			t.Errorf("a request is told %v", err)
		}
		if p := r.describe("f").Problem; !strings.Contains(p, "before it was ready: exit status 3") {
			t.Errorf("problem %q", p)
		}
		r.shows("f", 3, 0)
		time.Sleep(10 * time.Minute)
		if n := r.backend.asked(); n > 120 {
			t.Errorf("%d instances were started in ten minutes", n)
		}
		// Another deployment is tried at once.
		r.backend.becomes(func(int, cluster.InstanceSpec) behaviour { return behaviour{} })
		r.deploy("f", "b", between(3, 3))
		time.Sleep(2 * coldStart)
		r.shows("f", 3, 3)
		if p := r.describe("f").Problem; p != "" {
			t.Errorf("problem %q, although it works", p)
		}
	})
}

// If the instances of an update exit, the earlier deployment serves, and the problem says
// so.
func TestInstancesOfAnUpdateThatDie(t *testing.T) {
	try(t, func(r *rig) {
		r.deploy("f", "a")
		r.ready("f", 1)
		r.backend.becomes(func(int, cluster.InstanceSpec) behaviour {
			return behaviour{ReadyAfter: -1, ExitAfter: 10 * time.Millisecond, ExitReason: "exit status 3"}
		})
		r.deploy("f", "b")
		r.until("a problem", func() bool { return r.describe("f").Problem != "" })
		r.answered("f", "a")
		s, _ := r.Status(full("f"))
		if p := r.describe("f").Problem; !strings.HasPrefix(p, provider.Before("an instance exited")) || s.Problem != p {
			t.Errorf("problem %q, and in the status %q", p, s.Problem)
		}
		r.backend.becomes(func(int, cluster.InstanceSpec) behaviour { return behaviour{} })
		r.until("the new one", func() bool {
			got, err := r.invoke("f", "x")
			return err == nil && strings.HasPrefix(got, "b")
		})
		if p := r.describe("f").Problem; p != "" {
			t.Errorf("problem %q, although it works", p)
		}
	})
}

// The function recovers by itself, and waiting requests are answered.
func TestCrashLoopThatEnds(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.becomes(func(n int, _ cluster.InstanceSpec) behaviour {
			if n < 3 {
				return behaviour{Refuse: errors.New("no space left on device")}
			}
			return behaviour{}
		})
		r.deploy("f", "a")
		r.until("ready", func() bool { return r.describe("f").Ready == 1 })
		r.answered("f", "a")
		if n := r.backend.asked(); n != 4 {
			t.Errorf("%d starts, want 4", n)
		}
	})
}

// If the instances of a deployment exit, the old ones keep serving.
func TestUpdateThatCrashes(t *testing.T) {
	try(t, func(r *rig) {
		r.deploy("f", "good", between(2, 2))
		r.ready("f", 2)
		r.backend.becomes(func(int, cluster.InstanceSpec) behaviour {
			return behaviour{ReadyAfter: 20 * time.Millisecond, ExitAfter: 50 * time.Millisecond, ExitReason: "panic"}
		})
		r.deploy("f", "bad", between(2, 2))
		time.Sleep(5 * time.Minute)
		good := 0
		for _, in := range r.backend.living() {
			if in.Bundle == "good" {
				good++
			}
		}
		if good == 0 {
			t.Fatal("no instance of what worked is left")
		}
		if p := r.describe("f").Problem; !strings.Contains(p, "soon after it was ready: panic") {
			t.Errorf("problem %q", p)
		}
	})
}

// An instance that no longer accepts connections is killed and replaced.
func TestDeafInstance(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.becomes(func(n int, _ cluster.InstanceSpec) behaviour { return behaviour{Deaf: n == 0} })
		r.deploy("f", "a")
		r.ready("f", 1)
		deaf := r.only().ID
		r.answered("f", "a")
		r.ready("f", 1)
		if r.only().ID == deaf {
			t.Error("the deaf instance lives on")
		}
	})
}

func TestStopThatFailsIsTriedAgain(t *testing.T) {
	try(t, func(r *rig) {
		r.deploy("f", "a")
		r.ready("f", 1)
		r.backend.Mu.Lock()
		r.backend.StopFails = 3
		r.backend.Mu.Unlock()
		if err := r.Remove(t.Context(), full("f")); err != nil {
			t.Fatal(err)
		}
		r.until("it is gone", func() bool { return len(r.backend.living()) == 0 })
	})
}

// If there is no room, the existing instances serve, and users can read why.
func TestNoRoom(t *testing.T) {
	try(t, func(r *rig) {
		large := func(f *provider.Function) { f.Inference.Requests.CPU = 1500 }
		r.deploy("f", "a", between(3, 3), large)
		r.until("two of three", func() bool { return r.describe("f").Ready == 2 })
		time.Sleep(time.Minute)
		r.shows("f", 3, 2)
		if p := r.describe("f").Problem; !strings.Contains(p, "requests.cpu 1500m") {
			t.Errorf("problem %q", p)
		}
		r.deploy("g", "a", large)
		if _, err := r.invoke("g", "x"); err == nil || !strings.Contains(err.Error(), "requests.cpu 1500m") {
			t.Errorf("a request is told %v", err)
		}
		// An instance that requests nothing always fits.
		r.deploy("small", "a")
		r.answered("small", "a")
		if err := r.Remove(t.Context(), full("f")); err != nil {
			t.Fatal(err)
		}
		r.until("room for the other", func() bool { return r.describe("g").Ready == 1 })
		if p := r.describe("g").Problem; p != "" {
			t.Errorf("problem %q", p)
		}
		// An update in place, where old and new do not fit side by side.
		r.deploy("g", "b", func(f *provider.Function) { f.Inference.Requests.CPU = 3000 })
		if failed := r.load("g", 10*time.Millisecond, 5*time.Second); failed > 0 {
			t.Errorf("%d requests failed", failed)
		}
		r.answered("g", "b")
	})
}

// The controller leaves what other kinds of instances hold.
func TestRoomOfOthers(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.Mu.Lock()
		r.backend.Machines[0].Others.CPU = 3500
		r.backend.Mu.Unlock()
		r.deploy("f", "a", func(f *provider.Function) { f.Inference.Requests.CPU = 1000 })
		time.Sleep(time.Minute)
		if n := r.backend.asked(); n != 0 {
			t.Errorf("%d instances were started", n)
		}
	})
}
