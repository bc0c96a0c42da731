package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/gpu"
)

const (
	// createPatience is for how long an API server that does not answer is asked
	// again to create a pod.
	createPatience = time.Minute
	// callPatience is how long one call may take.
	callPatience = 15 * time.Second
	// stopGrace is what a pod says that it may take to leave; who stops it says more
	// precisely.
	stopGrace = 30 * time.Second
)

// Start creates the pod of an instance. An API server that does not answer is asked
// again for a minute.
func (b *Backend) Start(ctx context.Context, spec cluster.InstanceSpec) (cluster.Instance, error) {
	in, err := b.start(ctx, spec)
	if err != nil {
		return cluster.Instance{}, fmt.Errorf("start %s: %w", spec.ID, err)
	}
	return in, nil
}

func (b *Backend) start(ctx context.Context, spec cluster.InstanceSpec) (cluster.Instance, error) {
	_, namespace, err := podspec.SplitName(spec.Function)
	if err != nil {
		return cluster.Instance{}, err
	}
	plan, err := b.plan(spec, namespace)
	if err != nil {
		return cluster.Instance{}, err
	}
	e, err := b.reserve(&plan, namespace)
	if err != nil {
		return cluster.Instance{}, err
	}
	pod, err := podspec.Model(plan)
	if err != nil {
		e.abandon(false)
		return cluster.Instance{}, err
	}
	if err := e.create(ctx, pod); err != nil {
		e.abandon(errors.Is(err, context.Canceled) || isTransient(err))
		return cluster.Instance{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	close(e.begun)
	b.begin(func() { e.await() })
	return e.instance, nil
}

// plan gathers what the pod is made from.
func (b *Backend) plan(spec cluster.InstanceSpec, namespace string) (podspec.ModelPlan, error) {
	owner, ok := b.options.Functions(spec.Function)
	if !ok {
		return podspec.ModelPlan{}, fmt.Errorf("function %s does not exist any more", spec.Function)
	}
	// Its spec may say something else by now, or something that cannot be.
	owner = owner.At(spec.Revision)
	p := podspec.ModelPlan{Spec: spec, Owner: owner, Args: b.options.Args(spec), Grace: stopGrace, StartedAt: b.options.Now()}
	var err error
	if p.Profiles, err = podspec.Named(b.options.Profiles, owner.Spec.Deployment(owner.Name, owner.Namespace)); err != nil {
		return p, err
	}
	if b.options.SecretType != nil {
		p.Secrets = map[string]corev1.SecretType{}
		for name := range spec.Secrets {
			p.Secrets[name] = b.options.SecretType(namespace, name)
		}
	}
	return p, nil
}

// reserve makes the instance's entry, which holds its room from now on, and chooses
// its GPU.
func (b *Backend) reserve(p *podspec.ModelPlan, namespace string) (*entry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	spec := p.Spec
	switch {
	case b.closed:
		return nil, ErrClosed
	case b.entries[spec.ID] != nil:
		return nil, errors.New("there is such an instance already")
	case b.fleet.nodes[spec.Node] == nil:
		return nil, fmt.Errorf("there is no node %q", spec.Node)
	}
	if _, over := b.over[spec.ID]; over {
		return nil, errors.New("there was such an instance already")
	}
	e := b.newEntry(cluster.Instance{InstanceSpec: spec, State: cluster.Starting, StartedAt: p.StartedAt}, namespace)
	if spec.Config.GPU > 0 {
		share, err := b.fleet.nodes[spec.Node].GPUs.Place(b.fleet.heldGPUs(spec.Node), spec.Config.GPU, spec.Config.GPUMemory)
		if err != nil {
			return nil, fmt.Errorf("node %s: %w", spec.Node, err)
		}
		p.Share, e.device = &share, share.Device
	}
	e.enter()
	return e, nil
}

// heldGPUs are the shares of a node's GPUs that instances have. The lock is held.
func (f *fleet) heldGPUs(node string) (held []gpu.Held) {
	for e := range f.instances[node] {
		if e.device != "" {
			held = append(held, gpu.Held{Device: e.device, Percent: e.instance.Config.GPU, Memory: e.instance.Config.GPUMemory})
		}
	}
	return held
}

// create has the API server make the pod. A second try that finds it there is the
// first one's success, as nobody else has its name.
func (e *entry) create(ctx context.Context, pod *corev1.Pod) error {
	b := e.backend
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	// Where thousands are started at once, the last of them wait long for their turn:
	// patience begins with it.
	if err := b.writes.turn(ctx); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, createPatience)
	defer stop()
	tries := 0
	return attempt(ctx, func(ctx context.Context) error {
		if tries++; tries > 1 {
			if err := b.writes.turn(ctx); err != nil {
				return err
			}
		}
		created, err := b.createOnce(ctx, pod)
		if tries > 1 && apierrors.IsAlreadyExists(err) {
			return nil
		}
		if err == nil {
			b.mu.Lock()
			e.uid = created.UID
			b.mu.Unlock()
		}
		return err
	})
}

// createOnce asks once, and ends the turn.
func (b *Backend) createOnce(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	defer b.writes.done()
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	return b.options.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{FieldManager: v1alpha1.ManagedBy})
}

// writes holds a token for each pod that is being created or deleted.
type writes chan struct{}

// turn waits until one more pod may be written.
func (w writes) turn(ctx context.Context) error {
	select {
	case w <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w writes) done() { <-w }

// abandon forgets an instance whose pod was not created. Where it is not certain
// that it was not, as the API server has not answered, it goes when it turns up.
func (e *entry) abandon(uncertain bool) {
	b := e.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	id := e.instance.ID
	if b.entries[id] != e {
		return
	}
	e.drop()
	b.forget(id)
	close(e.gone)
	e.touch()
	if uid := e.uid; e.pod != nil || uncertain {
		b.begin(func() { b.remove(e.namespace, string(id), uid, 0) })
	}
}

// remove deletes a pod, unless another has taken its name, and does not give up
// before Close.
func (b *Backend) remove(namespace, name string, uid types.UID, grace time.Duration) {
	err := b.insist(func(ctx context.Context) error { return b.deleteOnce(ctx, namespace, name, uid, grace) })
	if err != nil && !isGone(err) && b.ctx.Err() == nil {
		b.log.Error().Err(err).Str("pod", namespace+"/"+name).Msg("the pod of an instance that has exited cannot be deleted")
	}
}

// insist calls f until the API server answers it, or Close.
func (b *Backend) insist(f func(context.Context) error) error {
	return attempt(b.ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, callPatience)
		defer cancel()
		return f(ctx)
	})
}

func (b *Backend) deleteOnce(ctx context.Context, namespace, name string, uid types.UID, grace time.Duration) error {
	if err := b.writes.turn(ctx); err != nil {
		return err
	}
	defer b.writes.done()
	seconds := int64((grace + time.Second - 1) / time.Second)
	options := metav1.DeleteOptions{GracePeriodSeconds: &seconds}
	if uid != "" {
		options.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	return b.options.Client.CoreV1().Pods(namespace).Delete(ctx, name, options)
}

// isGone reports whether a pod that was to be deleted does not exist, or is another
// of the same name.
func isGone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }
