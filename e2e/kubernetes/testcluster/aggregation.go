package testcluster

import (
	"os"
	"path/filepath"
)

// frontProxy is the user as whom the API server connects to those that serve a part of
// its API, and says for whom it asks. An authority of its own vouches for it: who has
// the cluster's own certificates can't speak for others.
const frontProxy = "front-proxy-client"

func (c *Cluster) makeFrontProxy() error {
	dir := c.file("front-proxy")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	authority, err := NewAuthority(dir)
	if err != nil {
		return err
	}
	return authority.Issue(frontProxy, frontProxy, nil, nil)
}

// aggregation are the API server's arguments with which others can serve a part of its
// API, with keys in a directory. It goes to the addresses behind their services by itself, with no proxy.
func aggregation(dir string) []string {
	file := func(name string) string { return filepath.Join(dir, name) }
	return []string{"--requestheader-client-ca-file=" + file("ca.crt"), "--requestheader-allowed-names=" + frontProxy,
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--enable-aggregator-routing",
		"--proxy-client-cert-file=" + file(frontProxy+".crt"), "--proxy-client-key-file=" + file(frontProxy+".key")}
}
