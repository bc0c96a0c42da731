package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxBundle is the most bytes of all files together, compressed as they are sent.
const maxBundle = 200 << 10

func get(t *testing.T, target string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	Serve(w, r)
	return w
}

func TestBundleIsSmall(t *testing.T) {
	sum := 0
	for _, f := range load() {
		sum += len(f.compressed)
	}
	if sum == 0 || sum > maxBundle {
		t.Errorf("the console has %d bytes compressed, want at most %d", sum, maxBundle)
	}
}

// Serve sends each file plain and compressed, with a tag for each form, and with what keeps the page to
// its own origin.
func TestServe(t *testing.T) {
	for name, f := range load() {
		target := Prefix + name
		if name == "index.html" {
			target = Prefix
		}
		plain, packed := get(t, target), get(t, target, "Accept-Encoding", "br, gzip")
		unpacked, err := gzip.NewReader(bytes.NewReader(packed.Body.Bytes()))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text, err := io.ReadAll(unpacked)
		if err != nil || !bytes.Equal(text, plain.Body.Bytes()) || !bytes.Equal(text, f.plain) {
			t.Errorf("%s: %v; the compressed file differs from the plain one", name, err)
		}
		for _, w := range []*httptest.ResponseRecorder{plain, packed} {
			h := w.Header()
			want := map[string]string{"Content-Type": f.kind, "X-Content-Type-Options": "nosniff", "Vary": "Accept-Encoding",
				"Cache-Control": "no-cache", "Referrer-Policy": "same-origin", "Content-Security-Policy": policy}
			for key, value := range want {
				if w.Code != 200 || h.Get(key) != value {
					t.Errorf("%s: %d, %s: %q, want %q", name, w.Code, key, h.Get(key), value)
				}
			}
		}
		tag := packed.Header().Get("ETag")
		if tag == plain.Header().Get("ETag") {
			t.Errorf("%s: both forms have the tag %s", name, tag)
		}
		w := get(t, target, "Accept-Encoding", "gzip", "If-None-Match", tag)
		if w.Code != http.StatusNotModified || w.Body.Len() != 0 {
			t.Errorf("%s with its tag: %d, %d bytes", name, w.Code, w.Body.Len())
		}
	}
	if policy != "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'" {
		t.Errorf("the policy allows more than the page's own origin: %s", policy)
	}
}

func TestServeRefuses(t *testing.T) {
	for _, target := range []string{"/ui/none.js", "/ui/static/main.js", "/ui/../console.go", "/ui/vendor/", "/ui/%00"} {
		w := get(t, target)
		if w.Code != http.StatusNotFound || w.Header().Get("Content-Security-Policy") != policy {
			t.Errorf("%s: %d %v", target, w.Code, w.Header())
		}
	}
	w := httptest.NewRecorder()
	Serve(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, Prefix, nil))
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d %v", w.Code, w.Header())
	}
}

func TestAcceptsGzip(t *testing.T) {
	for header, want := range map[string]bool{
		"": false, "gzip": true, "br, gzip": true, "gzip;q=0.5": true,
		"gzip; q=0": false, "gzip;q=0.000": false, "x-gzip": false, "identity": false,
	} {
		if got := acceptsGzip(http.Header{"Accept-Encoding": {header}}); got != want {
			t.Errorf("%q: %v, want %v", header, got, want)
		}
	}
}

// The vendored files are those that vendor/README.md names, with its sums.
func TestVendored(t *testing.T) {
	files := load()
	readme := string(files["vendor/README.md"].plain)
	named := []string{"README.md"}
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|.*\\]\\(([^)]+)\\) \\| `([0-9a-f]{64})` \\|$")
	for _, row := range rows.FindAllStringSubmatch(readme, -1) {
		name, licence, want := row[1], row[2], row[3]
		named = append(named, name, licence)
		sum := sha256.Sum256(files["vendor/"+name].plain)
		if got := hex.EncodeToString(sum[:]); got != want {
			t.Errorf("%s has the sum %s, and vendor/README.md says %s", name, got, want)
		}
		if len(files["vendor/"+licence].plain) == 0 {
			t.Errorf("%s lies there without its licence %s", name, licence)
		}
	}
	for name := range files {
		if base, vendored := strings.CutPrefix(name, "vendor/"); vendored && !slices.Contains(named, base) {
			t.Errorf("vendor/README.md does not name %s", base)
		}
	}
}

// The page loads nothing from another host, has no script or style in its HTML, and never takes text for
// HTML. Every file that one imports exists, and those that the first view needs are loaded at once.
func TestSources(t *testing.T) {
	files := load()
	index := string(files["index.html"].plain)
	inline := regexp.MustCompile(`(?i)<style|\sstyle=|\son[a-z]+=|<script[^>]*>[^<]`)
	if found := inline.FindString(index); found != "" {
		t.Errorf("index.html has %q", found)
	}
	imports := regexp.MustCompile(`(?m)(?:from\s*|import\()"(\./[^"]+)"`)
	html := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc`)
	for name, f := range files {
		kind := path.Ext(name)
		if kind != ".js" && kind != ".mjs" && kind != ".css" && kind != ".html" {
			continue
		}
		text := string(f.plain)
		for _, m := range imports.FindAllStringSubmatch(text, -1) {
			if target := path.Join(path.Dir(name), m[1]); files[target].plain == nil {
				t.Errorf("%s imports %s, which does not exist", name, target)
			}
		}
		if strings.HasPrefix(name, "vendor/") {
			continue // Preact can set innerHTML; none of our files asks it to.
		}
		if found := html.FindString(text); found != "" {
			t.Errorf("%s has %s", name, found)
		}
		for _, m := range regexp.MustCompile(`https?://[^\s"'`+"`"+`]+`).FindAllString(text, -1) {
			if m != "https://github.com/faas-infer/faas-infer\\nfaas-cli" { // A command that the page shows.
				t.Errorf("%s names %s", name, m)
			}
		}
	}
	needed := map[string]bool{}
	var follow func(name string)
	follow = func(name string) {
		if needed[name] {
			return
		}
		needed[name] = true
		for _, m := range regexp.MustCompile(`from\s*"(\./[^"]+)"`).FindAllStringSubmatch(string(files[name].plain), -1) {
			follow(path.Join(path.Dir(name), m[1]))
		}
	}
	follow("main.js")
	var preloaded []string
	for _, m := range regexp.MustCompile(`rel="modulepreload" href="([^"]+)"`).FindAllStringSubmatch(index, -1) {
		preloaded = append(preloaded, m[1])
	}
	if want := slices.Sorted(maps.Keys(needed)); !slices.Equal(preloaded, want) {
		t.Errorf("index.html preloads %v, and main.js needs %v", preloaded, want)
	}
}
