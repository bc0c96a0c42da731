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

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/claims"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/gpu"
)

const (
	// createTimeout is how long the backend retries to create a pod while the API
	// server does not answer.
	createTimeout = time.Minute
	// callTimeout is how long one call may take.
	callTimeout = 15 * time.Second
	// objectPatience is how long a start waits for the object of a revision that is being deployed, and objectPause the
	// time between two looks.
	objectPatience = 5 * time.Second
	objectPause    = 20 * time.Millisecond
	// stopGrace is the grace period in the pod's spec without Options.Grace. Stop overrides
	// it.
	stopGrace = 30 * time.Second
)

// Start creates the pod of an instance. If the API server does not answer, it retries for
// a minute.
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
	owner, err := ownerOf(ctx, b.options.Functions, spec)
	if err != nil {
		return cluster.Instance{}, err
	}
	plan, err := b.plan(spec, owner)
	if err != nil {
		return cluster.Instance{}, err
	}
	e, err := b.reserve(&plan, namespace)
	if err != nil {
		return cluster.Instance{}, err
	}
	if plan.Secrets, err = e.secretTypes(ctx, spec.Secrets); err != nil {
		e.abandon(false)
		return cluster.Instance{}, err
	}
	if err := (certificates{b}).ensure(ctx, namespace, false); err != nil {
		e.abandon(false)
		return cluster.Instance{}, err
	}
	more := &boosting{of: e}
	plan.StartingCPU = more.begin()
	if plan.Claim != "" {
		if err := (claimWatch{b}).ensureClaim(ctx, namespace, plan.Share.Device, spec.Node); err != nil {
			e.abandon(false)
			return cluster.Instance{}, err
		}
	}
	err = e.createPlanned(ctx, plan)
	if err != nil && more.refused(err) {
		plan.StartingCPU = 0
		err = e.createPlanned(ctx, plan)
	}
	if err != nil {
		e.abandon(errors.Is(err, context.Canceled) || isTransient(err))
		return cluster.Instance{}, e.notCreated(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	close(e.begun)
	b.begin(func() {
		e.await()
		more.end()
	})
	return e.instance, nil
}

// ownerOf returns the object of an instance's function, with the spec of the instance's revision: the present one may have
// changed since, or be invalid by now. A server deploys first and writes the object then, and the cache lags. So
// ownerOf waits for a while: the object before has the image of an earlier revision.
func ownerOf(
	ctx context.Context, functions func(full string) (*v1alpha1.Function, bool), spec cluster.InstanceSpec,
) (*v1alpha1.Function, error) {
	for late := time.Now().Add(objectPatience); ; {
		owner, there := functions(spec.Function)
		switch over := time.Now().After(late) || ctx.Err() != nil; {
		case there && owner.Knows(spec.Revision):
			return owner.At(spec.Revision), nil
		case over && !there:
			return nil, fmt.Errorf("function %s does not exist any more", spec.Function)
		case over:
			return nil, fmt.Errorf("the object of function %s does not have revision %d yet", spec.Function, spec.Revision)
		}
		backoff.Wait(ctx, objectPause)
	}
}

// plan collects what the pod is made from.
func (b *Backend) plan(spec cluster.InstanceSpec, owner *v1alpha1.Function) (podspec.ModelPlan, error) {
	p := podspec.ModelPlan{Spec: spec, Owner: owner, Args: b.options.Args(spec), Local: b.options.Local, Grace: stopGrace, StartedAt: b.options.Now()}
	if b.options.Grace != nil {
		p.Grace = b.options.Grace(owner)
	}
	var err error
	if p.Profiles, err = podspec.Named(b.options.Profiles, owner.Spec.Deployment(owner.Name, owner.Namespace)); err != nil {
		return p, err
	}
	p.Certificate = b.options.Certificate != nil
	if b.options.Copies != nil {
		p.Copies = b.options.Copies(spec)
	}
	if b.options.Content != nil {
		p.Content = b.options.Content(spec)
	}
	return p, nil
}

// secretTypes reads the types of a function's secrets. They are not cached: a secret that is
// deleted and created again may have another type. If a type cannot be read, the instance
// must not start, because a registry's credentials would be mounted into it as files.
func (e *entry) secretTypes(ctx context.Context, files map[string]string) (map[string]corev1.SecretType, error) {
	if len(files) == 0 {
		return nil, nil
	}
	b := e.backend
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	kinds := make(map[string]corev1.SecretType, len(files))
	for name := range files {
		err := attempt(ctx, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			found, err := b.options.Client.CoreV1().Secrets(e.namespace).Get(ctx, name, metav1.GetOptions{})
			if err == nil {
				kinds[name] = found.Type
			}
			return err
		})
		switch {
		case apierrors.IsNotFound(err):
			return nil, fmt.Errorf("there is no secret %q in namespace %s; create it, for example with faas-cli secret create", name, e.namespace)
		case err != nil:
			return nil, fmt.Errorf("read the type of the secret %q: %w", name, err)
		}
	}
	return kinds, nil
}

