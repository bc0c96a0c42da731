package command

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/profiler/measuring/operators"
)

// urlEnv is the variable that names the provider for commands without --url, as for faas-cli.
const urlEnv = "OPENFAAS_URL"

// remote calls the system routes of a running provider and prints the answers. It has the flags for
// the provider's URL and its credentials.
type remote struct {
	// prefix begins the paths of the routes. kind says what kind of provider the URL must
	// lead to, for the error about another server.
	prefix, kind string
	// gateway is the URL that a file names, "" for none, and file that file.
	gateway, file string

	url, user, passwordFile string
	// password is that of a user who logs in, otherwise "".
	password string
	// loginRefused: the provider refused what a login has kept, so the credentials of "faas-infer up" are tried.
	loginRefused bool
	timeout      time.Duration
	out          report.Output
}

// address returns the provider's URL, and what has set it. As for faas-cli, a file's gateway counts before the
// variable unless it is the default, and a URL may leave the scheme out.
func (a *remote) address() (at, from string) {
	at, from = localProvider, "the default"
	switch variable := os.Getenv(urlEnv); {
	case a.url != "":
		at, from = a.url, "--url"
	case a.gateway != "" && strings.TrimRight(a.gateway, "/") != localProvider:
		at, from = a.gateway, a.file+"'s gateway"
	case variable != "":
		at, from = variable, urlEnv
	}
	if !strings.Contains(at, "://") {
		at = "http://" + at
	}
	return at, from
}

// register adds the client's flags.
func (a *remote) register(flags *pflag.FlagSet) {
	a.registerClient(flags)
	flags.DurationVar(&a.timeout, "timeout", 10*time.Minute, "how long to wait for the answer")
	a.out.Register(flags)
}

// registerClient adds the flags that say which provider is called, and by whom.
func (a *remote) registerClient(flags *pflag.FlagSet) {
	flags.StringVar(&a.url, "url", "", "the provider's `URL`, not a stock gateway's (default $"+urlEnv+", or "+localProvider+")")
	flags.StringVar(&a.user, "user", "", "user of the system routes (default that of faas-infer login, otherwise admin or the user that faas-infer up has made)")
	flags.StringVar(&a.passwordFile, "password-file", "", "`file` with the user's password")
}

// localProvider is the URL of a provider with its default address.
const localProvider = "http://127.0.0.1:8080"

// call makes a request and prints its answer, as JSON or YAML if that was asked for and otherwise with show.
func (a *remote) call(c *cobra.Command, method, path string, body, into any, show func(w io.Writer)) error {
	text, err := a.fetch(c.Context(), method, path, body, into)
	if err != nil {
		return err
	}
	if a.out.Raw() {
		return a.out.WriteJSON(c.OutOrStdout(), text)
	}
	w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	show(w)
	return w.Flush()
}

// list makes a GET request and prints its answer, as a table if nothing else was asked for.
func (a *remote) list(c *cobra.Command, path string, into any, table func() *report.Table) error {
	text, err := a.fetch(c.Context(), http.MethodGet, path, nil, into)
	if err != nil {
		return err
	}
	if a.out.Raw() {
		return a.out.WriteJSON(c.OutOrStdout(), text)
	}
	return table().Write(c.OutOrStdout(), a.out.Wide())
}

// maxAnswer is the maximum size of an answer in bytes. A dead letter holds one request.
const maxAnswer = 128 << 20

// fetch makes a request, reads its answer's JSON into a value, if that is not nil, and returns its text.
func (a *remote) fetch(ctx context.Context, method, path string, body, into any) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(a.timeout, 10*time.Minute))
	defer cancel()
	response, err := a.send(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	if into == nil {
		return answer, nil
	}
	if err := json.Unmarshal(answer, into); err != nil {
		base, _ := a.base() // It was read before.
		_, from := a.address()
		return nil, fmt.Errorf("%s %s: it does not answer like %s; give the provider's URL: %w", from, base.Redacted(), a.kind, err)
	}
	return answer, nil
}

// statusError is an answer of the provider that is no success.
type statusError struct {
	code int
	text string
}

// Error says what the provider answered.
func (e *statusError) Error() string {
	return fmt.Sprintf("the provider answers %d: %s", e.code, e.text)
}

// unauthorized says that the provider refuses the user and password.
type unauthorized string

// Error says what was refused.
func (e unauthorized) Error() string { return string(e) }

