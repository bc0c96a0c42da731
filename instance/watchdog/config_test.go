package watchdog

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func read(env map[string]string) (Config, error) {
	return ReadConfig(func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	})
}

func TestDefaultsOfTheModes(t *testing.T) {
	for mode, want := range map[string]Config{
		"":            {Mode: Streaming, ContentType: "application/octet-stream"},
		"streaming":   {Mode: Streaming, ContentType: "application/octet-stream"},
		"serializing": {Mode: Classic, ContentType: "application/octet-stream"},
		"classic":     {Mode: Classic, CombineOutput: true},
		"http":        {Mode: HTTP},
	} {
		want.Process, want.Headers, want.PrefixLogs = []string{"cat"}, true, true
		got, err := read(map[string]string{"mode": mode, "fprocess": "cat"})
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("mode %q: %+v, %v; want %+v", mode, got, err, want)
		}
	}
}

func TestEverythingIsRead(t *testing.T) {
	got, err := read(map[string]string{
		"mode": "http", "function_process": "python3 'a b.py'", "upstream_url": "http://127.0.0.1:5000/base",
		"ready_path": "/ready", "exec_timeout": "90", "read_timeout": "1m30s", "write_timeout": "2s",
		"max_inflight": "4", "content_type": "text/css", "combine_output": "false", "cgi_headers": "FALSE",
		"prefix_logs": "0", "buffer_http": "true", "write_debug": "yes",
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.Upstream == nil || got.Upstream.String() != "http://127.0.0.1:5000/base" {
		t.Errorf("upstream %v", got.Upstream)
	}
	got.Upstream = nil
	want := Config{
		Mode: HTTP, Process: []string{"python3", "a b.py"}, ReadyPath: "/ready", BufferBody: true,
		ExecTimeout: 90 * time.Second, ReadTimeout: 90 * time.Second, WriteTimeout: 2 * time.Second,
		MaxInflight: 4, ContentType: "text/css", LogRequests: true,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestWhatCannotBeReadIsNamed(t *testing.T) {
	for name, value := range map[string]string{
		"mode": "afterburn", "fprocess": "sh -c 'open", "upstream_url": "localhost:5000", "exec_timeout": "soon",
		"read_timeout": "-1s", "write_timeout": "1 minute", "max_inflight": "many", "combine_output": "perhaps",
		"cgi_headers": "2", "prefix_logs": "-", "http_buffer_req_body": "x", "write_debug": "maybe",
	} {
		env := map[string]string{"fprocess": "cat"}
		env[name] = value
		if _, err := read(env); err == nil || !strings.Contains(err.Error(), name+"=") {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
	if _, err := read(nil); err == nil || !strings.Contains(err.Error(), "fprocess is missing") {
		t.Errorf("without fprocess: %v", err)
	}
}

// What could not start is refused, with the variable's name; what can is not, wherever the program is.
func TestValidate(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"handler": 0o755, "text": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		env  map[string]string
		want string // "" if it is valid
	}{
		{map[string]string{"fprocess": "sh -c 'exit 0'"}, ""},
		{map[string]string{"fprocess": "./handler --flag"}, ""},
		{map[string]string{"fprocess": "/bin/sh"}, ""},
		{map[string]string{"fprocess": "handler", "PATH": "/none:" + dir}, ""},
		{map[string]string{"fprocess": "handler", "PATH": "."}, ""},
		{map[string]string{"fprocess": "sh", "mode": "http", "exec_timeout": "90", "max_inflight": "0"}, ""},
		{map[string]string{"fprocess": ""}, "fprocess is missing"},
		{map[string]string{"fprocess": "  "}, "fprocess is missing"},
		{map[string]string{"fprocess": "sh -c 'exit 0"}, "fprocess=\"sh -c 'exit 0\": a quote is not closed"},
		{map[string]string{"fprocess": "no-such-program"}, "fprocess=\"no-such-program\": no-such-program: executable file not found"},
		{map[string]string{"fprocess": "./missing"}, "fprocess=\"./missing\": "},
		{map[string]string{"fprocess": "./text"}, "chmod +x"},
		{map[string]string{"fprocess": "handler", "PATH": "/none"}, "fprocess=\"handler\": "},
		{map[string]string{"fprocess": "sh", "exec_timeout": "soon"}, "exec_timeout=\"soon\": it must be a duration"},
		{map[string]string{"fprocess": "sh", "mode": "afterburn"}, "mode=\"afterburn\": it must be http"},
		{map[string]string{"fprocess": "sh", "max_inflight": "-1"}, "max_inflight=\"-1\": it must be a number"},
	} {
		err := Validate(c.env, dir, os.Getenv("PATH"))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: %v, want %q", c.env, err, c.want)
		}
	}
	if err := Validate(map[string]string{"fprocess": "./elsewhere"}, "", ""); err != nil {
		t.Errorf("a program in an image: %v", err)
	}
}

func TestSplitWords(t *testing.T) {
	for line, want := range map[string][]string{
		"":                          nil,
		"  \t\n":                    nil,
		"cat":                       {"cat"},
		" python3  index.py ":       {"python3", "index.py"},
		`sh -c 'echo "a b" $HOME'`:  {"sh", "-c", `echo "a b" $HOME`},
		`a"b c"d`:                   {"ab cd"},
		`"" ''`:                     {"", ""},
		`a\ b \"c \\`:               {"a b", `"c`, `\`},
		`"a\"b\\c\d"`:               {`a"b\c\d`},
		`'it'\''s'`:                 {"it's"},
		"näme 'größe x'":            {"näme", "größe x"},
		`--flag="x y" --other='z\'`: {"--flag=x y", `--other=z\`},
	} {
		if got, err := splitWords(line); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v; want %q", line, got, err, want)
		}
	}
	for _, line := range []string{`"open`, `'open`, `end\`, `"a\"`} {
		if got, err := splitWords(line); err == nil {
			t.Errorf("%q: %q", line, got)
		}
	}
}

// Words that are quoted come back as they were.
func FuzzSplitWords(f *testing.F) {
	f.Add("cat", "a b")
	f.Add(`it's`, "\\\"\n")
	f.Fuzz(func(t *testing.T, one, two string) {
		quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
		got, err := splitWords(quote(one) + " " + quote(two))
		if err != nil || !slices.Equal(got, []string{one, two}) {
			t.Errorf("%q, %v; want %q %q", got, err, one, two)
		}
		_, _ = splitWords(one + two)
	})
}
