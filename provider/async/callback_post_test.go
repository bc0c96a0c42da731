package async

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

func parse(t testing.TB, text string) *url.URL {
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func serve(t testing.TB, handle http.HandlerFunc) string {
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	return s.URL
}

func poster(t testing.TB, o CallbackOptions) *Poster {
	p := NewPoster(o)
	t.Cleanup(p.Close)
	return p
}

// A redirect must not lead to a private address, by address or by name, in any notation.
func TestRedirectInside(t *testing.T) {
	inside := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a redirect led inside") })
	port := parse(t, inside).Port()
	for _, to := range []string{inside, "http://localhost:" + port + "/", "http://127.1:" + port, "http://[::1]:" + port, "http://0.0.0.0:" + port,
		"http://[::ffff:127.0.0.1]:" + port, "http://2130706433:" + port, "http://169.254.169.254/latest", "//127.0.0.1:" + port, "file:///etc/passwd", "http:///x"} {
		for _, status := range []int{301, 302, 307, 308} {
			from := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", to)
				w.WriteHeader(status)
			})
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			code, err := poster(t, CallbackOptions{}).Post(ctx, parse(t, from), &CallbackResult{Status: 200})
			cancel()
			if err == nil {
				t.Errorf("%d to %s: answered %d", status, to, code)
			}
			var refused *CallbackRefusedError
			// Some of these are not even names that can be looked up.
			if !errors.As(err, &refused) && !strings.Contains(err.Error(), "not reached") {
				t.Errorf("%d to %s: %v", status, to, err)
			}
		}
	}
}

// If private redirects are allowed, the result is posted again at each redirect.
func TestRedirectAllowed(t *testing.T) {
	got := make(chan string, 1)
	end := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.Method + " " + string(body)
	})
	for _, status := range []int{301, 302, 307, 308} {
		from := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, end, status) })
		code, err := poster(t, CallbackOptions{AllowPrivateRedirects: true}).Post(t.Context(), parse(t, from), &CallbackResult{Status: 200, Body: strings.NewReader("result"), Size: 6})
		if err != nil || code != 200 {
			t.Errorf("%d: %d %v", status, code, err)
			continue
		}
		if s := <-got; s != "POST result" {
			t.Errorf("%d: arrived as %q", status, s)
		}
	}
	loop := ""
	loop = serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, loop, 307) })
	if _, err := poster(t, CallbackOptions{AllowPrivateRedirects: true}).Post(t.Context(), parse(t, loop), &CallbackResult{}); err == nil || !strings.Contains(err.Error(), "more than 3") {
		t.Errorf("a loop: %v", err)
	}
	see := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, end, 303) })
	if code, err := poster(t, CallbackOptions{}).Post(t.Context(), parse(t, see), &CallbackResult{}); err != nil || code != 303 {
		t.Errorf("303: %d %v", code, err)
	}
}

func TestForbidPrivate(t *testing.T) {
	inside := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a forbidden URL was called") })
	_, err := poster(t, CallbackOptions{ForbidPrivate: true}).Post(t.Context(), parse(t, inside), &CallbackResult{})
	var refused *CallbackRefusedError
	if !errors.As(err, &refused) {
		t.Errorf("a private URL: %v", err)
	}
}

// No callback reaches a metadata service, by whatever form of its address.
func TestNoMetadata(t *testing.T) {
	for _, to := range []string{"169.254.169.254", "[::ffff:169.254.169.254]", "[::a9fe:a9fe]", "[::ffff:0:a9fe:a9fe]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::a9fe:a9fe]", "[fd00:ec2::254]",
		"169.254.170.2", "100.100.100.200", "2852039166"} {
		_, err := poster(t, CallbackOptions{AllowPrivateRedirects: true}).Post(t.Context(), parse(t, "http://"+to+"/latest"), &CallbackResult{Status: 200})
		var refused *CallbackRefusedError
		if !errors.As(err, &refused) && !(to == "2852039166" && err != nil) { // Some resolvers take that for a name.
			t.Errorf("%s: %v", to, err)
		}
	}
}

// An endless answer is not read completely.
func TestEndlessAnswer(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		block := make([]byte, 64<<10)
		for {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	})
	started := time.Now()
	code, err := poster(t, CallbackOptions{Timeout: time.Hour}).Post(t.Context(), parse(t, url), &CallbackResult{})
	if err != nil || code != 200 || time.Since(started) > time.Minute {
		t.Errorf("%d %v after %v", code, err, time.Since(started))
	}
}
