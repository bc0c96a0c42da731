package provider

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/provider/web"
)

// Secrets is where functions' secrets are kept; *secret.Store is one. Its
// errors may be HTTPErrors, and never tell a value.
type Secrets interface {
	// List returns the names of a namespace's secrets, sorted; none for a
	// namespace that holds none.
	List(namespace string) ([]string, error)
	// Create keeps a new secret (409 if it is there), Update gives one
	// another value and Delete forgets it (404 if it is not there).
	Create(namespace, name string, value []byte) error
	Update(namespace, name string, value []byte) error
	Delete(namespace, name string) error
	// DeleteNamespace forgets all secrets of a namespace.
	DeleteNamespace(namespace string) error
}

// maxSecretBody holds the largest secret, 1 MiB, given as text in which JSON
// escapes every byte by six, and in base64 as well, as faas-cli gives it.
const maxSecretBody = 8 << 20

// secretRoutes are those of /system/secrets.
type secretRoutes struct{ *Server }

// list is GET /system/secrets: names, never values. A namespace that does
// not exist has none, as in the list of functions.
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

// update is PUT /system/secrets. Instances that run keep the value they
// were started with; a deployment gives them the new one.
func (s secretRoutes) update(w http.ResponseWriter, r *http.Request) error {
	return s.change(w, r, true, func(of types.Secret) error { return s.secrets.Update(of.Namespace, of.Name, of.RawValue) })
}

// delete is DELETE /system/secrets. Functions that use it go on with what
// they have, but can neither be deployed again nor outlive a restart of the
// provider without it.
func (s secretRoutes) delete(w http.ResponseWriter, r *http.Request) error {
	return s.change(w, r, false, func(of types.Secret) error { return s.secrets.Delete(of.Namespace, of.Name) })
}

var errNoSecrets = web.Refuse(http.StatusNotImplemented, "this provider keeps no secrets")

// change reads the secret that a request is about and changes it; the
// value, where one is needed, is in RawValue.
func (s secretRoutes) change(w http.ResponseWriter, r *http.Request, valued bool, change func(types.Secret) error) error {
	if s.secrets == nil {
		return errNoSecrets
	}
	text, err := s.changes.text(w, r, maxSecretBody)
	if err != nil {
		return err
	}
	of, err := parseSecret(text)
	if err != nil {
		return err
	}
	a, err := resolve("", of.Namespace, r.URL.Query().Get("namespace"))
	if err != nil {
		return err
	}
	of.Namespace = a.namespace
	if valued && len(of.RawValue) == 0 {
		return web.Refuse(http.StatusBadRequest, `the secret has no value; give it as text in "value", or in base64 in "rawValue"`)
	}
	defer s.placing.Share(of.Namespace)()
	if err := s.spaces.require(of.Namespace); err != nil {
		return err
	}
	if err := change(of); err != nil {
		return err
	}
	s.log.Info().Str("secret", of.Name).Str("namespace", of.Namespace).Str("method", r.Method).Msg("secret changed")
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// parseSecret reads a secret, whose value is then in RawValue. Bytes come before
// text: faas-cli sends both of a file, and text cannot hold every byte. What is
// wrong with the JSON is told without quoting it.
func parseSecret(text []byte) (types.Secret, error) {
	const wanted = `the request body must be an object with "name" and "value" as JSON`
	var of types.Secret
	err := json.Unmarshal(text, &of)
	var syntax *json.SyntaxError
	var mistyped *json.UnmarshalTypeError
	var encoding base64.CorruptInputError
	switch {
	case len(text) == 0:
		return of, web.Refuse(http.StatusBadRequest, "the request body is empty; it must be an object with \"name\" and \"value\" as JSON")
	case errors.As(err, &syntax):
		return of, web.Refuse(http.StatusBadRequest, wanted+"; it is no JSON at byte %d", syntax.Offset)
	case errors.As(err, &mistyped):
		return of, web.Refuse(http.StatusBadRequest, wanted+"; %q is no string", mistyped.Field)
	case errors.As(err, &encoding):
		return of, web.Refuse(http.StatusBadRequest, "rawValue must be base64, and is not from its byte %d on", int64(encoding))
	case err != nil:
		return of, web.Refuse(http.StatusBadRequest, wanted)
	}
	if len(of.RawValue) == 0 {
		of.RawValue = []byte(of.Value)
	}
	of.Value = ""
	return of, nil
}
