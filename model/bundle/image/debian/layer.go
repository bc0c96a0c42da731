package debian

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/model/bundle/image"
)

// merged are the top directories that are links to directories below /usr, as on
// current Debian releases.
var merged = []string{"bin", "sbin", "lib", "lib64"}

// users are the files in /etc that name the users.
var users = map[string]string{
	"etc/passwd":        fmt.Sprintf("root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\nnonroot:x:%d:%[1]d:nonroot:/home/nonroot:/sbin/nologin\n", image.User),
	"etc/group":         fmt.Sprintf("root:x:0:\nnobody:x:65534:\nnonroot:x:%d:\n", image.User),
	"etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}

// certificates is the file from which programs read root certificates.
const certificates = "etc/ssl/certs/ca-certificates.crt"

// tree collects the entries of a file system by name.
type tree struct {
	entries map[string]image.Entry
	// authorities are the files of the root certificates.
	authorities []image.Entry
}

// Base lists the entries of the bottom layer: the files of the packages without
// documentation, a user that is not root, and a list of the packages for scanners.
func Base(ctx context.Context, files []string) ([]image.Entry, error) {
	t := tree{entries: make(map[string]image.Entry)}
	for _, dir := range merged {
		t.put(image.Entry{Name: "usr/" + dir, Mode: fs.ModeDir | 0o755})
		t.put(image.Entry{Name: dir, Mode: fs.ModeSymlink | 0o777, Link: "usr/" + dir})
	}
	for name, text := range users {
		t.put(image.Bytes(name, 0o644, []byte(text)))
	}
	t.put(image.Entry{Name: "tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777})
	t.put(image.Entry{Name: "home/nonroot", Mode: fs.ModeDir | 0o700, Owner: image.User})
	if err := t.add(ctx, files); err != nil {
		return nil, err
	}
	if err := t.certify(); err != nil {
		return nil, err
	}
	return t.list(), nil
}

// Shell lists the entries of a layer with the packages of [Tools]: their files, and
// links for busybox' commands.
func Shell(ctx context.Context, files []string) ([]image.Entry, error) {
	t := tree{entries: make(map[string]image.Entry)}
	if err := t.add(ctx, files); err != nil {
		return nil, err
	}
	for _, command := range commands {
		t.put(image.Entry{Name: "usr/bin/" + command, Mode: fs.ModeSymlink | 0o777, Link: "busybox"})
	}
	return t.list(), nil
}

// add reads packages.
func (t *tree) add(ctx context.Context, files []string) error {
	for _, file := range files {
		control, err := run(ctx, "", "dpkg-deb", "--field", file)
		if err != nil {
			return fmt.Errorf("read a package: %w", err)
		}
		name := field(string(control), "Package")
		if name == "" || strings.Contains(name, "/") {
			return fmt.Errorf("package %s has no name in its control file; remove it and try again", file)
		}
		t.put(image.Bytes("var/lib/dpkg/status.d/"+name, 0o644, control))
		content, err := run(ctx, "", "dpkg-deb", "--fsys-tarfile", file)
		if err != nil {
			return fmt.Errorf("read a package: %w", err)
		}
		if err := t.unpack(content); err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
	}
	return nil
}

// field is a field of a package's control file, "" if it has none.
func field(control, key string) string {
	for line := range strings.Lines(control) {
		if value, ok := strings.CutPrefix(line, key+": "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func (t *tree) unpack(content []byte) error {
	tape := tar.NewReader(bytes.NewReader(content))
	for {
		header, err := tape.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := place(header.Name)
		if !wanted(name) {
			continue
		}
		mode := header.FileInfo().Mode()
		switch header.Typeflag {
		case tar.TypeDir:
			t.put(image.Entry{Name: name, Mode: mode})
		case tar.TypeSymlink:
			t.put(image.Entry{Name: name, Mode: mode, Link: header.Linkname})
		case tar.TypeReg:
			text, err := io.ReadAll(tape)
			if err != nil {
				return err
			}
			t.file(image.Bytes(name, mode.Perm(), text))
		case tar.TypeLink:
			t.put(image.Entry{Name: name, Mode: fs.ModeSymlink | 0o777, Link: "/" + place(header.Linkname)})
		}
	}
}

// place is the path in the image of a package's file.
func place(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	top, _, _ := strings.Cut(name, "/")
	if slices.Contains(merged, top) {
		return "usr/" + name
	}
	return name
}

// wanted reports whether an image needs a file. It leaves out documentation except
// licences, and other files that no program reads.
func wanted(name string) bool {
	if name == "" || slices.Contains(merged, name) {
		return false
	}
	if below, ok := strings.CutPrefix(name, "usr/share/doc/"); ok {
		return !strings.Contains(below, "/") || path.Base(below) == "copyright"
	}
	for _, not := range []string{"usr/share/man", "usr/share/lintian", "usr/share/gdb", "usr/share/gcc", "usr/share/initramfs-tools",
		"usr/lib/x86_64-linux-gnu/gconv", "usr/lib/aarch64-linux-gnu/gconv", "usr/include", "usr/games", "boot", "etc/update-motd.d", "usr/sbin/update-ca-certificates"} {
		if name == not || strings.HasPrefix(name, not+"/") {
			return false
		}
	}
	return true
}

// file adds a file. It keeps a root certificate for certify.
func (t *tree) file(e image.Entry) {
	if strings.HasPrefix(e.Name, "usr/share/ca-certificates/") && strings.HasSuffix(e.Name, ".crt") {
		t.authorities = append(t.authorities, e)
		return
	}
	t.put(e)
}

func (t *tree) put(e image.Entry) {
	// An existing directory keeps its permissions.
	if before, ok := t.entries[e.Name]; ok && before.Mode.IsDir() && e.Mode.IsDir() {
		return
	}
	t.entries[e.Name] = e
}

// certify writes all root certificates into the one file that programs read.
func (t *tree) certify() error {
	if len(t.authorities) == 0 {
		return errors.New("the packages have no certificates; is ca-certificates among them?")
	}
	slices.SortFunc(t.authorities, func(a, b image.Entry) int { return strings.Compare(a.Name, b.Name) })
	var all bytes.Buffer
	for _, e := range t.authorities {
		content, err := e.Open()
		if err != nil {
			return err
		}
		if _, err := all.ReadFrom(content); err != nil {
			return err
		}
		if !bytes.HasSuffix(all.Bytes(), []byte("\n")) {
			all.WriteByte('\n')
		}
	}
	t.put(image.Bytes(certificates, 0o644, all.Bytes()))
	return nil
}

// list returns the entries, and adds parent directories that no package has.
func (t *tree) list() []image.Entry {
	for name := range t.entries {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, ok := t.entries[dir]; ok {
				break
			}
			t.put(image.Entry{Name: dir, Mode: fs.ModeDir | 0o755})
		}
	}
	var all []image.Entry
	for _, e := range t.entries {
		all = append(all, e)
	}
	return all
}

// commands are the busybox commands for functions that are scripts.
var commands = strings.Fields(`ash awk base64 basename bunzip2 bzip2 cat chmod clear cmp cp cut date dd df diff dirname
du echo egrep env expr false fgrep find fold free grep gunzip gzip head hexdump hostname id kill killall less ln ls lsof
md5sum mkdir mkfifo mktemp more mv nc nl nproc nslookup od paste pidof ping printenv printf ps pwd readlink realpath rev
rm rmdir sed seq sh sha1sum sha256sum sha512sum sleep sort split stat strings stty sync tac tail tar tee test time
timeout top touch tr true truncate tty uname uniq unzip uptime usleep vi wc wget which whoami xargs xxd yes zcat`)
