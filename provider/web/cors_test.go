package web_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"

	"github.com/faas-infer/faas-infer/provider/web"
)

const page, other = "https://ui.example.com", "https://evil.example.com"

// request is one for the provider at example.com:8081.
func request(method string, header ...string) *http.Request {
	r := httptest.NewRequest(method, "http://example.com:8081/system/functions", nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

func TestAnswer(t *testing.T) {
	preflight := []string{"Access-Control-Request-Method", "POST"}
	for _, c := range []struct {
		name    string
		origins []string
		method  string
		header  []string
		whole   bool
		allowed string
		shared  bool
	}{
		{"off", nil, "OPTIONS", append(preflight, "Origin", page), false, "", false},
		{"no page asks", []string{page}, "GET", nil, false, "", false},
		{"a preflight", []string{page}, "OPTIONS", append(preflight, "Origin", page), true, page, true},
		{"a preflight of another page", []string{page}, "OPTIONS", append(preflight, "Origin", other), false, "", false},
		{"OPTIONS that is no preflight", []string{page}, "OPTIONS", []string{"Origin", page}, false, page, true},
		{"a request", []string{page}, "GET", []string{"Origin", page}, false, page, true},
		{"any page", []string{"*"}, "OPTIONS", append(preflight, "Origin", other), true, "*", false},
		{"any page, and one by name", []string{"*", page}, "GET", []string{"Origin", page}, false, page, true},
		{"origins are compared as they are", []string{page}, "GET", []string{"Origin", page + "/"}, false, "", false},
	} {
		w := httptest.NewRecorder()
		whole := web.NewCORS(c.origins).Answer(w, request(c.method, c.header...))
		h := w.Header()
		if whole != c.whole || h.Get("Access-Control-Allow-Origin") != c.allowed || (h.Get("Access-Control-Allow-Credentials") == "true") != c.shared {
			t.Errorf("%s: %v %v", c.name, whole, h)
		}
		if preflight := h.Get("Access-Control-Allow-Methods") != ""; preflight != c.whole || c.whole && w.Code != http.StatusNoContent {
			t.Errorf("%s: %d %v", c.name, w.Code, h)
		}
		if (h.Get("Vary") == "Origin") != (len(c.origins) > 0) {
			t.Errorf("%s: Vary %q", c.name, h.Values("Vary"))
		}
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name    string
		origins []string
		method  string
		header  []string
		refused bool
	}{
		{"no browser", nil, "POST", nil, false},
		{"another site", nil, "POST", []string{"Origin", other}, true},
		{"another site looks", nil, "GET", []string{"Origin", other}, false},
		{"another site asks for the head", nil, "HEAD", []string{"Origin", other}, false},
		{"another site deletes", nil, "DELETE", []string{"Origin", other}, true},
		{"its own", nil, "PUT", []string{"Origin", "http://example.com:8081"}, false},
		{"another port", nil, "PUT", []string{"Origin", "http://example.com:9000"}, true},
		{"its own behind a gateway", nil, "POST", []string{"Origin", "http://gw", "X-Forwarded-Host", "gw"}, false},
		{"the browser says so", nil, "POST", []string{"Origin", other, "Sec-Fetch-Site", "same-origin"}, false},
		{"the user typed it", nil, "POST", []string{"Origin", other, "Sec-Fetch-Site", "none"}, false},
		{"the browser says another", nil, "POST", []string{"Origin", other, "Sec-Fetch-Site", "cross-site"}, true},
		{"allowed", []string{page}, "POST", []string{"Origin", page}, false},
		{"not that one", []string{page}, "POST", []string{"Origin", other}, true},
		{"all are", []string{"*"}, "POST", []string{"Origin", other}, false},
		{"a page without an origin", nil, "POST", []string{"Origin", "null"}, true},
		{"no origin at all", nil, "POST", []string{"Origin", "::not a URL"}, true},
		{"an empty host is nobody's", nil, "POST", []string{"Origin", "file://", "X-Forwarded-Host", ""}, true},
	} {
		err := web.NewCORS(c.origins).Check(request(c.method, c.header...))
		if (err != nil) != c.refused || err != nil && web.StatusOf(err) != http.StatusForbidden {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// A page that is neither of the same origin nor allowed by --cors-origin changes nothing,
// whatever its Origin, and may read nothing.
func FuzzOrigin(f *testing.F) {
	for _, s := range []string{"", "null", page, page + ".evil.com", "http://example.com:8081", "http://EXAMPLE.com:8081", "//example.com:8081", "*", "https://ui.example.com\x00"} {
		f.Add(s, "GET")
		f.Add(s, "POST")
	}
	rules := web.NewCORS([]string{page})
	f.Fuzz(func(t *testing.T, origin, method string) {
		r := request("POST")
		r.Method = method
		r.Header["Origin"] = []string{origin}
		w := httptest.NewRecorder()
		rules.Answer(w, r)
		if got := w.Header().Get("Access-Control-Allow-Origin"); got != "" && (got != page || origin != page) {
			t.Errorf("%q may read: %q", origin, got)
		}
		if slices.Contains([]string{"GET", "HEAD", "OPTIONS"}, method) || origin == "" || origin == page {
			return
		}
		if u, err := url.Parse(origin); rules.Check(r) == nil && (err != nil || u.Host != "example.com:8081") {
			t.Errorf("%q may %s", origin, method)
		}
	})
}
