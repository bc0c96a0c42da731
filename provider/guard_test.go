package provider

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/mux"

	"github.com/faas-infer/faas-infer/provider/web"
)

// systemTargets returns all system routes of the router, with a name in the place of each
// variable, and paths that are system routes in disguise.
func systemTargets(t *testing.T, r *rig) []string {
	t.Helper()
	var targets []string
	err := r.system.Walk(func(route *mux.Route, _ *mux.Router, _ []*mux.Route) error {
		path, err := route.GetPathTemplate()
		if err != nil {
			return err
		}
		if i := strings.IndexByte(path, '{'); i >= 0 {
			targets = append(targets, path[:i])
			path = path[:i] + "mnist"
		}
		targets = append(targets, path, path+"?namespace=openfaas-fn")
		return nil
	})
	if err != nil || len(targets) < 10 {
		t.Fatalf("routes %q, %v", targets, err)
	}
	return targets
}

// Every system route needs credentials, whatever the method and the disguise of the path.
func TestEverySystemRouteIsGuarded(t *testing.T) {
	r := newRig(t, func(o *Options) {
		withSecrets(t)(o)
		o.Logs, o.Credentials = &fakeLogs{}, credentials
	})
	given := map[string]string{
		"none": "", "wrong password": "Basic YWRtaW46d3Jvbmc=", "no password": "Basic YWRtaW46", "wrong user": "Basic cm9vdDpzZWNyZXQ=",
		"nothing": "Basic Og==", "no base64": "Basic !", "another scheme": "Bearer secret", "in pieces": "Basic",
	}
	for _, target := range systemTargets(t, r) {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"} {
			for how, header := range given {
				w := r.do(method, target, deployment(nil), "Authorization", header)
				if w.Code != 401 || w.Header().Get("WWW-Authenticate") == "" {
					t.Errorf("%s %s, %s: %d %s", method, target, how, w.Code, w.Body)
				}
			}
			if method == "GET" && strings.HasPrefix(target, "/system/stream") {
				continue // It would go on for ever.
			}
			if w := r.do(method, target, "", "Authorization", "Basic YWRtaW46c2VjcmV0"); w.Code == 401 {
				t.Errorf("%s %s: the right ones are refused", method, target)
			}
		}
	}
	if len(r.controller.deployed) != 0 {
		t.Error("something was deployed")
	}
}

// A path that is a system route's only after cleaning is never served as one
// without credentials.
func TestNoPathGoesAroundTheGuard(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Credentials = credentials })
	server := httptest.NewServer(r.Handler())
	defer server.Close()
	for _, path := range []string{
		"//system/functions", "/./system/functions", "/x/../system/functions", "/healthz/../system/functions", "/system/../system/functions",
		"/system//functions", "/system/./functions", "/system/%2e%2e/system/functions", "/%2e/system/functions", "/system%2ffunctions", "/%2fsystem/functions",
		"/%73ystem/functions", "/system/%66unctions", "/function/../system/functions", "/function/%2e%2e/system/functions", "/function/..%2fsystem%2ffunctions",
		"/System/functions", "/system\\functions", "/system;/functions", "/system/functions/", "/system/functions;x=y", "/system/functions%00", "/system",
		"http://other/system/functions", "/metrics/../system/functions", "/async-function/../system/functions", "*", "/api/v1/query/../../../system/functions",
	} {
		for _, method := range []string{"GET", "OPTIONS"} {
			status, body := raw(t, server.Listener.Addr().String(), method+" "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
			if status < 300 && !(method == "OPTIONS" && path == "*") || strings.HasPrefix(body, "[") {
				t.Errorf("%s %s: %d %s", method, path, status, body)
			}
		}
	}
}

// raw sends a request that no ordinary client would send, and returns the answer's status
// and body.
func raw(t *testing.T, address, request string) (int, string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, request)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%.80q: %v", request, err)
	}
	defer resp.Body.Close()
	return resp.StatusCode, readAll(t, resp.Body)
}

// A client that sends Expect: 100-continue gets its answer before it sends the body.
func TestExpectContinue(t *testing.T) {
	r := newRig(t, func(o *Options) {
		withSecrets(t)(o)
		o.Credentials = credentials
	})
	server := httptest.NewServer(r.Handler())
	defer server.Close()
	const right = "Authorization: Basic YWRtaW46c2VjcmV0\r\n"
	for _, c := range []struct {
		method, target, header string
		length, status         int
	}{
		{"POST", "/system/functions", "", 10, 401},
		{"POST", "/system/functions", right, maxSystemBody + 1, 413},
		{"POST", "/system/namespace/", right, maxSystemBody + 1, 413},
		{"PUT", "/system/namespace/x", right, maxSystemBody + 1, 413},
		{"DELETE", "/system/functions", right, maxSystemBody + 1, 413},
		{"POST", "/system/scale-function/x", right, maxSystemBody + 1, 413},
		{"PUT", "/system/secrets", right, maxSecretBody + 1, 413},
		{"POST", "/system/secrets", right, maxSystemBody + 1, 100},
		{"POST", "/system/functions", right, maxSystemBody, 100},
	} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", c.method, c.target, c.header, c.length)
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || !strings.HasPrefix(line, fmt.Sprintf("HTTP/1.1 %d ", c.status)) {
			t.Errorf("%s %s with %d bytes: %q, %v; want %d", c.method, c.target, c.length, line, err, c.status)
		}
		conn.Close()
	}
}

// A callback reaches functions only, with and without credentials.
func TestCallbacksReachFunctionsOnly(t *testing.T) {
	r := newRig(t, func(o *Options) {
		withSecrets(t)(o)
		o.Logs = &fakeLogs{}
	})
	for _, target := range append(systemTargets(t, r), "/build", "/metrics", "/", "//system/functions", "/function", "/x/../system/functions") {
		wantSentence(t, r.do("POST", target, deployment(nil), web.FunctionStatusHeader, "200"), http.StatusForbidden, "callback")
	}
	if len(r.controller.deployed) != 0 {
		t.Errorf("deployed: %v", r.controller.deployed)
	}
	if w := r.do("POST", "/system/functions", deployment(nil)); w.Code != http.StatusAccepted {
		t.Errorf("without the header: %d %s", w.Code, w.Body)
	}
	if w := r.do("POST", "/function/mnist", "x", web.FunctionStatusHeader, "200"); w.Code != http.StatusOK {
		t.Errorf("to a function: %d %s", w.Code, w.Body)
	}
}

// Without credentials, functions' processes may not use the system routes; with them, the password decides.
func TestFunctionsMayNotDeploy(t *testing.T) {
	for _, c := range []struct {
		edit func(*Options)
		want int
	}{
		{func(o *Options) { o.FunctionUser = func(user int) bool { return user == os.Getuid() } }, http.StatusForbidden},
		{func(o *Options) { o.FunctionUser = func(int) bool { return false } }, http.StatusOK},
		{func(o *Options) {
			o.Credentials, o.FunctionUser = credentials, func(int) bool { return true }
		}, http.StatusOK},
	} {
		s := httptest.NewServer(newRig(t, c.edit).Handler())
		request, err := http.NewRequest("GET", s.URL+"/system/functions", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.SetBasicAuth("admin", "secret")
		answer, err := s.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		s.Close()
		if answer.StatusCode != c.want {
			t.Errorf("%d, want %d", answer.StatusCode, c.want)
		}
	}
}