// answered reports whether an error is an answer with a status.
func answered(err error, code int) bool {
	e := (*statusError)(nil)
	return errors.As(err, &e) && e.code == code
}

// send makes a request and returns its answer, whose body the caller closes.
func (a *remote) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	base, err := a.base()
	if err != nil {
		return nil, err
	}
	user, password, source, err := a.credentials(base)
	if err != nil {
		return nil, err
	}
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	try := func() (*http.Response, error) {
		request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(base.String(), "/")+a.prefix+path, bytes.NewReader(text))
		if err != nil {
			return nil, err
		}
		if password != "" {
			request.SetBasicAuth(user, password)
		}
		return http.DefaultClient.Do(request)
	}
	response, err := try()
	if err == nil && response.StatusCode == http.StatusUnauthorized && source == ofLogin {
		// The password of faas-infer up may be newer than the login.
		refused := password
		a.loginRefused = true
		user, password, source, err = a.credentials(base)
		if err != nil || password == "" || password == refused {
			a.loginRefused, source, err = false, ofLogin, nil
		} else {
			response.Body.Close()
			response, err = try()
		}
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		_, from := a.address()
		return nil, fmt.Errorf("no provider runs at %s (%s); start one with faas-infer up, or give its --url: %w", base.Redacted(), from, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w; is a provider running there?", err)
	}
	if response.StatusCode < 300 {
		return response, nil
	}
	defer response.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))          // The status says enough.
	if response.StatusCode == http.StatusUnauthorized && a.password != "" { // The user is logging in.
		return nil, unauthorized(fmt.Sprintf("the provider at %s refuses this user and password; "+
			"\"faas-infer up\" keeps those that it takes in STATE/secrets", base.Redacted()))
	}
	if response.StatusCode == http.StatusUnauthorized {
		return nil, fmt.Errorf("the provider refuses the user and password%s; log in with faas-infer login, or give --user and --password-file", source)
	}
	return nil, &statusError{response.StatusCode, strings.TrimSpace(string(answer))}
}

// base returns the provider's URL.
func (a *remote) base() (*url.URL, error) {
	given, from := a.address()
	base, err := url.Parse(given)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return nil, usage(fmt.Errorf("%s %q: it must be the provider's URL, such as %s", from, given, localProvider))
	}
	return base, nil
}

// ofLogin is the source of credentials that a login has kept.
const ofLogin = " of faas-infer login"

// credentials returns the user and password of the flags, of "faas-infer login" or, for a provider on this
// machine, those that "faas-infer up" has made, and where they come from. The password is empty if
// there are none.
func (a *remote) credentials(at *url.URL) (user, password, source string, err error) {
	if a.password != "" {
		return cmp.Or(a.user, "admin"), a.password, "", nil
	}
	if a.passwordFile != "" {
		text, err := os.ReadFile(a.passwordFile)
		if err != nil {
			return "", "", "", fmt.Errorf("--password-file: %w", err)
		}
		return cmp.Or(a.user, "admin"), strings.TrimSpace(string(text)), " of --password-file", nil
	}
	if !a.loginRefused {
		if user, password, err = loggedIn(at); err != nil {
			return "", "", "", err
		}
		if password != "" && cmp.Or(a.user, user) == user {
			return user, password, ofLogin, nil
		}
	}
	if user, password, err = a.made(at); err != nil || password == "" {
		return "", "", "", err
	}
	return user, password, " of faas-infer up", nil
}

// made returns the user and password that "faas-infer up" has made, for a provider on this machine. The
// password is empty if there is none.
func (a *remote) made(at *url.URL) (user, password string, err error) {
	if ip := net.ParseIP(at.Hostname()); at.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return "", "", nil
	}
	dir, err := stateDir()
	if err != nil {
		return "", "", nil //nolint:nilerr // There are no credentials; the provider may be open.
	}
	dir, user = filepath.Join(dir, "secrets"), a.user
	if text, err := os.ReadFile(filepath.Join(dir, "basic-auth-user")); err == nil && user == "" {
		user = strings.TrimSpace(string(text))
	}
	text, err := os.ReadFile(passwordFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("the password of faas-infer up: %w; give --password-file", err)
	}
	return cmp.Or(user, "admin"), strings.TrimSpace(string(text)), nil
}

// stateDir returns the default directory of a provider's state: $XDG_STATE_HOME/faas-infer.
func stateDir() (string, error) {
	file, err := operators.DefaultPath()
	return filepath.Dir(file), err
}
