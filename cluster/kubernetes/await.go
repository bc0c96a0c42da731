package kubernetes

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
)

const (
	// minProbePause and maxProbePause bound the pause between two probes of a starting instance.
	// Between them it is a probeShare-th of the time that the instance has had an address, so
	// probing adds at most 5 % to what a start takes: 25 ms to one of 500 ms.
	minProbePause = 5 * time.Millisecond
	maxProbePause = 250 * time.Millisecond
	probeShare    = 20
	// unseenTimeout is how long the watch may take to show a pod that was created.
	unseenTimeout = 10 * time.Second
	// pullTimeout is how long a node may take until the instance's program runs.
	// Pulling a large image takes minutes.
	pullTimeout = 10 * time.Minute
	// removeGrace is the grace period of a pod that never became ready.
	removeGrace = time.Second
)

// await follows an instance until it is ready or given up.
func (e *entry) await() {
	b := e.backend
	limit, running := max(pullTimeout, b.options.StartTimeout), false
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	unseen := time.After(unseenTimeout)
	var addressed time.Time // since when it has had an address
	feeding := e.newFeeding()
	defer feeding.stop()
	var stuck stuck
	for {
		s := e.snapshot()
		if s.state != cluster.Starting {
			return
		}
		seen := s.seen()
		if stuck.tooLong(seen) {
			e.judgeNow(seen)
			e.fail(seen.Reason, removeGrace)
			return
		}
		if seen.Running && !running {
			limit, running = b.options.StartTimeout, true
			timeout.Reset(limit)
		}
		if running && s.address != "" {
			feeding.begin(s.network, s.address)
		}
		var ask <-chan time.Time
		if s.address != "" && !seen.Stuck {
			if b.prober.Ask(b.ctx, s.address, podspec.ReadyPath) {
				e.ready()
				return
			}
			if addressed.IsZero() {
				addressed = time.Now()
			}
			ask = time.After(min(maxProbePause, max(minProbePause, time.Since(addressed)/probeShare)))
		}
		select {
		case <-b.ctx.Done():
			return
		case <-s.changed:
		case <-ask:
		case <-feeding.sent:
			timeout.Reset(limit) // Large models take long.
		case err := <-feeding.failed:
			e.fail(err.Error(), removeGrace)
			return
		case <-stuck.expired():
		case <-unseen:
			if s.pod == nil {
				b.background(func() { b.confirmPod(e.named()) })
			}
		case <-timeout.C:
			e.fail(notReady(limit, seen), removeGrace)
			return
		}
	}
}

// snapshot is what the backend knows of an instance at one moment.
type snapshot struct {
	state            cluster.State
	network, address string
	pod              *corev1.Pod
	changed          <-chan struct{}
}

func (e *entry) snapshot() snapshot {
	e.backend.mu.Lock()
	defer e.backend.mu.Unlock()
	return snapshot{e.instance.State, e.instance.Network, e.instance.Address, e.pod, e.changed}
}

func (s snapshot) seen() podspec.Observation {
	if s.pod == nil {
		return podspec.Observation{State: cluster.Starting}
	}
	return podspec.Observe(s.pod)
}

// stuck measures how long an instance has made no progress.
type stuck struct {
	began time.Time
	left  time.Duration
	now   bool
}

// tooLong takes in an observation and reports whether the instance has been stuck for
// longer than the observation's Patience.
func (s *stuck) tooLong(seen podspec.Observation) bool {
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

// expired fires when the instance will have been stuck for too long; it is nil if the
// instance is not stuck.
func (s *stuck) expired() <-chan time.Time {
	if !s.now {
		return nil
	}
	return time.After(s.left)
}

func notReady(timeout time.Duration, seen podspec.Observation) string {
	why := fmt.Sprintf("not ready within %v", timeout)
	if seen.Reason != "" {
		why += ": " + seen.Reason
	}
	return why
}
