package provider

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/web"
)

// atPath answers with the request's path and body.
func atPath(_ context.Context, req *frame.Request) (*frame.Response, error) {
	return &frame.Response{Status: 200, Header: http.Header{}, Body: fmt.Appendf(nil, "%s?%s %s", req.Path, req.Query, req.Body)}, nil
}

// echoProgram is the forwarder of an ordinary function that answers with path and body.
type echoProgram struct{ dispatcherFunc }

func (echoProgram) Forward(w http.ResponseWriter, r *http.Request, path string, _ time.Duration, _ func(int64) error) int {
	fmt.Fprintf(w, "program %s %d ", path, r.ContentLength)
	_, _ = io.Copy(w, r.Body)
	return http.StatusOK
}

// The body's model names the function, which gets the path and the body as they were sent.
func TestOpenAIInvokes(t *testing.T) {
	r := newRig(t, nil)
	r.controller.dispatcher = dispatcherFunc(atPath)
	r.deploy(t, nil)
	r.deploy(t, func(d *types.FunctionDeployment) { d.Service, d.Namespace = "text", "team-a" })
	for _, path := range []string{"/v1/embeddings", "/v1/completions", "/v1/chat/completions", "/v1/rerank", "/v2/rerank", "/rerank"} {
		for _, name := range []string{"mnist", "mnist.openfaas-fn", "text.team-a"} {
			body := `{"input": ["a", "b"], "model": "` + name + `"}`
			if w := r.do("POST", path+"?a=b", body); w.Code != 200 || w.Body.String() != path+"?a=b "+body {
				t.Errorf("%s at %s: %d %s", name, path, w.Code, w.Body)
			}
		}
	}
	if text := r.do("GET", "/metrics", "").Body.String(); !strings.Contains(text, `faas_infer_requests_total{code="200",function="mnist.openfaas-fn"} 12`) {
		t.Error("the requests are not counted")
	}
	if held := r.bodies.Held(); held != 0 {
		t.Errorf("%d bytes are held after the answers", held)
	}
}

// OpenAI's clients parse errors in its own form.
func TestOpenAIErrors(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Bodies = web.NewBodyReader(100, time.Second, 1<<20) })
	r.deploy(t, nil)
	r.controller.problem, r.controller.stopped = "the model cannot be read", true
	for _, c := range []struct {
		method, path, body string
		status             int
		kind, code, words  string
	}{
		{"POST", "/v1/embeddings", `{"model": "absent"}`, 404, "invalid_request_error", "model_not_found", `"absent"`},
		{"POST", "/v1/embeddings", `{"model": "text.nowhere"}`, 404, "invalid_request_error", "model_not_found", `"nowhere"`},
		{"POST", "/v1/embeddings", `{"model": "mnist."}`, 400, "invalid_request_error", "bad_request", "ends in a dot"},
		{"POST", "/v1/embeddings", `{"input": "a"}`, 400, "invalid_request_error", "bad_request", "model is missing"},
		{"POST", "/v1/embeddings", `{"model": 5}`, 400, "invalid_request_error", "bad_request", "model"},
		{"POST", "/v1/chat/completions", ``, 400, "invalid_request_error", "bad_request", "empty"},
		{"POST", "/v1/completions", `["mnist"]`, 400, "invalid_request_error", "bad_request", "object"},
		{"POST", "/v1/completions", `{"model": "mnist"`, 400, "invalid_request_error", "bad_request", "JSON"},
		{"POST", "/v1/embeddings", `{"model": "mnist", "input": "` + strings.Repeat("a", 100) + `"}`, 413, "invalid_request_error", "request_entity_too_large", "100 bytes"},
		{"POST", "/v1/rerank", `{"model": "absent"}`, 404, "invalid_request_error", "model_not_found", `"absent"`},
		{"POST", "/v2/rerank", `{"model": null}`, 400, "invalid_request_error", "bad_request", "model is missing"},
		{"POST", "/rerank", `{"model": "mnist"} x`, 400, "invalid_request_error", "bad_request", "the end of the body"},
		{"GET", "/rerank", ``, 405, "invalid_request_error", "method_not_allowed", "POST"},
		{"GET", "/v1/embeddings", ``, 405, "invalid_request_error", "method_not_allowed", "POST"},
		{"POST", "/v1/models", `{}`, 405, "invalid_request_error", "method_not_allowed", "GET"},
		{"GET", "/v1/models/absent", ``, 404, "invalid_request_error", "model_not_found", `"absent"`},
		{"GET", "/v1/models/mnist/x", ``, 404, "invalid_request_error", "model_not_found", `"mnist/x"`},
		{"GET", "/v1/models/mnist", ``, 404, "invalid_request_error", "model_not_found", "no model that can answer"},
		{"POST", "/function/absent/v1/embeddings", `{}`, 404, "invalid_request_error", "model_not_found", `"absent"`},
	} {
		w := r.do(c.method, c.path, c.body)
		var got struct {
			Error struct{ Message, Type, Code string }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s %s %s: %v, %s", c.method, c.path, c.body, err, w.Body)
		}
		if w.Code != c.status || got.Error.Type != c.kind || got.Error.Code != c.code || !strings.Contains(got.Error.Message, c.words) {
			t.Errorf("%s %s %s: %d %+v", c.method, c.path, c.body, w.Code, got.Error)
		}
	}
	if held := r.bodies.Held(); held != 0 {
		t.Errorf("%d bytes are held after the answers", held)
	}
	if w := r.do("POST", "/v1/models/mnist:predict/x", "", web.FunctionStatusHeader, "200"); w.Code != http.StatusForbidden {
		t.Errorf("a callback gets %d", w.Code)
	}
	if w := r.do("GET", "/v1/files", ""); w.Code != http.StatusNotFound {
		t.Errorf("another path of OpenAI's API: %d %s", w.Code, w.Body)
	}
}

