package provider

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/instance/tensorjson"
	"github.com/faas-infer/faas-infer/provider/access"
	"github.com/faas-infer/faas-infer/provider/web"
)

// openAIModels is the path of OpenAI's list of models.
const openAIModels = "/v1/models"

const (
	// maxOffered is the maximum number of models that the answer to an unknown name lists.
	maxOffered = 10
	// maxOfferedOf is the maximum number of functions that are examined for that.
	maxOfferedOf = 1000
)

// openAIRoutes serves the paths of OpenAI's API, and Cohere's for reranking: it lists models, and hands a request to
// the function that its body names as the model.
type openAIRoutes struct{ invocations }

// isOpenAI reports whether a path is one of OpenAI's API.
func isOpenAI(escaped string) bool {
	return web.IsOpenAI(escaped) || escaped == openAIModels || strings.HasPrefix(escaped, openAIModels+"/")
}

// serve answers a request with one of these paths. It returns false for every other one.
func (s openAIRoutes) serve(w http.ResponseWriter, r *http.Request, escaped string) bool {
	if !isOpenAI(escaped) {
		return false
	}
	id, one := strings.CutPrefix(escaped, openAIModels+"/")
	listed := one || escaped == openAIModels
	allowed := []string{http.MethodPost}
	if listed {
		allowed = []string{http.MethodGet, http.MethodHead}
	}
	err := web.RefuseCallback(r)
	switch {
	case err != nil:
	case !slices.Contains(allowed, r.Method):
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		err = web.Refuse(http.StatusMethodNotAllowed, "%s takes %s, not %q", web.Clip(escaped), strings.Join(allowed, ", "), web.Clip(r.Method))
	case one:
		err = s.describe(w, r, id)
	case listed:
		err = s.list(w, r)
	default:
		err = s.invokeNamed(w, r, escaped)
	}
	if err != nil {
		web.WriteOpenAIError(w, err)
	}
	return true
}

// openAIModel is a function as OpenAI's API shows a model.
type openAIModel struct {
	// ID is the function's name, with its namespace unless that is the default one.
	ID     string `json:"id"`
	Object string `json:"object"`
	// Created is the time of the first deployment in seconds since 1970.
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	// Versions is servedVersions in a description.
	Versions json.RawMessage `json:"model_version_status,omitempty"`
}

// servedVersions is what TensorFlow Serving says of a model that can answer, at the path where OpenAI's API describes
// the model. One object says both, so either's clients find their model at the provider's own address.
const servedVersions = `[{"version":"1","state":"AVAILABLE","status":{"error_code":"OK","error_message":""}}]`

// model returns a function as a model, and whether it is one and can answer. A function that has instances can, even if
// it cannot have as many as its load needs.
func (s openAIRoutes) model(d *deployed) (openAIModel, bool) {
	m := openAIModel{ID: d.Deployment.Service, Object: "model", Created: d.CreatedAt.Unix(), OwnedBy: d.Deployment.Namespace}
	if m.OwnedBy != DefaultNamespace {
		m.ID = d.Name
	}
	now := s.statusOf(d)
	return m, d.Inference.IsInference && !d.isBroken() && (now.Problem == "" || now.Slight || now.AvailableReplicas > 0)
}

// visible decides which functions the sender of a request with a header may see: those that it may call. Their rates
// do not count for that.
type visible struct {
	header http.Header
	now    time.Time
	// refused are the keys, by their guards, that the sender has for no function.
	refused map[*guard]bool
}

// check returns why the sender may not call a function, nil if it may.
func (v *visible) check(d *deployed) *access.Refusal {
	p := d.policy.Load()
	if p == nil {
		return nil
	}
	if v.refused[p.guard] {
		return &access.Refusal{Reason: access.Unknown}
	}
	_, _, refusal := p.identify(v.header, v.now)
	if refusal != nil && refusal.Reason != access.Foreign { // The other reasons are the same for all of the guard's functions.
		v.refused[p.guard] = true
	}
	return refusal
}

// model returns a function as a model, and whether it is one that can answer and that the sender may call.
func (v *visible) model(s openAIRoutes, d *deployed) (openAIModel, bool) {
	if v.check(d) != nil || d.callable() != nil {
		return openAIModel{}, false
	}
	return s.model(d)
}

