package provider

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAuth(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Credentials = credentials })
	basic := func(user, password string) string {
		req, _ := http.NewRequest("GET", "/", nil)
		req.SetBasicAuth(user, password)
		return req.Header.Get("Authorization")
	}
	for _, target := range []string{"/system/functions", "/system/function/x", "/system/info", "/system/nothing", "/system/", "/%73ystem/info"} {
		for _, given := range []string{"", "Basic !", basic("admin", ""), basic("admin", "wrong"), basic("other", "secret"), basic("", "secret"), "Bearer secret"} {
			w := r.do("GET", target, "", "Authorization", given)
			wantSentence(t, w, 401, "basic auth")
			if w.Header().Get("WWW-Authenticate") == "" {
				t.Error("no WWW-Authenticate")
			}
		}
	}
	wantSentence(t, r.do("POST", "/system/functions", deployment(nil)), 401)
	if w := r.do("POST", "/system/functions", deployment(nil), "Authorization", basic("admin", "secret")); w.Code != 202 {
		t.Errorf("right credentials: %d", w.Code)
	}
	for _, target := range []string{"/function/mnist", "/healthz", "/metrics", "/api/v1/query?query=up"} {
		if w := r.do("GET", target, ""); w.Code != 200 {
			t.Errorf("%s needs %d", target, w.Code)
		}
	}
	if w := r.do("GET", "//system/info", ""); w.Code == 200 {
		t.Error("a doubled slash goes around the credentials")
	}
}

func TestCredentials(t *testing.T) {
	dir := t.TempDir()
	if _, err := Credentials(dir); err == nil || !strings.Contains(err.Error(), "basic-auth-user") {
		t.Errorf("without files: %v", err)
	}
	write := func(user, password string) {
		for name, text := range map[string]string{"basic-auth-user": user, "basic-auth-password": password} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	write("admin\n", " \n")
	if _, err := Credentials(dir); err == nil {
		t.Error("an empty password was taken")
	}
	write("admin\n", "secret\n")
	if c, err := Credentials(dir); err != nil || *c != *credentials {
		t.Errorf("Credentials = %v, %v", c, err)
	}
}

func TestOpenRoutes(t *testing.T) {
	r := invoker(t, echo, nil)
	r.do("POST", "/function/mnist", "x")
	r.do("POST", "/function/mnist", "x")
	r.do("POST", "/function/mnist.team-a", "x")
	for _, method := range []string{"GET", "HEAD"} {
		if w := r.do(method, "/healthz", ""); w.Code != 200 {
			t.Errorf("%s /healthz: %d", method, w.Code)
		}
	}
	wantJSON(t, r.do("GET", "/system/info", "", "X-Forwarded-Host", "gateway:8080").Body.String(),
		`{"provider":"faas-infer","orchestration":"faas-infer","version":{"release":"0.1.0","sha":"abc"}}`)
	if text := r.do("GET", "/metrics", "").Body.String(); !strings.Contains(text, `faas_infer_request_duration_seconds_count{function="mnist.openfaas-fn"} 2`) {
		t.Error("/metrics does not show the requests")
	}
	const asked = "/api/v1/query?query=sum%28gateway_function_invocation_total%7Bfunction_name%3D~%22.%2A.openfaas-fn%22%7D%29+by+%28function_name%29"
	wantJSON(t, r.do("GET", asked, "").Body.String(),
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"function_name":"mnist.openfaas-fn"},"value":[1795262400,"2"]}]}}`)
	wantJSON(t, r.do("POST", "/api/v1/query", "query=up", "Content-Type", "application/x-www-form-urlencoded").Body.String(),
		`{"status":"success","data":{"resultType":"vector","result":[]}}`)
	w := r.do("GET", "/api/v1/query?query=rate(up[5m])", "")
	if w.Code != 400 || !strings.Contains(w.Body.String(), `"errorType":"bad_data"`) {
		t.Errorf("bad query: %d %s", w.Code, w.Body)
	}
	for target, status := range map[string]int{"/": 404, "/system": 404, "/system/nothing": 404, "/function": 404, "/system/function/": 404} {
		wantSentence(t, r.do("GET", target, ""), status, "there is no route")
	}
	for target, allow := range map[string]string{"/system/functions": "DELETE, GET, POST, PUT", "/system/info": "GET", "/healthz": "GET, HEAD",
		"/system/scale-function/x": "POST", "/system/function/x": "GET"} {
		w := r.do("PATCH", target, "")
		wantSentence(t, w, 405, allow)
		if w.Header().Get("Allow") != allow {
			t.Errorf("%s: Allow %q", target, w.Header().Get("Allow"))
		}
	}
}
