package command

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/faas-infer/faas-infer/cluster/local/logs"
	"github.com/faas-infer/faas-infer/cluster/local/process"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/web"
)

// The values of --gateway: the provider serves OpenFaaS's API, or the stock gateway in front of it.
const (
	ownGateway   = "own"
	stockGateway = "stock"
)

// behindStock sets the flags that the stock gateway needs, unless the user has: it takes the provider's
// usual port, sends asynchronous requests over NATS, and has metrics of its own.
func (f *ProviderFlags) behindStock() {
	f.behindGateway = true
	for flag, set := range map[string]func(){
		"listen":      func() { f.listen = "127.0.0.1:8081" },
		"nats-listen": func() { f.nats.listen = "127.0.0.1:4222" },
	} {
		if !f.given(flag) {
			set()
		}
	}
}

// The stock gateway's ports, which cannot be changed, and its version.
const (
	gatewayAddress        = "127.0.0.1:8080"
	gatewayMetricsAddress = "127.0.0.1:8082"
	gatewayURL            = "http://" + gatewayAddress
	gatewayVersion        = "0.27.14"
	// gatewayLogName is the name of its log, without ".log".
	gatewayLogName = "gateway"
)

// gateway is the stock OpenFaaS gateway as a child process.
type gateway struct{ *process.Child }

// gatewayDir returns the directory into which scripts/gateway.sh builds the gateway.
func gatewayDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the OpenFaaS gateway: %w; set XDG_CACHE_HOME", err)
	}
	dir := filepath.Join(cache, "faas-infer", "gateway", gatewayVersion)
	if _, err := os.Stat(filepath.Join(dir, "gateway")); err != nil {
		return "", fmt.Errorf("the OpenFaaS gateway has not been built: %w; run `make gateway` in a checkout of faas-infer, "+
			"or start without --gateway stock", err)
	}
	return dir, nil
}

// basicAuth makes sure that dir holds a user and a password for the gateway and
// the provider, readable by this user only, and returns them.
func basicAuth(dir string) (user, password string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", fmt.Errorf("credentials: %w", err)
	}
	if user, err = credential(filepath.Join(dir, "basic-auth-user"), "admin"); err != nil {
		return "", "", err
	}
	password, err = credential(passwordFile(dir), random())
	return user, password, err
}

// passwordFile is the file of the password in a directory of credentials.
func passwordFile(dir string) string { return filepath.Join(dir, "basic-auth-password") }

// payloadSecret makes sure that dir holds a secret for faas-cli's remote builder,
// and returns its file.
func payloadSecret(dir string) (file string, err error) {
	file = filepath.Join(dir, "payload-secret")
	_, err = credential(file, random())
	return file, err
}

// random returns 128 random bits in hexadecimal.
func random() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// credential returns the content of a file. If the file is missing or empty, credential
// writes the initial value into it.
func credential(file, initial string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("credentials: %w", err)
	}
	if held := strings.TrimSpace(string(text)); held != "" {
		return held, nil
	}
	if err := os.WriteFile(file, []byte(initial), 0o600); err != nil {
		return "", fmt.Errorf("credentials: %w", err)
	}
	return initial, nil
}

// gatewayPlan says how to start the gateway.
type gatewayPlan struct {
	// provider and nats are the addresses of the provider and of the NATS server for
	// asynchronous requests. Without nats, the gateway takes no asynchronous requests.
	provider, nats string
	// secrets is the directory of the credentials, logs that of the log.
	secrets, logs string
}

// environment returns the gateway's environment.
func (p gatewayPlan) environment() ([]string, error) {
	host, port, err := reachable(p.provider)
	if err != nil {
		return nil, err
	}
	// The gateway must not time out before the provider.
	longest := (annotation.LongestSLO + time.Minute).String()
	env := append(os.Environ(),
		"functions_provider_url=http://"+host+":"+port+"/", "direct_functions=false", "scale_from_zero=false",
		"faas_prometheus_host="+host, "faas_prometheus_port="+port, "basic_auth=true", "secret_mount_path="+p.secrets,
		"function_namespace="+provider.DefaultNamespace, "read_timeout="+longest, "write_timeout="+longest, "upstream_timeout="+longest)
	if p.nats == "" {
		return env, nil
	}
	host, port, err = reachable(p.nats)
	return append(env, "faas_nats_address="+host, "faas_nats_port="+port), err
}