// list is GET /v1/models: the functions with an objective that can answer, in all namespaces, as far as the sender may
// call them.
func (s openAIRoutes) list(w http.ResponseWriter, r *http.Request) error {
	if err := s.restored.wait(r.Context()); err != nil {
		return err
	}
	models, sender := []openAIModel{}, visible{r.Header, s.now(), map[*guard]bool{}}
	for _, functions := range s.sorted().byNamespace {
		for _, d := range functions {
			if m, ok := sender.model(s, d); ok {
				models = append(models, m)
			}
		}
	}
	slices.SortFunc(models, func(a, b openAIModel) int { return cmp.Compare(a.ID, b.ID) })
	web.WriteJSON(w, map[string]any{"object": "list", "data": models})
	return nil
}

// offer adds to the error of an unknown model which ones the sender of the request may ask instead: the first ones by
// namespace and name. It returns every other error as it is.
func offer(s openAIRoutes, header http.Header, err error) error {
	if web.StatusOf(err) != http.StatusNotFound {
		return err
	}
	var names []string
	examined, rest, sender, all := 0, "", visible{header, s.now(), map[*guard]bool{}}, s.sorted().byNamespace
	for i, namespace := range append([]string{DefaultNamespace}, slices.Sorted(maps.Keys(all))...) {
		if i > 0 && namespace == DefaultNamespace {
			continue
		}
		for _, d := range all[namespace] {
			if examined++; examined > maxOfferedOf || len(names) == maxOffered {
				rest = fmt.Sprintf(", …; GET %s lists all", openAIModels)
				break
			}
			if m, ok := sender.model(s, d); ok {
				names = append(names, m.ID)
			}
		}
	}
	if len(names) == 0 {
		return err
	}
	return &web.Error{Status: http.StatusNotFound, Text: fmt.Sprintf("%v; the models here are %s%s", err, strings.Join(names, ", "), rest), Cause: err}
}

// describe is GET /v1/models/ID, for those who may call it. It waits for a function that is being restored or adopted as its requests do.
func (s openAIRoutes) describe(w http.ResponseWriter, r *http.Request, id string) error {
	name, rest := splitPath("/"+id, "/")
	if rest != "/" {
		return web.Refuse(http.StatusNotFound, "there is no model %q: a model's name has no slash", web.Clip(id))
	}
	d, _, err := s.lookUpOrWait(r.Context(), name)
	if err == nil {
		err = d.callable()
	}
	if err != nil {
		return offer(s, r.Header, err)
	}
	if p := d.policy.Load(); p != nil {
		if _, _, refusal := p.identify(r.Header, s.now()); refusal != nil {
			d.metrics.Callers.Refuse(refusal.Reason)
			return refuse(w.Header(), d.Name, refusal)
		}
	}
	m, ok := s.model(d)
	if !ok {
		return web.Refuse(http.StatusNotFound, "function %s serves no model that can answer", d.Name)
	}
	m.Versions = json.RawMessage(servedVersions)
	web.WriteJSON(w, m)
	return nil
}

// invokeNamed reads a request's body, and invokes the function that its field "model" names with the same path
// and body.
func (s openAIRoutes) invokeNamed(w http.ResponseWriter, r *http.Request, path string) error {
	body, err := s.bodies.Read(w, r, "", int64(headSize(path, r.URL.RawQuery, r.Header)))
	if err != nil {
		web.CloseAfter(w, r)
		return err
	}
	model, err := modelOf(r.Header, body.Content())
	if err == nil {
		err = s.bodies.Assign(&body, r, chargedName(model))
	}
	if err != nil {
		body.Free()
		body.Release()
		return err
	}
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body.Content())), int64(len(body.Content())), nil
	s.invokeFunction(w, r, model, path, &body)
	return nil
}

// modelOf returns the model that the body of a request names. It reads the body in place and keeps no more of it than
// the name. The error has status 400, or 415 for a compressed body.
func modelOf(header http.Header, body []byte) (name string, err error) {
	if coding := header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return "", web.Refuse(http.StatusUnsupportedMediaType,
			"the body has the coding %q: send it uncompressed here, or to /function/NAME", web.Clip(coding))
	}
	if len(body) == 0 {
		return "", web.Refuse(http.StatusBadRequest, `the request body is empty; it must be a JSON object with "model"`)
	}
	r := tensorjson.NewReader(body)
	err = r.Object(func(key string) error {
		if key == "model" {
			return r.Into("model", &name)
		}
		return r.Skip()
	})
	if err == nil {
		err = r.End()
	}
	switch {
	case err != nil:
		return "", web.Refuse(http.StatusBadRequest, `the request body must be a JSON object with "model": %v`, err)
	case name == "":
		return "", web.Refuse(http.StatusBadRequest,
			`model is missing: the request body must name a function in the field "model"; GET %s lists them`, openAIModels)
	}
	return name, nil
}
