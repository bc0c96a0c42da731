package watchdog

import (
	"errors"
	"net/http"

	"golang.org/x/sys/unix"
)

// Refuse refuses with 429 a request that the function has not seen. OpenFaaS's
// header says so, by which the provider knows that another instance may have it.
func Refuse(w http.ResponseWriter, why string) {
	w.Header().Set("X-OpenFaaS-Internal", "faas-infer-watchdog")
	w.Header().Set("Retry-After", "1")
	http.Error(w, why, http.StatusTooManyRequests)
}

// cannotStart answers a request for which no process could be started.
func (h *ForkingHandler) cannotStart(w http.ResponseWriter, err error) {
	if errors.Is(err, ErrClosed) {
		w.Header().Set("Retry-After", "1")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	h.Log.Printf("Cannot start fprocess: %v", err)
	switch {
	case errors.Is(err, unix.EAGAIN):
		Refuse(w, "the function has as many processes as it may have")
	case errors.Is(err, unix.E2BIG):
		http.Error(w, "the request's headers, path or query are too large for the environment of a process, which holds about 128 KiB of each; "+
			"send them in the body, or set cgi_headers=false", http.StatusRequestHeaderFieldsTooLarge)
	default:
		http.Error(w, "cannot start the function's process: "+err.Error(), http.StatusInternalServerError)
	}
}