// reachable splits a listener's address into a host and port that can be dialled. An address of
// IPv6 keeps its brackets, because the gateway makes URLs of host and port.
func reachable(address string) (host, port string, err error) {
	host, port, err = net.SplitHostPort(address)
	switch ip := net.ParseIP(host); {
	case ip == nil || ip.IsUnspecified():
		host = "127.0.0.1" // It listens on all interfaces, including this one.
	case ip.To4() == nil:
		host = "[" + host + "]"
	}
	return host, port, err
}

// startGateway starts the gateway and waits until it answers.
func startGateway(ctx context.Context, p gatewayPlan) (*gateway, error) {
	dir, err := gatewayDir()
	if err != nil {
		return nil, err
	}
	for _, address := range []string{gatewayAddress, gatewayMetricsAddress} {
		if err := web.CheckFree(address); err != nil {
			return nil, fmt.Errorf("the gateway needs port %s and has no setting for it: %w; stop the program that listens there", address, err)
		}
	}
	env, err := p.environment()
	if err != nil {
		return nil, err
	}
	log, err := newLog(p.logs)
	if err != nil {
		return nil, fmt.Errorf("gateway's log: %w", err)
	}
	c := exec.Command(filepath.Join(dir, "gateway"))
	c.Dir, c.Stdout, c.Stderr, c.Env = dir, log, log, env
	child, err := process.Start(c, syscall.SIGKILL)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the gateway: %w", err), log.file.Close())
	}
	child.AfterExit(func() { _ = log.file.Close() })
	g := &gateway{child}
	if err := g.await(ctx); err != nil {
		g.stop()
		return nil, fmt.Errorf("%w; its log is %s", err, log.file.Name())
	}
	return g, nil
}

const (
	// gatewayLogBytes bounds the gateway's log in bytes. gatewayLogFiles older ones of this size are kept.
	gatewayLogBytes = 10 << 20
	gatewayLogFiles = 3
	// rotateEach is the number of bytes between two looks at its size.
	rotateEach = 64 << 10
)

// gatewayLog is the gateway's log. Its file is moved aside when it is full.
type gatewayLog struct {
	file  *os.File
	store *logs.Store
	// unseen counts the bytes since the last look at the file's size.
	unseen int
}

// Write implements io.Writer. It never fails, or the gateway could not print any more and would end: on a
// full disk lines are lost.
func (l *gatewayLog) Write(p []byte) (int, error) {
	_, _ = l.file.Write(p)
	if l.unseen += len(p); l.unseen >= rotateEach {
		l.unseen = 0
		_ = l.store.Rotate("", gatewayLogName)
	}
	return len(p), nil
}

// newLog empties the gateway's log in a directory or makes it, readable by this user only: the gateway may
// log what clients send. An earlier version let everybody read it.
func newLog(dir string) (*gatewayLog, error) {
	l := &gatewayLog{store: &logs.Store{Dir: dir, MaxBytes: gatewayLogBytes, Keep: gatewayLogFiles}}
	var err error
	if l.file, err = l.store.Open("", gatewayLogName); err != nil {
		return nil, err
	}
	if err := errors.Join(l.file.Chmod(0o600), l.file.Truncate(0)); err != nil {
		return nil, errors.Join(err, l.file.Close())
	}
	return l, nil
}

// await returns when the gateway answers.
func (g *gateway) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, gatewayURL+"/healthz", nil)
		if err != nil {
			return err
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the gateway does not answer: %w", ctx.Err())
		case <-g.Exited():
			return fmt.Errorf("the gateway exited: %v", g.ProcessState)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// gatewayPatience is how long the gateway may take to end by itself.
const gatewayPatience = time.Second

// stop ends the gateway's process.
func (g *gateway) stop() {
	_ = g.Process.Signal(syscall.SIGTERM)
	select {
	case <-g.Exited():
		return
	case <-time.After(gatewayPatience):
		// It waits a long time for idle connections. No requests are in flight
		// any more.
	}
	_ = g.Process.Kill()
	<-g.Exited()
}

// StartGateway starts the stock gateway in front of a provider and a NATS server. Its
// credentials and its log are in dir. It returns the gateway's URL and a function that
// stops it.
func StartGateway(ctx context.Context, provider, nats, dir string) (url string, stop func(), err error) {
	secrets := filepath.Join(dir, "gateway-secrets")
	if _, _, err := basicAuth(secrets); err != nil {
		return "", nil, err
	}
	g, err := startGateway(ctx, gatewayPlan{provider: provider, nats: nats, secrets: secrets, logs: dir})
	if err != nil {
		return "", nil, err
	}
	return gatewayURL, g.stop, nil
}
