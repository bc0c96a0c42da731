package provider

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/openfaas/faas-provider/auth"

	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/web"
)

// Credentials reads the user and password for the system routes from the files
// basic-auth-user and basic-auth-password in a directory, where OpenFaaS keeps
// them. Empty ones are refused.
func Credentials(dir string) (*auth.BasicAuthCredentials, error) {
	reader := auth.ReadBasicAuthFromDisk{SecretMountPath: dir}
	c, err := reader.Read()
	if err != nil {
		return nil, fmt.Errorf("basic auth needs the files basic-auth-user and basic-auth-password in %q: %w", dir, err)
	}
	if c.User == "" || c.Password == "" {
		return nil, fmt.Errorf("basic auth: the files basic-auth-user and basic-auth-password in %q must not be empty", dir)
	}
	return c, nil
}

// authorize checks a system route's credentials, in a time that tells nothing
// of how much of them was right.
func authorize(w http.ResponseWriter, r *http.Request, wanted *auth.BasicAuthCredentials) error {
	if wanted == nil {
		return nil
	}
	user, password, _ := r.BasicAuth()
	same := equal(user, wanted.User) & equal(password, wanted.Password)
	if same == 1 {
		return nil
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="faas-infer"`)
	return web.Refuse(http.StatusUnauthorized, "this route needs the user and password of the gateway (basic auth), and those given are not right")
}

// equal is 1 for equal strings. Hashing hides their lengths.
func equal(a, b string) int {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:])
}

// health is GET /healthz: 503 as soon as the provider shuts down, so that what
// stands in front of it sends requests elsewhere.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) error {
	if s.inFlight.Closed() {
		return errDraining
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("OK\n"))
	return nil
}

// The answer of Prometheus's HTTP API to an instant query.
type (
	queryAnswer struct {
		Status    string     `json:"status"`
		Data      *queryData `json:"data,omitempty"`
		ErrorType string     `json:"errorType,omitempty"`
		Error     string     `json:"error,omitempty"`
	}
	queryData struct {
		ResultType string         `json:"resultType"`
		Result     []vectorSample `json:"result"`
	}
	vectorSample struct {
		Metric map[string]string `json:"metric"`
		// Value is the time in seconds and the value as a string.
		Value [2]any `json:"value"`
	}
)

// query is /api/v1/query: as much of Prometheus as the stock gateway's list of
// functions asks for, so that none need run beside it. Its errors have
// Prometheus's form.
func (s *Server) query(w http.ResponseWriter, r *http.Request) error {
	s.bodies.LimitRest(w, r)
	r.Body = http.MaxBytesReader(w, r.Body, maxSystemBody)
	q, err := metrics.ParseQuery(r.FormValue("query"))
	if err != nil {
		text, _ := json.Marshal(queryAnswer{Status: "error", ErrorType: "bad_data", Error: err.Error()})
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write(append(text, '\n'))
		return nil
	}
	at := float64(s.now().UnixMilli()) / 1000
	result := []vectorSample{}
	for _, sample := range q.Evaluate(s.metrics) {
		result = append(result, vectorSample{Metric: sample.Metric,
			Value: [2]any{at, strconv.FormatFloat(sample.Value, 'f', -1, 64)}})
	}
	web.WriteJSON(w, queryAnswer{Status: "success", Data: &queryData{ResultType: "vector", Result: result}})
	return nil
}
