package web

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Hosts says by which names clients may address routes that anybody may use who reaches
// them. A page may have its own name resolve to this machine (DNS rebinding). A browser
// then takes the routes for the page's own, so [CORS] does not refuse the page. But the
// request's Host is the page's name.
type Hosts struct {
	any   bool
	names []string
}

// NewHosts returns rules that allow addresses, localhost and these names, "*" for all.
func NewHosts(names []string) Hosts {
	h := Hosts{any: slices.Contains(names, "*")}
	for _, name := range names {
		h.names = append(h.names, canonicalHost(name))
	}
	return h
}

// Check refuses a request that is addressed to a name that is not allowed.
//
// The status is 421, Misdirected Request: HTTP's own for an authority that a server does not
// serve (RFC 9110 §15.5.20). It also tells this mistake of the operator, who has to allow a
// name, from a page of another site, which gets 403.
func (h Hosts) Check(r *http.Request) error {
	if h.any {
		return nil
	}
	name := r.Host
	if host, _, err := net.SplitHostPort(name); err == nil {
		name = host
	}
	name = canonicalHost(name)
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil || name == "localhost" || strings.HasSuffix(name, ".localhost") || slices.Contains(h.names, name) {
		return nil
	}
	return Refuse(http.StatusMisdirectedRequest, "the request is addressed to %q, by which name a provider without credentials may not be used; use its IP address, start it with --allow-host and that name, or give it credentials with --secret-mount-path", Clip(r.Host))
}

// Guard serves a handler's routes under the rules.
func (h Hosts) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h.Check(r); err != nil {
			WriteError(w, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// canonicalHost returns a host name in lower case and without the dot of the root.
func canonicalHost(name string) string { return strings.TrimSuffix(strings.ToLower(name), ".") }
