// Package watchdog is the server inside an ordinary function's instance. It passes HTTP
// requests to the function's program, with the semantics and environment variables of
// OpenFaaS's of-watchdog and classic watchdog. It does not serve models: package instance
// does. Begin with [Server].
//
//   - Mode "http": the program is an HTTP server. The watchdog starts it once and forwards
//     requests to it.
//   - Mode "classic" (or "serializing"): the watchdog starts the program for each request.
//     The program reads the body from its standard input and writes the answer to its
//     standard output. Its exit status decides between 200 and 500.
//   - Mode "streaming": like classic, but the answer is sent as the program writes it.
package watchdog

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Mode says how requests reach the function's program.
type Mode string

// The modes.
const (
	HTTP      Mode = "http"
	Classic   Mode = "classic"
	Streaming Mode = "streaming"
)

// anyContent is the of-watchdog's default content type of answers.
const anyContent = "application/octet-stream"

// Config is the configuration from the environment variables.
type Config struct {
	Mode Mode
	// Process is the program and its arguments.
	Process []string
	// Upstream is the program's URL in mode HTTP. If nil, the watchdog chooses a free
	// port of the loopback interface and passes it to the program as PORT.
	Upstream *url.URL
	// ReadyPath is the path of the program's own readiness check, in mode HTTP only. The
	// watchdog requests it at the start and for each request to /_/ready.
	ReadyPath string
	// BufferBody gives the program a Content-Length with every body, in mode HTTP.
	BufferBody bool
	// ExecTimeout is the maximum time of one request, 0 for no limit.
	ExecTimeout time.Duration
	// ReadTimeout is the maximum time for a client to send a request, WriteTimeout that
	// for the whole answer, 0 for no limit.
	ReadTimeout, WriteTimeout time.Duration
	// MaxInflight is the maximum number of requests at once, 0 for no limit.
	MaxInflight int
	// Headers passes the request's headers to the program as Http_NAME, in the modes
	// that fork.
	Headers bool
	// CombineOutput puts the program's standard error into the answer instead of the
	// log, in the modes that fork.
	CombineOutput bool
	// ContentType is the content type of every answer, in the modes that fork. If empty,
	// it is that of the request, or detected from the answer.
	ContentType string
	// PrefixLogs puts "stdout: " or "stderr: " before the program's lines in the log.
	PrefixLogs bool
	// LogRequests writes a line for each request in mode HTTP, too.
	LogRequests bool
}

// Variables returns a function that looks up variables in an environment of NAME=value.
// The last entry of a name counts.
func Variables(environment []string) (lookup func(name string) (value string, ok bool)) {
	values := make(map[string]string, len(environment))
	for _, entry := range environment {
		name, value, _ := strings.Cut(entry, "=")
		values[name] = value
	}
	return func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	}
}

// ReadConfig reads the configuration from environment variables. An error names the
// variable.
func ReadConfig(lookup func(name string) (value string, ok bool)) (Config, error) {
	r := reader{lookup: lookup}
	c := Config{
		ReadyPath:    r.text("ready_path"),
		BufferBody:   r.flag(false, "http_buffer_req_body", "buffer_http"),
		ExecTimeout:  r.duration("exec_timeout"),
		ReadTimeout:  r.duration("read_timeout"),
		WriteTimeout: r.duration("write_timeout"),
		MaxInflight:  r.count("max_inflight"),
		Headers:      r.flag(true, "cgi_headers"),
		ContentType:  r.text("content_type"),
		PrefixLogs:   r.flag(true, "prefix_logs"),
		LogRequests:  r.flag(false, "write_debug"),
	}
	mode := r.text("mode")
	switch mode {
	case "http":
		c.Mode = HTTP
	case "classic":
		c.Mode = Classic
	case "serializing", "serialising":
		c.Mode, c.ContentType = Classic, cmp.Or(c.ContentType, anyContent)
	case "streaming", "":
		c.Mode, c.ContentType = Streaming, cmp.Or(c.ContentType, anyContent)
	default:
		r.fail(fmt.Errorf("mode=%q: it must be http, streaming, classic or serializing", mode))
	}
	c.CombineOutput = r.flag(mode == "classic", "combine_output", "combined_output")
	process := r.text("fprocess", "function_process")
	var err error
	if c.Process, err = splitWords(process); err != nil {
		r.fail(fmt.Errorf("fprocess=%q: %w", process, err))
	} else if len(c.Process) == 0 {
		r.fail(errors.New("fprocess is missing: set it to the function's program"))
	}
	if upstream := r.text("http_upstream_url", "upstream_url"); upstream != "" {
		if c.Upstream, err = parseUpstream(upstream); err != nil {
			r.fail(err)
		}
	}
	return c, errors.Join(r.errs...)
}

// Validate returns an error that names the variable if a function with this environment could not
// start: a value means nothing, or the program is missing. bundle is the program's working
// directory. "" leaves the program out, because it is in an image that runs elsewhere. path is the PATH that
// the function gets unless its environment has one.
func Validate(environment map[string]string, bundle, path string) error {
	c, err := ReadConfig(func(name string) (string, bool) {
		value, ok := environment[name]
		return value, ok
	})
	if err != nil || bundle == "" {
		return err
	}
	if own, ok := environment["PATH"]; ok {
		path = own
	}
	if _, err := lookUp(c.Process[0], bundle, []string{"PATH=" + path}); err != nil {
		return fmt.Errorf("fprocess=%q: %w; name a program of this machine, or a file of the bundle such as ./handler",
			strings.Join(c.Process, " "), err)
	}
	return nil
}

func parseUpstream(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("upstream_url=%q: it must be a URL such as http://127.0.0.1:5000", text)
	}
	return u, nil
}

// reader reads variables and collects the errors.
type reader struct {
	lookup func(string) (string, bool)
	errs   []error
}

func (r *reader) fail(err error) { r.errs = append(r.errs, err) }

// find returns the first variable of these names that has a value.
func (r *reader) find(names []string) (name, value string) {
	for _, name := range names {
		if value, ok := r.lookup(name); ok && strings.TrimSpace(value) != "" {
			return name, strings.TrimSpace(value)
		}
	}
	return names[0], ""
}

func (r *reader) text(names ...string) string {
	_, value := r.find(names)
	return value
}

func (r *reader) flag(otherwise bool, names ...string) bool {
	switch name, value := r.find(names); strings.ToLower(value) {
	case "":
		return otherwise
	case "true", "1", "yes", "on":
		return true
	case "false", "0", "no", "off":
		return false
	default:
		r.fail(fmt.Errorf("%s=%q: it must be true or false", name, value))
		return otherwise
	}
}

// duration reads a Go duration, or a number of seconds.
func (r *reader) duration(name string) time.Duration {
	value := r.text(name)
	if value == "" {
		return 0
	}
	d, err := time.ParseDuration(value)
	if seconds, notWhole := strconv.ParseUint(value, 10, 31); notWhole == nil {
		d, err = time.Duration(seconds)*time.Second, nil
	}
	if err != nil || d < 0 {
		r.fail(fmt.Errorf("%s=%q: it must be a duration such as 1m30s, or a number of seconds", name, value))
		return 0
	}
	return d
}

func (r *reader) count(name string) int {
	value := r.text(name)
	if value == "" {
		return 0
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 {
		r.fail(fmt.Errorf("%s=%q: it must be a number, 0 for no limit", name, value))
		return 0
	}
	return n
}
