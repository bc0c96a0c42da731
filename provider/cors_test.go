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

// A function decides itself which pages may use it.
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

// A browser sends a form, or text, to any site without a preflight. A page must not deploy
// a function on the machine of its reader that way.
func TestPagesOfOtherSitesChangeNothing(t *testing.T) {
	const page = "https://ui.example.com"
	for _, c := range []struct {
		name, method string
		header       []string
		status       int
	}{
		{"no browser", "POST", nil, 202},
		{"another site", "POST", []string{"Origin", "https://evil.example.com", "Sec-Fetch-Site", "cross-site"}, 403},
		{"an old browser", "POST", []string{"Origin", "https://evil.example.com"}, 403},
		{"another port", "POST", []string{"Origin", "http://example.com:3000", "Sec-Fetch-Site", "same-site"}, 403},
		{"no origin of its own", "POST", []string{"Origin", "null"}, 403},
		{"a deletion", "DELETE", []string{"Origin", "https://evil.example.com"}, 403},
		{"its own", "POST", []string{"Origin", "http://example.com"}, 202},
		{"its own behind a gateway", "POST", []string{"Origin", "http://gateway:8080", "X-Forwarded-Host", "gateway:8080"}, 202},
		{"told by the browser", "POST", []string{"Origin", "http://10.0.0.1:8080", "Sec-Fetch-Site", "same-origin"}, 202},
		{"allowed", "POST", []string{"Origin", page, "Sec-Fetch-Site", "cross-site"}, 202},
		{"only looking", "GET", []string{"Origin", "https://evil.example.com", "Sec-Fetch-Site", "cross-site"}, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.CORSOrigins = []string{page} })
			w := r.do(c.method, "/system/functions", deployment(nil), append(c.header, "Content-Type", "text/plain")...)
			if c.status >= 400 {
				wantSentence(t, w, c.status)
			} else if w.Code != c.status {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
}
