package watchdog

import (
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWhyNoProcessWasStarted(t *testing.T) {
	h := &ForkingHandler{Log: NewLineLog(io.Discard)}
	for _, c := range []struct {
		err         error
		code        int
		text        string
		retry, mark bool
	}{
		{ErrClosed, 503, "stopping", true, false},
		{fmt.Errorf("fork: %w", unix.EAGAIN), 429, "limit of processes", true, true},
		{fmt.Errorf("fork: %w", unix.E2BIG), 431, "send them in the body", false, false},
		{fmt.Errorf("fork: %w", unix.ENOEXEC), 500, "fork: exec format error", false, false},
	} {
		w := httptest.NewRecorder()
		h.cannotStart(w, c.err)
		header := w.Header()
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.text) ||
			(header.Get("Retry-After") != "") != c.retry || (header.Get("X-OpenFaaS-Internal") != "") != c.mark {
			t.Errorf("%v: %d %q %v", c.err, w.Code, w.Body, header)
		}
	}
}
