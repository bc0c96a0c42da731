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

// namespaceRoutes serves /system/namespaces and /system/namespace/.
type namespaceRoutes struct{ *Server }

// list is GET /system/namespaces: the names, the default namespace first.
func (s namespaceRoutes) list(w http.ResponseWriter, _ *http.Request) error {
	names, err := s.namespaces.names()
	if err != nil {
		return err
	}
	web.WriteJSON(w, names)
	return nil
}

// namespaces reads the namespaces from the store.
type namespaces struct{ store Store }

// names returns the names of all namespaces: the default namespace first, then the
// others, sorted. The gateway's web interface opens with the first.
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

// get returns a namespace by its name. The default namespace exists even if the store
// does not have it.
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

// require returns an error with status 400 if a namespace does not exist. The caller
// holds the namespace's lock.
func (s namespaces) require(name string) error {
	_, err := s.get(name)
	if web.StatusOf(err) == http.StatusNotFound {
		return web.Refuse(http.StatusBadRequest, "there is no namespace %q; create it with: faas-cli namespace create %[2]s; on Kubernetes without the option manage-namespaces: kubectl create namespace %[2]s && kubectl annotate namespace %[2]s openfaas=1", web.Clip(name), web.Clip(name))
	}
	return err
}

// describe is GET /system/namespace/NAME.
func (s namespaceRoutes) describe(w http.ResponseWriter, r *http.Request) error {
	name, err := namespaceName(r, "")
	if err != nil {
		return err
	}
	n, err := s.namespaces.get(name)
	if err != nil {
		return err
	}
	web.WriteJSON(w, types.FunctionNamespace{Name: n.Name, Labels: n.Labels, Annotations: n.Annotations})
	return nil
}

// create is POST /system/namespace/[NAME]: 409 if it exists, 400 if it names a secret, which it cannot have yet.
func (s namespaceRoutes) create(w http.ResponseWriter, r *http.Request) error {
	given, err := s.read(w, r)
	if err != nil {
		return err
	}
	defer s.namespaceLocks.Lock(given.Name)()
	if _, err := s.namespaces.get(given.Name); err == nil {
		return web.Refuse(http.StatusConflict, "namespace %q exists already; update it instead", given.Name)
	} else if web.StatusOf(err) != http.StatusNotFound {
		return err
	}
	if secret, _ := annotation.NamespaceAccess(given.Annotations, given.Labels); secret != "" {
		return &annotation.Error{Key: annotation.InferAccess, Value: secret,
			Why: "a new namespace has no secrets; create the namespace without it, then the secret, and update the namespace"}
	}
	n := store.Namespace{Name: given.Name, Labels: given.Labels, Annotations: given.Annotations, CreatedAt: s.now().UTC()}
	if err := s.store.PutNamespace(n); err != nil {
		return fmt.Errorf("namespace %s was not created: %w", n.Name, err)
	}
	s.log.Info().Str("namespace", n.Name).Msg("namespace created")
	w.WriteHeader(http.StatusCreated)
	return nil
}

// update is PUT /system/namespace/NAME: it replaces the labels and annotations, and
// answers 404 if the namespace does not exist, 400 if it names a secret without keys for its functions.
func (s namespaceRoutes) update(w http.ResponseWriter, r *http.Request) error {
	given, err := s.read(w, r)
	if err != nil {
		return err
	}
	defer s.namespaceLocks.Lock(given.Name)()
	n, err := s.namespaces.get(given.Name)
	if err != nil {
		return err
	}
	secret, err := annotation.NamespaceAccess(given.Annotations, given.Labels)
	if err == nil {
		err = s.callers.validateSecret(annotation.InferAccess, given.Name, secret)
	}
	if err != nil {
		return err
	}
	n.Labels, n.Annotations = given.Labels, given.Annotations
	if n.CreatedAt.IsZero() { // The default namespace, which the store did not have.
		n.CreatedAt = s.now().UTC()
	}
	if err := s.store.PutNamespace(n); err != nil {
		return fmt.Errorf("namespace %s was not updated: %w", n.Name, err)
	}
	s.callers.used(everyFunction(s.Server))
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// delete is DELETE /system/namespace/NAME: it deletes the namespace with its functions
// and secrets. It waits for deployments into the namespace that are under way. Later
// ones are refused.
func (s namespaceRoutes) delete(w http.ResponseWriter, r *http.Request) error {
	given, err := s.read(w, r)
	if err != nil {
		return err
	}
	if given.Name == DefaultNamespace {
		return web.Refuse(http.StatusBadRequest, "namespace %q is the default and cannot be deleted", DefaultNamespace)
	}
	if err := s.awaitAll(r.Context(), given.Name); err != nil {
		return err
	}
	defer s.namespaceLocks.Lock(given.Name)()
	if _, err := s.namespaces.get(given.Name); err != nil {
		return err
	}
	// The check comes first: a provider without the right must not empty a namespace that stays.
	if err := s.store.CheckDeleteNamespace(given.Name); err != nil {
		return fmt.Errorf("namespace %s was not deleted, and keeps its functions and secrets: %w", given.Name, err)
	}
	// The namespace goes last: if emptying it fails halfway, the client can try again.
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

// awaitAll waits until all functions of a namespace are back after a restart: otherwise
// deleting the namespace would miss some.
func (s namespaceRoutes) awaitAll(ctx context.Context, name string) error {
	for _, d := range s.restored.in(name) {
		if err := s.arriving.wait(ctx, d.Name, changePatience); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// empty deletes a namespace's functions and secrets. The caller holds the namespace's
// lock alone.
func (s namespaceRoutes) empty(ctx context.Context, name string) error {
	var first error
	failed := 0
	for _, d := range s.sorted().byNamespace[name] {
		err := s.removeFunction(ctx, address{name: d.Deployment.Service, namespace: name})
		// Another client may have deleted the function already.
		if err != nil && web.StatusOf(err) != http.StatusNotFound {
			first = cmp.Or(first, err)
			failed++
		}
	}
	if failed > 1 {
		return fmt.Errorf("%w (and %d more functions failed)", first, failed-1)
	}
	if first == nil && s.secrets != nil {
		first = s.secrets.DeleteNamespace(name)
	}
	return first
}

// read reads the namespace that a request names. A DELETE may have no body.
func (s namespaceRoutes) read(w http.ResponseWriter, r *http.Request) (types.FunctionNamespace, error) {
	var n types.FunctionNamespace
	text, err := s.changes.text(w, r, maxSystemBody)
	if err != nil {
		return n, err
	}
	defer text.Release()
	if len(text.Content()) > 0 || r.Method != http.MethodDelete {
		if err := web.ParseJSON(text.Content(), `a namespace with "name"`, &n); err != nil {
			return n, err
		}
	}
	if n.Name, err = namespaceName(r, n.Name); err != nil {
		return n, err
	}
	_, err = annotation.NamespaceAccess(n.Annotations, n.Labels)
	return n, err
}

// namespaceName returns the name in the path, or the body's if the path has none.
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

// restore creates the missing namespaces of stored functions. Earlier versions of the
// provider did not store namespaces.
func (s namespaces) restore(functions []store.Function) error {
	seen := map[string]bool{}
	for _, f := range functions {
		name := f.Deployment.Namespace
		if seen[name] {
			continue
		}
		seen[name] = true
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
