package origin

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// remoteOf is the only file of a server.
func remoteOf(s *httptest.Server) remote {
	get := func(ctx context.Context) (*http.Request, error) {
		return http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	}
	return remote{client: &Client{client: s.Client()}, ranges: true, request: get}
}

// TestRangedOverTLS: a read of TLS brings few bytes, and a stream keeps a whole piece all the same.
func TestRangedOverTLS(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), rangedFrom/16+1)
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"one"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}))
	defer s.Close()
	m := remoteOf(s)
	o := &Object{Size: int64(len(content)), Tag: `"one"`}
	const from = 5
	body := m.openRanged(t.Context(), o, from)
	defer body.Close()
	r := body.(*ranged)
	for i, stream := range r.streams {
		for end := time.Now().Add(time.Minute); len(stream) < cap(stream); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the stream %d has %d of %d parts", i, len(stream), cap(stream))
			}
		}
		if a := <-stream; len(a.bytes) != part {
			t.Errorf("a part of the stream %d has %d bytes: %v", i, len(a.bytes), a.err)
		} else if at := from + i*piece; !bytes.Equal(a.bytes, content[at:at+part]) {
			t.Errorf("the stream %d does not begin at byte %d", i, at)
		}
	}
}

// TestRangedWithoutETags: nothing tells that ranges are of one content, so the whole comes over one connection.
func TestRangedWithoutETags(t *testing.T) {
	for tag, want := range map[string]bool{`"one"`: true, `W/"one"`: false, "": false} {
		if o := (&Object{Size: rangedFrom, Tag: tag}); o.rangeable(0) != want || o.rangeable(1) {
			t.Errorf("the tag %q", tag)
		}
	}
}

// TestRangedAfterAnotherLength: more than was asked for is not taken, and less is asked for again.
func TestRangedAfterAnotherLength(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), rangedFrom/16)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var at, last int
		if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &at, &last); err != nil {
			t.Error(err)
			return
		}
		end := min(at+3<<20, len(content))
		if at%piece == 0 && at > 0 {
			end = min(last+1+100, len(content))
		}
		w.Header().Set("ETag", `"one"`)
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", at, end-1, len(content)))
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(content[at:end])
	}))
	defer s.Close()
	m := remoteOf(s)
	body := m.openRanged(t.Context(), &Object{Size: int64(len(content)), Tag: `"one"`}, 0)
	defer body.Close()
	got, err := io.ReadAll(body)
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d of %d bytes: %v", len(got), len(content), err)
	}
}
