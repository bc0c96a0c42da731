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
	// killPatience is how long a kubelet may take to tell that a pod whose time was
	// up is gone; after that its object is removed without it.
	killPatience = 10 * time.Second
	// lookAgain is how often the API server is asked whether a pod is gone whose time
	// is up, should the watch not have told.
	lookAgain = 2 * time.Second
)

// Stop deletes the pod with what is left of ctx's time as its grace, and waits until
// it is gone; the kubelet kills what is left then.
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
	if e.waitGone(killPatience) {
		return nil
	}
	// Its node does not answer.
	if err := e.delete(context.WithoutCancel(ctx), 0); err != nil {
		return err
	}
	if e.waitGone(killPatience) {
		return nil
	}
	if b.ctx.Err() != nil {
		return ErrClosed
	}
	return fmt.Errorf("its pod is still there %v after it was deleted without its node's consent", killPatience)
}

// leave notes that an instance is told to stop; false if it has exited.
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
		b.tell(e.instance)
		e.touch()
	}
	return true
}

// delete asks for a pod's deletion until the API server has heard it or the context
// ends; one that has ended already does not keep it from being asked once.
func (e *entry) delete(ctx context.Context, grace time.Duration) error {
	b := e.backend
	until, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(time.Second, grace))
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	b.mu.Lock()
	uid := e.uid
	b.mu.Unlock()
	err := attempt(until, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callPatience)
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

// waitGone waits for a pod's end, and does not rely on the watch alone.
func (e *entry) waitGone(patience time.Duration) bool {
	b := e.backend
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	for {
		select {
		case <-e.gone:
			return true
		case <-b.ctx.Done():
			return false
		case <-deadline.C:
			return isClosed(e.gone)
		case <-look.C:
			b.background(func() { b.confirmPod(e.named()) })
		}
	}
}

// remaining is how much time a context leaves, at least a second: a grace of none
// would not wait for the kubelet.
func remaining(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return stopGrace
	}
	return max(time.Second, time.Until(deadline))
}

// named is a pod, or one of which nothing is known but who it is.
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
