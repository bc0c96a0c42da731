package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/faas-infer/faas-infer/provider/web"
)

func openSecrets(t testing.TB, dir string) *Secrets {
	t.Helper()
	s, err := OpenSecrets(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// wantStatus fails unless err is a refusal with a status.
func wantStatus(t *testing.T, err error, status int, words ...string) {
	t.Helper()
	var refused *web.Error
	if !errors.As(err, &refused) || refused.HTTPStatus() != status {
		t.Errorf("error %v, want status %d", err, status)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not say %q", err, word)
		}
	}
}

func TestASecretsLife(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "function-secrets")
	s := openSecrets(t, dir)
	value := []byte{0, 0xff, '\n', 'x'}
	wantStatus(t, s.Update("openfaas-fn", "api-key", value), 404, "api-key", "openfaas-fn")
	wantStatus(t, s.Delete("openfaas-fn", "api-key"), 404)
	if err := s.Create("openfaas-fn", "api-key", value); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, s.Create("openfaas-fn", "api-key", []byte("other")), 409, "exists already")
	file, err := s.File("openfaas-fn", "api-key")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, value) {
		t.Errorf("the file holds %q, %v", got, err)
	}
	if got, err := s.Value("openfaas-fn", "api-key"); err != nil || !bytes.Equal(got, value) {
		t.Errorf("the value is %q, %v", got, err)
	}
	before, _ := os.Stat(file)
	if err := s.Update("openfaas-fn", "api-key", []byte("new")); err != nil {
		t.Fatal(err)
	}
	after, _ := os.Stat(file)
	if os.SameFile(before, after) {
		t.Error("the value was written over the one that somebody may be reading")
	}
	for path, mode := range map[string]fs.FileMode{file: 0o600, filepath.Dir(file): 0o700, dir: 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: mode %v, %v, want %v", path, info.Mode(), err, mode)
		}
	}
	s.Close()
	s = openSecrets(t, dir)
	if got, err := s.List("openfaas-fn"); err != nil || !slices.Equal(got, []string{"api-key"}) {
		t.Errorf("after opening again: %q, %v", got, err)
	}
	if err := s.Delete("openfaas-fn", "api-key"); err != nil {
		t.Fatal(err)
	}
	_, err = s.File("openfaas-fn", "api-key")
	wantStatus(t, err, 400, "faas-cli secret create api-key --namespace openfaas-fn", file)
	_, err = s.Value("openfaas-fn", "api-key")
	wantStatus(t, err, 400, "faas-cli secret create api-key --namespace openfaas-fn", file)
	if entries, err := os.ReadDir(filepath.Dir(file)); err != nil || len(entries) != 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

func TestWhatLiesAroundIsNoSecret(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "shadow")
	write := func(path, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write(outside, "not yours")
	write(filepath.Join(dir, "ns", "by-hand"), "x")
	write(filepath.Join(dir, "ns", ".hidden"), "x")
	write(filepath.Join(dir, "ns", "Wrong_Name"), "x")
	write(filepath.Join(dir, "ns", "a-directory", "x"), "x")
	write(filepath.Join(dir, "ns", unfinished+"1"), "half")
	write(filepath.Join(dir, "README"), "x")
	for link, target := range map[string]string{
		filepath.Join(dir, "ns", "link"):  outside,
		filepath.Join(dir, "ns", "inner"): "by-hand",
		filepath.Join(dir, "linked"):      filepath.Dir(outside),
		filepath.Join(dir, "alias"):       "ns",
	} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	s := openSecrets(t, dir)
	if got, err := s.List("ns"); err != nil || !slices.Equal(got, []string{"by-hand"}) {
		t.Errorf("List = %q, %v", got, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "ns", unfinished+"1")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a half-written file is left: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "ns", ".hidden")); err != nil {
		t.Errorf("somebody else's file is gone: %v", err)
	}
	for _, at := range [][2]string{{"ns", "link"}, {"ns", "inner"}, {"ns", "a-directory"}, {"linked", "shadow"}, {"alias", "by-hand"}} {
		if file, err := s.File(at[0], at[1]); err == nil {
			t.Errorf("File(%s, %s) = %s", at[0], at[1], file)
		}
		if value, err := s.Value(at[0], at[1]); err == nil {
			t.Errorf("Value(%s, %s) = %q", at[0], at[1], value)
		}
		for name, change := range map[string]func() error{
			"Create": func() error { return s.Create(at[0], at[1], []byte("x")) },
			"Update": func() error { return s.Update(at[0], at[1], []byte("x")) },
			"Delete": func() error { return s.Delete(at[0], at[1]) },
		} {
			if change() == nil {
				t.Errorf("%s of %v was done", name, at)
			}
		}
	}
	if err := errors.Join(s.DeleteNamespace("linked"), s.DeleteNamespace("alias")); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(outside); err != nil || string(text) != "not yours" {
		t.Errorf("outside: %q, %v", text, err)
	}
	if file, err := s.File("ns", "by-hand"); err != nil || file != filepath.Join(dir, "ns", "by-hand") {
		t.Errorf("File = %s, %v", file, err)
	}
}

