// Package watchdog is the server inside an ordinary function's instance: it
// turns HTTP requests into what the function's program understands, with the
// semantics, and the environment variables, of OpenFaaS's of-watchdog and
// classic watchdog.
//
//   - mode "http": the program is an HTTP server that is started once; requests
//     are forwarded to it.
//   - mode "classic" (or "serializing"): the program is started for each request,
//     reads the body from its standard input and writes the answer to its
//     standard output; its exit status decides between 200 and 500.
//   - mode "streaming": as classic, but the answer leaves as it is written.
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

// Mode is how requests reach the function's program.
type Mode string

// The modes.
const (
	HTTP      Mode = "http"
	Classic   Mode = "classic"
	Streaming Mode = "streaming"
)

// anyContent is the of-watchdog's content type of answers where none is given.
const anyContent = "application/octet-stream"

// Config is what the environment tells.
type Config struct {
	Mode Mode
	// Process is the program and its arguments.
	Process []string
	// Upstream is where the program serves in mode HTTP. If nil it is a free
	// port of the loopback interface, which the program is told as PORT.
	Upstream *url.URL
	// ReadyPath is asked before the program counts as ready and for each
	// request to /_/ready; in mode HTTP only.
	ReadyPath string
	// BufferBody makes the program get a Content-Length with every body, in
	// mode HTTP.
	BufferBody bool
	// ExecTimeout is how long one request may take, 0 for no limit.
	ExecTimeout time.Duration
	// ReadTimeout and WriteTimeout bound how long a client may take to send a
	// request and how long an answer may take altogether, 0 for no limit.
	ReadTimeout, WriteTimeout time.Duration
	// MaxInflight is how many requests may run at once, 0 for no limit.
	MaxInflight int
	// Headers gives the program the request's headers as Http_NAME, in the
	// modes that fork.
	Headers bool
	// CombineOutput puts what the program writes to its standard error into
	// the answer instead of the log, in the modes that fork.
	CombineOutput bool
	// ContentType is that of every answer, in the modes that fork; if empty,
	// that of the request or what the answer looks like.
	ContentType string
	// PrefixLogs puts "stdout: " or "stderr: " before lines of the program's.
	PrefixLogs bool
	// LogRequests writes a line for each request in mode HTTP, too.
	LogRequests bool
}

// Variables looks variables up in an environment of NAME=value; of two of one
// name the last counts.
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

// ReadConfig reads the configuration from environment variables. An error names
// the variable.
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
		r.fail(fmt.Errorf("mode=%q: it is http, streaming, classic or serializing", mode))
	}
	c.CombineOutput = r.flag(mode == "classic", "combine_output", "combined_output")
	process := r.text("fprocess", "function_process")
	var err error
	if c.Process, err = SplitWords(process); err != nil {
		r.fail(fmt.Errorf("fprocess=%q: %w", process, err))
	} else if len(c.Process) == 0 {
		r.fail(errors.New("fprocess is missing: which program is the function?"))
	}
	if upstream := r.text("http_upstream_url", "upstream_url"); upstream != "" {
		if c.Upstream, err = parseUpstream(upstream); err != nil {
			r.fail(err)
		}
	}
	return c, errors.Join(r.errs...)
}

func parseUpstream(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("upstream_url=%q: it is a URL such as http://127.0.0.1:5000", text)
	}
	return u, nil
}

// reader reads variables and keeps what was wrong with them.
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
		r.fail(fmt.Errorf("%s=%q: it is true or false", name, value))
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
		r.fail(fmt.Errorf("%s=%q: it is a duration such as 1m30s, or a number of seconds", name, value))
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
		r.fail(fmt.Errorf("%s=%q: it is a number, 0 for no limit", name, value))
		return 0
	}
	return n
}
