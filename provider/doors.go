package provider

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/provider/console"
	"github.com/faas-infer/faas-infer/provider/web"
)

// healthPaths are the paths that every address of a provider has.
var healthPaths = []string{"/healthz", "/readyz", "/startupz", "/livez"}

// adminPaths are those of operators, beside all below systemPrefix and the console.
var adminPaths = []string{"/", "/ui", "/metrics", "/api/v1/query", "/build", "/publickey"}

// isAdmin reports whether a request is for operators, and not for a function.
func isAdmin(r *http.Request) bool {
	if strings.HasPrefix(cmp.Or(r.URL.RawPath, r.URL.EscapedPath()), functionPrefix) {
		return false
	}
	return strings.HasPrefix(r.URL.Path, systemPrefix) || strings.HasPrefix(r.URL.Path, console.Prefix) || slices.Contains(adminPaths, r.URL.Path)
}

// DataOnly serves a handler's functions and health, and 404 instead of its routes for operators. It is
// for an address that strangers may reach.
func DataOnly(next http.Handler) http.Handler {
	return only(next, "functions", func(r *http.Request) bool { return !isAdmin(r) })
}

// AdminOnly serves a handler's routes for operators and health, and 404 instead of its functions.
func AdminOnly(next http.Handler) http.Handler { return only(next, "operators", isAdmin) }

func only(next http.Handler, who string, has func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(healthPaths, r.URL.Path) || has(r) {
			next.ServeHTTP(w, r)
			return
		}
		web.CloseAfter(w, r)
		writeErrorOf(w, r, web.Refuse(http.StatusNotFound, "there is no route %q at this address, which is for %s", web.Clip(r.URL.Path), who))
	})
}
