package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/cluster/local/sandbox"
	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/instance/watchdog"
	"github.com/faas-infer/faas-infer/model/bundle"
)

// watchdogFlags are the flags of the watchdog command.
type watchdogFlags struct {
	listen []string
	bundle string
	name   string
	// tls is the directory of the instance's certificate, "" for none; open are the paths that need
	// none.
	tls  string
	open []string
}

// newWatchdogCommand returns "faas-infer watchdog", the server inside an ordinary
// function's instance.
func newWatchdogCommand() *cobra.Command {
	var f watchdogFlags
	c := &cobra.Command{
		Use:   "watchdog --bundle DIR --listen ADDRESS",
		Short: "Serve one ordinary function: the process that the provider starts for each instance",
		Long: `watchdog serves HTTP requests with a function's program. It has the semantics and the
environment variables of OpenFaaS's of-watchdog and classic watchdog. mode=http starts
the program once and forwards requests to it. mode=classic (or serializing) and
mode=streaming start the program for each request; it reads the body from standard
input and writes the answer to standard output.

It reads these variables: fprocess, mode, upstream_url, ready_path, exec_timeout,
read_timeout, write_timeout, max_inflight, content_type, combine_output,
cgi_headers, prefix_logs, http_buffer_req_body and write_debug.

In mode=http without an upstream_url, PORT tells the program where to serve.
On SIGTERM, watchdog finishes the requests in flight and exits.`,
		Example: `  fprocess="sha512sum" mode=classic faas-infer watchdog --bundle . --listen tcp://127.0.0.1:8090
  curl -d hello http://127.0.0.1:8090/

  fprocess="python3 server.py" mode=http faas-infer watchdog --bundle ./server --listen tcp://127.0.0.1:8090`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	flags := c.Flags()
	flags.StringArrayVar(&f.listen, "listen", []string{"tcp://127.0.0.1:0"}, "where to serve: unix:///path or tcp://host:port; may be given more than once")
	flags.StringVar(&f.bundle, "bundle", ".", "the directory with the program, its working directory")
	flags.StringVar(&f.name, "name", "", "the function's name, for the log")
	flags.StringVar(&f.tls, "tls", "", "directory with tls.crt, tls.key and ca.crt: at TCP addresses, only the provider may send requests, over TLS; everybody may ask for health and metrics")
	flags.StringArrayVar(&f.open, "open", nil, "path that everybody may GET in spite of --tls, such as that of a probe; may be given more than once")
	return c
}

func (f *watchdogFlags) run(c *cobra.Command) error {
	tuneWatchdog()
	ctx := c.Context()
	ready, err := takeReady()
	if err != nil {
		return err
	}
	defer ready.Close()
	log := watchdog.NewLineLog(engine.Log(c.ErrOrStderr()))
	identity, err := f.identity(c)
	if err != nil {
		return err
	}
	config, err := watchdog.ReadConfig(watchdog.Variables(sandbox.FunctionEnvironment()))
	if err != nil {
		return err
	}
	// The socket comes first, because the sandbox hides its directory.
	listeners, err := openListeners(ctx, f.listen)
	if err != nil {
		return err
	}
	// A replaced bundle stays until the instances that hold it have ended.
	if held, err := bundle.Hold(f.bundle); err != nil {
		log.Printf("Cannot hold the bundle; if it is replaced, this instance loses its files: %v", err)
	} else {
		defer held.Close()
	}
	cell, err := sandbox.EnterFunction(f.bundle)
	if err != nil {
		return errors.Join(err, closeListeners(listeners))
	}
	defer cell.Close()
	for _, note := range cell.Notes() {
		log.Printf("%s", note)
	}
	server, err := watchdog.New(watchdog.Options{Config: config, Launcher: cell, Log: log, Environment: functionEnvironment(cell), Identity: identity, Open: f.open})
	if err != nil {
		return errors.Join(err, closeListeners(listeners))
	}
	defer server.Close()
	if err := server.Start(ctx); err != nil {
		return errors.Join(logExit(log, err), closeListeners(listeners))
	}
	debug.FreeOSMemory()
	err = server.Serve(ctx, listeners, func() error {
		log.Printf("Serving %s: mode=%s fprocess=%q", f.name, config.Mode, strings.Join(config.Process, " "))
		for _, l := range listeners {
			if l.Addr().Network() == "tcp" {
				fmt.Fprintf(c.OutOrStdout(), "%s://%s\n", identity.Scheme(), l.Addr())
			}
		}
		return ready.announce()
	})
	return logExit(log, err)
}

// identity opens the directory of --tls, nil without the flag.
func (f *watchdogFlags) identity(c *cobra.Command) (*mutual.Identity, error) {
	if f.tls == "" {
		return nil, nil
	}
	i, err := mutual.Open(f.tls, mutual.InstanceName, zerolog.New(c.ErrOrStderr()).With().Timestamp().Str("function", f.name).Logger())
	if err != nil {
		return nil, fmt.Errorf("--tls %s: %w", f.tls, err)
	}
	return i, nil
}

// tuneWatchdog sets Go's runtime for a process that exists hundreds of times and only
// forwards requests.
func tuneWatchdog() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(min(2, runtime.NumCPU()))
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(64 << 20)
	}
}

// logExit logs how the function's program ended if that is the error. main then does not
// print it. It returns err.
func logExit(log *watchdog.LineLog, err error) error {
	if exit := new(watchdog.ExitError); errors.As(err, &exit) {
		log.Printf("%v", exit)
	}
	return err
}

// functionEnvironment returns the function's environment: that of this process, without
// this process's own variables, and the cell's variables.
func functionEnvironment(cell *sandbox.Cell) []string {
	replaced := []string{instance.ReadyEnv}
	for _, entry := range cell.Environment() {
		name, _, _ := strings.Cut(entry, "=")
		replaced = append(replaced, name)
	}
	kept := slices.DeleteFunc(sandbox.FunctionEnvironment(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(replaced, name)
	})
	return append(kept, cell.Environment()...)
}

func openListeners(ctx context.Context, addresses []string) ([]net.Listener, error) {
	var listeners []net.Listener
	for _, address := range addresses {
		l, err := instance.Listen(ctx, address)
		if err != nil {
			return nil, errors.Join(err, closeListeners(listeners))
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

func closeListeners(listeners []net.Listener) error {
	var errs []error
	for _, l := range listeners {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// readyPipe is the pipe on which this process reports that it is ready; its file may be
// nil.
type readyPipe struct{ file *os.File }

// takeReady opens the descriptor that instance.ReadyEnv names and stops children from
// inheriting it.
func takeReady() (readyPipe, error) {
	value := os.Getenv(instance.ReadyEnv)
	if value == "" {
		return readyPipe{}, nil
	}
	fd, err := strconv.Atoi(value)
	if err != nil || fd < 0 {
		return readyPipe{}, fmt.Errorf("%s is %q: it must be a file descriptor", instance.ReadyEnv, value)
	}
	unix.CloseOnExec(fd)
	return readyPipe{os.NewFile(uintptr(fd), "ready")}, nil
}

func (p readyPipe) announce() error {
	if p.file == nil {
		return nil
	}
	if _, err := p.file.WriteString("ready\n"); err != nil {
		return fmt.Errorf("%s: %w", instance.ReadyEnv, err)
	}
	return p.file.Close()
}

// Close closes the pipe. If the process has not announced that it is ready, the provider
// then knows that it failed.
func (p readyPipe) Close() {
	if p.file != nil {
		_ = p.file.Close()
	}
}
