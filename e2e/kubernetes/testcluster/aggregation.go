package testcluster

import (
	"os"
	"path/filepath"
)

// frontProxy is the user with which the API server connects to servers of a part of its
// API. It may name the user that it acts for. A separate authority signs its certificate:
// holders of the cluster's certificates must not act for others.
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

// aggregation returns the API server's arguments that let other servers serve a part of its
// API, with the keys in dir. The API server connects to the addresses behind their services
// directly, without a proxy.
func aggregation(dir string) []string {
	file := func(name string) string { return filepath.Join(dir, name) }
	return []string{"--requestheader-client-ca-file=" + file("ca.crt"), "--requestheader-allowed-names=" + frontProxy,
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--enable-aggregator-routing",
		"--proxy-client-cert-file=" + file(frontProxy+".crt"), "--proxy-client-key-file=" + file(frontProxy+".key")}
}