// Who asks for an unknown model reads which there are, as far as it may call them.
func TestOpenAIOffers(t *testing.T) {
	r := guarded(t, nil)
	ask := func(name string) string {
		w := r.do("POST", "/v1/embeddings", `{"model": "`+name+`"}`)
		if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), `"param":"model"`) {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
		return w.Body.String()
	}
	if text := ask("absent"); strings.Contains(text, "the models here") {
		t.Errorf("there is no model: %s", text)
	}
	r.secret(t, "POST", "openfaas-fn", "keys", shopKey)
	r.deploy(t, func(d *types.FunctionDeployment) { d.Service, d.Namespace = "a", "team-a" })
	r.deploy(t, func(d *types.FunctionDeployment) { d.Service = "text" })
	r.deploy(t, func(d *types.FunctionDeployment) {
		d.Service = "guarded"
		(*d.Annotations)[annotation.InferAccess] = "keys"
	})
	if text := ask("absent"); !strings.Contains(text, `the models here are text, a.team-a"`) {
		t.Error(text)
	}
	if text := r.do("GET", "/v1/models/absent", "", "X-API-Key", shopKey).Body.String(); !strings.Contains(text, "guarded, text, a.team-a") {
		t.Error(text)
	}
	for i := range 12 {
		r.deploy(t, func(d *types.FunctionDeployment) { d.Service = fmt.Sprintf("f-%02d", i) })
	}
	if text := ask("absent.a"); !strings.Contains(text, `here are f-00, `) || !strings.Contains(text, `f-09, …; GET /v1/models lists all"`) {
		t.Error(text)
	}
	if w := r.do("POST", "/function/absent/v1/embeddings", `{}`); strings.Contains(w.Body.String(), "here are") {
		t.Errorf("a path that names a function gets the list: %s", w.Body)
	}
}

// The model's name is found wherever it stands, and nothing else of the body matters.
func TestModelOf(t *testing.T) {
	nested := strings.Repeat("[", 60) + strings.Repeat("]", 60)
	for body, want := range map[string]string{
		`{"model":"m"}`: "m", ` {"input":["\"model\":\"x\"",{"model":"y"},` + nested + `],"model":"m","n":1e3} `: "m",
		`{"input":"\ud800 é","model":"\u006d"}`: "m", `{"model":"a","model":"b"}`: "b", `{"Model":"m"}`: "",
		`{"model":"` + strings.Repeat("m", 70<<10) + `"}`: "", `{"model":["m"]}`: "", `"m"`: "", "\x1f\x8b": "", "{\"model\":\"m\"}\x00": "",
	} {
		got, err := modelOf(http.Header{}, []byte(body))
		if got != want || (err == nil) != (want != "") || err != nil && web.StatusOf(err) != http.StatusBadRequest {
			t.Errorf("%.80s: %q, %v, want %q", body, got, err, want)
		}
	}
	for coding, want := range map[string]int{"gzip": http.StatusUnsupportedMediaType, "Identity": 0} {
		_, err := modelOf(http.Header{"Content-Encoding": {coding}}, []byte(`{"model":"m"}`))
		if err != nil && web.StatusOf(err) != want || err == nil && want != 0 {
			t.Errorf("%s: %v", coding, err)
		}
	}
}

// A large body is read in place.
func TestModelOfAllocatesLittle(t *testing.T) {
	body := []byte(`{"input":["` + strings.Repeat("A text of some words. ", 1<<15) + `"],"model":"m"}`)
	if n := testing.AllocsPerRun(10, func() { _, _ = modelOf(http.Header{}, body) }); n > 10 {
		t.Errorf("%v allocations", n)
	}
}

