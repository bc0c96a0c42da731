package provider

import (
	"bytes"
	"cmp"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/provider/access"
	"github.com/faas-infer/faas-infer/provider/web"
)

// openAIModels is the path of OpenAI's list of models.
const openAIModels = "/v1/models"

// openAIRoutes serves the paths of OpenAI's API: it lists models, and hands a request to the function that
// its body names as the model.
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
	ID     string `json:"id"`
	Object string `json:"object"`
	// Created is the time of the first deployment in seconds since 1970.
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// model returns a function as a model, and whether it is one and can answer.
func (s openAIRoutes) model(d *deployed) (openAIModel, bool) {
	m := openAIModel{ID: d.Deployment.Service, Object: "model", Created: d.CreatedAt.Unix(), OwnedBy: d.Deployment.Namespace}
	if m.OwnedBy != DefaultNamespace {
		m.ID = d.Name
	}
	now := s.statusOf(d)
	return m, d.Inference.IsInference && !d.isBroken() && (now.Problem == "" || now.Slight)
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

// list is GET /v1/models: the functions with an objective that can answer, in all namespaces, as far as the sender may
// call them.
func (s openAIRoutes) list(w http.ResponseWriter, r *http.Request) error {
	if err := s.restored.wait(r.Context()); err != nil {
		return err
	}
	models, sender := []openAIModel{}, visible{r.Header, s.now(), map[*guard]bool{}}
	for _, functions := range s.sorted().byNamespace {
		for _, d := range functions {
			if sender.check(d) != nil || d.callable() != nil {
				continue
			}
			if m, ok := s.model(d); ok {
				models = append(models, m)
			}
		}
	}
	slices.SortFunc(models, func(a, b openAIModel) int { return cmp.Compare(a.ID, b.ID) })
	web.WriteJSON(w, map[string]any{"object": "list", "data": models})
	return nil
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
		return err
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
	var named struct {
		Model string `json:"model"`
	}
	err = web.ParseJSON(body.Content(), `an object with "model"`, &named)
	if err == nil && named.Model == "" {
		err = web.Refuse(http.StatusBadRequest, `model is missing: the request body must name a function in the field "model"; GET %s lists them`, openAIModels)
	}
	if err == nil {
		err = s.bodies.Assign(&body, r, chargedName(named.Model))
	}
	if err != nil {
		body.Free()
		body.Release()
		return err
	}
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body.Content())), int64(len(body.Content())), nil
	s.invokeFunction(w, r, named.Model, path, &body)
	return nil
}
