package fetch_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/faas-infer/faas-infer/model/source/origin"
)

// bucket starts versitygw with a bucket "models", and returns its address and the credentials of a secret.
func bucket(t *testing.T) (endpoint string, secret []byte, dir string) {
	t.Helper()
	build := exec.CommandContext(t.Context(), "../../../scripts/versitygw.sh")
	build.Stderr = os.Stderr
	out, err := build.Output()
	if err != nil {
		t.Skipf("SKIPPED, THE TESTS ON S3 DO NOT RUN: scripts/versitygw.sh: %v", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	dir = t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "models"), 0o755); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	server := exec.Command(filepath.Join(strings.TrimSpace(string(out)), "versitygw"), "--access", "key", "--secret", "secret", "--port", address, "posix", dir)
	server.Stdout, server.Stderr = &log, &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if connection, err := net.Dial("tcp", address); err == nil {
			_ = connection.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatalf("versitygw does not listen: %s", &log)
		}
	}
	return "http://" + address, []byte("[default]\naws_access_key_id = key\naws_secret_access_key = secret\n"), dir
}

// TestS3 fetches from a real server of S3: a file, a name that has to be escaped, and a folder.
func TestS3(t *testing.T) {
	endpoint, secret, dir := bucket(t)
	content := random(9 << 20)
	for name, data := range map[string][]byte{"team/model.onnx": content, "team/my net+1.onnx": content[:99], "folder/model.onnx": content[:5000], "folder/sub/weights.bin": content[:77]} {
		file := filepath.Join(dir, "models", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, data, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	with, err := origin.ReadCredentials(map[string][]byte{"team-model-s3": secret, "api-key": []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, nil)
	query := "?endpoint=" + endpoint
	for uri, want := range map[string][]byte{
		"s3://models/team/model.onnx" + query + "#sha256=" + sumOf(content): content,
		"s3://models/team/model.onnx" + query:                               content,
		"s3://models/team/my%20net+1.onnx" + query:                          content[:99],
		"s3://models/folder/" + query:                                       content[:5000],
		"gs://models/team/model.onnx" + query:                               content,
	} {
		e, err := c.Fetch(t.Context(), parse(t, uri), with, nil)
		if err != nil {
			t.Errorf("%s: %v", uri, err)
			continue
		}
		hasModel(t, e, want)
		if strings.Contains(uri, "/folder/") {
			if got, err := os.ReadFile(filepath.Join(e.Dir, "sub/weights.bin")); err != nil || len(got) != 77 {
				t.Error(len(got), err)
			}
			if again, err := c.Fetch(t.Context(), parse(t, uri), with, nil); err != nil || again != e {
				t.Errorf("an unchanged folder: %v, %v", again, err)
			}
		}
	}
	refuses(t, c, "s3://models/team/model.onnx"+query, "model-s3")
	if _, err := c.Fetch(t.Context(), parse(t, "s3://models/none.onnx"+query), with, nil); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
	if _, err := c.Fetch(t.Context(), parse(t, "s3://models/none/"+query), with, nil); err == nil || !strings.Contains(err.Error(), "no file below") {
		t.Error(err)
	}
}

// TestLargeObjects: a large object of S3 comes over several connections, also if one breaks or if the server knows no
// ranges, and not if it is replaced meanwhile.
func TestLargeObjects(t *testing.T) {
	content := random(45<<20 + 7)
	for _, c := range []struct {
		name, part string
		serve      func(w http.ResponseWriter, r *http.Request, number int32)
	}{
		{"ranges", "", nil},
		{"a break", "", func(w http.ResponseWriter, r *http.Request, number int32) {
			if number == 4 {
				w.Header().Set("Content-Range", strings.Replace(r.Header.Get("Range"), "=", " ", 1)+fmt.Sprintf("/%d", len(content)))
				w.Header().Set("Content-Length", "8000000")
				w.WriteHeader(http.StatusPartialContent)
				panic(http.ErrAbortHandler)
			}
		}},
		{"no ranges", "", func(_ http.ResponseWriter, r *http.Request, _ int32) { r.Header.Del("Range") }},
		{"keyed", "", func(w http.ResponseWriter, _ *http.Request, _ int32) {
			w.Header().Set("X-Amz-Server-Side-Encryption", "aws:kms")
		}},
		{"replaced", "replaced while", func(w http.ResponseWriter, _ *http.Request, number int32) {
			if number == 4 {
				w.Header().Set("ETag", `"two"`)
			}
		}},
	} {
		var asked atomic.Int32
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"one"`)
			if number := asked.Add(1); c.serve != nil {
				c.serve(w, r, number)
			}
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
		}))
		cache, uri := open(t, nil), "s3://models/m.onnx?endpoint="+s.URL
		if c.part != "" {
			refuses(t, cache, uri, c.part)
		} else {
			hasModel(t, mustFetch(t, cache, uri), content)
		}
		if asked.Load() < 4 {
			t.Errorf("%s: %d requests", c.name, asked.Load())
		}
		s.Close()
	}
}

// push stores a blob or a manifest in a registry.
func push(t *testing.T, base, path, media string, content []byte) {
	t.Helper()
	method, address := http.MethodPut, base+path
	if media == "" {
		method, address = http.MethodPost, base+path+"/uploads/?digest=sha256:"+sumOf(content)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, address, bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", media)
	a, err := http.DefaultClient.Do(r)
	if err != nil || a.StatusCode != http.StatusCreated {
		t.Fatal(path, a, err)
	}
	_ = a.Body.Close()
}

// TestArtefacts fetches from a real registry: artefacts of ORAS and of ModelPack, by tag, digest and index.
func TestArtefacts(t *testing.T) {
	s := httptest.NewServer(registry.New())
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	host := strings.TrimPrefix(s.URL, "http://")
	content := random(5 << 20)
	push(t, s.URL, "/v2/team/m/blobs", "", content)
	push(t, s.URL, "/v2/team/m/blobs", "", []byte("{}"))
	manifest := func(layers ...map[string]any) []byte {
		text, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
			"config": map[string]any{"mediaType": "application/vnd.oci.empty.v1+json", "digest": "sha256:" + sumOf([]byte("{}")), "size": 2}, "layers": layers})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	layer := func(media, key, name string) map[string]any {
		return map[string]any{"mediaType": media, "digest": "sha256:" + sumOf(content), "size": len(content), "annotations": map[string]string{key: name}}
	}
	const manifests, kind = "/v2/team/m/manifests/", "application/vnd.oci.image.manifest.v1+json"
	oras := manifest(layer("application/octet-stream", "org.opencontainers.image.title", "model.onnx"))
	push(t, s.URL, manifests+"oras", kind, oras)
	push(t, s.URL, manifests+"pack", kind, manifest(layer("application/vnd.cncf.model.weight.v1.raw", "org.cncf.model.filepath", "onnx/model.onnx"),
		layer("application/vnd.cncf.model.doc.v1.raw", "org.cncf.model.filepath", "README.md")))
	push(t, s.URL, manifests+"image", kind, manifest(map[string]any{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": "sha256:" + sumOf(content), "size": len(content)}))
	push(t, s.URL, manifests+"evil", kind, manifest(layer("application/octet-stream", "org.opencontainers.image.title", "../model.onnx")))
	index := func(platform string) []byte {
		return fmt.Appendf(nil, `{"schemaVersion":2,"manifests":[{"mediaType":%q,"size":%d,"digest":"sha256:%s","platform":{"os":"linux","architecture":%q}}]}`, kind, len(oras), sumOf(oras), platform)
	}
	push(t, s.URL, manifests+"index", "application/vnd.oci.image.index.v1+json", index("amd64"))
	push(t, s.URL, manifests+"other", "application/vnd.oci.image.index.v1+json", index("s390x"))
	c := open(t, nil)
	for _, uri := range []string{"/team/m:oras", "/team/m:pack", "/team/m:index", "/team/m@sha256:" + sumOf(oras)} {
		hasModel(t, mustFetch(t, c, "oci://"+host+uri), content)
	}
	refuses(t, c, "oci://"+host+"/team/m:other", "linux/s390x")
	refuses(t, c, "oci://"+host+"/team/m:image", "no layer with a model")
	refuses(t, c, "oci://"+host+"/team/m:evil", "leads out")
	refuses(t, c, "oci://"+host+"/team/m:absent", "no such file")
}

// TestHub fetches from a server with the interface of Hugging Face's hub, which redirects to where the file is. What the
// model does not need is not fetched.
func TestHub(t *testing.T) {
	content := random(3 << 20)
	commit := strings.Repeat("a", 40)
	mux := http.NewServeMux()
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("the token went to another host")
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}))
	defer files.Close()
	resolve := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer hf_token" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("X-Linked-Etag", `"`+sumOf(content)+`"`)
		w.Header().Set("X-Repo-Commit", commit)
		http.Redirect(w, r, files.URL+"/blob", http.StatusFound)
	}
	mux.HandleFunc("/owner/net/resolve/main/onnx/model.onnx", resolve)
	mux.HandleFunc("/owner/net/resolve/"+commit+"/onnx/model.onnx", resolve)
	mux.HandleFunc("/api/models/owner/net/revision/main", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"sha":%q}`, commit) })
	mux.HandleFunc("/api/models/owner/net/tree/"+commit+"/onnx", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `[{"type":"directory","path":"onnx"},{"type":"file","path":"onnx/model.onnx","size":%d,"oid":"x","lfs":{"oid":%q}}`, len(content), sumOf(content))
		for _, unused := range []string{"model_O2.onnx", "model_O2.onnx_data", "pytorch_model.bin"} { // They are not there.
			fmt.Fprintf(w, `,{"type":"file","path":"onnx/%s","size":%d,"oid":"x","lfs":{"oid":%q}}`, unused, 1<<50, sumOf([]byte(unused)))
		}
		fmt.Fprint(w, "]")
	})
	hub := httptest.NewServer(mux)
	defer hub.Close()
	c := open(t, nil)
	with, err := origin.ReadCredentials(map[string][]byte{"model-token": []byte("hf_token\n")})
	if err != nil {
		t.Fatal(err)
	}
	for _, uri := range []string{"hf://owner/net/onnx/model.onnx", "hf://owner/net@main/onnx/"} {
		e, err := c.Fetch(t.Context(), parse(t, uri+"?endpoint="+hub.URL), with, nil)
		if err != nil {
			t.Fatal(uri, err)
		}
		hasModel(t, e, content)
	}
	refuses(t, c, "hf://owner/net/onnx/model.onnx?endpoint="+hub.URL, "model-token")
}

