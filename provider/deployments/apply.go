package deployments

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider/keeper"
)

// fieldManager is the provider's name as the owner of fields in the API server.
const fieldManager = "faas-infer"

// patchDeployment applies a Deployment. It takes over fields that others have set.
func (c *Controller) patchDeployment(ctx context.Context, namespace, name string, text []byte, dryRun ...string) (*appsv1.Deployment, error) {
	force := true
	return c.options.Client.AppsV1().Deployments(namespace).Patch(ctx, name, types.ApplyPatchType, text,
		metav1.PatchOptions{FieldManager: fieldManager, Force: &force, DryRun: dryRun})
}

// target is what a function's Deployment should be.
type target struct {
	hash     string
	replicas int
	owner    types.UID
}

func (d deployed) target() target { return target{d.hash, d.replicas, d.owner} }

// settle changes the function's objects in the background if they differ from their target. It
// reports whether they match. The lock is held.
func (fn *function) settle(now time.Time) bool {
	c := fn.controller
	if fn.applying {
		return false
	}
	owner, ok := c.options.Functions(fn.Name)
	if !ok {
		// The Function object is not known here yet, or is deleted already.
		return false
	}
	is, exists := c.deployed[fn.Name]
	to := target{fn.hash, fn.replicas.Wanted(), owner.UID}
	if exists && !is.leaving && is.target() == to {
		fn.Failures = keeper.Failures{}
		return true
	}
	if is.leaving || fn.Failures.Pausing(now) {
		return false
	}
	onlyReplicas := exists && is.hash == to.hash && is.owner == to.owner
	if fn.manifest == nil && !onlyReplicas {
		return false
	}
	fn.applying = true
	m := fn.manifest
	if onlyReplicas {
		m = nil
	}
	c.tasks.Begin(func() { fn.apply(owner, m, is.name, to) })
	return false
}

// apply applies the function's objects. Without a manifest it changes only the number of replicas of
// the Deployment with a name.
func (fn *function) apply(owner *v1alpha1.Function, m *Manifest, name string, to target) {
	c := fn.controller
	select {
	case c.applies <- struct{}{}:
		defer func() { <-c.applies }()
	case <-c.tasks.Context().Done():
		return
	}
	ctx, cancel := context.WithTimeout(c.tasks.Context(), callTimeout)
	defer cancel()
	var d *appsv1.Deployment
	var err error
	if m == nil {
		d, err = c.options.Client.AppsV1().Deployments(owner.Namespace).Patch(ctx, name, types.MergePatchType,
			fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, to.replicas), metav1.PatchOptions{FieldManager: fieldManager})
	} else {
		d, err = c.applyAll(ctx, m, owner, to)
	}
	fn.changed(d, to, err)
}

// applyAll applies the Service and the Deployment.
func (c *Controller) applyAll(ctx context.Context, m *Manifest, owner *v1alpha1.Function, to target) (*appsv1.Deployment, error) {
	if m.secure() {
		if err := c.options.Certify(ctx, owner.Namespace); err != nil {
			return nil, err
		}
	}
	if err := c.applyService(ctx, m, owner); err != nil {
		return nil, err
	}
	text, err := m.Deployment(owner, to.replicas)
	if err != nil {
		return nil, err
	}
	return c.patchDeployment(ctx, owner.Namespace, m.Name(), text)
}

// applyService applies the Service. It leaves one alone that somebody else has made since the
// function got its name.
func (c *Controller) applyService(ctx context.Context, m *Manifest, owner *v1alpha1.Function) error {
	found, err := c.service(ctx, owner.Namespace, m.Name())
	if err != nil {
		return err
	}
	if found != nil && !madeFor(found, owner.Name) {
		return fmt.Errorf("the Service %s in namespace %s is somebody else's; delete or rename it", m.Name(), owner.Namespace)
	}
	text, err := m.Service(owner)
	if err != nil {
		return err
	}
	force := true
	_, err = c.options.Client.CoreV1().Services(owner.Namespace).Patch(ctx, m.Name(), types.ApplyPatchType, text,
		metav1.PatchOptions{FieldManager: fieldManager, Force: &force})
	if err != nil {
		return fmt.Errorf("apply the Service: %w", err)
	}
	return nil
}

// changed records the result of a change.
func (fn *function) changed(d *appsv1.Deployment, to target, err error) {
	c := fn.controller
	c.mu.Lock()
	defer c.mu.Unlock()
	fn.applying = false
	defer c.Wake()
	if err == nil {
		now := readDeployment(d)
		if before, ok := c.deployed[fn.Name]; !ok || before.uid != now.uid || before.generation <= now.generation {
			c.deployed[fn.Name] = now
		}
		if now.target() == to {
			fn.Failures = keeper.Failures{}
			return
		}
		err = errors.New("the cluster accepted the change and then altered it")
	}
	if c.tasks.Ended() {
		return
	}
	before := fn.Failures.Why
	fn.Failures.Failed(time.Now(), err.Error())
	if fn.Failures.Why != before {
		c.options.Logger.Error().Str("function", fn.Name).Err(err).Msg("could not change the function's Deployment; trying again")
	}
}

// delete deletes the objects of a removed function. It tries again if the API server fails.
func (c *Controller) delete(name string) {
	c.mu.Lock()
	found := c.deployed[name]
	c.mu.Unlock()
	for n := 1; found.uid != ""; n++ {
		err := c.deleteOnce(name, found)
		if err == nil || c.tasks.Ended() {
			return
		}
		c.options.Logger.Error().Str("function", name).Err(err).Msg("could not delete the function's objects; trying again")
		if !backoff.Wait(c.tasks.Context(), backoff.Pause(n, time.Second, time.Minute)) {
			return
		}
	}
}

func (c *Controller) deleteOnce(full string, found deployed) error {
	ctx, cancel := context.WithTimeout(c.tasks.Context(), callTimeout)
	defer cancel()
	name, namespace, _ := strings.Cut(full, ".")
	background := metav1.DeletePropagationBackground
	deployment := c.options.Client.AppsV1().Deployments(namespace).Delete(ctx, found.name,
		metav1.DeleteOptions{PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &found.uid}})
	// A conflict means that another Deployment has taken its place, which must stay.
	if apierrors.IsNotFound(deployment) || apierrors.IsConflict(deployment) {
		deployment = nil
	}
	var service error
	if !c.has(full) {
		service = c.deleteService(ctx, namespace, found.name, name)
	}
	return errors.Join(deployment, service)
}

// deleteService deletes the Service that was made for a function, and none of somebody else.
func (c *Controller) deleteService(ctx context.Context, namespace, name, function string) error {
	found, err := c.service(ctx, namespace, name)
	if err != nil || found == nil || !madeFor(found, function) {
		return err
	}
	err = c.options.Client.CoreV1().Services(namespace).Delete(ctx, name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(found.UID))})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// deleteStrays deletes the objects that an earlier leader has left of functions which are no longer
// ordinary ones. The lock is held.
func (c *Controller) deleteStrays() {
	for name := range c.strays {
		c.tasks.Begin(func() { c.delete(name) })
	}
	clear(c.strays)
}

// has reports whether a function is deployed.
func (c *Controller) has(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.functions[name] != nil
}
