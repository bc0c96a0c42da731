package command

import (
	"bytes"
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
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// remote calls the system routes of a running provider and prints the answers. It has the flags for
// the provider's URL and its credentials.
type remote struct {
	// prefix begins the paths of the routes. kind says what kind of provider the URL must
	// lead to, for the error about another server.
	prefix, kind string

	url, user, passwordFile string
	timeout                 time.Duration
	json                    bool
}

// register adds the client's flags.
func (a *remote) register(flags *pflag.FlagSet) {
	flags.StringVar(&a.url, "url", "http://127.0.0.1:8080", "the provider's `URL` (not a stock gateway's)")
	flags.StringVar(&a.user, "user", "", "user of the system routes (default admin, or the user that faas-infer up has made)")
	flags.StringVar(&a.passwordFile, "password-file", "", "`file` with the user's password")
	flags.DurationVar(&a.timeout, "timeout", 10*time.Minute, "how long to wait for the answer")
	flags.BoolVar(&a.json, "json", false, "print the provider's JSON")
}

// call makes a request and prints its answer, as JSON with --json and otherwise with show.
func (a *remote) call(c *cobra.Command, method, path string, body, into any, show func(w io.Writer)) error {
	text, err := a.do(c.Context(), method, path, body)
	if err != nil {
		return err
	}
	if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			return fmt.Errorf("--url %s: it does not answer like %s; give the provider's URL: %w", a.url, a.kind, err)
		}
	}
	if a.json {
		_, err := c.OutOrStdout().Write(text)
		return err
	}
	w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	show(w)
	return w.Flush()
}

// maxAnswer is the maximum size of an answer in bytes. A dead letter holds one request.
const maxAnswer = 128 << 20

// do makes one request and returns its answer's body.
func (a *remote) do(ctx context.Context, method, path string, body any) ([]byte, error) {
	base, err := url.Parse(a.url)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return nil, fmt.Errorf("--url %q: it must be the provider's URL, such as http://127.0.0.1:8080", a.url)
	}
	user, password, err := a.credentials(base.Hostname())
	if err != nil {
		return nil, err
	}
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(a.url, "/")+a.prefix+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	if password != "" {
		request.SetBasicAuth(user, password)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%w; is a provider running there?", err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	switch {
	case response.StatusCode == http.StatusUnauthorized:
		return nil, errors.New("the provider refuses the user and password; give --user and --password-file")
	case response.StatusCode >= 300:
		return nil, &refusedError{response.StatusCode, strings.TrimSpace(string(answer))}
	}
	return answer, nil
}

// refusedError is an answer of the provider with a status of 300 or more.
type refusedError struct {
	code int
	text string
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("the provider answers %d: %s", e.code, e.text)
}

// credentials returns the user and password of the flags or, for a provider on this
// machine, those that "faas-infer up" has made. The password is empty if there are none.
func (a *remote) credentials(host string) (user, password string, err error) {
	file := a.passwordFile
	user = a.user
	if file == "" {
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return "", "", nil
		}
		dir, err := upSecrets()
		if err != nil {
			return "", "", nil //nolint:nilerr // There are no credentials; the provider may be open.
		}
		file = filepath.Join(dir, "basic-auth-password")
		if text, err := os.ReadFile(filepath.Join(dir, "basic-auth-user")); err == nil && user == "" {
			user = strings.TrimSpace(string(text))
		}
	}
	if user == "" {
		user = "admin"
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && a.passwordFile == "" {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("--password-file: %w", err)
	}
	return user, strings.TrimSpace(string(text)), nil
}

// upSecrets returns the directory of the credentials that "faas-infer up" makes.
func upSecrets() (string, error) {
	home := os.Getenv("XDG_STATE_HOME")
	if home == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		home = filepath.Join(user, ".local", "state")
	}
	return filepath.Join(home, "faas-infer", "secrets"), nil
}
