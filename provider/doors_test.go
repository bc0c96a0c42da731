package provider

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Each address has its routes and health, whatever a path looks like.
func TestAddressesOfTheirOwn(t *testing.T) {
	r := newRig(t, nil)
	r.deploy(t, nil)
	for _, c := range []struct {
		method, path string
		data, admin  int
	}{
		{"POST", "/function/mnist", 200, 404}, {"POST", "/function/mnist/system/functions", 200, 404}, {"POST", "/function/..%2fsystem%2ffunctions", 404, 404},
		{"POST", "/async-function/mnist", 501, 404}, {"GET", "/healthz", 200, 200}, {"GET", "/readyz", 200, 200}, {"GET", "/livez", 200, 200},
		{"GET", "/system/functions", 404, 200}, {"GET", "/%73ystem/functions", 404, 200}, {"GET", "/system%2ffunctions", 404, 200}, {"GET", "/metrics", 404, 200},
		{"GET", "/api/v1/query", 404, 400}, {"POST", "/build", 404, 404}, {"GET", "/absent", 404, 404}, {"GET", "//system/functions", 301, 404}, {"GET", "/x/../metrics", 301, 404},
		{"GET", "/ui/", 404, 200}, {"GET", "/ui/main.js", 404, 200}, {"GET", "/%75i/", 404, 200},
	} {
		for name, door := range map[string]struct {
			handler http.Handler
			want    int
		}{"data": {DataOnly(r.Handler()), c.data}, "admin": {AdminOnly(r.Handler()), c.admin}} {
			w := httptest.NewRecorder()
			if door.handler.ServeHTTP(w, httptest.NewRequest(c.method, c.path, strings.NewReader("x"))); w.Code != door.want {
				t.Errorf("%s %s at the address for %s: %d %s, want %d", c.method, c.path, name, w.Code, w.Body, door.want)
			}
		}
	}
}
