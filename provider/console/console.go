// Package console serves the web console at /ui/: files that are part of the program, without a step
// that builds them. The files use only the provider's own routes and no other host. Begin with
// static/main.js; static/vendor/README.md says what comes from elsewhere.
package console

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/provider/web"
)

// Prefix begins the path of every file of the console.
const Prefix = "/ui/"

// policy allows a page nothing but what its own origin serves, and no script or style in the page itself.
const policy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"

// Serve answers GET and HEAD for paths below [Prefix]. The caller checks who may see them.
func Serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		web.WriteError(w, web.Refuse(http.StatusMethodNotAllowed,
			"the console's files take GET and HEAD, not %q", web.Clip(r.Method)))
		return
	}
	name := strings.TrimPrefix(r.URL.Path, Prefix)
	if name == "" {
		name = "index.html"
	}
	f, ok := load()[name]
	if !ok {
		web.WriteError(w, web.Refuse(http.StatusNotFound, "the console has no file %q", web.Clip(name)))
		return
	}
	// The names of files stay the same over versions, so browsers ask each time whether a file has changed.
	h.Set("Cache-Control", "no-cache")
	h.Set("Content-Type", f.kind)
	h.Set("Vary", "Accept-Encoding")
	body, tag := f.plain, f.tag
	if acceptsGzip(r.Header) {
		h.Set("Content-Encoding", "gzip")
		body, tag = f.compressed, f.tag+"-gzip"
	}
	h.Set("ETag", `"`+tag+`"`)
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(body))
}

// acceptsGzip reports whether a client takes answers that gzip compressed.
func acceptsGzip(h http.Header) bool {
	for part := range strings.SplitSeq(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		coding, quality, _ := strings.Cut(part, ";")
		if strings.TrimSpace(coding) == "gzip" {
			value, ok := strings.CutPrefix(strings.TrimSpace(quality), "q=")
			q, err := strconv.ParseFloat(value, 64)
			return !ok || err != nil || q > 0
		}
	}
	return false
}

// Redirect sends browsers from / and from /ui to the console. The address is relative, so that it is
// right behind a proxy that serves the provider below a path. Other clients get next's answer.
func Redirect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		get := r.Method == http.MethodGet || r.Method == http.MethodHead
		if !get || !strings.Contains(r.Header.Get("Accept"), "text/html") {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Location", "ui/")
		w.Header().Set("Vary", "Accept")
		w.WriteHeader(http.StatusFound)
	})
}
