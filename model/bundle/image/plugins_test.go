package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/rs/zerolog"
)

// cloud is a plugin: a program that counts its runs in the file runs, keeps its last request, and
// writes what the file says has.
type cloud struct {
	t   *testing.T
	dir string
	log bytes.Buffer
}

const providersText = `apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
  - name: cloud
    apiVersion: credentialprovider.kubelet.k8s.io/v1
    matchImages: ["*.cloud.example", "127.0.0.1:*", "r.example/team"]
    defaultCacheDuration: 1h
    args: [get, --now]
    env: [{name: REGION, value: west}]
`

func newCloud(t *testing.T, says string) *cloud {
	t.Helper()
	c := &cloud{t: t, dir: t.TempDir()}
	c.write("cloud", "#!/bin/sh\ncd '"+c.dir+"'\necho \"$REGION $*\" >> runs\ncat > request\n[ -e fail ] && { cat fail >&2; exit 1; }\n[ -e hang ] && exec sleep 1000\ncat says\n")
	if err := os.Chmod(filepath.Join(c.dir, "cloud"), 0o755); err != nil {
		t.Fatal(err)
	}
	c.write("says", says)
	return c
}

func (c *cloud) write(file, text string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, file), []byte(text), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cloud) read(file string) string {
	text, _ := os.ReadFile(filepath.Join(c.dir, file))
	return string(text)
}