// OpenAI's clients always send a key. It counts only where the function has some.
func TestOpenAIKeys(t *testing.T) {
	r := guarded(t, nil)
	r.secret(t, "POST", "openfaas-fn", "keys", shopKey)
	r.deploy(t, func(d *types.FunctionDeployment) { d.Service = "open" })
	r.deploy(t, func(d *types.FunctionDeployment) {
		d.Service = "closed"
		(*d.Annotations)[annotation.InferAccess] = "keys"
	})
	for _, c := range []struct {
		model, key string
		status     int
		code       string
	}{
		{"open", "sk-any", 200, ""}, {"closed", shopKey, 200, ""},
		{"closed", "sk-any", 401, `"code":"invalid_api_key"`}, {"closed", "", 401, `"code":"invalid_api_key"`},
	} {
		for _, prefix := range []string{"", "/function/" + c.model} {
			w := r.do("POST", prefix+"/v1/embeddings", `{"model": "`+c.model+`"}`, "Authorization", "Bearer "+c.key)
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.code) {
				t.Errorf("%s with %q at %q: %d %s", c.model, c.key, prefix, w.Code, w.Body)
			}
		}
	}
}

// A fault of the provider has OpenAI's form, too, and so has a path that an address does not serve.
func TestOpenAIFaults(t *testing.T) {
	r := invoker(t, func(context.Context, *frame.Request) (*frame.Response, error) { panic("a mistake") }, nil)
	w := r.do("POST", "/v1/embeddings", `{"model": "mnist"}`)
	if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), `"type":"server_error"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if held := r.bodies.Held(); held != 0 {
		t.Errorf("%d bytes are held after it", held)
	}
	w = httptest.NewRecorder()
	AdminOnly(r.Handler()).ServeHTTP(w, httptest.NewRequest("GET", "/v1/models/mnist", nil))
	if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), `"code":"model_not_found"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A refusal that invites another try says when.
func TestOpenAIRefusals(t *testing.T) {
	r := newRig(t, nil)
	r.controller.dispatcher = dispatcherFunc(func(context.Context, *frame.Request) (*frame.Response, error) {
		return nil, retryError{http.StatusTooManyRequests, time.Second}
	})
	r.deploy(t, nil)
	w := r.do("POST", "/v1/embeddings", `{"model": "mnist"}`)
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), `"code":"rate_limit_exceeded"`) {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

// However a request names its function, what it holds counts towards the function's one share of the memory.
func TestOpenAISharesMemory(t *testing.T) {
	reached, proceed := make(chan struct{}), make(chan struct{})
	r := invoker(t, func(_ context.Context, req *frame.Request) (*frame.Response, error) {
		if len(req.Body) > 1 {
			reached <- struct{}{}
			<-proceed
		}
		return &frame.Response{Status: 200, Header: http.Header{}}, nil
	}, func(o *Options) { o.Bodies = web.NewBodyReader(600<<10, time.Minute, 1<<20) })
	for _, name := range []string{"mnist", "mnist.openfaas-fn"} {
		done := make(chan int)
		go func() {
			body := `{"model": "` + name + `", "input": "` + strings.Repeat("a", 590<<10) + `"}`
			done <- r.do("POST", "/v1/embeddings", body, "X-Forwarded-For", "10.0.0.1").Code
		}()
		<-reached
		wantSentence(t, r.do("POST", "/function/mnist", "x", "X-Forwarded-For", "10.0.0.2"), http.StatusTooManyRequests, "this function's")
		proceed <- struct{}{}
		if code := <-done; code != http.StatusOK {
			t.Errorf("%s gets %d", name, code)
		}
	}
}

// An ordinary function gets the request, too, with the length of its body.
func TestOpenAIToPrograms(t *testing.T) {
	r := newRig(t, nil)
	r.controller.dispatcher = echoProgram{}
	r.deploy(t, func(d *types.FunctionDeployment) { d.Annotations = nil })
	server := httptest.NewServer(r.Handler())
	defer server.Close()
	// A body without a length.
	body := struct{ *strings.Reader }{strings.NewReader(`{"model": "mnist"}`)}
	response, err := http.Post(server.URL+"/v1/completions", "application/json", body)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text := readAll(t, response.Body); !strings.HasPrefix(text, "program /v1/completions 18") || !strings.HasSuffix(text, `{"model": "mnist"}`) {
		t.Errorf("the program got %q", text)
	}
	if list := r.do("GET", "/v1/models", "").Body.String(); list != `{"data":[],"object":"list"}`+"\n" {
		t.Errorf("a program is listed as a model: %s", list)
	}
}

// A client sees the models that it may call, and no others.
func TestOpenAIModelsOfCallers(t *testing.T) {
	r := guarded(t, nil)
	secret := []byte(strings.Repeat("s", 32))
	text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"aud": "tokens", "exp": now.Add(time.Minute).Unix()}).SignedString(secret)
	if err != nil {
		t.Fatal(err)
	}
	r.secret(t, "POST", "openfaas-fn", "jwks", `{"keys":[{"kty":"oct","k":"`+base64.RawURLEncoding.EncodeToString(secret)+`"}]}`)
	r.secret(t, "POST", "openfaas-fn", "keys", shopKey)
	r.secret(t, "POST", "openfaas-fn", "gone", shopKey)
	for name, access := range map[string]string{"keys": "keys", "more": "keys", "tokens": "jwks", "tokens-too": "jwks", "gone": "gone", "open": ""} {
		r.deploy(t, func(d *types.FunctionDeployment) {
			d.Service = name
			(*d.Annotations)[annotation.InferRate] = "1/h"
			if access != "" {
				(*d.Annotations)[annotation.InferAccess] = access
			}
		})
	}
	if w := r.do("DELETE", "/system/secrets", `{"name":"gone"}`); w.Code != 202 {
		t.Fatal(w.Body)
	}
	r.controller.problem, r.controller.slight = "it is slow", true
	for _, c := range []struct {
		credential string
		want       []string
		refusals   map[string]int
	}{
		{"", []string{"open"}, map[string]int{"keys": 401, "tokens": 401, "gone": 503}},
		{otherKey, []string{"open"}, map[string]int{"keys": 401, "tokens": 401}},
		{shopKey, []string{"keys", "more", "open"}, map[string]int{"tokens-too": 401, "gone": 503}},
		{text, []string{"open", "tokens"}, map[string]int{"more": 401, "tokens-too": 403}},
	} {
		var list struct{ Data []openAIModel }
		w := r.do("GET", "/v1/models", "", "Authorization", "Bearer "+c.credential)
		if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Code != 200 {
			t.Fatal(err, w.Code)
		}
		var got []string
		for _, m := range list.Data {
			got = append(got, m.ID)
			c.refusals[m.ID] = 200
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("the client with %q sees %q, want %q", c.credential, got, c.want)
		}
		for name, want := range c.refusals {
			w := r.do("GET", "/v1/models/"+name, "", "Authorization", "Bearer "+c.credential)
			if w.Code != want || (want == 401) != (w.Header().Get("WWW-Authenticate") != "") && want != 403 {
				t.Errorf("%s with %q: %d %v, want %d", name, c.credential, w.Code, w.Header(), want)
			}
		}
	}
	r.wantCode(t, 200, "/function/open")
}