// reserve makes the instance's entry, which reserves its resources, and chooses its GPU.
func (b *Backend) reserve(p *podspec.ModelPlan, namespace string) (*entry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	spec := p.Spec
	switch {
	case b.closed:
		return nil, ErrClosed
	case b.entries[spec.ID] != nil:
		return nil, errors.New("an instance with this ID exists already")
	case b.fleet.nodes[spec.Node] == nil:
		return nil, fmt.Errorf("there is no node %q", spec.Node)
	}
	if _, exited := b.exited[spec.ID]; exited {
		return nil, errors.New("an instance with this ID has exited; use a new ID")
	}
	e := b.newEntry(cluster.Instance{InstanceSpec: spec, State: cluster.Starting, StartedAt: p.StartedAt}, namespace)
	if spec.Config.GPU > 0 {
		usable := b.fleet.gpus(b.fleet.nodes[spec.Node], namespace)
		share, err := usable.Place(b.fleet.heldGPUs(spec.Node), spec.Device(), spec.Config.GPU, spec.Config.GPUMemory)
		if err != nil {
			return nil, fmt.Errorf("node %s: %w", spec.Node, err)
		}
		p.Share, e.device = &share, share.Device
		if b.fleet.claims.Has(spec.Node, share.Device) {
			p.Claim = claims.Name(share.Device)
		}
		p.Spec.Devices, e.instance.Devices = []string{share.Device}, []string{share.Device}
	}
	e.enter()
	return e, nil
}

// heldGPUs returns the shares of a node's GPUs that instances hold. The lock is held.
func (f *fleet) heldGPUs(node string) (held []gpu.Held) {
	for e := range f.instances[node] {
		if e.device != "" {
			held = append(held, gpu.Held{Device: e.device, Percent: e.instance.Config.GPU, Memory: e.instance.Config.GPUMemory})
		}
	}
	return held
}

// createPlanned makes and creates a pod.
func (e *entry) createPlanned(ctx context.Context, plan podspec.ModelPlan) error {
	pod, err := podspec.Model(plan)
	if err != nil {
		return err
	}
	return e.create(ctx, pod)
}

// create creates the pod through the API server. If a retry finds that the pod exists, an
// earlier try has succeeded, because nobody else uses its name.
func (e *entry) create(ctx context.Context, pod *corev1.Pod) error {
	b := e.backend
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	// When thousands of instances start at once, the last of them wait long for their
	// turn, so the timeout begins with the turn.
	if err := b.writes.turn(ctx); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, createTimeout)
	defer stop()
	tries := 0
	return attempt(ctx, func(ctx context.Context) error {
		if tries++; tries > 1 {
			if err := b.writes.turn(ctx); err != nil {
				return err
			}
		}
		created, err := e.createOnce(ctx, pod)
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

// createOnce tries once to create the pod, and ends the turn.
func (e *entry) createOnce(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	b := e.backend
	defer b.writes.done()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return b.options.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{FieldManager: v1alpha1.ManagedBy})
}

// writes holds a token for each pod that is being created or deleted.
type writes chan struct{}

// turn waits until one more pod may be created or deleted.
func (w writes) turn(ctx context.Context) error {
	select {
	case w <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w writes) done() { <-w }

// abandon removes an instance whose pod was not created. With uncertain, the API server
// has not answered and the pod may exist, so abandon deletes it.
func (e *entry) abandon(uncertain bool) {
	b := e.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	id := e.instance.ID
	if b.entries[id] != e {
		return
	}
	e.drop()
	b.rememberExit(id)
	close(e.gone)
	e.notify()
	if uid := e.uid; e.pod != nil || uncertain {
		b.begin(func() { b.remove(e.namespace, string(id), uid, 0) })
	}
}

// remove deletes a pod, unless another pod has taken its name. It retries until Close.
func (b *Backend) remove(namespace, name string, uid types.UID, grace time.Duration) {
	err := b.insist(func(ctx context.Context) error { return b.deleteOnce(ctx, namespace, name, uid, grace) })
	if err != nil && !isGone(err) && b.ctx.Err() == nil {
		b.log.Error().Err(err).Str("pod", namespace+"/"+name).Msg("cannot delete the pod of an exited instance")
	}
}

// insist calls f until the API server answers or Close is called.
func (b *Backend) insist(f func(context.Context) error) error {
	return attempt(b.ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
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

// isGone reports whether a deletion failed because the pod does not exist, or because
// another pod has its name.
func isGone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }
