package image

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/rs/zerolog"
	"sigs.k8s.io/yaml"
)

const (
	// pluginPatience is how long a plugin may run, as long as at the kubelet.
	pluginPatience = time.Minute
	// failureLasts is how long a plugin that has failed is not asked again.
	failureLasts = 10 * time.Second
	// maxPluginOutput bounds what is read of a plugin's output, and maxPluginComplaint what the log
	// quotes of its complaint, both in bytes.
	maxPluginOutput    = 1 << 20
	maxPluginComplaint = 300
	// pluginAPI begins the versions of the plugins' protocol.
	pluginAPI = "credentialprovider.kubelet.k8s.io/"
)

// plugin is one plugin, with the fields of the kubelet's CredentialProviderConfig.
type plugin struct {
	Name                 string    `json:"name"`
	MatchImages          []string  `json:"matchImages"`
	DefaultCacheDuration *duration `json:"defaultCacheDuration"`
	APIVersion           string    `json:"apiVersion"`
	Args                 []string  `json:"args"`
	Env                  []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"env"`
	TokenAttributes any `json:"tokenAttributes"`

	// dir has the program, which may run for patience.
	dir      string
	patience time.Duration
	log      zerolog.Logger
	// running is full while the program runs: others wait for its answer. It guards known, its
	// answers by registry, image or "", see remember and failed.
	running chan struct{}
	known   map[string]answer
}

// answer is a plugin's answer, or why it has none. until is when it must be asked again.
type answer struct {
	logins keychain
	err    error
	until  time.Time
}

// duration is a time in Go's notation.
type duration time.Duration

// UnmarshalJSON implements [json.Unmarshaler].
func (d *duration) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("%s is no duration, such as 12h", text)
	}
	t, err := time.ParseDuration(s)
	if err != nil || t < 0 {
		return fmt.Errorf("%q is no duration, such as 12h", s)
	}
	*d = duration(t)
	return nil
}

// Plugins is a keychain of the kubelet's credential provider plugins: programs that log in to the
// registry of a cloud with the identity of the machine or pod. The plugin reads a request from its
// standard input and writes credentials to its standard output. The zero value has no plugin. It is
// safe for concurrent use.
type Plugins struct{ plugins []*plugin }

var _ authn.ContextKeychain = (*Plugins)(nil)

// OpenPlugins reads a CredentialProviderConfig, the file of the kubelet's flag
// --image-credential-provider-config. dir has the programs. An error names the field and the fix. The
// log gets what programs that fail write to their standard error; it may hold secrets, so no user sees it.
func OpenPlugins(config, dir string, log zerolog.Logger) (*Plugins, error) {
	text, err := os.ReadFile(config)
	if err != nil {
		return nil, err
	}
	var c struct {
		APIVersion string    `json:"apiVersion"`
		Kind       string    `json:"kind"`
		Providers  []*plugin `json:"providers"`
	}
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		return nil, fmt.Errorf("%s: %w", config, err)
	}
	if c.Kind != "CredentialProviderConfig" || !strings.HasPrefix(c.APIVersion, "kubelet.config.k8s.io/") {
		return nil, fmt.Errorf("%s: it is a %s of %s; it must be a CredentialProviderConfig of kubelet.config.k8s.io/v1", config, cmp.Or(c.Kind, "file without kind"), cmp.Or(c.APIVersion, "no version"))
	}
	if len(c.Providers) == 0 {
		return nil, fmt.Errorf("%s: providers is empty; name at least one plugin", config)
	}
	for i, p := range c.Providers {
		if err := p.check(dir); err != nil {
			return nil, fmt.Errorf("%s: providers[%d]: %w", config, i, err)
		}
		p.dir, p.patience, p.log = dir, pluginPatience, log
		p.running, p.known = make(chan struct{}, 1), map[string]answer{}
	}
	return &Plugins{plugins: c.Providers}, nil
}

func (p *plugin) check(dir string) error {
	switch {
	case p == nil || p.Name == "" || p.Name != filepath.Base(p.Name):
		return errors.New("name is missing or has a slash; it must be the name of a program")
	case len(p.MatchImages) == 0:
		return fmt.Errorf("%s: matchImages is empty; list registries, such as \"*.dkr.ecr.*.amazonaws.com\"", p.Name)
	case p.DefaultCacheDuration == nil:
		return fmt.Errorf("%s: defaultCacheDuration is missing; it must be a duration, such as 12h", p.Name)
	case !strings.HasPrefix(p.APIVersion, pluginAPI):
		return fmt.Errorf("%s: apiVersion is %q; it must be %sv1", p.Name, p.APIVersion, pluginAPI)
	case p.TokenAttributes != nil:
		return fmt.Errorf("%s: tokenAttributes is set; tokens of functions' service accounts are not given to plugins: leave it out and give the provider's pod an identity", p.Name)
	}
	if _, err := exec.LookPath(filepath.Join(dir, p.Name)); err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	return nil
}

// Resolve implements [authn.Keychain].
func (ps *Plugins) Resolve(r authn.Resource) (authn.Authenticator, error) {
	return ps.ResolveContext(context.Background(), r)
}

// ResolveContext implements [authn.ContextKeychain]. It asks the plugins whose matchImages has the image, in
// the order of the file, until one has credentials for it. A plugin that fails is an error: without its
// credentials the registry would say less.
func (ps *Plugins) ResolveContext(ctx context.Context, r authn.Resource) (authn.Authenticator, error) {
	for _, p := range ps.plugins {
		if !slices.ContainsFunc(p.MatchImages, func(pattern string) bool { return newCredential(pattern, authn.AuthConfig{}).fits(r) }) {
			continue
		}
		logins, err := p.logins(ctx, r, time.Now)
		if err != nil {
			return nil, fmt.Errorf("credential provider %s: %w", p.Name, err)
		}
		if found, err := logins.Resolve(r); err != nil || found != authn.Anonymous {
			return found, err
		}
	}
	return authn.Anonymous, nil
}

// logins returns the plugin's credentials for an image, from an earlier answer if that still holds.
func (p *plugin) logins(ctx context.Context, r authn.Resource, now func() time.Time) (keychain, error) {
	select {
	case p.running <- struct{}{}:
		defer func() { <-p.running }()
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for its answer to another question: %w", ctx.Err())
	}
	for _, key := range []string{r.String(), r.RegistryStr(), ""} {
		if a, ok := p.known[key]; ok && now().Before(a.until) {
			return a.logins, a.err
		}
	}
	said, err := p.ask(ctx, r.String())
	if err == nil {
		var logins keychain
		if logins, err = p.remember(said, r, now()); err == nil {
			return logins, nil
		}
	}
	if ctx.Err() == nil { // Otherwise the plugin need not be at fault.
		p.failed(err, r, now())
	}
	return nil, err
}

// failed remembers an error briefly: those who wait meanwhile get it, too, instead of running into it
// one after the other. A plugin that hangs does so for every image.
func (p *plugin) failed(err error, r authn.Resource, now time.Time) {
	key := r.String()
	if errors.Is(err, context.DeadlineExceeded) {
		key = ""
	}
	p.known[key] = answer{err: err, until: now.Add(failureLasts)}
}

// response is what a plugin writes.
type response struct {
	APIVersion    string                      `json:"apiVersion"`
	Kind          string                      `json:"kind"`
	CacheKeyType  string                      `json:"cacheKeyType"`
	CacheDuration *duration                   `json:"cacheDuration"`
	Auth          map[string]authn.AuthConfig `json:"auth"`
}

// ask runs the plugin.
func (p *plugin) ask(ctx context.Context, image string) (said response, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.patience)
	defer cancel()
	request, err := json.Marshal(map[string]string{"apiVersion": p.APIVersion, "kind": "CredentialProviderRequest", "image": image})
	if err != nil {
		return said, err
	}
	c := exec.CommandContext(ctx, filepath.Join(p.dir, p.Name), p.Args...)
	c.WaitDelay = time.Second
	c.Env = os.Environ()
	for _, e := range p.Env {
		c.Env = append(c.Env, e.Name+"="+e.Value)
	}
	c.Stdin = bytes.NewReader(request)
	out, complaint := &limited{most: maxPluginOutput}, &limited{most: maxPluginComplaint}
	c.Stdout, c.Stderr = out, complaint
	if err := c.Run(); err != nil {
		err = cmp.Or(ctx.Err(), err)
		p.log.Warn().Str("plugin", p.Name).Str("image", image).Err(err).Str("stderr", strings.TrimSpace(complaint.String())).Msg("a credential provider plugin failed")
		return said, fmt.Errorf("%w; the log has its error output", err)
	}
	// The decoder's error might quote a password.
	if json.Unmarshal(out.Bytes(), &said) != nil || said.Kind != "CredentialProviderResponse" || said.APIVersion != p.APIVersion {
		return said, fmt.Errorf("its output is not a CredentialProviderResponse of %s", p.APIVersion)
	}
	return said, nil
}

// remember keeps an answer for as long, and for the images, that it says.
func (p *plugin) remember(said response, r authn.Resource, now time.Time) (keychain, error) {
	key, ok := map[string]string{"Image": r.String(), "Registry": r.RegistryStr(), "Global": ""}[said.CacheKeyType]
	if !ok {
		return nil, fmt.Errorf("its answer has the cacheKeyType %.40q; it must be Image, Registry or Global", said.CacheKeyType)
	}
	var logins keychain
	for pattern, auth := range said.Auth {
		logins = append(logins, newCredential(pattern, auth))
	}
	logins.sort()
	for old, a := range p.known {
		if !now.Before(a.until) {
			delete(p.known, old)
		}
	}
	lasts := p.DefaultCacheDuration
	if said.CacheDuration != nil {
		lasts = said.CacheDuration
	}
	p.known[key] = answer{logins: logins, until: now.Add(time.Duration(*lasts))}
	return logins, nil
}

// limited keeps the first bytes of what is written to it.
type limited struct {
	bytes.Buffer
	most int
}

// Write implements [io.Writer].
func (l *limited) Write(b []byte) (int, error) {
	_, _ = l.Buffer.Write(b[:min(len(b), max(0, l.most-l.Len()))])
	return len(b), nil
}

// ReadFrom implements [io.ReaderFrom], which the buffer's own would do without the limit.
func (l *limited) ReadFrom(r io.Reader) (int64, error) {
	n, err := l.Buffer.ReadFrom(io.LimitReader(r, int64(max(0, l.most-l.Len()))))
	if err != nil {
		return n, err
	}
	rest, err := io.Copy(io.Discard, r)
	return n + rest, err
}
