package build

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/openfaas/go-sdk/builder"
)

// sign is the header for a body.
func sign(body []byte, secret string) string {
	digest := hmac.New(sha256.New, []byte(secret))
	digest.Write(body)
	return "sha256=" + hex.EncodeToString(digest.Sum(nil))
}

// post sends a body to the handler and returns what it answers.
func post(h http.Handler, body io.Reader, signature string, accept string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/build", body)
	if signature != "" {
		r.Header.Set(signatureHeader, signature)
	}
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestSignature(t *testing.T) {
	h, _ := serve(t, Options{})
	body, err := os.ReadFile(packed(t, folder(t, map[string]string{"bundle.yaml": "name: a\nprocess: cat\n"}), "a"))
	if err != nil {
		t.Fatal(err)
	}
	good := sign(body, secret)
	for _, test := range []struct {
		name, signature, words string
		code                   int
	}{
		{"none", "", "is missing", http.StatusUnauthorized},
		{"no algorithm", strings.TrimPrefix(good, "sha256="), "must be sha256=", http.StatusUnauthorized},
		{"another algorithm", strings.Replace(good, "sha256", "sha1", 1), "must be sha256=", http.StatusUnauthorized},
		{"no digits", "sha256=xyz", "must be sha256=", http.StatusUnauthorized},
		{"cut off", good[:len(good)-2], "must be sha256=", http.StatusUnauthorized},
		{"nothing", "sha256=", "must be sha256=", http.StatusUnauthorized},
		{"too long", good + "00", "must be sha256=", http.StatusUnauthorized},
		{"another secret", sign(body, "another"), "does not fit the body", http.StatusForbidden},
		{"no secret", sign(body, ""), "does not fit the body", http.StatusForbidden},
		{"of another body", sign(body[:512], secret), "does not fit the body", http.StatusForbidden},
	} {
		answer := post(h, bytes.NewReader(body), test.signature, "")
		if answer.Code != test.code || !strings.Contains(answer.Body.String(), test.words) {
			t.Errorf("%s: %d %s, want %d with %q", test.name, answer.Code, answer.Body, test.code, test.words)
		}
	}
	changed := bytes.Clone(body)
	changed[600] ^= 1
	if answer := post(h, bytes.NewReader(changed), good, ""); answer.Code != http.StatusForbidden {
		t.Errorf("a changed body: %d %s", answer.Code, answer.Body)
	}
	if _, err := os.Stat(filepath.Join(h.options.Root, "a")); err == nil {
		t.Error("something unsigned was unpacked")
	}
	nothingLeft(t, h.options.Root)
	if answer := post(h, bytes.NewReader(body), strings.ToUpper(good[7:]), ""); answer.Code != http.StatusUnauthorized {
		t.Errorf("%d", answer.Code)
	}
	if answer := post(h, bytes.NewReader(body), good, "text/html, application/x-ndjson;q=0.9"); answer.Code != http.StatusOK || strings.Count(answer.Body.String(), "\n") < 3 {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
}

func TestClientSeesTheStatus(t *testing.T) {
	_, s := serve(t, Options{})
	tar := packed(t, folder(t, map[string]string{"bundle.yaml": "name: a\nprocess: cat\n"}), "a")
	if _, err := client(t, s, "wrong").BuildWithStream(tar); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("a wrong secret: %v", err)
	}
}

// zeros is a body of zeros that takes no memory.
type zeros struct{ left atomic.Int64 }

func newZeros() *zeros {
	z := new(zeros)
	z.left.Store(2 << 30)
	return z
}

func (z *zeros) Read(p []byte) (int, error) {
	left := z.left.Load()
	if left == 0 {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), left))
	clear(p[:n])
	z.left.Store(left - int64(n))
	return n, nil
}

