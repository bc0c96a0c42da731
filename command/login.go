package command

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"golang.org/x/term"
)

// newLoginCommand returns "faas-infer login".
func newLoginCommand() *cobra.Command {
	client := &remote{kind: "a provider"}
	var stdin bool
	c := &cobra.Command{
		Use:   "login",
		Short: "Check a user and password at a provider, and keep them for later commands",
		Long: `login calls the provider with the user and password and, if it accepts them, keeps them
in faas-cli's file, ~/.openfaas/config.yml ($OPENFAAS_CONFIG/config.yml; ./.openfaas/config.yml if
$CI is true). Both programs use them for this URL from then on. The password comes from --password-file, with --password-stdin
from the standard input, or from the terminal. At an address of this machine the password that "faas-infer up" has made
is tried first, and login asks only if the provider refuses it; commands of faas-infer itself need no login there.`,
		Example: `  faas-infer login
  faas-infer login --url https://models.example.com
  faas-infer login --password-stdin < password.txt`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			base, err := client.base()
			if err != nil {
				return err
			}
			if err := client.logIn(c, base, stdin); err != nil {
				return err
			}
			file, err := saveLogin(base, client.user, client.password)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "Logged in at %s as %s, kept in %s.\n", gatewayOf(base), client.user, file)
			return nil
		},
	}
	client.registerClient(c.Flags())
	c.Flags().BoolVar(&stdin, "password-stdin", false, "read the password from the standard input")
	return c
}

// logIn finds a user and password that the provider takes: those that are given or, for a provider on this machine,
// those of "faas-infer up". If it refuses the latter, it is another provider, for example one behind a forwarded port,
// and the password is asked for.
func (a *remote) logIn(c *cobra.Command, base *url.URL, stdin bool) error {
	given := a.user
	user, password, err := a.made(base)
	tried := err == nil && password != "" && a.passwordFile == "" && !stdin
	if tried {
		a.user, a.password = cmp.Or(given, user), password
		_, err := a.fetch(c.Context(), http.MethodGet, "/system/functions", nil, &[]struct{}{})
		if refused := unauthorized(""); !errors.As(err, &refused) {
			return err
		}
		fmt.Fprintf(c.ErrOrStderr(), "The provider at %s does not take the password of faas-infer up.\n", base.Redacted())
	}
	a.user = cmp.Or(given, "admin")
	if a.password, err = askPassword(c, a.passwordFile, stdin); err != nil {
		return err
	}
	_, err = a.fetch(c.Context(), http.MethodGet, "/system/functions", nil, &[]struct{}{})
	return err
}

// askPassword reads a password from a file, the standard input or the terminal.
func askPassword(c *cobra.Command, file string, stdin bool) (string, error) {
	var text []byte
	var err error
	switch terminal, ok := c.InOrStdin().(*os.File); {
	case file != "":
		if text, err = os.ReadFile(file); err != nil {
			return "", fmt.Errorf("--password-file: %w", err)
		}
	case stdin:
		text, err = io.ReadAll(io.LimitReader(c.InOrStdin(), 64<<10))
	case ok && term.IsTerminal(int(terminal.Fd())):
		fmt.Fprint(c.ErrOrStderr(), "Password: ")
		text, err = term.ReadPassword(int(terminal.Fd()))
		fmt.Fprintln(c.ErrOrStderr())
	default:
		return "", usage(errors.New("there is no terminal to ask for the password; give --password-stdin or --password-file"))
	}
	if err != nil {
		return "", fmt.Errorf("read the password: %w", err)
	}
	password := strings.TrimSpace(string(text))
	if password == "" {
		return "", usage(errors.New("the password is empty; give one"))
	}
	return password, nil
}

// logins is faas-cli's file of credentials. Fields that are not used here stay as they are.
type logins struct {
	Auths []login        `yaml:"auths"`
	Rest  map[string]any `yaml:",inline"`
}

type login struct {
	Gateway string         `yaml:"gateway"`
	Auth    string         `yaml:"auth"`
	Token   string         `yaml:"token,omitempty"`
	Rest    map[string]any `yaml:",inline"`
}

// basicLogin is a login's kind whose token is user:password in base64.
const basicLogin = "basic"

// loginFile is faas-cli's file of credentials.
func loginFile() (string, error) {
	if dir := os.Getenv("OPENFAAS_CONFIG"); dir != "" {
		return filepath.Join(dir, "config.yml"), nil
	}
	if ci := os.Getenv("CI"); ci == "true" || ci == "1" {
		return filepath.Join(".openfaas", "config.yml"), nil // As faas-cli does.
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("the file of credentials: %w; set OPENFAAS_CONFIG", err)
	}
	return filepath.Join(home, ".openfaas", "config.yml"), nil
}

// readLogins reads the file of credentials, which need not be there.
func readLogins() (l logins, file string, err error) {
	if file, err = loginFile(); err != nil {
		return l, "", err
	}
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return l, file, fmt.Errorf("the file of credentials: %w", err)
	}
	if err := yaml.Unmarshal(text, &l); err != nil {
		return l, file, fmt.Errorf("%s is not faas-cli's file of credentials: %w; mend or remove it", file, err)
	}
	return l, file, nil
}

// gatewayOf is the name of a provider in the file of credentials.
func gatewayOf(at *url.URL) string {
	return strings.TrimRight(strings.ToLower(at.Scheme+"://"+at.Host)+at.Path, "/")
}

// loggedIn returns the user and password that the file of credentials has for a provider, "" for none.
func loggedIn(at *url.URL) (user, password string, err error) {
	l, file, err := readLogins()
	if file == "" || errors.Is(err, fs.ErrPermission) {
		return "", "", nil // Without a home, or as another user, there is no login.
	}
	if err != nil {
		return "", "", err
	}
	i := slices.IndexFunc(l.Auths, func(l login) bool { return l.Gateway == gatewayOf(at) && l.Auth == basicLogin })
	if i < 0 {
		return "", "", nil
	}
	text, err := base64.StdEncoding.DecodeString(l.Auths[i].Token)
	if err != nil {
		return "", "", fmt.Errorf("%s: the token of %s is not base64; run faas-infer login: %w", file, gatewayOf(at), err)
	}
	user, password, _ = strings.Cut(string(text), ":")
	return user, password, nil
}

// saveLogin keeps a user and password for a provider and returns the file.
func saveLogin(at *url.URL, user, password string) (string, error) {
	l, file, err := readLogins()
	if err != nil {
		return "", err
	}
	l.Auths = slices.DeleteFunc(l.Auths, func(l login) bool { return l.Gateway == gatewayOf(at) })
	l.Auths = append(l.Auths, login{Gateway: gatewayOf(at), Auth: basicLogin, Token: base64.StdEncoding.EncodeToString([]byte(user + ":" + password))})
	text, err := yaml.Marshal(l)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", fmt.Errorf("keep the password: %w; set OPENFAAS_CONFIG to a directory that this user can write", err)
	}
	if err := replaceFile(file, text); err != nil {
		return "", fmt.Errorf("keep the password: %w", err)
	}
	return file, nil
}

// replaceFile writes a file that only its user may read, as a whole or not at all.
func replaceFile(file string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(file), ".config-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // It is gone after the rename.
	_, err = f.Write(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}