func (c *cloud) open() *Plugins {
	c.t.Helper()
	c.write("config.yaml", providersText)
	p, err := OpenPlugins(filepath.Join(c.dir, "config.yaml"), c.dir, zerolog.New(&c.log))
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

// user returns the user as whom an image is asked for, "" for nobody.
func user(t *testing.T, k authn.Keychain, image string) (string, error) {
	t.Helper()
	ref, err := name.ParseReference(image)
	if err != nil {
		t.Fatal(err)
	}
	auth, err := authn.Resolve(t.Context(), k, ref.Context())
	if err != nil {
		return "", err
	}
	config, err := authn.Authorization(t.Context(), auth)
	return config.Username, err
}

func answered(kind, lasts string) string {
	return fmt.Sprintf(`{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","cacheKeyType":%q%s,
		"auth":{"*.cloud.example":{"username":"any","password":"p"},"a.cloud.example":{"username":"a","password":"p"},"r.example/team":{"username":"team","password":"p"}}}`, kind, lasts)
}

// A plugin is asked for the images of its file, in the kubelet's protocol, and its answer fits an image
// as a pull secret does.
func TestPlugins(t *testing.T) {
	c := newCloud(t, answered("Image", ""))
	p := c.open()
	for image, want := range map[string]string{"a.cloud.example/m": "a", "b.cloud.example/m": "any", "r.example/team/m": "team", "r.example/other": "", "alpine": ""} {
		if got, err := user(t, p, image); err != nil || got != want {
			t.Errorf("%s is asked as %q, %v, want %q", image, got, err, want)
		}
	}
	if got := c.read("runs"); got != "west get --now\nwest get --now\nwest get --now\n" {
		t.Errorf("runs %q", got)
	}
	if _, err := user(t, p, "z.cloud.example/deep/m:v1"); err != nil {
		t.Fatal(err)
	}
	if got := c.read("request"); got != `{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"z.cloud.example/deep/m","kind":"CredentialProviderRequest"}` {
		t.Errorf("asked %s", got)
	}
	// What a pull secret names comes first.
	named, err := NewKeychain([]byte(`{"auths":{"a.cloud.example":{"username":"secret","password":"p"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	both := authn.NewMultiKeychain(named, p)
	for image, want := range map[string]string{"a.cloud.example/m": "secret", "b.cloud.example/m": "any"} {
		if got, err := user(t, both, image); err != nil || got != want {
			t.Errorf("%s is asked as %q, %v, want %q", image, got, err, want)
		}
	}
}

// An answer is kept for the images and the time that it says.
func TestPluginsRemember(t *testing.T) {
	for what, test := range map[string]struct {
		says string
		// runs is how often the plugin runs for two images of one registry and one of another, each
		// asked for twice, and again two hours later.
		runs int
	}{
		"an image":    {answered("Image", ""), 6},
		"a registry":  {answered("Registry", ""), 4},
		"all":         {answered("Global", ""), 2},
		"for longer":  {answered("Global", `,"cacheDuration":"3h"`), 1},
		"not at all":  {answered("Image", `,"cacheDuration":"0s"`), 12},
		"for seconds": {answered("Registry", `,"cacheDuration":"10s"`), 4},
	} {
		c := newCloud(t, test.says)
		p := c.open().plugins[0]
		for _, now := range []time.Time{time.Unix(0, 0), time.Unix(7200, 0)} {
			for _, image := range []string{"a.cloud.example/m", "a.cloud.example/n", "b.cloud.example/m"} {
				ref, err := name.ParseReference(image)
				if err != nil {
					t.Fatal(err)
				}
				for range 2 {
					if _, err := p.logins(t.Context(), ref.Context(), func() time.Time { return now }); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if got := strings.Count(c.read("runs"), "\n"); got != test.runs {
			t.Errorf("%s: %d runs, want %d", what, got, test.runs)
		}
		if n := len(p.known); n > 3 {
			t.Errorf("%s: %d answers are kept", what, n)
		}
	}
}

// A plugin that fails, or says what nobody understands, is an error that quotes no password. Only the
// log has what it wrote to its standard error.
func TestPluginsThatFail(t *testing.T) {
	for want, says := range map[string]string{
		"cloud: exit status 1; the log has":    "",
		"not a CredentialProviderResponse":     `{"auth":"my password"}`,
		"the cacheKeyType \"Planet\"":          answered("Planet", ""),
		"not a CredentialProviderResponse of ": strings.Replace(answered("Image", ""), "io/v1", "io/v2", 1),
	} {
		c := newCloud(t, says)
		p := c.open()
		if says == "" {
			c.write("fail", "no role for my password")
		}
		if _, err := user(t, p, "a.cloud.example/m"); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "my password") {
			t.Errorf("%v, want %s", err, want)
		}
		if logged := strings.Contains(c.log.String(), "no role for my password"); logged != (says == "") {
			t.Errorf("%s: the log is %q", want, c.log.String())
		}
	}
	c := newCloud(t, strings.Repeat("x", 2*maxPluginOutput))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := c.open()
	ref, _ := name.ParseReference("a.cloud.example/m")
	if _, err := p.ResolveContext(t.Context(), ref.Context()); err == nil {
		t.Error("endless output is an answer")
	}
	if _, err := p.ResolveContext(ctx, ref.Context()); err == nil {
		t.Error("a cancelled question has an answer")
	}
}

// A plugin that hangs is asked once for all images that wait for it, and one that fails once for an
// image. After a while it is asked again.
func TestPluginsFailBriefly(t *testing.T) {
	for what, failing := range map[string]struct {
		how string
		// runs is how often it fails for three images, each asked for twice.
		runs int
	}{"hangs": {"hang", 1}, "fails": {"fail", 3}} {
		c := newCloud(t, answered("Image", ""))
		c.write(failing.how, "")
		p, now := c.open().plugins[0], time.Unix(0, 0)
		ask := func(images ...string) (errs []error) {
			for _, image := range images {
				ref, err := name.ParseReference(image)
				if err != nil {
					t.Fatal(err)
				}
				_, err = p.logins(t.Context(), ref.Context(), func() time.Time { return now })
				errs = append(errs, err)
			}
			return errs
		}
		p.patience = 200 * time.Millisecond
		if failing.how == "fail" {
			p.patience = pluginPatience
		}
		for _, err := range ask("a.cloud.example/m", "b.cloud.example/m", "a.cloud.example/n", "a.cloud.example/m", "b.cloud.example/m", "a.cloud.example/n") {
			if err == nil || errors.Is(err, context.DeadlineExceeded) != (failing.how == "hang") {
				t.Errorf("it %s: %v", what, err)
			}
		}
		if got := strings.Count(c.read("runs"), "\n"); got > failing.runs {
			t.Errorf("it %s: %d runs", what, got)
		}
		if err := os.Remove(filepath.Join(c.dir, failing.how)); err != nil {
			t.Fatal(err)
		}
		p.patience, now = pluginPatience, now.Add(failureLasts)
		for _, err := range ask("a.cloud.example/m", "b.cloud.example/m") {
			if err != nil {
				t.Errorf("it %s no more: %v", what, err)
			}
		}
	}
}

// A question that has ended waits for no other's answer, and its end is not the plugin's failure.
func TestPluginsWaitWithTheCaller(t *testing.T) {
	p := newCloud(t, answered("Global", "")).open()
	ended, end := context.WithCancel(t.Context())
	end()
	ref, err := name.ParseReference("a.cloud.example/m")
	if err != nil {
		t.Fatal(err)
	}
	p.plugins[0].running <- struct{}{} // Another question hangs.
	if _, err := p.ResolveContext(ended, ref.Context()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-p.plugins[0].running
	if _, err := p.ResolveContext(ended, ref.Context()); err == nil {
		t.Error("an ended question has an answer")
	}
	if _, err := p.ResolveContext(t.Context(), ref.Context()); err != nil {
		t.Error(err)
	}
}

func TestOpenPluginsRefuses(t *testing.T) {
	c := newCloud(t, "")
	for want, replace := range map[string][2]string{
		"must be a CredentialProviderConfig": {"kind: CredentialProviderConfig", "kind: Pod"},
		"of kubelet.config.k8s.io/v1":        {"kubelet.config.k8s.io/v1", "v1"},
		"unknown field":                      {"args:", "arguments:"},
		"matchImages is empty":               {`["*.cloud.example", "127.0.0.1:*", "r.example/team"]`, "[]"},
		"defaultCacheDuration is missing":    {"    defaultCacheDuration: 1h\n", ""},
		"is no duration":                     {"1h", "-1h"},
		"apiVersion is \"v7\"":               {"credentialprovider.kubelet.k8s.io/v1", "v7"},
		"has a slash":                        {"name: cloud", "name: ../cloud"},
		"no such file":                       {"name: cloud", "name: absent"},
		"tokenAttributes is set":             {"args:", "tokenAttributes: {requireServiceAccount: true}\n    args:"},
	} {
		c.write("config.yaml", strings.Replace(providersText, replace[0], replace[1], 1))
		if _, err := OpenPlugins(filepath.Join(c.dir, "config.yaml"), c.dir, zerolog.Nop()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	c.write("config.yaml", "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\n")
	if _, err := OpenPlugins(filepath.Join(c.dir, "config.yaml"), c.dir, zerolog.Nop()); err == nil || !strings.Contains(err.Error(), "providers is empty") {
		t.Error(err)
	}
	if _, err := OpenPlugins(filepath.Join(c.dir, "absent"), c.dir, zerolog.Nop()); err == nil {
		t.Error("an absent file is a config")
	}
}

// privateRegistry is a registry that lets in one user only, and an image in it.
func privateRegistry(t *testing.T) (image string) {
	t.Helper()
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "p" {
			w.Header().Set("WWW-Authenticate", `Basic realm="cloud"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		images.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	image = strings.TrimPrefix(server.URL, "http://") + "/team/m:v1"
	i, err := random.Image(100, 1)
	if err != nil {
		t.Fatal(err)
	}
	all, err := NewKeychain([]byte(`{"auths":{"` + strings.TrimSuffix(image, "/team/m:v1") + `":{"username":"u","password":"p"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Push(t.Context(), image, i, all); err != nil {
		t.Fatal(err)
	}
	return image
}

// An image is pulled with a plugin's credentials, and with those of a credential helper in Docker's
// config.
func TestPullWithOwnCredentials(t *testing.T) {
	image := privateRegistry(t)
	host, _, _ := strings.Cut(image, "/")
	none, err := NewKeychain()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Resolve(t.Context(), image, none); err == nil {
		t.Fatal("the registry lets in anybody")
	}
	c := newCloud(t, strings.ReplaceAll(answered("Registry", ""), "r.example/team", host+"/team"))
	text := strings.Replace(providersText, "127.0.0.1:*", host, 1)
	c.write("config.yaml", text)
	p, err := OpenPlugins(filepath.Join(c.dir, "config.yaml"), c.dir, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Resolve(t.Context(), image, authn.NewMultiKeychain(none, p)); err != nil {
		t.Errorf("with a plugin: %v", err)
	}
	helper := newCloud(t, `{"ServerURL":"`+host+`","Username":"u","Secret":"p"}`)
	if err := os.Rename(filepath.Join(helper.dir, "cloud"), filepath.Join(helper.dir, "docker-credential-cloud")); err != nil {
		t.Fatal(err)
	}
	helper.write("config.json", `{"credHelpers":{"`+host+`":"cloud"}}`)
	t.Setenv("DOCKER_CONFIG", helper.dir)
	t.Setenv("PATH", helper.dir+":"+os.Getenv("PATH"))
	if _, err := Resolve(t.Context(), image, authn.NewMultiKeychain(none, authn.DefaultKeychain)); err != nil {
		t.Errorf("with a credential helper: %v", err)
	}
	if got := helper.read("request"); strings.TrimSpace(got) != host {
		t.Errorf("the helper is asked for %q", got)
	}
}
