package control

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/keeper"
)

// An instance that exits before it is ready is started again, later each time. Requests
// get the reason.
func TestInstanceThatDiesBeforeItIsReady(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.becomes(func(int, cluster.InstanceSpec) behaviour {
			return behaviour{ReadyAfter: -1, ExitAfter: 50 * time.Millisecond, ExitReason: "out of memory (limit 256 MiB)"}
		})
		r.measured("f", "m")
		began := time.Now()
		_, err := r.invoke("f", "x")
		if status(err) != 503 || !strings.Contains(err.Error(), "out of memory (limit 256 MiB)") {
			t.Errorf("error %v", err)
		}
		if took := time.Since(began); took > 2*time.Second || r.backend.asked() != 3 {
			t.Errorf("it was told after %v and %d tries", took, r.backend.asked())
		}
		if d := r.describe("f"); !strings.Contains(d.Problem, "before it was ready: out of memory") {
			t.Errorf("problem %q", d.Problem)
		}
		for began := time.Now(); time.Since(began) < 2*time.Minute; time.Sleep(100 * time.Millisecond) {
			if _, err := r.invoke("f", "x"); status(err) != 503 {
				t.Fatal(err)
			}
		}
		if n := r.backend.asked(); n < 8 || n > 16 {
			t.Errorf("%d instances were tried in two minutes", n)
		}
		r.backend.becomes(func(int, cluster.InstanceSpec) behaviour { return behaviour{} })
		r.until("it recovers", func() bool {
			_, err := r.invoke("f", "x")
			return err == nil
		})
		time.Sleep(keeper.Settled + time.Second)
		if d := r.describe("f"); d.Problem != "" || r.functions[full("f")].Failures.Count != 0 {
			t.Errorf("healthy again, and yet %q", d.Problem)
		}
	})
}

// The client does not see the first failure.
func TestOneFailedStartIsHidden(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.becomes(func(n int, _ cluster.InstanceSpec) behaviour {
			if n == 0 {
				return behaviour{Refuse: errors.New("no more processes")}
			}
			return behaviour{}
		})
		r.measured("f", "m")
		r.answered("f", "m")
	})
}

func TestInstanceThatNeverBecomesReady(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.becomes(func(int, cluster.InstanceSpec) behaviour { return behaviour{ReadyAfter: -1} })
		r.measured("f", "m")
		began := time.Now()
		if _, err := r.invoke("f", "x"); status(err) != 503 {
			t.Errorf("error %v", err)
		}
		if took := time.Since(began); took < coldWait || took > coldWait+time.Second {
			t.Errorf("told after %v, may wait %v", took, coldWait)
		}
	})
}

func TestInstanceThatDiesLaterIsReplacedAtOnce(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "m")
		if err := r.Scale(full("f"), 1); err != nil {
			t.Fatal(err)
		}
		r.until("ready", func() bool { return r.describe("f").Ready == 1 })
		time.Sleep(keeper.Settled)
		r.backend.crash(r.only().ID, "killed by signal 9")
		time.Sleep(coldStart + 10*time.Millisecond)
		if d := r.describe("f"); d.Ready != 1 || d.Problem != "" {
			t.Errorf("after %v: %+v", coldStart, d)
		}
		r.answered("f", "m")
	})
}

// An instance that has answered works. It is replaced at once, even if it is killed soon
// after it was ready, again and again.
func TestInstanceThatAnsweredIsReplacedAtOnce(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "m")
		if err := r.Scale(full("f"), 1); err != nil {
			t.Fatal(err)
		}
		r.until("ready", func() bool { return r.describe("f").Ready == 1 })
		for range 2 * 3 {
			r.answered("f", "m")
			r.backend.crash(r.only().ID, "killed by signal 9")
			time.Sleep(coldStart + 10*time.Millisecond)
			if d := r.describe("f"); d.Ready != 1 || d.Problem != "" {
				t.Fatalf("after %v: %+v", coldStart, d)
			}
		}
	})
}

