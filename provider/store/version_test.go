package store

import "testing"

func TestVersion(t *testing.T) {
	s, err := OpenSecrets(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := s.Version("openfaas-fn", "token"); got != "" {
		t.Errorf("an absent secret has the version %q", got)
	}
	if err := s.Create("openfaas-fn", "token", []byte("one")); err != nil {
		t.Fatal(err)
	}
	first := s.Version("openfaas-fn", "token")
	if again := s.Version("openfaas-fn", "token"); first == "" || again != first {
		t.Errorf("nothing changed, and the version went from %q to %q", first, again)
	}
	if err := s.Update("openfaas-fn", "token", []byte("other")); err != nil {
		t.Fatal(err)
	}
	if second := s.Version("openfaas-fn", "token"); second == first {
		t.Error("the secret was replaced, and its version is the same")
	}
	if got := s.Version("../openfaas-fn", "token"); got != "" {
		t.Errorf("a name that no namespace can have has the version %q", got)
	}
}
