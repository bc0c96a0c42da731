package debian

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model/bundle/image"
)

func TestPlan(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "netbase_6.4_all.deb"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	names, missing := plan(`'http://deb.debian.org/debian/pool/main/g/gcc-12/libstdc%2b%2b6_12.2.0-14%2bdeb12u1_amd64.deb' libstdc++6_12.2.0-14+deb12u1_amd64.deb 612604 SHA256:5c
'http://deb.debian.org/debian/pool/main/n/netbase/netbase_6.4_all.deb' netbase_6.4_all.deb 12800 SHA256:29
W: nothing
`, dir)
	if !slices.Equal(names, []string{"libstdc++6_12.2.0-14+deb12u1_amd64.deb", "netbase_6.4_all.deb"}) || !slices.Equal(missing, []string{"libstdc++6"}) {
		t.Errorf("%q, missing %q", names, missing)
	}
}

// deb makes a package with these files; a text that begins with > is a link.
func deb(t *testing.T, name, depends string, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files["DEBIAN/control"] = "Package: " + name + "\nVersion: 1\nArchitecture: all\nMaintainer: a <a@example.com>\nDescription: x\n"
	if depends != "" {
		files["DEBIAN/control"] += "Depends: " + depends + "\n"
	}
	for file, text := range files {
		file = filepath.Join(dir, file)
		err := os.MkdirAll(filepath.Dir(file), 0o755)
		if text != "" && text[0] == '>' {
			err = errors.Join(err, os.Symlink(text[1:], file))
		} else {
			err = errors.Join(err, os.WriteFile(file, []byte(text), 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	to := filepath.Join(t.TempDir(), name+".deb")
	if out, err := exec.Command("dpkg-deb", "--build", "--root-owner-group", dir, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return to
}

func TestBase(t *testing.T) {
	library := deb(t, "library", "libc6 (>= 2), gcc-12-base (= 1)", map[string]string{
		"lib/x86_64-linux-gnu/libx.so.1": "library", "lib64/ld.so": ">/lib/x86_64-linux-gnu/libx.so.1", "usr/share/doc/library/copyright": "free",
		"usr/share/doc/library/changelog.gz": "long", "usr/share/man/man1/x.1": "page", "usr/lib/x86_64-linux-gnu/gconv/X.so": "x",
	})
	authorities := deb(t, "authorities", "", map[string]string{
		"usr/share/ca-certificates/mozilla/b.crt": "second", "usr/share/ca-certificates/mozilla/a.crt": "first\n",
	})
	entries, err := Base(t.Context(), []string{library, authorities})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]image.Entry{}
	for _, e := range entries {
		found[e.Name] = e
	}
	for name, want := range map[string]string{
		"usr/lib/x86_64-linux-gnu/libx.so.1": "library", "usr/share/doc/library/copyright": "free", certificates: "first\nsecond\n",
	} {
		if got := text(t, found[name]); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]string{"lib": "usr/lib", "lib64": "usr/lib64", "bin": "usr/bin", "usr/lib64/ld.so": "/lib/x86_64-linux-gnu/libx.so.1"} {
		if got := found[name]; got.Link != want || got.Mode&fs.ModeSymlink == 0 {
			t.Errorf("%s leads to %q, want %q", name, got.Link, want)
		}
	}
	for _, name := range []string{"usr/share/doc/library/changelog.gz", "usr/share/man/man1/x.1", "usr/lib/x86_64-linux-gnu/gconv/X.so", "usr/share/ca-certificates/mozilla/a.crt", "DEBIAN/control"} {
		if _, ok := found[name]; ok {
			t.Errorf("%s is in the image", name)
		}
	}
	for _, name := range []string{"usr", "usr/share/doc/library", "var/lib/dpkg/status.d", "etc/ssl/certs"} {
		if !found[name].Mode.IsDir() {
			t.Errorf("%s is no directory", name)
		}
	}
	if e := found["tmp"]; e.Mode != fs.ModeDir|fs.ModeSticky|0o777 {
		t.Errorf("/tmp has mode %v", e.Mode)
	}
	if _, err := image.Layer(entries); err != nil {
		t.Error(err)
	}
	if _, err := Base(t.Context(), []string{library}); err == nil {
		t.Error("an image without certificates")
	}
	if _, err := Base(t.Context(), []string{"debian_test.go"}); err == nil {
		t.Error("an image of what is no package")
	}
}

func text(t *testing.T, e image.Entry) string {
	t.Helper()
	if e.Open == nil {
		t.Errorf("%q is no file", e.Name)
		return ""
	}
	r, err := e.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestShell(t *testing.T) {
	entries, err := Shell(t.Context(), []string{deb(t, "busybox-static", "", map[string]string{"bin/busybox": "program"})})
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for _, e := range entries {
		if e.Link == "busybox" {
			links++
		}
	}
	if links != len(commands) {
		t.Errorf("%d links", links)
	}
}

// Packages come with those that they depend on, without what only their installation needs.
func TestDependenciesAreFound(t *testing.T) {
	s, err := NewSource(t.Context(), t.TempDir(), runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.find(t.Context(), append(Python, Packages...))
	if err != nil {
		t.Fatal(err)
	}
	_, missing := plan(out, s.Dir)
	for _, name := range append([]string{"libssl3", "media-types", "zlib1g"}, Packages...) {
		if !slices.ContainsFunc(missing, func(found string) bool { return strings.TrimSuffix(found, "t64") == name }) {
			t.Errorf("%s is not among %q", name, missing)
		}
	}
	for _, name := range installOnly {
		if slices.Contains(missing, name) {
			t.Errorf("%s is in the image", name)
		}
	}
}

// A Python of Debian's is an interpreter and its library, compiled if that can be.
func TestInterpreter(t *testing.T) {
	version := "3.11"
	if out, err := exec.Command("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2], end='')").Output(); err == nil {
		version = string(out)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	entries, got, err := Interpreter(t.Context(), []string{deb(t, "python", "", map[string]string{
		"usr/bin/python" + version: "program", "usr/bin/python3": ">python" + version, "usr/lib/python" + version + "/module.py": "x = 1\n",
		"usr/lib/python" + version + "/broken.py": "x =\n",
	})})
	if err != nil || got != version {
		t.Fatalf("version %q, %v", got, err)
	}
	compiled := 0
	for _, e := range entries {
		if filepath.Ext(e.Name) == ".pyc" {
			compiled++
			// Of the time that the source has in an image (PEP 552).
			if head := text(t, e)[:16]; head[4:12] != string(make([]byte, 8)) {
				t.Errorf("%s begins with %x", e.Name, head)
			}
		}
	}
	if _, err := exec.LookPath("python" + version); err == nil && compiled != 1 {
		t.Errorf("%d compiled files", compiled)
	}
	if _, _, err := Interpreter(t.Context(), []string{deb(t, "other", "", map[string]string{"usr/bin/x": "x"})}); err == nil {
		t.Error("a Python of packages without one")
	}
}
