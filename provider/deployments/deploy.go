package deployments

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/web"
)

var _ provider.Controller = (*Controller)(nil)

// Deploy implements [provider.Controller]. Before it changes anything, it looks up everything that
// the deployment names, and asks the API server by a dry run whether it accepts the Deployment.
// The dispatcher is a [provider.Forwarder].
func (c *Controller) Deploy(ctx context.Context, f *provider.Function) (provider.Dispatcher, error) {
	c.mu.Lock()
	found := c.deployed[f.Name]
	c.mu.Unlock()
	// A function that already runs this revision keeps running, even if a secret or profile
	// that it names is gone.
	runs := found.uid != "" && found.revision == f.Revision && f.Revision != 0
	m, err := c.prepare(ctx, f, found, runs)
	if err == nil && found.hash != m.Hash {
		err = c.rehearse(ctx, f, m)
	}
	if err != nil && !runs {
		return nil, err
	}
	_, readiness, probeErr := podspec.Probes(f.Deployment)
	if probeErr != nil {
		return nil, probeErr
	}
	now, peers := time.Now(), c.peers()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tasks.Ended() {
		return nil, keeper.ErrClosed
	}
	fn, ok := c.functions[f.Name]
	if ok {
		load := fn.load(peers)
		fn.lead(now, load)
		fn.change(now, f, load)
	} else {
		fn = c.newFunction(now, f)
		c.functions[f.Name] = fn
		delete(c.strays, f.Name)
	}
	if fn.manifest, fn.hash = m, found.hash; err == nil {
		fn.hash = m.Hash
	} else {
		c.options.Logger.Warn().Str("function", f.Name).Err(err).Msg("could not deploy the function; its present Deployment stays")
	}
	fn.readyPath = readiness.HTTPGet.Path
	fn.kubeletOnly = readiness.InitialDelaySeconds > 0 || readiness.SuccessThreshold > 1
	for _, in := range c.pods[f.Name] {
		fn.follow(in)
	}
	fn.tell(fn.describe())
	c.Wake()
	return fn.forwarder, nil
}

// prepare makes a function's objects, with the secrets and profiles that it names. found is its
// present Deployment, which runs this revision or not.
func (c *Controller) prepare(ctx context.Context, f *provider.Function, found deployed, runs bool) (*Manifest, error) {
	s := ManifestSettings{Name: found.name, PullPolicy: c.options.PullPolicy, Settings: podspec.Settings{User: c.options.User, Local: c.options.Local, Secrets: map[string]corev1.SecretType{}}}
	switch {
	case s.User == 0:
		s.User = podspec.DefaultUser
	case s.User < 0:
		s.User, s.AllowRoot = 0, true
	}
	for _, name := range f.Deployment.Secrets {
		kind, err := c.secret(ctx, f.Deployment.Namespace, name)
		if err != nil {
			return nil, err
		}
		s.Secrets[name] = kind
	}
	var err error
	if s.Profiles, err = podspec.Named(c.options.Profiles, f.Deployment); err != nil {
		return nil, err
	}
	if s.Watchdog, err = c.options.watchdog(ctx, f, found, runs); err != nil {
		return nil, err
	}
	if s.Name == "" {
		if s.Name, err = c.freeName(ctx, f.Deployment.Namespace, f.Deployment.Service); err != nil {
			return nil, err
		}
	}
	return NewManifest(f, s)
}

// freeName returns the name for a new function's Deployment and Service. It is the function's own,
// unless a Deployment or a Service that faas-infer has not made is there, such as one of faas-netes:
// both would change the same object, and nobody could get the other one back.
func (c *Controller) freeName(ctx context.Context, namespace, function string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	other := otherName(function)
	for _, name := range []string{function, other} {
		d, err := c.options.Client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return "", fmt.Errorf("look for a Deployment %s: %w", name, err)
		}
		if err == nil && !madeFor(d, function) {
			continue
		}
		s, err := c.service(ctx, namespace, name)
		if err != nil {
			return "", err
		}
		if s == nil || madeFor(s, function) {
			return name, nil
		}
	}
	return "", web.BadRequest(fmt.Errorf("namespace %s has Deployments or Services %s and %s of others; delete or rename those of one name", namespace, function, other))
}

// madeFor reports whether faas-infer has made an object for a function.
func madeFor(o metav1.Object, function string) bool {
	return o.GetLabels()[v1alpha1.ManagedByLabel] == v1alpha1.ManagedBy && o.GetLabels()[v1alpha1.FunctionLabel] == function
}

// service returns a Service, nil if there is none.
func (c *Controller) service(ctx context.Context, namespace, name string) (*corev1.Service, error) {
	s, err := c.options.Client.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for a Service %s: %w", name, err)
	}
	return s, nil
}

// secret returns the type of a secret, or an error that names it.
func (c *Controller) secret(ctx context.Context, namespace, name string) (corev1.SecretType, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	s, err := c.options.Client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", web.BadRequest(fmt.Errorf("there is no secret %q in namespace %s; create it first, for example with faas-cli secret create", name, namespace))
	}
	if err != nil {
		return "", fmt.Errorf("look for the secret %q: %w", name, err)
	}
	return s.Type, nil
}

// rehearse asks the API server by a dry run whether it accepts the function's Deployment. It
// returns an error only if the API server says that the Deployment is invalid.
func (c *Controller) rehearse(ctx context.Context, f *provider.Function, m *Manifest) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	text, err := m.Deployment(nil, int(f.Replicas))
	if err != nil {
		return err
	}
	_, err = c.patchDeployment(ctx, f.Deployment.Namespace, m.Name(), text, metav1.DryRunAll)
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return web.BadRequest(fmt.Errorf("the cluster refuses this deployment: %w", err))
	}
	return nil
}

// Release is Remove for a function that another controller has taken over: it keeps the function's
// metrics. The replica that leads deletes the function's Deployment and Service. If it does not,
// Kubernetes deletes them with the Function object.
func (c *Controller) Release(_ context.Context, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn, ok := c.functions[name]
	if !ok {
		if _, exists := c.deployed[name]; exists {
			c.strays[name] = true
		}
		return nil
	}
	delete(c.functions, name)
	for _, in := range c.pods[name] {
		in.endProbes()
		in.up, in.answers, in.wasReady, in.lost = false, false, false, false
	}
	fn.forwarder.Close()
	fn.Metrics.SetInstances(fn.config().String(), 0)
	if c.leading() {
		c.tasks.Begin(func() { c.delete(fn.Name) })
	}
	return nil
}

// Restoring implements [provider.Controller]. It has nothing to do: the controller deletes only
// the Deployments of functions that it is told to release.
func (c *Controller) Restoring(func(function string) bool) {}

// Scale implements [provider.Controller]. The number applies at once, until the load changes it; 0
// retires all instances until the next request. The leader learns of the number from the Function
// object.
func (c *Controller) Scale(name string, replicas uint64) error {
	now, peers := time.Now(), c.peers()
	return c.Change(name, func(fn *function) {
		load := fn.load(peers)
		fn.lead(now, load)
		fn.replicas.Set(now, replicas, load)
	})
}