func TestTooLarge(t *testing.T) {
	h, s := serve(t, Options{MaxBytes: 8 << 20})
	for _, chunked := range []bool{false, true} {
		body := newZeros()
		r, err := http.NewRequest(http.MethodPost, s.URL+"/build", body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(signatureHeader, sign(nil, secret))
		if !chunked {
			r.ContentLength = 2 << 30
		}
		answer, err := s.Client().Do(r)
		if err == nil {
			text, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			if answer.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(string(text), "8 MiB") {
				t.Errorf("chunked %v: %s %s", chunked, answer.Status, text)
			}
		}
		// A client that goes on sending may see its connection closed instead.
		if left := (2 << 30) - body.left.Load(); left > 64<<20 {
			t.Errorf("chunked %v: %d bytes were taken", chunked, left)
		}
		nothingLeft(t, h.options.Root)
	}
	// What the handler itself says, and how much it reads before.
	body := newZeros()
	r := httptest.NewRequest(http.MethodPost, "/build", body)
	r.ContentLength = 2 << 30
	r.Header.Set(signatureHeader, sign(nil, secret))
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusRequestEntityTooLarge || body.left.Load() != 2<<30 {
		t.Errorf("%d %s, %d bytes left", w.Code, w.Body, body.left.Load())
	}
	if w := post(h, newZeros(), sign(nil, secret), ""); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	exact := make([]byte, 8<<20)
	if w := post(h, bytes.NewReader(exact), sign(exact, secret), ""); w.Code != http.StatusOK {
		t.Errorf("a body of exactly the limit: %d %s", w.Code, w.Body)
	}
}

func TestOtherRequests(t *testing.T) {
	h, s := serve(t, Options{})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/build", nil))
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != http.MethodPost {
		t.Errorf("GET: %d %v", w.Code, w.Header())
	}
	answer, err := s.Client().Get(s.URL + "/publickey")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	if err != nil || answer.StatusCode != http.StatusNotFound || !strings.Contains(string(text), "build_secrets") {
		t.Errorf("publickey: %s %s, %v", answer.Status, text, err)
	}
	w = httptest.NewRecorder()
	if Disabled(w, nil); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "--payload-secret") {
		t.Errorf("disabled: %d %s", w.Code, w.Body)
	}
	broken := iotest.ErrReader(errors.New("connection reset"))
	if w := post(h, broken, sign(nil, secret), ""); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "did not arrive") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	nothingLeft(t, h.options.Root)
}

func TestNew(t *testing.T) {
	for _, o := range []Options{{Root: t.TempDir(), Secret: []byte("x"), MaxBytes: -1}, {Root: "/dev/null/x", Secret: []byte("x")}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}

func TestSlowBody(t *testing.T) {
	_, s := serve(t, Options{BodyTimeout: 50 * time.Millisecond})
	r, w := io.Pipe()
	defer w.Close()
	request, err := http.NewRequest(http.MethodPost, s.URL+"/build", r)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set(signatureHeader, sign(nil, secret))
	answer, err := s.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusRequestTimeout {
		t.Errorf("%s", answer.Status)
	}
}

// A request waits for other builds, but not for ever.
func TestWaitsForOthers(t *testing.T) {
	h, _ := serve(t, Options{BodyTimeout: 50 * time.Millisecond})
	for range maxBuilds {
		h.slots <- struct{}{}
	}
	body, err := os.ReadFile(packed(t, folder(t, map[string]string{"bundle.yaml": "name: a\nprocess: cat\n"}), "a"))
	if err != nil {
		t.Fatal(err)
	}
	w := post(h, bytes.NewReader(body), sign(body, secret), "")
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	h.options.BodyTimeout = time.Hour
	answered := make(chan *httptest.ResponseRecorder)
	go func() { answered <- post(h, bytes.NewReader(body), sign(body, secret), "") }()
	h.release()
	var result builder.BuildResult
	if err := json.Unmarshal((<-answered).Body.Bytes(), &result); err != nil || result.Status != builder.BuildSuccess {
		t.Errorf("%+v, %v", result, err)
	}
	h.release()
}
