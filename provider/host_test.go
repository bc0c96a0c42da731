package provider

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A page whose name resolves to this machine (DNS rebinding) may do nothing, although the
// browser takes the provider for the page's own site.
func TestReboundNames(t *testing.T) {
	r := newRig(t, func(o *Options) {
		withSecrets(t)(o)
		o.Logs, o.Hosts, o.CORSOrigins = &fakeLogs{}, []string{"faas-infer.openfaas.svc.cluster.local"}, []string{"*"}
	})
	send := func(r *rig, host, method, target string, header ...string) *httptest.ResponseRecorder {
		request := httptest.NewRequest(method, target, strings.NewReader(deployment(nil)))
		request.Host = host
		request.Header.Set("Origin", "http://"+host)
		request.Header.Set("Sec-Fetch-Site", "same-origin")
		for i := 0; i < len(header); i += 2 {
			request.Header.Set(header[i], header[i+1])
		}
		return r.send(request)
	}
	for _, target := range systemTargets(t, r) {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE", "OPTIONS"} {
			w := send(r, "rebound.example.com:8081", method, target, "Access-Control-Request-Method", "POST")
			wantSentence(t, w, http.StatusMisdirectedRequest, "rebound.example.com", "--allow-host", "--secret-mount-path")
		}
	}
	if len(r.controller.deployed) != 0 {
		t.Error("something was deployed")
	}
	for _, host := range []string{"127.0.0.1:8081", "[::1]:8081", "localhost:8081", "faas-infer.openfaas.svc.cluster.local:8081"} {
		if w := send(r, host, "POST", "/system/functions"); w.Code != http.StatusAccepted {
			t.Errorf("%s: %d %s", host, w.Code, w.Body)
		}
	}
	// What everybody may use has no such rule: a probe may give any name.
	for _, target := range []string{"/healthz", "/metrics", "/api/v1/query?query=up"} {
		if w := send(r, "rebound.example.com", "GET", target); w.Code == http.StatusMisdirectedRequest {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
	if w := send(r, "rebound.example.com", "POST", "/function/mnist"); w.Code != http.StatusOK {
		t.Errorf("a function: %d %s", w.Code, w.Body)
	}
	// Credentials suffice: no browser sends those of one name to another.
	guarded := newRig(t, func(o *Options) { o.Hosts, o.Credentials = nil, credentials })
	if w := send(guarded, "provider.example.com", "POST", "/system/functions", "Authorization", "Basic YWRtaW46c2VjcmV0"); w.Code != http.StatusAccepted {
		t.Errorf("with credentials: %d %s", w.Code, w.Body)
	}
	if w := send(guarded, "rebound.example.com", "POST", "/system/functions"); w.Code != http.StatusUnauthorized {
		t.Errorf("without: %d %s", w.Code, w.Body)
	}
}
