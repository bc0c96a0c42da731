package provider

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/gorilla/mux"
	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/store"
	"github.com/faas-infer/faas-infer/provider/web"
)

// create is POST /system/functions: deploy, or deploy again.
func (s *Server) create(w http.ResponseWriter, r *http.Request) error { return s.deploy(w, r, false) }

// update is PUT /system/functions: deploy again, 404 if never deployed.
func (s *Server) update(w http.ResponseWriter, r *http.Request) error { return s.deploy(w, r, true) }

func (s *Server) deploy(w http.ResponseWriter, r *http.Request, mustExist bool) error {
	var d types.FunctionDeployment
	if err := s.changes.read(w, r, "a function deployment", &d); err != nil {
		return err
	}
	a, err := resolve("", d.Namespace, r.URL.Query().Get("namespace"))
	if err != nil {
		return err
	}
	d.Namespace = a.namespace
	withoutProblem(d.Annotations)
	brought, unread := s.defaults.Of(r.Context(), d)
	in, _, err := Complete(&d, brought)
	if err != nil {
		return err
	}
	a.name = d.Service
	if mustExist {
		// Errors are told below, after those of the namespace.
		_, _ = s.known(r.Context(), a)
	}
	// A deletion of the namespace waits for this, or comes before it.
	defer s.placing.Share(a.namespace)()
	if err := s.spaces.require(a.namespace); err != nil {
		return err
	}
	defer s.busy.Lock(a.full())()
	before, err := s.find(a)
	if err != nil && mustExist {
		return err
	}
	f, err := s.revise(before, d, in)
	if err != nil {
		return err
	}
	if unread != nil { // It may be the instances' to find out.
		s.log.Warn().Err(unread).Str("function", f.Name).Msg("what annotations the image brings along could not be read")
	}
	if err := s.replaceFunction(r.Context(), before, f); err != nil {
		return err
	}
	s.log.Info().Str("function", f.Name).Str("image", d.Image).Uint64("revision", f.Revision).Msg("deployed")
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// revise makes the next revision of a function; before is nil for a new one.
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
		// What the scale route set outlives a deployment; the minimum that the
		// earlier one brought along does not.
		if before.Replicas != uint64(before.Inference.MinReplicas) {
			f.Replicas = max(f.Replicas, before.Replicas)
		}
	}
	if in.MaxReplicas > 0 {
		f.Replicas = min(f.Replicas, uint64(in.MaxReplicas))
	}
	return f, nil
}

// replaceFunction makes f run, records it and lets requests find it; or, if
// one of these fails, leaves all as it was before.
func (s *Server) replaceFunction(ctx context.Context, before *deployed, f *Function) error {
	dispatcher, err := s.controller.Deploy(ctx, f)
	if err != nil {
		return err
	}
	if err := s.store.PutFunction(f.record(s.now().UTC())); err != nil {
		err = fmt.Errorf("function %s could not be recorded and was not deployed: %w", f.Name, err)
		if back := s.undeploy(context.WithoutCancel(ctx), before, f); back != nil {
			err = fmt.Errorf("%w; going back failed as well: %w", err, back)
		}
		return err
	}
	s.publish(s.deployed(f, dispatcher))
	return nil
}

// undeploy goes back from f to what ran before it.
func (s *Server) undeploy(ctx context.Context, before *deployed, f *Function) error {
	if before == nil {
		return s.controller.Remove(ctx, f.Name)
	}
	dispatcher, err := s.controller.Deploy(ctx, before.Function)
	if err != nil {
		return err
	}
	s.publish(s.deployed(before.Function, dispatcher))
	return nil
}

