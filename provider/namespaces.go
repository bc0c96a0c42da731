package provider

import (
	"cmp"
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

// namespaceRoutes are those below /system/namespace.
type namespaceRoutes struct{ *Server }

// list is GET /system/namespaces: their names, sorted.
func (s namespaceRoutes) list(w http.ResponseWriter, _ *http.Request) error {
	names, err := s.spaces.names()
	if err != nil {
		return err
	}
	web.WriteJSON(w, names)
	return nil
}

// namespaces are those that the store knows.
type namespaces struct{ store Store }

// names returns the names of all namespaces: the default one first, because
// the gateway's web interface shows the first, then the others, sorted.
func (s namespaces) names() ([]string, error) {
	all, err := s.store.Namespaces()
	if err != nil {
		return nil, fmt.Errorf("the namespaces could not be read: %w", err)
	}
	names := append(make([]string, 0, len(all)+1), DefaultNamespace)
	for _, n := range all {
		if n.Name != DefaultNamespace {
			names = append(names, n.Name)
		}
	}
	return names, nil
}

// get returns one; the default one is there even if the store does not
// know it.
func (s namespaces) get(name string) (store.Namespace, error) {
	n, err := s.store.Namespace(name)
	switch {
	case err == nil:
		return n, nil
	case !errors.Is(err, store.ErrAbsent):
		return n, fmt.Errorf("namespace %s could not be read: %w", name, err)
	case name == DefaultNamespace:
		return store.Namespace{Name: name}, nil
	}
	return n, web.Refuse(http.StatusNotFound, "there is no namespace %q", web.Clip(name))
}

// require refuses what is put into a namespace that does not exist.
// The caller holds the namespace.
func (s namespaces) require(name string) error {
	_, err := s.get(name)
	if web.StatusOf(err) == http.StatusNotFound {
		return web.Refuse(http.StatusBadRequest, "there is no namespace %q; make it with: faas-cli namespace create %s", web.Clip(name), web.Clip(name))
	}
	return err
}

// describe is GET /system/namespace/NAME.
func (s namespaceRoutes) describe(w http.ResponseWriter, r *http.Request) error {
	name, err := namespaceName(r, "")
	if err != nil {
		return err
	}
	n, err := s.spaces.get(name)
	if err != nil {
		return err
	}
	web.WriteJSON(w, types.FunctionNamespace{Name: n.Name, Labels: n.Labels, Annotations: n.Annotations})
	return nil
}

// create is POST /system/namespace/[NAME]: 409 if it exists.
func (s namespaceRoutes) create(w http.ResponseWriter, r *http.Request) error {
	given, err := s.read(w, r)
	if err != nil {
		return err
	}
	defer s.placing.Lock(given.Name)()
	if _, err := s.spaces.get(given.Name); err == nil {
		return web.Refuse(http.StatusConflict, "namespace %q exists already", given.Name)
	} else if web.StatusOf(err) != http.StatusNotFound {
		return err
	}
	n := store.Namespace{Name: given.Name, Labels: given.Labels, Annotations: given.Annotations, CreatedAt: s.now().UTC()}
	if err := s.store.PutNamespace(n); err != nil {
		return fmt.Errorf("namespace %s was not created: %w", n.Name, err)
	}
	s.log.Info().Str("namespace", n.Name).Msg("namespace created")
	w.WriteHeader(http.StatusCreated)
	return nil
}

// update is PUT /system/namespace/NAME: its labels and annotations are
// replaced, 404 if it does not exist.
func (s namespaceRoutes) update(w http.ResponseWriter, r *http.Request) error {
	given, err := s.read(w, r)
	if err != nil {
		return err
	}
	defer s.placing.Lock(given.Name)()
	n, err := s.spaces.get(given.Name)
	if err != nil {
		return err
	}
	n.Labels, n.Annotations = given.Labels, given.Annotations
	if n.CreatedAt.IsZero() { // The default one, which nobody made.
		n.CreatedAt = s.now().UTC()
	}
	if err := s.store.PutNamespace(n); err != nil {
		return fmt.Errorf("namespace %s was not updated: %w", n.Name, err)
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// delete is DELETE /system/namespace/NAME: with it go its functions and
// secrets. What is being put into it is waited for, and what comes later is
// refused.
func (s namespaceRoutes) delete(w http.ResponseWriter, r *http.Request) error {
	given, err := s.read(w, r)
	if err != nil {
		return err
	}
	if given.Name == DefaultNamespace {
		return web.Refuse(http.StatusBadRequest, "namespace %q is the one of functions that name none and cannot be deleted", DefaultNamespace)
	}
	defer s.placing.Lock(given.Name)()
	if _, err := s.spaces.get(given.Name); err != nil {
		return err
	}
	// The namespace last: one that was emptied by half can be deleted again.
	if err := s.empty(context.WithoutCancel(r.Context()), given.Name); err != nil {
		return fmt.Errorf("namespace %s was not deleted: %w", given.Name, err)
	}
	if err := s.store.DeleteNamespace(given.Name); err != nil {
		return fmt.Errorf("namespace %s was emptied, but not deleted: %w", given.Name, err)
	}
	s.log.Info().Str("namespace", given.Name).Msg("namespace deleted")
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// empty removes what is in a namespace; the caller holds it alone.
func (s namespaceRoutes) empty(ctx context.Context, name string) error {
	var first error
	failed := 0
	for _, d := range s.sorted().byNamespace[name] {
		err := s.removeFunction(ctx, address{name: d.Deployment.Service, namespace: name})
		// Somebody else may have been faster.
		if err != nil && web.StatusOf(err) != http.StatusNotFound {
			first = cmp.Or(first, err)
			failed++
		}
	}
	if failed > 1 {
		return fmt.Errorf("%w (and so for %d more)", first, failed-1)
	}
	if first == nil && s.secrets != nil {
		first = s.secrets.DeleteNamespace(name)
	}
	return first
}

// read reads the namespace that a request is about. Of a request that
// deletes the body may be left out.
func (s namespaceRoutes) read(w http.ResponseWriter, r *http.Request) (types.FunctionNamespace, error) {
	var n types.FunctionNamespace
	text, err := s.changes.text(w, r, maxSystemBody)
	if err != nil {
		return n, err
	}
	if len(text) > 0 || r.Method != http.MethodDelete {
		if err := web.ParseJSON(text, `a namespace with "name"`, &n); err != nil {
			return n, err
		}
	}
	n.Name, err = namespaceName(r, n.Name)
	return n, err
}

// namespaceName is the name in the path, or else in the body.
func namespaceName(r *http.Request, inBody string) (string, error) {
	name := mux.Vars(r)["name"]
	switch {
	case name == "":
		name = inBody
	case inBody != "" && inBody != name:
		return "", web.Refuse(http.StatusBadRequest, "the path names namespace %q and the body's name is %q; they must agree", web.Clip(name), web.Clip(inBody))
	}
	if !annotation.IsName(name) {
		return "", web.Refuse(http.StatusBadRequest, "name is %q: a namespace's name must be at most 63 lower-case letters, digits and hyphens, with no hyphen first or last, for example %q", web.Clip(name), "team-a")
	}
	return name, nil
}

// restore makes the namespaces of functions that were deployed before
// namespaces were kept.
func (s namespaces) restore(functions []store.Function) error {
	for _, f := range functions {
		name := f.Deployment.Namespace
		_, err := s.get(name)
		if web.StatusOf(err) == http.StatusNotFound {
			err = s.store.PutNamespace(store.Namespace{Name: name, CreatedAt: f.CreatedAt})
		}
		if err != nil {
			return fmt.Errorf("restoring namespace %s: %w", name, err)
		}
	}
	return nil
}
