package control

import (
	"os"
	"path/filepath"
	"testing"
)

func TestVersionsOfSecrets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	put := func(value string) string {
		if err := os.WriteFile(file+".new", []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
		return versions(map[string]string{"token": file})
	}
	first := put("one")
	if again := versions(map[string]string{"token": file}); again != first {
		t.Errorf("nothing changed, and the version went from %q to %q", first, again)
	}
	if second := put("other"); second == first {
		t.Error("the secret was replaced, and its version is the same")
	}
}
