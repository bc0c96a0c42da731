package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

const (
	// killTimeout is how long after the grace period a kubelet may take to report that
	// a pod is gone. After that the backend removes the pod's object without the
	// kubelet.
	killTimeout = 10 * time.Second
	// confirmPause is how often the backend asks the API server whether such a pod is
	// gone, in case the watch has missed it.
	confirmPause = 2 * time.Second
)

// Stop deletes the pod with the rest of ctx's time as its grace period, and waits until
// it is gone. After the grace period the kubelet kills it.
func (b *Backend) Stop(ctx context.Context, id cluster.InstanceID) error {
	e, err := b.find(id)
	if e == nil {
		return err
	}
	if err = e.stop(ctx); err == nil || errors.Is(err, ErrClosed) {
		return err
	}
	return fmt.Errorf("stop %s: %w", id, err)
}

func (e *entry) stop(ctx context.Context) error {
	b := e.backend
	select {
	case <-e.begun:
	case <-e.gone:
		return nil // Its start failed.
	case <-b.ctx.Done():
		return ErrClosed
	}
	if !e.leave() {
		return nil
	}
	if err := e.delete(ctx, remaining(ctx)); err != nil {
		return err
	}
	select {
	case <-e.gone:
		return nil
	case <-b.ctx.Done():
		return ErrClosed
	case <-ctx.Done():
	}
	if e.waitGone(killTimeout) {
		return nil
	}
	// Its node does not answer.
	if err := e.delete(context.WithoutCancel(ctx), 0); err != nil {
		return err
	}
	if e.waitGone(killTimeout) {
		return nil
	}
	if b.ctx.Err() != nil {
		return ErrClosed
	}
	return fmt.Errorf("its pod still exists %v after it was force-deleted", killTimeout)
}

// leave marks an instance as stopping; false if it has exited.
func (e *entry) leave() bool {
	b := e.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.entries[e.instance.ID] != e {
		return false
	}
	e.stopping = true
	if e.instance.State != cluster.Stopping {
		e.instance.State = cluster.Stopping
		b.emit(e.instance)
		e.notify()
	}
	return true
}

// delete retries to delete the pod until the API server answers or the longer of a second
// and grace has passed. It tries at least once, even if ctx has ended already.
func (e *entry) delete(ctx context.Context, grace time.Duration) error {
	b := e.backend
	until, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(time.Second, grace))
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	b.mu.Lock()
	uid := e.uid
	b.mu.Unlock()
	err := attempt(until, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		defer context.AfterFunc(b.ctx, cancel)()
		return b.deleteOnce(ctx, e.namespace, string(e.instance.ID), uid, grace)
	})
	switch {
	case err == nil:
		return nil
	case isGone(err):
		b.podGone(e.named())
		return nil
	case b.ctx.Err() != nil:
		return ErrClosed
	}
	return err
}

// waitGone waits until the pod is gone or timeout has passed. It asks the API server, too,
// because the watch may miss the deletion.
func (e *entry) waitGone(timeout time.Duration) bool {
	b := e.backend
	deadline := time.After(timeout)
	confirm := time.Tick(confirmPause)
	for {
		select {
		case <-e.gone:
			return true
		case <-b.ctx.Done():
			return false
		case <-deadline:
			return isClosed(e.gone)
		case <-confirm:
			b.background(func() { b.confirmPod(e.named()) })
		}
	}
}

// remaining returns the rest of a context's time, at least a second: a grace period of 0
// would not wait for the kubelet.
func remaining(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return stopGrace
	}
	return max(time.Second, time.Until(deadline))
}

// named returns the instance's pod. Before the watch has shown the pod, it returns one with
// only its name, namespace, UID and labels.
func (e *entry) named() *corev1.Pod {
	e.backend.mu.Lock()
	defer e.backend.mu.Unlock()
	if e.pod != nil {
		return e.pod
	}
	id := string(e.instance.ID)
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: id, Namespace: e.namespace, UID: e.uid,
		Labels: map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedBy, v1alpha1.InstanceLabel: id},
	}}
}
