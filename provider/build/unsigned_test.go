package build

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// upload is a request of a client whose body goes on until end.
type upload struct {
	body     *io.PipeWriter
	answered chan *httptest.ResponseRecorder
	// refused: the beginning was not read.
	refused bool
}

// begin starts an upload with a wrong signature and sends the beginning of its body.
func begin(h *Handler, address string, beginning []byte) *upload {
	from, to := io.Pipe()
	u := &upload{body: to, answered: make(chan *httptest.ResponseRecorder, 1)}
	r := httptest.NewRequest(http.MethodPost, "/build", from)
	r.RemoteAddr = address
	r.Header.Set(signatureHeader, sign(nil, "a guess"))
	go func() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		from.Close()
		u.answered <- w
	}()
	_, err := to.Write(beginning)
	u.refused = err != nil
	return u
}

// end ends the body and returns the answer.
func (u *upload) end() *httptest.ResponseRecorder {
	u.body.Close()
	return <-u.answered
}

// signed builds a bundle for a client.
func signed(t *testing.T, h *Handler, address string) {
	t.Helper()
	body := archive(manifest, named("a"))
	r := httptest.NewRequest(http.MethodPost, "/build", bytes.NewReader(body))
	r.RemoteAddr = address
	r.Header.Set(signatureHeader, sign(body, secret))
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"success"`) {
		t.Errorf("a signed build from %s: %d %s", address, w.Code, w.Body)
	}
}

// Clients without the secret keep nobody from building, however many bodies they send.
func TestUnsignedRequestsTakeNoSlot(t *testing.T) {
	h, _ := serve(t, Options{BodyTimeout: time.Hour})
	var uploads []*upload
	for range 3 * maxBuilds {
		uploads = append(uploads, begin(h, "10.0.0.1:5", []byte("some of it")))
	}
	signed(t, h, "10.0.0.2:5")
	signed(t, h, "10.0.0.1:6")
	for _, u := range uploads {
		if w := u.end(); w.Code != http.StatusForbidden {
			t.Errorf("an unsigned one: %d %s", w.Code, w.Body)
		}
	}
	if h.stored.Held() != 0 {
		t.Errorf("%d bytes count as stored", h.stored.Held())
	}
	nothingLeft(t, h.options.Root)
}

// One client's bodies take no more of the disk than they leave free, nor do its many
// connections keep others from sending theirs.
func TestUploadsLeaveRoom(t *testing.T) {
	const limit = 1 << 20
	for name, beginning := range map[string][]byte{"large ones": make([]byte, limit*3/4), "many": []byte("x")} {
		t.Run(name, func(t *testing.T) {
			h, _ := serve(t, Options{BodyTimeout: time.Hour, MaxBytes: limit})
			var uploads []*upload
			last := begin(h, "10.0.0.1:5", beginning)
			for ; !last.refused && len(uploads) < 2*maxUploads; last = begin(h, "10.0.0.1:5", beginning) {
				uploads = append(uploads, last)
			}
			if refused := last.end(); refused.Code != http.StatusTooManyRequests || refused.Header().Get("Retry-After") == "" || !strings.Contains(refused.Body.String(), "this client") {
				t.Errorf("%d %v %s", refused.Code, refused.Header(), refused.Body)
			}
			if held := h.stored.Held(); held > maxStored*limit*3/4 {
				t.Errorf("one client stores %d bytes", held)
			}
			signed(t, h, "10.0.0.2:5")
			var all sync.WaitGroup
			for _, u := range uploads {
				all.Go(func() { u.end() })
			}
			all.Wait()
			if h.stored.Held() != 0 {
				t.Errorf("%d bytes count as stored", h.stored.Held())
			}
			nothingLeft(t, h.options.Root)
		})
	}
}
