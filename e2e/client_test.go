package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/openfaas/faas-provider/types"
)

// client returns an HTTP client that leaves no connection at the test's end.
func client(t *testing.T) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

// answer is the answer to one request.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends one request; the headers are pairs of name and value.
func do(t *testing.T, c *http.Client, method, url string, body []byte, headers ...string) answer {
	t.Helper()
	a, err := try(c, method, url, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// try is do for goroutines other than the test's.
func try(c *http.Client, method, url string, body []byte, headers ...string) (answer, error) {
	r, err := http.NewRequest(method, url, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := c.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(text)}, err
}

// function returns a deployment with an SLO. options are annotations as pairs of key and
// value; the prefix com.openfaas. may be left out.
func function(name, image, slo string, options ...string) types.FunctionDeployment {
	annotations := map[string]string{"com.openfaas.slo.latency": slo}
	for i := 0; i < len(options); i += 2 {
		key := options[i]
		if !strings.HasPrefix(key, "com.") {
			key = "com.openfaas." + key
		}
		annotations[key] = options[i+1]
	}
	return types.FunctionDeployment{Service: name, Image: image, Annotations: &annotations}
}

// scaled adds the labels that bound the number of instances.
func scaled(f types.FunctionDeployment, least, most string) types.FunctionDeployment {
	f.Labels = &map[string]string{"com.openfaas.scale.min": least, "com.openfaas.scale.max": most}
	return f
}

// deploy deploys at the provider itself, and fails the test if it refuses.
func (d *daemon) deploy(t *testing.T, f types.FunctionDeployment) {
	t.Helper()
	if a := d.put(t, http.MethodPost, f); a.status != http.StatusAccepted {
		t.Fatalf("deploy %s: %d %s", f.Service, a.status, a.body)
	}
}

// remove removes a function, and fails the test if the provider refuses.
func (d *daemon) remove(t *testing.T, name string) {
	t.Helper()
	if a := do(t, d.network.client(t), http.MethodDelete, d.url+"/system/functions", fmt.Appendf(nil, `{"functionName":%q}`, name)); a.status != http.StatusAccepted {
		t.Fatalf("remove %s: %d %s", name, a.status, a.body)
	}
}

func (d *daemon) put(t *testing.T, method string, f types.FunctionDeployment) answer {
	t.Helper()
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return do(t, d.network.client(t), method, d.url+"/system/functions", text)
}

// status returns the provider's status of a function.
func (d *daemon) status(t *testing.T, name string) types.FunctionStatus {
	t.Helper()
	s, err := d.tryStatus(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tryStatus is status for goroutines other than the test's.
func (d *daemon) tryStatus(name string) (s types.FunctionStatus, err error) {
	a, err := try(d.own, http.MethodGet, d.url+"/system/function/"+name, nil)
	if err == nil && a.status != http.StatusOK {
		err = fmt.Errorf("%d %s", a.status, a.body)
	}
	if err == nil {
		err = json.Unmarshal([]byte(a.body), &s)
	}
	if err != nil {
		return s, fmt.Errorf("status of %s: %w", name, err)
	}
	return s, nil
}

// awaitReady waits until a number of instances are ready.
func (d *daemon) awaitReady(t *testing.T, name string, instances uint64) {
	t.Helper()
	d.await(t, patience, "ready instances of "+name, func() bool {
		return d.status(t, name).AvailableReplicas >= instances
	})
}

func (d *daemon) function(name string) string { return d.url + "/function/" + name }
