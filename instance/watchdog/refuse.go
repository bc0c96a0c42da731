package watchdog

import (
	"errors"
	"net/http"

	"golang.org/x/sys/unix"
)

// Refuse answers 429 to a request that has not reached the function. The header
// X-OpenFaaS-Internal tells the provider that another instance may take the request.
func Refuse(w http.ResponseWriter, why string) {
	w.Header().Set("X-OpenFaaS-Internal", "faas-infer-watchdog")
	w.Header().Set("Retry-After", "1")
	http.Error(w, why, http.StatusTooManyRequests)
}

// cannotStart answers a request whose process could not start.
func (h *ForkingHandler) cannotStart(w http.ResponseWriter, err error) {
	if errors.Is(err, ErrClosed) {
		w.Header().Set("Retry-After", "1")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	h.Log.Printf("Cannot start fprocess: %v", err)
	switch {
	case errors.Is(err, unix.EAGAIN):
		Refuse(w, "the function has reached its limit of processes")
	case errors.Is(err, unix.E2BIG):
		http.Error(w, "the request's headers, path or query are too large for the environment of a process, which holds about 128 KiB of each; "+
			"send them in the body, or set cgi_headers=false", http.StatusRequestHeaderFieldsTooLarge)
	default:
		http.Error(w, "cannot start the function's process: "+err.Error(), http.StatusInternalServerError)
	}
}
