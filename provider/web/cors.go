package web

import (
	"net/http"
	"net/url"
	"slices"
)

// CORS tells browsers which pages may use the system routes. It does not apply to
// functions: their preflights and headers pass through unchanged.
type CORS struct {
	any        bool
	origins    []string
	protection *http.CrossOriginProtection
}

// NewCORS returns rules that allow pages of these origins, "*" for all.
func NewCORS(origins []string) CORS {
	c := CORS{any: slices.Contains(origins, "*"), origins: origins, protection: http.NewCrossOriginProtection()}
	for _, o := range origins {
		_ = c.protection.AddTrustedOrigin(o) // It fails for "*". The flag refuses everything else that is not an origin.
	}
	return c
}

// The answer to a preflight: the methods of all system routes, the headers for
// credentials and JSON, and for how many seconds the answer holds.
const (
	methods = "GET, POST, PUT, DELETE, OPTIONS"
	headers = "Authorization, Content-Type"
	maxAge  = "600"
)

// Answer adds the CORS headers to a system route's answer. It answers a preflight from an
// allowed origin completely and returns true, since a preflight carries no credentials.
// Otherwise it returns false: the request goes on and needs credentials.
func (c CORS) Answer(w http.ResponseWriter, r *http.Request) bool {
	if len(c.origins) == 0 {
		return false
	}
	h := w.Header()
	// The answer depends on Origin, even if the origin is not allowed.
	h.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	switch {
	case origin == "":
		return false
	case slices.Contains(c.origins, origin):
		h.Set("Access-Control-Allow-Origin", origin)
		// The page may also use basic auth that the browser has asked the user for.
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

// errCrossSite answers a change that a browser sends for a page of another site.
var errCrossSite = Refuse(http.StatusForbidden, "a page of another site may not change anything here; if it is yours, start the provider with --cors-origin and its origin")

// Check refuses changes that a browser sends for a page of another site. A browser sends
// some of them without a preflight. A provider without credentials, or whose credentials
// the browser remembers, would carry them out. Clients other than browsers send no Origin
// and are not refused.
func (c CORS) Check(r *http.Request) error {
	if c.any || c.protection.Check(r) == nil {
		return nil
	}
	// The gateway's own pages come through the gateway, which sends its host in
	// X-Forwarded-Host. A page can set that header only after a preflight.
	if u, err := url.Parse(r.Header.Get("Origin")); err == nil && u.Host != "" && u.Host == r.Header.Get("X-Forwarded-Host") {
		return nil
	}
	return errCrossSite
}
