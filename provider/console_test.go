package provider

import (
	"net/http"
	"strings"
	"testing"
)

// The console needs the credentials of the system routes, and a name by which these may be addressed.
func TestConsoleIsGuarded(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Credentials = credentials })
	wantSentence(t, r.do("GET", "/ui/", ""), http.StatusUnauthorized)
	if w := r.do("GET", "/ui/main.js", "", "Authorization", "Basic YWRtaW46c2VjcmV0"); w.Code != 200 {
		t.Errorf("with credentials: %d", w.Code)
	}
	open := newRig(t, nil)
	if w := open.do("GET", "/ui/", ""); w.Code != 200 {
		t.Errorf("without any: %d", w.Code)
	}
	wantSentence(t, open.do("GET", "http://rebound.example.com/ui/", ""), http.StatusMisdirectedRequest)
}

// Browsers come from / and /ui to the console, by an address that holds below any path. Other clients
// learn that there is no such route.
func TestConsoleRedirects(t *testing.T) {
	r := newRig(t, nil)
	for _, target := range []string{"/", "/ui"} {
		w := r.do("GET", target, "", "Accept", "text/html,*/*;q=0.8")
		if w.Code != http.StatusFound || w.Header().Get("Location") != "ui/" {
			t.Errorf("%s: %d, to %q", target, w.Code, w.Header().Get("Location"))
		}
		wantSentence(t, r.do("GET", target, "", "Accept", "*/*"), http.StatusNotFound)
		wantSentence(t, r.do("POST", target, "", "Accept", "text/html"), http.StatusNotFound)
	}
}

// A page of another site changes nothing by way of the user's browser. The console, faas-cli and curl do.
func TestChangesFromElsewhere(t *testing.T) {
	for _, c := range []struct {
		name    string
		headers []string
		refused bool
	}{
		{"another site", []string{"Sec-Fetch-Site", "cross-site"}, true},
		{"a sibling's page", []string{"Sec-Fetch-Site", "same-site"}, true},
		{"another origin", []string{"Origin", "https://evil.example.com"}, true},
		{"a sandboxed frame", []string{"Origin", "null"}, true},
		{"the console", []string{"Sec-Fetch-Site", "same-origin"}, false},
		{"an old browser", []string{"Origin", "http://example.com"}, false},
		{"faas-cli and curl", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, nil)
			for _, change := range []string{
				"POST /system/functions", "PUT /system/functions", "DELETE /system/functions", "POST /system/scale-function/x",
				"POST /system/secrets", "POST /system/namespace/x", "DELETE /system/async/dead", "POST /system/plan/x",
				"POST /system/upload",
			} {
				method, target, _ := strings.Cut(change, " ")
				w := r.do(method, target, "{}", c.headers...)
				if got := w.Code == http.StatusForbidden; got != c.refused {
					t.Errorf("%s: %d %s", change, w.Code, w.Body)
				}
			}
		})
	}
}
