package kubernetes

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
)

const (
	// firstPause and lastPause are between two times that a starting instance is
	// asked.
	firstPause = 5 * time.Millisecond
	lastPause  = 250 * time.Millisecond
	// unseenPatience is how long the watch may take to show a pod that was created.
	unseenPatience = 10 * time.Second
	// pullPatience is how long a node may take until the instance's program runs: a
	// large image is pulled for minutes.
	pullPatience = 10 * time.Minute
	// removeGrace is how long what has not come up may take to leave.
	removeGrace = time.Second
)

// await follows an instance until it is ready or given up.
func (e *entry) await() {
	b := e.backend
	patience, running := max(pullPatience, b.options.StartTimeout), false
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	unseen := time.NewTimer(unseenPatience)
	defer unseen.Stop()
	pause := firstPause
	var stuck stuck
	for {
		s := e.glance()
		if s.state != cluster.Starting {
			return
		}
		seen := s.seen()
		if stuck.since(seen) {
			e.fail(seen.Reason, removeGrace)
			return
		}
		if seen.Running && !running {
			patience, running = b.options.StartTimeout, true
			timeout.Reset(patience)
		}
		var ask <-chan time.Time
		if s.address != "" && !seen.Stuck {
			if b.prober.Ask(b.ctx, s.address, podspec.ReadyPath) {
				e.ready()
				return
			}
			ask, pause = time.After(pause), min(lastPause, pause*3/2)
		}
		select {
		case <-b.ctx.Done():
			return
		case <-s.changed:
		case <-ask:
		case <-stuck.up():
		case <-unseen.C:
			if s.pod == nil {
				b.background(func() { b.confirmPod(e.named()) })
			}
		case <-timeout.C:
			e.fail(tooLong(patience, seen), removeGrace)
			return
		}
	}
}

// glance is what is known of an instance at a moment.
type glance struct {
	state   cluster.State
	address string
	pod     *corev1.Pod
	changed <-chan struct{}
}

func (e *entry) glance() glance {
	e.backend.mu.Lock()
	defer e.backend.mu.Unlock()
	return glance{e.instance.State, e.instance.Address, e.pod, e.changed}
}

func (g glance) seen() podspec.Observation {
	if g.pod == nil {
		return podspec.Observation{State: cluster.Starting}
	}
	return podspec.Observe(g.pod)
}

// stuck is how long an instance has not been getting on.
type stuck struct {
	began time.Time
	left  time.Duration
	now   bool
}

// since reports whether it has not for too long.
func (s *stuck) since(seen podspec.Observation) bool {
	if s.now = seen.Stuck; !s.now {
		s.began = time.Time{}
		return false
	}
	if s.began.IsZero() {
		s.began = time.Now()
	}
	s.left = seen.Patience - time.Since(s.began)
	return s.left <= 0
}

// up fires when patience is.
func (s *stuck) up() <-chan time.Time {
	if !s.now {
		return nil
	}
	return time.After(s.left)
}

func tooLong(timeout time.Duration, seen podspec.Observation) string {
	why := fmt.Sprintf("not ready within %v", timeout)
	if seen.Reason != "" {
		why += ": " + seen.Reason
	}
	return why
}