// remove is DELETE /system/functions.
func (s *Server) remove(w http.ResponseWriter, r *http.Request) error {
	var body types.DeleteFunctionRequest
	if err := s.changes.read(w, r, `an object with "functionName"`, &body); err != nil {
		return err
	}
	if body.FunctionName == "" {
		return web.Refuse(http.StatusBadRequest, `the request body must give "functionName", the function to delete`)
	}
	a, err := resolve(body.FunctionName, body.Namespace, r.URL.Query().Get("namespace"))
	if err != nil {
		return err
	}
	if _, err := s.known(r.Context(), a); err != nil {
		return err
	}
	if err := s.removeFunction(r.Context(), a); err != nil {
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// removeFunction ends a function and forgets it.
func (s *Server) removeFunction(ctx context.Context, a address) error {
	defer s.busy.Lock(a.full())()
	d, err := s.find(a)
	if err != nil {
		return err
	}
	// The store first: if the provider dies in between, its next run finds
	// instances of no function and ends them.
	if err := s.store.DeleteFunction(a.namespace, a.name); err != nil && !errors.Is(err, store.ErrAbsent) {
		return fmt.Errorf("function %s was not deleted: %w", d.Name, err)
	}
	return s.end(ctx, d)
}

// describe is GET /system/function/NAME; usage=true adds what its instances
// use.
func (s *Server) describe(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	a, err := resolve(mux.Vars(r)["name"], query.Get("namespace"))
	if err != nil {
		return err
	}
	d, err := s.known(r.Context(), a)
	if err != nil {
		return err
	}
	usage := query.Get("usage")
	web.WriteJSON(w, d.status(s.runs(d), usage == "true" || usage == "1"))
	return nil
}

// scale is POST /system/scale-function/NAME: how many instances to keep even
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
		return web.Refuse(http.StatusBadRequest, `the request body must give "replicas", the number of instances to keep, for example {"replicas": 1}`)
	}
	if _, err := s.known(r.Context(), a); err != nil {
		return err
	}
	defer s.busy.Lock(a.full())()
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

// checkReplicas keeps a scale request within the deployment's bounds. Zero is
// always allowed: the next request brings the function back.
func checkReplicas(f *Function, n uint64) error {
	least, most := uint64(f.Inference.MinReplicas), uint64(f.Inference.MaxReplicas)
	if most == 0 {
		most = annotation.MaxReplicas
	}
	if n != 0 && n < least || n > most {
		return web.Refuse(http.StatusBadRequest, "replicas is %d: function %s takes 0 or %d to %d (%s, %s)",
			n, f.Name, least, most, annotation.ScaleMin, annotation.ScaleMax)
	}
	return nil
}

func (s *Server) rescale(d *deployed, n uint64) error {
	if err := s.controller.Scale(d.Name, n); err != nil {
		return fmt.Errorf("function %s was not scaled: %w", d.Name, err)
	}
	f := *d.Function
	f.Replicas = n
	if err := s.store.PutFunction(f.record(s.now().UTC())); err != nil {
		return fmt.Errorf("function %s was scaled, but a restart will undo it: %w", d.Name, err)
	}
	s.publish(s.deployed(&f, d.dispatcher))
	s.log.Info().Str("function", d.Name).Uint64("replicas", n).Msg("scaled")
	return nil
}

// status is what a function shows of itself: the deployment as it came, with
// empty fields left out, one label added and what is wrong with it as an annotation,
// and what runs.
func (d *deployed) status(now Status, usage bool) types.FunctionStatus {
	of := d.Deployment
	out := types.FunctionStatus{
		Name: of.Service, Image: of.Image, Namespace: of.Namespace, EnvProcess: of.EnvProcess, EnvVars: of.EnvVars,
		Constraints: of.Constraints, Secrets: of.Secrets, Labels: d.labels, Annotations: withProblem(of.Annotations, now.Problem),
		Limits: given(of.Limits), Requests: given(of.Requests), ReadOnlyRootFilesystem: of.ReadOnlyRootFilesystem,
		InvocationCount: float64(d.metrics.Answered()), CreatedAt: d.CreatedAt,
		Replicas: now.Replicas, AvailableReplicas: now.AvailableReplicas,
	}
	if usage {
		out.Usage = &types.FunctionUsage{CPU: float64(now.Usage.CPU), TotalMemoryBytes: float64(now.Usage.Memory)}
	}
	return out
}

func given(r *types.FunctionResources) *types.FunctionResources {
	if r == nil || *r == (types.FunctionResources{}) {
		return nil
	}
	return r
}
