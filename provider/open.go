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

// Credentials reads the user and password for the system routes from OpenFaaS' files
// basic-auth-user and basic-auth-password in a directory. It refuses empty ones.
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

// authorize checks a system route's credentials. The time it takes does not depend on
// how much of them is right.
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
	return web.Refuse(http.StatusUnauthorized, "the user or the password is wrong or missing; send them as basic auth. "+
		"The files basic-auth-user and basic-auth-password of --secret-mount-path have them; faas-infer up prints where they are")
}

// equal returns 1 for equal strings, otherwise 0. Hashing hides their lengths.
func equal(a, b string) int {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:])
}

// errRestoring answers health checks while this replica of several restores functions.
var errRestoring = web.Refuse(http.StatusServiceUnavailable, "this replica of the provider is restoring its functions; the others serve meanwhile")

// alive is GET /startupz and GET /livez. It answers 200 for as long as the handler serves, also
// while functions are restored and while requests in flight are finished: a kubelet that asked
// /healthz would then kill a provider that is well. /startupz is answered as soon as the
// provider has read its state, and /livez says that it is not stuck.
func alive(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("OK\n"))
	return nil
}

// health is GET /healthz and GET /readyz. It answers 503 as soon as the provider shuts down, and while one
// replica among others restores its functions, so a load balancer sends requests elsewhere.
func (s *Server) health(w http.ResponseWriter, r *http.Request) error {
	if err := s.ready(); err != nil {
		return err
	}
	return alive(w, r)
}

// ready returns why the provider takes no requests, nil if it does.
func (s *Server) ready() error {
	if s.inFlight.Closed() || s.leaving.Load() {
		return errDraining
	}
	if s.several && !s.restored.ended() {
		return errRestoring
	}
	return nil
}

// queryAnswer is the answer of Prometheus's HTTP API to an instant query.
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

// maxQuery is the most bytes of a query's body. The route is open and its body does not
// count as held. The queries that it answers take some 200 bytes.
const maxQuery = 16 << 10

// query is /api/v1/query: the part of Prometheus's API that the stock gateway needs for
// its list of functions. With it, no Prometheus need run beside the gateway. Errors have
// Prometheus's form.
func (s *Server) query(w http.ResponseWriter, r *http.Request) error {
	s.bodies.LimitRest(w, r)
	r.Body = http.MaxBytesReader(w, r.Body, maxQuery)
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
