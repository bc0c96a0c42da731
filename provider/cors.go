package provider

import (
	"net/http"
	"slices"
)

// cors tells browsers which pages may use the system routes. Functions answer
// for themselves: their preflights and headers pass through untouched.
type cors struct {
	any     bool
	origins []string
}

func newCORS(origins []string) cors {
	return cors{any: slices.Contains(origins, "*"), origins: origins}
}

// What a preflight is told: the methods of all system routes, the headers that
// go with credentials and JSON, and for how many seconds it holds.
const (
	corsMethods = "GET, POST, PUT, DELETE, OPTIONS"
	corsHeaders = "Authorization, Content-Type"
	corsMaxAge  = "600"
)

// answer adds to a system route's answer what the page's browser asks for. A
// preflight from an allowed origin is answered whole, since it carries no
// credentials; answer is true then. All others go on, and need them.
func (c cors) answer(w http.ResponseWriter, r *http.Request) bool {
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
	h.Set("Access-Control-Allow-Methods", corsMethods)
	h.Set("Access-Control-Allow-Headers", corsHeaders)
	h.Set("Access-Control-Max-Age", corsMaxAge)
	w.WriteHeader(http.StatusNoContent)
	return true
}
