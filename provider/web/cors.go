package web

import (
	"net/http"
	"net/url"
	"slices"
)

// CORS tell browsers which pages may use the system routes. Functions answer
// for themselves: their preflights and headers pass through untouched.
type CORS struct {
	any        bool
	origins    []string
	protection *http.CrossOriginProtection
}

// NewCORS allows pages of these origins, "*" for all.
func NewCORS(origins []string) CORS {
	c := CORS{any: slices.Contains(origins, "*"), origins: origins, protection: http.NewCrossOriginProtection()}
	for _, o := range origins {
		_ = c.protection.AddTrustedOrigin(o) // "*" is none; the flag refuses what else is none.
	}
	return c
}

// A preflight is told the methods of all system routes, the headers that
// go with credentials and JSON, and for how many seconds it holds.
const (
	methods = "GET, POST, PUT, DELETE, OPTIONS"
	headers = "Authorization, Content-Type"
	maxAge  = "600"
)

// Answer adds to a system route's answer what the page's browser asks for. A
// preflight from an allowed origin is answered whole, since it carries no
// credentials; answer is true then. All others go on, and need them.
func (c CORS) Answer(w http.ResponseWriter, r *http.Request) bool {
	if len(c.origins) == 0 {
		return false
	}
	h := w.Header()
	// The answer depends on it, also for those to whom nothing is allowed.
	h.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	switch {
	case origin == "":
		return false
	case slices.Contains(c.origins, origin):
		h.Set("Access-Control-Allow-Origin", origin)
		// Basic auth that the browser itself asked the user for counts too.
		h.Set("Access-Control-Allow-Credentials", "true")
	case c.any:
		h.Set("Access-Control-Allow-Origin", "*")
	default:
		return false
	}
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", methods)
	h.Set("Access-Control-Allow-Headers", headers)
	h.Set("Access-Control-Max-Age", maxAge)
	w.WriteHeader(http.StatusNoContent)
	return true
}

// errForged answers a change that a page of another site asked the browser for.
var errForged = Refuse(http.StatusForbidden, "a page of another site may not change anything here; if it is yours, start the provider with --cors-origin and its origin")

// Check refuses changes that a browser sends for a page of another site. It sends
// some without a preflight, and to a provider without credentials, or whose
// credentials it remembers, they would be as good as anyone's. Clients that are no
// browsers give no origin.
func (c CORS) Check(r *http.Request) error {
	if c.any || c.protection.Check(r) == nil {
		return nil
	}
	// The gateway's own pages come through the gateway, which tells its host. A
	// page cannot set that header unasked.
	if u, err := url.Parse(r.Header.Get("Origin")); err == nil && u.Host != "" && u.Host == r.Header.Get("X-Forwarded-Host") {
		return nil
	}
	return errForged
}
