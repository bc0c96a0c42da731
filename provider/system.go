package provider

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/gorilla/mux"
	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/store"
	"github.com/faas-infer/faas-infer/provider/web"
)

// deploy is POST /system/functions, which deploys a function or deploys it again, and PUT, which
// answers 404 if the function does not exist. [unchanged] holds for both.
func (s *Server) deploy(w http.ResponseWriter, r *http.Request) error {
	var d types.FunctionDeployment
	if err := s.changes.read(w, r, "a function deployment", &d); err != nil {
		return err
	}
	a, err := resolve("", d.Namespace, r.URL.Query().Get("namespace"))
	if err != nil {
		return err
	}
	d.Namespace = a.namespace
	withoutState(d.Annotations)
	brought, unread := s.defaults.Of(r.Context(), d)
	in, _, err := Complete(&d, brought)
	if err != nil {
		return err
	}
	if err := validateName(d, in); err != nil {
		return err
	}
	a.name = d.Service
	if unread != nil { // No error: the instances may be able to read the image.
		s.log.Warn().Err(unread).Str("function", a.full()).Msg("the image's annotations could not be read")
	}
	c := change{address: a, deployment: d, settings: in, mustExist: r.Method == http.MethodPut, header: r.Header}
	deploy := c.apply
	if in.Source != "" && s.fetching.by != nil {
		if err := c.awaitEarlier(r.Context(), s); err != nil {
			return err
		}
		if _, err := c.replaced(s); err != nil { // What will be refused needs no download.
			return err
		}
		deploy = c.applyFetched
	}
	if err := deploy(r.Context(), s); err != nil {
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// change is a deployment that was read.
type change struct {
	address    address
	deployment types.FunctionDeployment
	settings   annotation.Inference
	// mustExist and header are those of the client, header nil if that has its answer.
	mustExist bool
	header    http.Header
	// awaited is what waited for the deployment's model, nil for nothing.
	awaited *waitingDeployment
}

// awaitEarlier waits until the function that a deployment replaces is back: its number of instances outlives the
// deployment. It takes locks.
func (c change) awaitEarlier(ctx context.Context, s *Server) error {
	if err := s.arriving.wait(ctx, c.address.full(), changePatience); err != nil {
		return err
	}
	if c.mustExist || conditional(c.header) {
		// A missing function is refused later, after a missing namespace.
		_, _ = s.findOrAdopt(ctx, c.address, changePatience)
	}
	return nil
}

// replaced returns the function that a deployment replaces, nil for none, or why it must not be replaced.
func (c change) replaced(s *Server) (before *deployed, err error) {
	a := c.address
	if err := s.namespaces.require(a.namespace); err != nil {
		return nil, err
	}
	before, err = s.find(a)
	if err != nil && c.mustExist {
		return nil, err
	}
	if before.isDownloading() {
		before = nil
	}
	return before, unchanged(c.header, before, c.deployment.Service)
}

// apply makes a deployment run, with its function's lock.
func (c change) apply(ctx context.Context, s *Server) error {
	a, d := c.address, c.deployment
	if err := c.awaitEarlier(ctx, s); err != nil {
		return err
	}
	// A deletion of the namespace comes either before this deployment or after it.
	defer s.namespaceLocks.Share(a.namespace)()
	defer s.functionLocks.Lock(a.full())()
	if c.awaited != nil && !s.fetching.current(a.full(), c.awaited) {
		return c.overtaken()
	}
	before, err := c.replaced(s)
	if err != nil {
		return err
	}
	if becomesCandidate(before, d, c.settings) {
		if err := s.rollouts.unseen(c.header, before, d); err != nil {
			return err
		}
		if err := s.rollouts.deployCandidate(ctx, before, d, c.settings, false); err != nil {
			return s.events.rejected(ctx, s.now(), a, d, err)
		}
		s.fetching.settle(a, c.awaited)
		return nil
	}
	f, err := s.revise(before, d, c.settings)
	if err != nil {
		return err
	}
	if err := s.callers.validate(f); err != nil {
		return err
	}
	if err := s.replaceFunction(ctx, before, f); err != nil {
		return s.events.rejected(ctx, s.now(), a, d, err)
	}
	s.log.Info().Str("function", f.Name).Str("image", d.Image).Uint64("revision", f.Revision).Msg("deployed")
	s.events.decidedDeployment(s.now(), before, f)
	s.rollouts.revisions.remember(functionOf(before), f, "deployed")
	s.fetching.settle(a, c.awaited)
	s.rollouts.endRollout(ctx, a, fmt.Sprintf("revision %d was deployed without a gradual rollout", f.Revision))
	return nil
}

// functionOf returns the function of d, nil for nil.
func functionOf(d *deployed) *Function {
	if d == nil {
		return nil
	}
	return d.Function
}

// conditional reports whether a deployment depends on the function that it replaces.
func conditional(h http.Header) bool { return h.Get("If-Match") != "" || h.Get("If-None-Match") != "" }

// unchanged refuses a deployment with 412 if the client has not seen what it would replace: If-Match: "N" names the
// revision that it has seen, and If-None-Match: * says that there was no such function. before is nil if there is none.
func unchanged(h http.Header, before *deployed, name string) error {
	seen, now := h.Get("If-Match"), ""
	if before != nil {
		now = fmt.Sprintf("%q", strconv.FormatUint(before.Revision, 10))
	}
	switch {
	case before != nil && h.Get("If-None-Match") == "*":
		return web.Refuse(http.StatusPreconditionFailed, "somebody else has deployed a function %s meanwhile; look at it before you replace it", name)
	case seen != "" && before == nil:
		return web.Refuse(http.StatusPreconditionFailed, "somebody else has removed function %s meanwhile", name)
	case seen != "" && seen != "*" && seen != now:
		return web.Refuse(http.StatusPreconditionFailed, "somebody else has deployed function %s meanwhile; look at it again before you change it", name)
	}
	return nil
}

// revise returns the next revision of a function. before is nil for a new function.
func (s *Server) revise(before *deployed, d types.FunctionDeployment, in annotation.Inference) (*Function, error) {
	revision, err := s.store.NextRevision()
	if err != nil {
		return nil, fmt.Errorf("the deployment could not be recorded: %w", err)
	}
	f := &Function{
		Name: FullName(d.Service, d.Namespace), Deployment: d, Inference: in, Revision: revision,
		Hash: store.Hash(d), Replicas: uint64(in.MinReplicas), CreatedAt: s.now().UTC(),
	}
	if before != nil {
		f.CreatedAt = before.CreatedAt
		f.Replicas = ReplicasAfter(in, before.Replicas, uint64(before.Inference.MinReplicas))
	}
	return f, nil
}

// ReplicasAfter returns how many instances to keep after a deployment. Before it they were before, and
// the minimum was minimum. The scale route's number outlives a deployment; the earlier minimum does not.
func ReplicasAfter(now annotation.Inference, before, minimum uint64) uint64 {
	n := uint64(now.MinReplicas)
	if before != minimum {
		n = max(n, before)
	}
	if now.MaxReplicas > 0 {
		n = min(n, uint64(now.MaxReplicas))
	}
	return n
}

// replaceFunction makes f run, stores it and lets requests find it. If a step fails, it
// restores the state before.
func (s *Server) replaceFunction(ctx context.Context, before *deployed, f *Function) error {
	dispatcher, err := s.controller.Deploy(ctx, f)
	if err != nil {
		return err
	}
	if err := s.store.PutFunction(f.record(s.now().UTC())); err != nil {
		err = fmt.Errorf("function %s could not be recorded and was not deployed: %w", f.Name, err)
		if back := s.restoreDeployment(context.WithoutCancel(ctx), before, f); back != nil {
			err = fmt.Errorf("%w; restoring the deployment before failed as well: %w", err, back)
		}
		return err
	}
	s.publish(s.deployed(f, dispatcher))
	return nil
}

// restoreDeployment makes the deployment before f run again, or removes f if there was none.
func (s *Server) restoreDeployment(ctx context.Context, before *deployed, f *Function) error {
	if before == nil {
		return s.controller.Remove(ctx, f.Name)
	}
	was := *before.Function
	was.Restored = true
	dispatcher, err := s.controller.Deploy(ctx, &was)
	if err != nil {
		return err
	}
	s.publish(s.deployed(&was, dispatcher))
	return nil
}

// remove is DELETE /system/functions.
func (s *Server) remove(w http.ResponseWriter, r *http.Request) error {
	var body types.DeleteFunctionRequest
	if err := s.changes.read(w, r, `an object with "functionName"`, &body); err != nil {
		return err
	}
	if body.FunctionName == "" {
		return web.Refuse(http.StatusBadRequest, `functionName is not set: the request body must name the function to delete, for example {"functionName": "resnet-50"}`)
	}
	a, err := resolve(body.FunctionName, body.Namespace, r.URL.Query().Get("namespace"))
	if err != nil {
		return err
	}
	if _, err := s.findOrAdopt(r.Context(), a, changePatience); err != nil {
		return err
	}
	if err := s.removeFunction(r.Context(), a); err != nil {
		return err
	}
	s.rollouts.endRollout(r.Context(), a, "its function was removed")
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// removeFunction deletes a function from the store and ends it.
func (s *Server) removeFunction(ctx context.Context, a address) error {
	defer s.functionLocks.Lock(a.full())()
	s.fetching.cancel(a)
	d, err := s.find(a)
	if err != nil {
		return err
	}
	// The store comes first: if the provider dies in between, its next run finds
	// instances without a function and ends them.
	if err := s.store.DeleteFunction(a.namespace, a.name); err != nil && !errors.Is(err, store.ErrAbsent) {
		return fmt.Errorf("function %s was not deleted: %w", d.Name, err)
	}
	if err := s.end(ctx, d); err != nil {
		return err
	}
	s.events.log.Add(s.now(), d.Name, decisions.Delete, decisions.Fields{})
	return nil
}

// describe is GET /system/function/NAME. The query usage=true adds the CPU and memory
// that its instances use.
func (s *Server) describe(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	a, err := resolve(mux.Vars(r)["name"], query.Get("namespace"))
	if err != nil {
		return err
	}
	d, err := s.findOrAdopt(r.Context(), a, listPatience)
	if missing := s.restored.find(a.full()); err != nil && missing != nil {
		d, err = missing, nil
	}
	if err != nil {
		return err
	}
	usage, now := query.Get("usage"), s.statusOf(d)
	s.watcher.mu.Lock()
	if f := s.watcher.functions[d.Name]; f != nil {
		if kept := f.kept(); kept != nil {
			now.Promise = kept.Sentence
		}
	}
	s.watcher.mu.Unlock()
	web.WriteJSON(w, d.status(now, usage == "true" || usage == "1"))
	return nil
}

// scale is POST /system/scale-function/NAME: it sets the number of instances to keep even
// without load.
func (s *Server) scale(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Replicas  *uint64 `json:"replicas"`
		Namespace string  `json:"namespace"`
	}
	if err := s.changes.read(w, r, `an object with "replicas"`, &body); err != nil {
		return err
	}
	a, err := resolve(mux.Vars(r)["name"], body.Namespace, r.URL.Query().Get("namespace"))
	if err != nil {
		return err
	}
	if body.Replicas == nil {
		return web.Refuse(http.StatusBadRequest, `replicas is not set: the request body must give the number of instances to keep, for example {"replicas": 1}`)
	}
	if _, err := s.findOrAdopt(r.Context(), a, changePatience); err != nil {
		return err
	}
	defer s.functionLocks.Lock(a.full())()
	d, err := s.find(a)
	if err != nil {
		return err
	}
	if err := checkReplicas(d.Function, *body.Replicas); err != nil {
		return err
	}
	if err := s.rescale(d, *body.Replicas); err != nil {
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// checkReplicas refuses a number outside the deployment's bounds. Zero is always
// allowed: the next request starts an instance again.
func checkReplicas(f *Function, n uint64) error {
	minimum, maximum := uint64(f.Inference.MinReplicas), uint64(f.Inference.MaxReplicas)
	if maximum == 0 {
		maximum = annotation.MaxReplicas
	}
	if n != 0 && n < minimum || n > maximum {
		return web.Refuse(http.StatusBadRequest, "replicas is %d: it must be 0 or from %d to %d for function %s (%s, %s)",
			n, minimum, maximum, f.Name, annotation.ScaleMin, annotation.ScaleMax)
	}
	return nil
}

// scaledStore is a store that other replicas of the provider change, too. PutReplicas stores the number
// of a function's instances and leaves the deployment as it is there: another replica may just have
// stored a newer one.
type scaledStore interface {
	PutReplicas(namespace, name string, n uint64) error
}

func (s *Server) rescale(d *deployed, n uint64) error {
	if err := s.controller.Scale(d.Name, n); err != nil {
		return fmt.Errorf("function %s was not scaled: %w", d.Name, err)
	}
	f := *d.Function
	f.Replicas = n
	put := func() error { return s.store.PutFunction(f.record(s.now().UTC())) }
	if several, ok := s.store.(scaledStore); ok {
		put = func() error { return several.PutReplicas(f.Deployment.Namespace, f.Deployment.Service, n) }
	}
	if err := put(); err != nil {
		return fmt.Errorf("function %s was scaled, but a restart will undo it: %w", d.Name, err)
	}
	s.publish(s.deployed(&f, d.dispatcher))
	s.log.Info().Str("function", d.Name).Uint64("replicas", n).Msg("scaled")
	s.events.log.Add(s.now(), d.Name, decisions.Scale, decisions.Fields{Replicas: &n})
	return nil
}

// status returns a function's status as OpenFaaS shows it: the deployment and its
// running instances. It leaves out empty fields, adds one label, and adds a problem as an
// annotation.
func (d *deployed) status(now Status, usage bool) types.FunctionStatus {
	of := d.Deployment
	out := types.FunctionStatus{
		Name: of.Service, Image: of.Image, Namespace: of.Namespace, EnvProcess: of.EnvProcess, EnvVars: of.EnvVars,
		Constraints: of.Constraints, Secrets: of.Secrets, Labels: d.labels, Annotations: withState(of.Annotations, now),
		Limits: nonEmpty(of.Limits), Requests: nonEmpty(of.Requests), ReadOnlyRootFilesystem: of.ReadOnlyRootFilesystem,
		InvocationCount: float64(d.metrics.Answered()), CreatedAt: d.CreatedAt,
		Replicas: now.Replicas, AvailableReplicas: now.AvailableReplicas,
	}
	if usage {
		out.Usage = &types.FunctionUsage{CPU: float64(now.Usage.CPU), TotalMemoryBytes: float64(now.Usage.Memory)}
	}
	return out
}

// nonEmpty returns r, or nil if all its fields are empty.
func nonEmpty(r *types.FunctionResources) *types.FunctionResources {
	if r == nil || *r == (types.FunctionResources{}) {
		return nil
	}
	return r
}