func TestValuesHaveBounds(t *testing.T) {
	s := openSecrets(t, t.TempDir())
	wantStatus(t, s.Create("ns", "x", nil), 400, "no value")
	wantStatus(t, s.Create("ns", "x", make([]byte, MaxSecret+1)), 413, "1048576")
	if err := s.Create("ns", "x", make([]byte, MaxSecret)); err != nil {
		t.Error(err)
	}
}

func TestDeleteNamespace(t *testing.T) {
	s := openSecrets(t, t.TempDir())
	for _, at := range [][2]string{{"a", "x"}, {"a", "y"}, {"b", "x"}} {
		if err := s.Create(at[0], at[1], []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // The second time there is nothing to do.
		if err := s.DeleteNamespace("a"); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.List("a"); err != nil || len(got) != 0 {
		t.Errorf("a holds %q, %v", got, err)
	}
	if got, err := s.List("b"); err != nil || len(got) != 1 {
		t.Errorf("b holds %q, %v", got, err)
	}
}

// On a full disk the earlier value stays, and no file is left behind. A limit on file
// sizes simulates the full disk.
func TestAFullDisk(t *testing.T) {
	s := openSecrets(t, t.TempDir())
	if err := s.Create("ns", "x", []byte("old")); err != nil {
		t.Fatal(err)
	}
	defer fullDisk(t)()
	for _, err := range []error{s.Update("ns", "x", make([]byte, 64<<10)), s.Create("ns", "y", make([]byte, 64<<10))} {
		if err == nil || strings.Contains(err.Error(), "\x00") || !errors.Is(err, syscall.EFBIG) {
			t.Errorf("error %v", err)
		}
	}
	file, err := s.File("ns", "x")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "old" {
		t.Errorf("the file holds %q, %v", got, err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(file)); len(entries) != 1 {
		t.Errorf("left: %v", entries)
	}
}

func TestConcurrentChanges(t *testing.T) {
	s := openSecrets(t, t.TempDir())
	var wg sync.WaitGroup
	created := make([]bool, 8)
	for i := range created {
		wg.Go(func() {
			created[i] = s.Create("ns", "x", []byte(fmt.Sprint(i))) == nil
			if err := s.Update("ns", "x", []byte("updated")); err != nil {
				t.Error(err)
			}
			if _, err := s.List("ns"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(slices.DeleteFunc(created, func(ok bool) bool { return !ok })); n != 1 {
		t.Errorf("created %d times", n)
	}
}

// No names create files outside the directory, and every stored secret is found again.
func FuzzNames(f *testing.F) {
	for _, name := range []string{"api-key", "a.b", "..", ".", "../x", "a/b", "", ".new-1", "x\x00", "-", "a..b", strings.Repeat("a", 254), "A", "ü", "a\n"} {
		f.Add("ns", name)
		f.Add(name, "x")
	}
	parent := f.TempDir()
	s := openSecrets(f, filepath.Join(parent, "secrets"))
	f.Fuzz(func(t *testing.T, namespace, name string) {
		err := s.Create(namespace, name, []byte("value"))
		if err == nil {
			file, err := s.File(namespace, name)
			if err != nil || filepath.Dir(filepath.Dir(file)) != filepath.Join(parent, "secrets") {
				t.Errorf("File = %q, %v", file, err)
			}
			if names, err := s.List(namespace); err != nil || !slices.Contains(names, name) {
				t.Errorf("List = %q, %v", names, err)
			}
			if err := s.Delete(namespace, name); err != nil {
				t.Error(err)
			}
		} else if len(err.Error()) > 1000 || !strings.Contains(err.Error(), "must be") {
			t.Errorf("refused with %v", err)
		}
		if entries, err := os.ReadDir(parent); err != nil || len(entries) != 1 {
			t.Errorf("outside: %v, %v", entries, err)
		}
	})
}
