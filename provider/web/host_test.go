package web

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHosts(t *testing.T) {
	for _, c := range []struct {
		host    string
		allowed bool
	}{
		{"127.0.0.1:8081", true}, {"10.1.2.3", true}, {"[::1]:8081", true}, {"[fd00::1]", true}, {"localhost", true}, {"LocalHost:8081", true}, {"localhost.", true},
		{"app.localhost:8081", true}, {"faas-infer.openfaas:8081", true}, {"Faas-Infer.OpenFaaS.:8081", true},
		{"evil.example.com", false}, {"evil.example.com:8081", false}, {"127.0.0.1.evil.example.com", false}, {"localhost.evil.example.com", false},
		{"notlocalhost", false}, {"x.faas-infer.openfaas", false}, {"faas-infer.openfaas.evil.example.com", false}, {"", false}, {":8081", false}, {"[", false}, {"a:b:c", false},
	} {
		r := httptest.NewRequest("POST", "/system/functions", nil)
		r.Host = c.host
		served := false
		w := httptest.NewRecorder()
		NewHosts([]string{"Faas-infer.openfaas"}).Guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true })).ServeHTTP(w, r)
		if served != c.allowed || !served && (w.Code != http.StatusMisdirectedRequest || !strings.Contains(w.Body.String(), "--allow-host")) {
			t.Errorf("Host %q: served %v, %d %s", c.host, served, w.Code, w.Body)
		}
		if err := NewHosts([]string{"*"}).Check(r); err != nil {
			t.Errorf("Host %q is refused where all are allowed: %v", c.host, err)
		}
	}
}