func TestReadCredentialsRefuses(t *testing.T) {
	for name, value := range map[string]string{"model-s3": "x", "a-model-token": "two words", "model-registry": "{}"} {
		if _, err := origin.ReadCredentials(map[string][]byte{name: []byte(value)}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if origin.SecretCounts("my-token") || !origin.SecretCounts("x-model-token") {
		t.Error("names of secrets")
	}
}

// TestTokensExpire: a registry whose token is over before the file is asked again for one.
func TestTokensExpire(t *testing.T) {
	content := random(1 << 20)
	sum := "sha256:" + sumOf(content)
	var given atomic.Int32
	var s *httptest.Server
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch name, password, _ := r.BasicAuth(); {
		case r.URL.Path == "/token" && name == "me" && password == "pass":
			fmt.Fprintf(w, `{"token":"t%d"}`, given.Add(1))
		case strings.Contains(r.URL.Path, "/manifests/") && r.Header.Get("Authorization") == "Bearer t1":
			fmt.Fprintf(w, `{"layers":[{"digest":%q,"size":%d,"annotations":{"org.opencontainers.image.title":"m.onnx"}}]}`, sum, len(content))
		case strings.HasSuffix(r.URL.Path, "/blobs/"+sum) && r.Header.Get("Authorization") == "Bearer t2":
			_, _ = w.Write(content)
		default:
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+s.URL+`/token",service="s"`)
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer s.Close()
	host := strings.TrimPrefix(s.URL, "http://")
	with, err := origin.ReadCredentials(map[string][]byte{"model-registry": fmt.Appendf(nil, `{"auths":{%q:{"username":"me","password":"pass"}}}`, host)})
	if err != nil {
		t.Fatal(err)
	}
	e, err := open(t, nil).Fetch(t.Context(), parse(t, "oci://"+host+"/team/m:1"), with, nil)
	if err != nil {
		t.Fatal(err)
	}
	hasModel(t, e, content)
}

// TestKeyedTag: the ETag of an object that S3 encrypts with a key of KMS is no MD5.
func TestKeyedTag(t *testing.T) {
	content := random(1 << 10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("list-type") {
			fmt.Fprintf(w, `<R><Contents><Key>d/m.onnx</Key><Size>%d</Size><ETag>"%032d"</ETag></Contents></R>`, len(content), 7)
			return
		}
		w.Header().Set("X-Amz-Server-Side-Encryption", "aws:kms")
		if strings.HasPrefix(r.URL.Path, "/plain/") {
			w.Header().Set("X-Amz-Server-Side-Encryption", "AES256")
		}
		w.Header().Set("ETag", fmt.Sprintf(`"%032d"`, 7))
		_, _ = w.Write(content)
	}))
	defer s.Close()
	c := open(t, nil)
	for _, uri := range []string{"s3://models/d/m.onnx", "s3://models/d/"} {
		hasModel(t, mustFetch(t, c, uri+"?endpoint="+s.URL), content)
	}
	refuses(t, c, "s3://plain/d/mod.onnx?endpoint="+s.URL, "MD5")
}

// TestCredentialsStayPrivate: credentials go over http:// to hosts only that the provider trusts.
func TestCredentialsStayPrivate(t *testing.T) {
	with, err := origin.ReadCredentials(map[string][]byte{"model-token": []byte("secret")})
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, nil)
	for _, uri := range []string{"http://models.example.com/m.onnx", "hf://owner/net/m.onnx?endpoint=http://models.example.com"} {
		_, err := c.Fetch(t.Context(), parse(t, uri+"#sha256="+sumOf(nil)), with, nil)
		if err == nil || !strings.Contains(err.Error(), "credentials would go to models.example.com over http://") {
			t.Error(uri, err)
		}
	}
}