// A new deployment does not show the problem of the one before it.
func TestDeploymentAfterAHopelessOne(t *testing.T) {
	try(t, func(r *rig) {
		slo := func(d time.Duration) func(*provider.Function) {
			return func(f *provider.Function) { f.Inference.SLO = d }
		}
		r.deploy("f", "m", slo(time.Nanosecond))
		r.until("it is known to be hopeless", func() bool { return r.describe("f").Problem != "" })
		r.deploy("f", "m", slo(time.Second))
		r.answered("f", "m")
	})
}

// Instances that exit at their first batch are started with pauses.
func TestInstancesThatDieOfRequestsAreDelayed(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.becomes(func(int, cluster.InstanceSpec) behaviour { return behaviour{Broken: true} })
		r.measured("f", "m")
		reasons := map[string]bool{}
		for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(50 * time.Millisecond) {
			if _, err := r.invoke("f", "x"); err != nil {
				reasons[err.Error()] = true
			} else {
				t.Fatal("it was answered")
			}
		}
		if n := r.backend.asked(); n > 15 {
			t.Errorf("%d instances were started in a minute", n)
		}
		told := false
		for reason := range reasons {
			told = told || strings.Contains(reason, "soon after it was ready")
		}
		if !told {
			t.Errorf("nobody was told why: %v", reasons)
		}
	})
}

// An instance that does not answer, not even when it is asked whether it lives, has a
// successor within half a second, which also gets the request. It is stopped later.
func TestHungInstanceIsReplaced(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.becomes(func(n int, _ cluster.InstanceSpec) behaviour { return behaviour{Hung: n == 0} })
		r.measured("f", "m", func(f *provider.Function) { f.Inference.SLO = time.Second })
		first := make(chan error, 1)
		go func() {
			_, err := r.invoke("f", "x")
			first <- err
		}()
		r.until("ready", func() bool { return r.describe("f").Ready == 1 })
		hung, began := r.only().ID, time.Now()
		if err := <-first; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 500*time.Millisecond {
			t.Errorf("a successor answered after %v", took)
		}
		if living := r.backend.living(); len(living) != 2 {
			t.Errorf("%d instances live, want the hung one and its successor", len(living))
		}
		r.until("stopped", func() bool {
			for _, in := range r.backend.living() {
				if in.ID == hung {
					return false
				}
			}
			return true
		})
	})
}

func TestStopThatFailsIsTriedAgain(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "m")
		r.answered("f", "m")
		r.backend.Mu.Lock()
		r.backend.StopFails = 3
		r.backend.Mu.Unlock()
		if err := r.Scale(full("f"), 0); err != nil {
			t.Fatal(err)
		}
		r.until("stopped", func() bool { return len(r.backend.living()) == 0 })
	})
}

func TestEventsOfUnknownInstancesAreIgnored(t *testing.T) {
	try(t, func(r *rig) {
		for _, s := range []cluster.State{cluster.Ready, cluster.Stopping, cluster.Exited} {
			r.backend.News <- cluster.Instance{InstanceSpec: cluster.InstanceSpec{ID: "stranger"}, State: s}
		}
		r.measured("f", "m")
		r.answered("f", "m")
		r.keeper.Lost("stranger", errors.New("gone"))
	})
}

// Close leaves nothing: no instance that serves, starts or waits for room, and no
// measurement.
func TestCloseLeavesNothing(t *testing.T) {
	for at := time.Duration(0); at < 200*time.Millisecond; at += 9 * time.Millisecond {
		try(t, func(r *rig) {
			r.backend.widen(1000)
			for i := range 6 {
				r.measured(fmt.Sprint("f", i), "m")
			}
			r.deploy("late", "other")
			for i := range 6 {
				go r.invoke(fmt.Sprint("f", i), "x")
				time.Sleep(at / 6)
			}
			synctest.Wait()
		}) // Its end closes and checks.
	}
}

func TestCloseTellsOfWhatCannotBeStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.open()
		r.run()
		r.measured("f", "m")
		r.answered("f", "m")
		r.end()
		r.backend.StopFails = 1
		if err := r.Close(context.Background()); err == nil {
			t.Error("no error")
		}
		r.backend.crash(r.only().ID, "")
		r.backend.Work.Wait()
	})
}
