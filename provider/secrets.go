package provider

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/openfaas/faas-provider/types"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/provider/web"
)

// Secrets keeps functions' secrets. *store.Secrets implements it. Its errors may be
// web.HTTPErrors and never contain a value.
type Secrets interface {
	// List returns the names of a namespace's secrets, sorted. It is empty if there
	// are none.
	List(namespace string) ([]string, error)
	// Value returns a secret's value, for [annotation.InferAccess]. If there is none, the error
	// has the status 400 and says how to create it.
	Value(namespace, name string) ([]byte, error)
	// Create stores a new secret (409 if it exists). Update replaces its value and
	// Delete deletes it (404 if it does not exist).
	Create(namespace, name string, value []byte) error
	Update(namespace, name string, value []byte) error
	Delete(namespace, name string) error
	// DeleteNamespace deletes all secrets of a namespace.
	DeleteNamespace(namespace string) error
}

// maxSecretBody is the most bytes of a secret's request body. It has room for the
// largest secret, 1 MiB, twice, as faas-cli sends it: as text in which JSON escapes
// every byte by six, and in base64.
const maxSecretBody = 8 << 20

// secretRoutes serves /system/secrets.
type secretRoutes struct {
	secrets    Secrets
	changes    changes
	namespaces namespaces
	locks      *web.KeyedMutex
	// reload reads a secret again that guards functions.
	reload func(source)
	log    zerolog.Logger
}

// list is GET /system/secrets: names, never values. A namespace that does not exist has
// no secrets, as it has no functions.
func (s secretRoutes) list(w http.ResponseWriter, r *http.Request) error {
	if s.secrets == nil {
		return errNoSecrets
	}
	namespace := cmp.Or(r.URL.Query().Get("namespace"), DefaultNamespace)
	names, err := s.secrets.List(namespace)
	if err != nil {
		return err
	}
	out := make([]types.Secret, len(names))
	for i, name := range names {
		out[i] = types.Secret{Name: name, Namespace: namespace}
	}
	web.WriteJSON(w, out)
	return nil
}

// create is POST /system/secrets.
func (s secretRoutes) create(w http.ResponseWriter, r *http.Request) error {
	return s.change(w, r, true, func(of types.Secret) error { return s.secrets.Create(of.Namespace, of.Name, of.RawValue) })
}

// update is PUT /system/secrets. Running instances keep the value that they were started
// with. Deploying the function again gives them the new one.
func (s secretRoutes) update(w http.ResponseWriter, r *http.Request) error {
	return s.change(w, r, true, func(of types.Secret) error { return s.secrets.Update(of.Namespace, of.Name, of.RawValue) })
}

// delete is DELETE /system/secrets. Functions that use the secret keep running with its
// value, but nobody can call those that it guards. Without it they cannot be deployed again, nor restored after a restart of the
// provider.
func (s secretRoutes) delete(w http.ResponseWriter, r *http.Request) error {
	return s.change(w, r, false, func(of types.Secret) error { return s.secrets.Delete(of.Namespace, of.Name) })
}

var errNoSecrets = web.Refuse(http.StatusNotImplemented, "this provider keeps no secrets")

// change reads the secret in a request's body and calls change with it. If valued, the
// secret must have a value, which is then in RawValue.
func (s secretRoutes) change(w http.ResponseWriter, r *http.Request, valued bool, change func(types.Secret) error) error {
	if s.secrets == nil {
		return errNoSecrets
	}
	text, err := s.changes.text(w, r, maxSecretBody)
	if err != nil {
		return err
	}
	defer text.Release()
	of, err := parseSecret(text.Content())
	if err != nil {
		return err
	}
	a, err := resolve("", of.Namespace, r.URL.Query().Get("namespace"))
	if err != nil {
		return err
	}
	of.Namespace = a.namespace
	if valued && len(of.RawValue) == 0 {
		return web.Refuse(http.StatusBadRequest, `value is not set: give the secret's value as text in "value", or as base64 in "rawValue"`)
	}
	defer s.locks.Share(of.Namespace)()
	if err := s.namespaces.require(of.Namespace); err != nil {
		return err
	}
	if err := change(of); err != nil {
		return err
	}
	s.reload(source{of.Namespace, of.Name})
	s.log.Info().Str("secret", of.Name).Str("namespace", of.Namespace).Str("method", r.Method).Msg("secret changed")
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// parseSecret reads a secret and puts its value into RawValue. rawValue in the body takes
// precedence over value: faas-cli sends both for a file, and text cannot hold every byte.
// Errors do not quote the JSON.
func parseSecret(text []byte) (types.Secret, error) {
	const wanted = `the request body must be an object with "name" and "value" as JSON`
	var of types.Secret
	err := json.Unmarshal(text, &of)
	var syntax *json.SyntaxError
	var mistyped *json.UnmarshalTypeError
	var encoding base64.CorruptInputError
	switch {
	case len(text) == 0:
		return of, web.Refuse(http.StatusBadRequest, wanted+"; it is empty")
	case errors.As(err, &syntax):
		return of, web.Refuse(http.StatusBadRequest, wanted+"; the JSON is invalid at byte %d", syntax.Offset)
	case errors.As(err, &mistyped):
		return of, web.Refuse(http.StatusBadRequest, wanted+"; %q is not a string", mistyped.Field)
	case errors.As(err, &encoding):
		return of, web.Refuse(http.StatusBadRequest, "rawValue must be base64; it is invalid from byte %d on", int64(encoding))
	case err != nil:
		return of, web.Refuse(http.StatusBadRequest, wanted)
	}
	if len(of.RawValue) == 0 {
		of.RawValue = []byte(of.Value)
	}
	of.Value = ""
	return of, nil
}
