package provider

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/instance/frame"
)

func TestCORS(t *testing.T) {
	const page, other = "https://ui.example.com", "https://evil.example.com"
	for _, c := range []struct {
		name            string
		origins         []string
		origin          string
		allowed, shared string
	}{
		{"off", nil, page, "", ""},
		{"exact", []string{"http://localhost:3000", page}, page, page, "true"},
		{"another", []string{page}, other, "", ""},
		{"a longer one", []string{page}, page + ".evil.example.com", "", ""},
		{"null", []string{page}, "null", "", ""},
		{"any", []string{"*"}, other, "*", ""},
		{"any and exact", []string{"*", page}, page, page, "true"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.CORSOrigins, o.Credentials = c.origins, credentials })
			for _, target := range []string{"/system/functions", "/system/namespace/x", "/system/logs?name=x"} {
				w := r.do("OPTIONS", target, "", "Origin", c.origin, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization")
				status := http.StatusUnauthorized
				if c.allowed != "" {
					status = http.StatusNoContent
				}
				h := w.Header()
				if w.Code != status || h.Get("Access-Control-Allow-Origin") != c.allowed || h.Get("Access-Control-Allow-Credentials") != c.shared ||
					(h.Get("Access-Control-Allow-Headers") != "") != (c.allowed != "") || w.Code == 204 && w.Body.Len() != 0 {
					t.Errorf("preflight: %d %v", w.Code, h)
				}
				if varies := slices.Contains(h.Values("Vary"), "Origin"); varies != (c.origins != nil) {
					t.Errorf("preflight: Vary %q", h.Values("Vary"))
				}
			}
			// A preflight is all that goes without credentials.
			for _, method := range []string{"GET", "OPTIONS"} {
				w := r.do(method, "/system/functions", "", "Origin", c.origin)
				wantSentence(t, w, 401)
				if got := w.Header().Get("Access-Control-Allow-Origin"); got != c.allowed {
					t.Errorf("the page may read the refusal: %q, want %q", got, c.allowed)
				}
			}
			w := r.do("GET", "/system/functions", "", "Origin", c.origin, "Authorization", "Basic YWRtaW46c2VjcmV0")
			if w.Code != 200 || w.Header().Get("Access-Control-Allow-Origin") != c.allowed {
				t.Errorf("with credentials: %d %v", w.Code, w.Header())
			}
		})
	}
}

// What pages may use a function is the function's to say.
func TestFunctionsAnswerPreflightsThemselves(t *testing.T) {
	r := invoker(t, func(_ context.Context, req *frame.Request) (*frame.Response, error) {
		h := http.Header{"Access-Control-Allow-Origin": {"https://its.own"}, "Vary": {"Origin, Accept"}}
		return &frame.Response{Status: 204, Header: h, Body: []byte(req.Method + req.Header.Get("Origin"))[:0]}, nil
	}, func(o *Options) { o.CORSOrigins, o.Credentials = []string{"*"}, nil })
	for _, method := range []string{"OPTIONS", "POST"} {
		w := r.do(method, "/function/mnist/x", "", "Origin", "https://somewhere", "Access-Control-Request-Method", "POST")
		if w.Code != 204 || w.Header().Get("Access-Control-Allow-Origin") != "https://its.own" || strings.Join(w.Header().Values("Vary"), ";") != "Origin, Accept" {
			t.Errorf("%s: %d %v", method, w.Code, w.Header())
		}
	}
}