// The models are the functions with an objective that can answer, without credentials as invocations are.
func TestOpenAIModels(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Credentials = credentials })
	deploy := func(text string) {
		t.Helper()
		if w := r.do("POST", "/system/functions", text, "Authorization", "Basic YWRtaW46c2VjcmV0"); w.Code != 202 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	deploy(deployment(nil))
	deploy(deployment(func(d *types.FunctionDeployment) { d.Service, d.Namespace = "text", "team-a" }))
	want := fmt.Sprintf(`{"data":[{"id":"mnist","object":"model","created":%d,"owned_by":"openfaas-fn"},{"id":"text.team-a","object":"model","created":%[1]d,"owned_by":"team-a"}],"object":"list"}`, now.Unix())
	if w := r.do("GET", "/v1/models", ""); w.Code != 200 || strings.TrimSpace(w.Body.String()) != want {
		t.Errorf("%d %s, want %s", w.Code, w.Body, want)
	}
	one := fmt.Sprintf(`{"id":"text.team-a","object":"model","created":%d,"owned_by":"team-a","model_version_status":`+servedVersions+`}`, now.Unix())
	if w := r.do("GET", "/v1/models/text.team-a", ""); w.Code != 200 || strings.TrimSpace(w.Body.String()) != one {
		t.Errorf("%d %s, want %s", w.Code, w.Body, one)
	}
	r.controller.problem = "it cannot have as many instances as its load needs"
	if w := r.do("GET", "/v1/models", ""); strings.TrimSpace(w.Body.String()) != want {
		t.Errorf("functions that have instances are not listed: %s", w.Body)
	}
	r.controller.problem, r.controller.stopped = "the model cannot be read", true
	if w := r.do("GET", "/v1/models", ""); w.Body.String() != `{"data":[],"object":"list"}`+"\n" {
		t.Errorf("functions that cannot answer are listed: %s", w.Body)
	}
}

// A model that is being restored is not absent.
func TestOpenAIModelsWhileRestoring(t *testing.T) {
	before, _ := stored(t, 1)
	r := newRig(t, func(o *Options) { o.Store = before.store })
	restore, err := r.BeginRestore()
	if err != nil {
		t.Fatal(err)
	}
	if w := r.do("GET", "/v1/models/f-0000", ""); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	restore(t.Context())
	if w := r.do("GET", "/v1/models/f-0000", ""); w.Code != http.StatusOK {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
